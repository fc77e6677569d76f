"""A sweep's plan and pilot, what it reserves and gives back, and whole runs of it, tiny."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perflib.experiments import get
from perflib.experiments.code_size.claims import SLOWER, SLOWER_L1I_MISSES, SLOWER_SMALL_CODE
from perflib.experiments.code_size.code_segment import measure as code_measure
from perflib.experiments.code_size.trials import CodeConfiguration
from perflib.kernels import build
from perflib.machine.settings.changes import settings
from perflib.measure.pages import backings, smaps
from perflib.measure.pages.backings import why_not
from perflib.model.claims import EXPLAINS
from perflib.model.errors import MeasurementError, UserError
from perflib.store.run_files import load, runs

CODE, CALLS = get("code_segment"), get("random_calls")
CPUS = sorted(os.sched_getaffinity(0))
POOL = Path("/proc/sys/vm/nr_hugepages")
TINY: dict[str, Any] = {
    "cores": [CPUS[0]],
    "budget_s": 0.2,
    "trial_ms": 1.0,
    "sizes_kib": [8, 64],
    "patterns": ["random"],
    "simulated_sizes": 0,
}
NO_POOL = why_not("hugetlb", pages_needed=4)

needs_pool = pytest.mark.skipif(bool(NO_POOL), reason=f"no huge pages of the pool: {NO_POOL}")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change settings")
needs_huge = pytest.mark.skipif(bool(why_not("collapse")), reason=why_not("collapse"))
# They change, or depend on, the machine's huge pages: one after the other.
pytestmark = [
    pytest.mark.xdist_group("huge pages"),
    pytest.mark.skipif(bool(CODE.unavailable()), reason=CODE.unavailable()),
]


def plan(**given: Any) -> dict[str, Any]:
    """What is decided, and what the pilot adds to it."""
    params = CODE.params({**TINY, **given})
    made = CODE.plan(params)
    with settings(CODE.system_settings(params, made)):
        return made | CODE.pilot(params, made)


def absent(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """These backings cannot be had."""

    def reason(name: str, pages_needed: int = 0) -> str:
        return f"no {name} today" if name in names else why_not(name, pages_needed=pages_needed)

    monkeypatch.setattr(backings, "why_not", reason)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"backings": "4k,hgue"}, "unknown backing 'hgue': did you mean 'huge'"),
        ({"backings": ["loaded"]}, "unknown backing 'loaded'"),
        ({"sizes_kib": [8, 8192], "patterns": ["chase", "page"]}, "8192 KiB .* 'page'"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        CODE.measure(CODE.params({**TINY, **given}))
    assert runs() == []


# --- what is planned -----------------------------------------------------------------------------


def test_every_core_size_pattern_and_backing_is_a_configuration_once() -> None:
    given = {"cores": CPUS[:2], "patterns": ["chase", "random", "chase"], "backings": "4k,4k"}
    made = plan(**given, sizes_kib=[64, 8, 64])
    every = [CodeConfiguration(*found) for found in made["configurations"]]
    assert made["backings"] == ["4k"]
    assert made["absent"] == {}
    assert [found[:4] for found in every] == [
        (core, pattern, n, "4k")
        for core in range(len(CPUS[:2]))
        for pattern, sizes in (("chase", (2, 16)), ("random", (64, 512)))
        for n in sizes
    ]
    assert min(found.steps for found in every) >= 2000
    assert {found.steps for found in every if found.core == 0} == {
        found.steps for found in every if found.core == len(CPUS[:2]) - 1
    }


def test_the_rings_control_is_measured_on_small_pages_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backings, "why_not", lambda _name, pages_needed: "")  # noqa: ARG005
    monkeypatch.setattr("perflib.measure.pages.smaps.violated", lambda *_: "")
    made = plan(patterns=["line", "chase"], backings=["huge", "4k"])
    every = {(found[1], found[3]) for found in made["configurations"]}
    assert every == {("line", "4k"), ("chase", "thp"), ("chase", "4k")}
    made = plan(patterns=["line", "chase"], backings=["huge"])
    assert {(found[1], found[3]) for found in made["configurations"]} == {
        ("line", "thp"),
        ("chase", "thp"),
    }
    assert {found[2] for found in made["configurations"]} == {2, 16}, "as many jumps as the chase"


@needs_huge
def test_huge_is_the_first_that_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "thp")
    made = plan(backings=["huge", "4k"])
    assert made["backings"] == ["collapse", "4k"]
    assert made["absent"] == {"thp": "no thp today"}
    assert list(made["page_reach"]) == ["4k", "collapse"], "the control of page sizes"


@needs_huge
@needs_root
def test_with_thp_never_the_text_is_collapsed() -> None:
    run = CODE.measure(CODE.params({**TINY, "settings": "thp=never"}))
    assert run.provenance["plan"]["backings"] == ["4k", "collapse"]
    assert set(run.samples["backing"]) == {"4k", "collapse"}
    assert run.samples["ok"].all()
    assert run.provenance["settings_changed"]["thp"]["now"] == "never"
    (problem,) = run.provenance["problems"]
    assert problem.startswith("thp: transparent huge pages are switched off")


def test_what_is_not_available_is_reported_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent(monkeypatch, "thp", "collapse", "hugetlb", "hugectl")
    run = CODE.measure(CODE.params({**TINY, "backings": "4k,huge,hugetlb,hugectl"}))
    assert set(run.samples["backing"]) == {"4k"}
    assert run.provenance["problems"] == [
        f"{name}: no {name} today" for name in ("thp", "collapse", "hugetlb", "hugectl")
    ]
    found = CODE.analyse(run)
    # Which sizes miss the cache and no TLB is known where the TLB's reach is.
    assert {one.of for one in found} - {SLOWER_L1I_MISSES} == {SLOWER, SLOWER_SMALL_CODE, EXPLAINS}
    assert "page_ratio" not in CODE.figures(run)


def test_none_that_is_available_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "thp", "hugetlb")
    with pytest.raises(
        MeasurementError, match=r"none .* available here: thp: no thp .*; hugetlb: n"
    ):
        plan(backings=["thp", "hugetlb"])


def test_what_fails_when_it_is_tried_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    real = smaps.violated

    def violated(asked: str, pages: Any) -> str:
        return "found something else" if asked == "thp" else str(real(asked, pages))

    monkeypatch.setattr("perflib.measure.pages.smaps.violated", violated)
    if why_not("thp"):
        pytest.skip(why_not("thp"))
    made = plan(backings=["4k", "thp"])
    assert made["backings"] == ["4k"]
    assert made["absent"] == {"thp": "found something else"}


def test_functions_are_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backings, "why_not", lambda _name, pages_needed: "")  # noqa: ARG005
    given = {"backings": ["4k", "hugectl"], "functions": 64, "sizes_kib": [8], "cores": [CPUS[0]]}
    made = CALLS.plan(CALLS.params(given))
    assert made["absent"] == {"hugectl": "hugectl starts programs, and random_calls is none"}


def test_a_program_that_cannot_be_linked_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backings, "why_not", lambda _name, pages_needed: "")  # noqa: ARG005
    monkeypatch.setattr(
        code_measure,
        "program",
        Mock(side_effect=MeasurementError("the linker found no libhugetlbfs")),
    )
    assert plan(backings=["4k", "hugectl"])["absent"] == {
        "hugectl": "the linker found no libhugetlbfs"
    }


# --- the pool ------------------------------------------------------------------------------------


@needs_pool
@needs_root
def test_hugetlb_reserves_its_pages_verifies_them_and_gives_them_back() -> None:
    before = POOL.read_text()
    run = CODE.measure(
        CODE.params({**TINY, "backings": "4k,hugetlb", "patterns": ["random", "chase"]})
    )
    assert POOL.read_text() == before
    table = run.samples
    assert table["ok"].all()
    assert set(table["backing"]) == {"4k", "hugetlb"}
    assert set(table["huge_bytes"][table["backing"] == "hugetlb"]) <= {2 << 20, 4 << 20}
    assert (table["huge_bytes"][table["backing"] == "4k"] == 0).all()
    assert set(run.provenance["settings_changed"]) <= {"nr_hugepages"}
    assert run.params["settings"] == {}, "what the user asked for"


def test_a_pool_that_is_not_available_is_absent_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Cannot:
        def __init__(self, asked: dict[str, str]) -> None:
            self.asked = asked

        def __enter__(self) -> None:
            if self.asked:
                msg = f"{self.asked}: no memory"
                raise UserError(msg)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(backings, "why_not", lambda _name, pages_needed: "")  # noqa: ARG005
    monkeypatch.setattr(backings, "settings", Cannot)
    monkeypatch.setattr(backings, "pool_pages", lambda name: (3, 1))  # noqa: ARG005
    made = plan(backings=["4k", "hugetlb"])
    assert made["absent"] == {"hugetlb": "{'nr_hugepages': '6'}: no memory"}
    assert made["backings"] == ["4k"]


RESERVED = 32  # pages
# How a name space of its own gets the file system that hugectl needs; hugeadm makes the pool, too.
MOUNTED = "mkdir /run/huge && mount -t hugetlbfs -o pagesize=2M none /run/huge"
BY_HUGEADM = f"hugeadm --create-mounts && hugeadm --pool-pages-min 2MB:{RESERVED}"


@needs_pool
@needs_root
@pytest.mark.skipif(shutil.which("hugectl") is None, reason="apt-get install libhugetlbfs-bin")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="apt-get install util-linux")
@pytest.mark.parametrize("prepare", [MOUNTED, BY_HUGEADM], ids=["mount", "hugeadm"])
def test_hugectl_moves_the_program(prepare: str) -> None:
    """In a name space of its own, whose folders for mounts are its own as well."""
    before = POOL.read_text()
    script = f'mount -t tmpfs none /run && mount -t tmpfs none /var/lib && {prepare} && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable]
    argv += ["-m", "perflib", "run", "code_segment", "-p", "backings=4k,hugetlb,hugectl"]
    argv += ["-p", "budget_s=0.3", "-p", "trial_ms=1", "-p", f"cores={CPUS[0]}"]
    argv += ["-p", "sizes_kib=8,64", "-p", "patterns=random,chase", "-p", "simulated_sizes=0"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        after = int(POOL.read_text())
    finally:
        POOL.write_text(before)
    if "mount:" in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stderr
    reserved = RESERVED if prepare == BY_HUGEADM else 0
    assert after == max(int(before), reserved), "the run leaves the pool as it found it"
    (entry,) = runs()
    run = load(entry.id)
    assert run.provenance["problems"] == []
    moved = run.samples[run.samples["backing"] == "hugectl"]
    assert set(moved["pattern"]) == {"random"}, "a ring is no part of the program"
    assert moved["ok"].all()
    assert (moved["huge_bytes"] >= 2 << 20).all()
    small = run.samples[(run.samples["n"] == 64) & (run.samples["pattern"] == "random")]
    assert set(small["backing"]) == {"4k", "hugetlb", "hugectl"}
    assert set(small["code_bytes"]) == {8 << 10}, "one way to measure the extent"
    assert "program" in run.provenance


def test_the_ring_alone_is_nothing_for_hugectl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backings, "why_not", lambda _name, pages_needed: "")  # noqa: ARG005
    monkeypatch.setattr(code_measure, "program", lambda: build("code_segment"))
    monkeypatch.setattr(backings, "_try_pool", lambda *_: "")
    monkeypatch.setattr(CODE, "system_settings", lambda *_: {})
    with pytest.raises(MeasurementError, match="nor the compiled switch is part of it"):
        plan(backings=["hugectl"], patterns=["chase"])
