"""The heap's offset as a factor: it alone differs, natively and under the emulator."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perflib.experiments import get
from perflib.experiments.layout.factors import base_environment_bytes, conditions, levels
from perflib.kernels import build
from perflib.measure.conditions import environment_bytes
from perflib.measure.launch import command
from perflib.model.errors import UserError
from tests.experiments.layout.test_programs import compiled, measured

EXPERIMENT = get("layout")
PAGE = 4096
BLOCK = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) { printf("%lu\\n", (unsigned long)malloc(100)); usleep(US); return 0; }
"""

LOOPS = """
#include <stdlib.h>
int main(void) {
  unsigned long place = (unsigned long)malloc(100) % 4096;
  for (volatile unsigned long i = 0; i < place * 10000; i++) ;
  return 0;
}
"""


def params(**given: Any) -> Any:
    return EXPERIMENT.params({"job": "command", "job_command": "/bin/true", **given})


def test_a_run_varies_it_beside_the_allocator(tmp_path: Path) -> None:
    factors, _ = levels(params(factors=["all"]))
    several = len(factors.get("allocator", ())) > 1
    run = measured(
        compiled(tmp_path, "block", BLOCK, "-DUS=0"),
        factors="heap,allocator,environment" if several else "heap,environment",
        aslr=False,
        layouts=8,
        budget_s=4.0,
    )
    samples = run.samples
    assert samples["ok"].all()
    assert set(samples["heap_bytes"]) == {0, 1040, 2080, 3120}
    known = samples.dropna(subset=["stack_address"])
    assert (known.groupby("padding_bytes")["environment_bytes"].nunique() <= 1).all()
    assert (known.groupby("padding_bytes")["stack_address"].nunique() <= 1).all()
    assert "heap" in set(EXPERIMENT.derived(run)["factors"]()["factor"])
    (heap,) = (one for one in EXPERIMENT.analyse(run) if one.subject == "the heap's offset")
    assert heap.of.name == "layout_moves"


def test_a_program_that_depends_on_it_is_found(tmp_path: Path) -> None:
    """It loops the longer, the further into the page its block begins."""
    program = compiled(tmp_path, "loops", LOOPS)
    run = measured(program, factors="heap,environment", aslr=False, layouts=8, budget_s=6.0)
    table = EXPERIMENT.derived(run)["factors"]()
    assert table["factor"][0] == "heap"
    assert table["slowest"][0] == "3120 B further"


def test_levels_differ_by_the_offset_alone() -> None:
    given = params()
    factors, _ = levels(given)
    base = base_environment_bytes(given, factors)
    every = [conditions(given, {"heap": level}, base) for level in factors["heap"]]
    environments = [one.process_environment() for one in every]
    assert {environment_bytes(one) for one in environments} == {base}
    different = [set(one.items()) - set(environments[0].items()) for one in environments[1:]]
    assert [dict(one) for one in different] == [
        {"PERFLIB_HEAP_OFFSET": f"{level:08d}"} for level in factors["heap"][1:]
    ]
    assert len({one.preload for one in every}) == 1


def test_all_levels_together_have_room_in_the_environment() -> None:
    given = params()
    factors, _ = levels(given)
    base = base_environment_bytes(given, factors)
    for allocator in factors.get("allocator", [{"path": ""}]):
        for pages in factors.get("huge_pages", ["default"]):
            layout = {"heap": 3120, "allocator": allocator, "huge_pages": pages}
            environment = conditions(given, layout, base).process_environment()
            assert environment_bytes(environment) == base


def test_what_is_preloaded_anyway_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    library = str(build("heap_offset").library)
    other = str(build("memory_chase").library)
    assert conditions(params(preload=[other]), {"heap": 0}, 9999).preload == (library, other)
    monkeypatch.setenv("LD_PRELOAD", other)
    assert conditions(params(), {"heap": 0}, 9999).preload == (library, other)
    assert conditions(params(), {"heap": 0, "allocator": {"path": "/x.so"}}, 9999).preload == (
        library,
        "/x.so",
    )


def test_a_static_program_cannot_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflib.experiments.layout.measure._PILOT_SHARE", 1e6)
    try:  # it lives long enough to be read back
        program = compiled(tmp_path, "block", BLOCK, "-static", "-DUS=200000")
    except subprocess.CalledProcessError:
        pytest.skip("there is no static C library")
    run = measured(program, factors="heap,environment", aslr=False, layouts=2)
    assert "heap_bytes" not in run.samples
    problems = run.provenance["problems"]
    assert any("heap=0 is left out" in one and "static" in one for one in problems)


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "perflib.experiments.layout.factors.build",
        Mock(side_effect=UserError("there is no C compiler")),
    )
    with pytest.raises(UserError, match="heap cannot be varied: there is no C compiler"):
        levels(params(factors="heap"))


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="apt-get install qemu-user")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the emulator is that of x86-64")
def test_an_emulated_heap_has_the_same_places_in_a_page(tmp_path: Path) -> None:
    program = compiled(tmp_path, "block", BLOCK, "-DUS=0")
    given = params(aslr=False)
    for level in (0, 1040, 3120):
        wanted = conditions(given, {"heap": level}, base_environment_bytes(given, {"heap": [0]}))
        argv, native = command(wanted, [str(program)])
        emulated = wanted.process_environment()
        line = ["qemu-x86_64", str(program)]
        found = [
            int(subprocess.run(one, env=env, capture_output=True, text=True, check=True).stdout)
            for one, env in ((argv, native), (line, emulated))
        ]
        assert found[0] % PAGE == found[1] % PAGE
