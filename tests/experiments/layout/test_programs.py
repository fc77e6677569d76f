"""Real programs in real layouts: what is requested holds, and a known dependence shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.layout.factors import draw
from perflib.experiments.layout.measure import layout_number
from perflib.framework.starts import start
from perflib.instruments.counters.sets import asked_for
from perflib.measure.conditions import Conditions
from perflib.measure.process import WorkerError
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run
from tests.counted import skip_unless_allowed

EXPERIMENT = get("layout")
# It loops the longer, the larger its environment is: 5 us a byte or so.
_LOOPS = """
#include <string.h>
extern char **environ;
int main(void) {
  unsigned long bytes = 0;
  for (char **one = environ; *one; one++) bytes += strlen(*one) + 1;
  for (volatile unsigned long i = 0; i < bytes * TIMES; i++) ;
  return 0;
}
"""


def compiler() -> str:
    if (found := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    return found


def compiled(folder: Path, name: str, code: str, *flags: str) -> Path:
    source, program = folder / f"{name}.c", folder / name
    source.write_text(code)
    subprocess.run([compiler(), "-O1", *flags, "-o", program, source], check=True)
    return program


def measured(job: Path | str, **given: Any) -> Run:
    """A run of a program, or of a command line, of a second unless it is given longer."""
    wanted = {"job": "command", "job_command": str(job), "budget_s": 1.0, **given}
    return EXPERIMENT.measure(EXPERIMENT.params(wanted))


def test_a_program_that_reads_its_environment(tmp_path: Path) -> None:
    program = compiled(tmp_path, "loops", _LOOPS, "-DTIMES=500")
    run = measured(program, factors="environment,aslr", paddings="0,60000", layouts=8, budget_s=6.0)
    samples = run.samples
    assert samples["ok"].all()
    assert set(samples["padding_bytes"]) == {0, 60000}
    known = samples.dropna(subset=["environment_bytes"])
    base = run.provenance["plan"]["environment_bytes"]
    assert (known["environment_bytes"] == base + known["padding_bytes"]).all()
    table = EXPERIMENT.derived(run)["factors"]()
    assert table["factor"][0] == "environment"
    assert table["slowest"][0] == "60000 B larger"
    assert EXPERIMENT.figures(run).keys() >= {"factors"}


def test_two_builds_are_started_in_the_same_layouts(tmp_path: Path) -> None:
    a = compiled(tmp_path, "a", _LOOPS, "-DTIMES=400")
    b = compiled(tmp_path, "longer_name", _LOOPS, "-DTIMES=100")
    run = measured(
        a,
        other_command=str(b),
        factors="argv0,aslr",
        layouts=3,
        budget_s=4.0,  # next to other programs a round of less may be cut short
    )
    by_layout = run.samples.groupby(["round", "layout"])
    assert (by_layout["build"].nunique() == 2).all()
    assert (by_layout["name_bytes"].nunique() == 1).all()
    off = run.samples[(run.samples["aslr"] == "off")].dropna(subset=["stack_address"])
    assert (off.groupby("name_bytes")["stack_address"].nunique() <= 1).all()  # equally long paths
    assert run.provenance["plan"]["foretold"]["pairs"]
    (faster,) = (one for one in EXPERIMENT.analyse(run) if one.of.name == "faster")
    assert faster.low < faster.effect < faster.high


def test_what_fails_in_one_layout_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perflib.experiments.layout.measure._PILOT_SHARE", 1e6)
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\ncase "$0" in *xxxxxxxxxxxxxxxxxxxxxxx*) exit 7;; esac\n')
    script.chmod(0o755)
    run = measured(script, factors="argv0,aslr", layouts=2)
    assert any("argv0=40 is left out" in problem for problem in run.provenance["problems"])
    assert run.samples["ok"].all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"job_command": "/nowhere/job"}, "no program"),
        ({"job_command": "/bin/true", "factors": "enviroment"}, "did you mean 'environment'"),
        ({"job_command": "/bin/true", "factors": "environment", "paddings": "16"}, "one size"),
        ({"job_command": "/bin/true", "factors": "aslr", "aslr": False}, "fixes it"),
        ({"job_command": "/bin/true", "factors": "cpu", "cores": [0]}, "one core"),
        ({"job_command": "'open"}, "cannot be split"),
        ({"job_command": "/bin/true", "other_command": "/nowhere/b"}, "no program"),
        ({"job": "program", "other_command": "/bin/true"}, "other_command goes with job=command"),
        ({"job_command": "/bin/true", "counters": "page-fault"}, "did you mean 'page-faults'"),
    ],
)
def test_what_cannot_be_done_is_said(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        EXPERIMENT.plan(EXPERIMENT.params({"job": "command", **given}))


def test_a_program_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"ended with status 3; the last line.*oh no"):
        measured("sh -c 'echo oh no >&2; exit 3'")
    with pytest.raises(WorkerError, match="did not end within"):
        start(["sleep", "60"], Conditions(), tmp_path, timeout_s=0.3)
    with pytest.raises(WorkerError, match="died of SIGKILL"):
        start(["sh", "-c", "kill -9 $$"], Conditions(), tmp_path)


def test_what_a_start_is_counted_with(tmp_path: Path) -> None:
    skip_unless_allowed()
    asked = asked_for(["page-faults"])["events"]
    counts = [
        start([sys.executable, "-c", f"b'x' * ({mib} << 20)"], Conditions(), tmp_path,
              counted=asked).counts["page-faults"]
        for mib in (1, 65)
    ]  # fmt: skip
    few, many = (one or 0 for one in counts)
    assert few > 0
    assert many - few > 64 / 2 - 1  # 64 MiB more: in huge pages of 2 MiB at the fewest


def test_layouts_are_the_same_when_resumed_and_come_again() -> None:
    factors: dict[str, list[Any]] = {"environment": [0, 16, 32], "aslr": ["off", "on"]}
    drawn = [draw(factors, 7, number) for number in range(200)]
    assert drawn == [draw(factors, 7, number) for number in range(200)]
    assert drawn != [draw(factors, 8, number) for number in range(200)]
    assert {(one["environment"], one["aslr"]) for one in drawn} == {
        (size, aslr) for size in (0, 16, 32) for aslr in ("off", "on")
    }
    numbers = [layout_number(3, 4, round_, slot) for round_ in range(12) for slot in range(6)]
    twice = [one for one in set(numbers) if numbers.count(one) == 2]
    assert len(twice) == 3 * 8
    assert max(map(numbers.count, numbers)) == 2
