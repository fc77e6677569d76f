"""One trial, for real: placed, verified, run, verified again; and all that can go wrong."""

from __future__ import annotations

import errno
import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.code_size import trials as code_trials
from perflib.experiments.code_size.trials import (
    Bounds,
    CodeConfiguration,
    CodeTrials,
    calibrate,
    page_reach,
)
from perflib.framework.watch import Watch
from perflib.instruments.counters import groups
from perflib.kernels import Build, build
from perflib.machine.activity.interrupts import core_activity
from perflib.machine.hardware.pmu import Pmu
from perflib.measure.conditions import Conditions
from perflib.measure.pages import smaps
from perflib.measure.pages.backings import why_not
from perflib.measure.process import Out, Worker
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError

CPUS = sorted(os.sched_getaffinity(0))
KIB = 1024
HUGE = [name for name in ("thp", "collapse") if not why_not(name)]
FILE_PAGES = (
    "{begin:x}-{end:x} r-xp 00001000 fe:00 12 /tmp/lib.so\n"
    "KernelPageSize:        4 kB\nRss:            4096 kB\nFilePmdMapped:  2048 kB\n"
    "VmFlags: rd ex\n"
)

needs_huge = pytest.mark.skipif(not HUGE, reason="no transparent huge pages: " + why_not("thp"))
# They change, or depend on, the machine's huge pages: one after the other.
pytestmark = [
    pytest.mark.xdist_group("huge pages"),
    pytest.mark.skipif(
        bool(get("code_segment").unavailable()), reason=get("code_segment").unavailable()
    ),
]


@pytest.fixture(scope="module")
def kernel() -> Build:
    return build("code_segment")


def trials_of(
    kernel: Build, *wanted: CodeConfiguration, cpus: list[int] | None = None, **more: Any
) -> CodeTrials:
    conditions = [Conditions(cpu=cpu) for cpu in cpus or CPUS[:1]]
    given = {"piece_bytes": 128, "trial_ms": 0.3, "seed": 1, "perf_map": False, **more}
    return CodeTrials(kernel, None, conditions, wanted, **given)


def configuration(
    backing: str = "4k", pattern: str = "random", n: int = 512, core: int = 0
) -> CodeConfiguration:
    return CodeConfiguration(core, pattern, n, backing, 20_000)


def one(columns: Columns) -> dict[str, Any]:
    """The only row."""
    assert {len(values) for values in columns.values()} == {1}
    return {name: values[0] for name, values in columns.items()}


def taken(
    kernel: Build, wanted: CodeConfiguration, rounds: int = 1
) -> tuple[list[dict[str, Any]], list[str]]:
    """The row of each of some rounds, and what was violated."""
    with trials_of(kernel, wanted) as trials:
        return [one(trials.take(round_, 0)) for round_ in range(rounds)], trials.violated


# --- as it should be -----------------------------------------------------------------------------


@pytest.mark.parametrize("backing", ["4k", *HUGE])
@pytest.mark.parametrize("pattern", ["random", "page", "chase", "line"])
def test_a_trial_measures_what_was_requested(kernel: Build, backing: str, pattern: str) -> None:
    (row,), violated = taken(kernel, configuration(backing, pattern))
    assert (row["ok"], violated) == (True, [])
    assert (row["cpu"], row["pattern"], row["backing"], row["n"]) == (
        CPUS[0], pattern, backing, 512,
    )  # fmt: skip
    assert row["time_ns"] > 0
    assert row["core_mhz"] > 0
    each = {"random": 128, "page": 4096, "chase": 4096, "line": 64}[pattern]
    assert 512 * each - 2 * max(each, 128) < row["code_bytes"] <= 512 * each
    laps = round(20_000 / 512)
    assert row["steps"] == (laps * 512 if pattern in ("chase", "line") else 20_000)
    if backing == "4k":
        assert row["huge_bytes"] == 0
    else:
        assert row["huge_bytes"] >= 512 * each


def test_what_the_kernel_does_not_count_has_no_column(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        code_trials, "core_activity", lambda cpu: core_activity(cpu, Path("/nowhere"))
    )
    (row,), _ = taken(kernel, configuration())
    assert not {"softirqs", "interrupts", "switches"} & row.keys()


def test_soft_interrupts_are_those_between_two_readings(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = itertools.count(step=7)

    def activity(_cpu: int) -> Any:
        now = next(counts)
        return type(core_activity(CPUS[0]))({"NET_RX": now, "TIMER": 2 * now}, {"LOC": now}, now)

    monkeypatch.setattr(code_trials, "core_activity", activity)
    (row,), _ = taken(kernel, configuration())
    assert (row["softirqs"], row["interrupts"], row["switches"]) == (21, 7, 7)


def test_all_cores_run_the_same_code_in_a_round_and_other_code_in_the_next(kernel: Build) -> None:
    cpus = CPUS[:2]
    wanted = [configuration(core=core) for core in range(len(cpus))]
    with trials_of(kernel, *wanted, cpus=cpus) as trials:
        rows = [
            one(trials.take(round_, place)) for round_ in (0, 1) for place in range(len(wanted))
        ]
        assert trials.violated == []
        first, second = trials._checksums.values()
    assert [row["cpu"] for row in rows] == [*cpus, *cpus]
    assert first != second


# --- several samples -----------------------------------------------------------------------------


def test_samples_of_a_trial_are_rows_that_follow_each_other(kernel: Build) -> None:
    with trials_of(kernel, configuration(n=8), trial_ms=1.2) as trials:
        columns = trials.take(0, 0)
        assert trials.violated == []
    assert {len(values) for values in columns.values()} == {4}
    assert columns["ok"] == [True] * 4
    assert columns["steps"] == [20_000] * 4
    assert set(columns["code_bytes"]) == {8 * 128}
    assert columns["start_ns"] == sorted(set(columns["start_ns"]))
    assert columns["probe_before_ns"][1:] == columns["probe_after_ns"][:-1]
    assert all(0 < cpu <= 1.01 * wall + 1e4 for cpu, wall in zip(
        columns["cpu_time_ns"], columns["time_ns"], strict=True
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("alone", "samples"),
    [([None], 4), ([3], 4), ([0, 3], 8), ([0, 1, 3], 12), ([0] * 9, 12)],
    ids=["cannot be known", "enough", "enough at last", "just enough", "never enough"],
)
def test_a_trial_goes_on_until_enough_samples_are_alone(
    kernel: Build, monkeypatch: pytest.MonkeyPatch, alone: list[int | None], samples: int
) -> None:
    counts = iter(alone)
    monkeypatch.setattr(Watch, "alone", lambda *_: next(counts))
    with trials_of(kernel, configuration(), trial_ms=1.2) as trials:
        columns = trials.take(0, 0)
    assert {len(values) for values in columns.values()} == {samples}


# --- the pages are not what they should be -------------------------------------------------------


def test_a_file_on_huge_pages_is_no_4k(kernel: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smaps, "read", lambda _pid: FILE_PAGES.format(begin=1 << 12, end=1 << 47))
    (row,), (problem,) = taken(kernel, configuration())
    assert row["ok"] is False
    assert row["huge_bytes"] == 2048 * KIB
    assert row["time_ns"] > 0
    assert problem.startswith("4k, in some trials: requested pages of 4 KiB (4k), found Fi")
    assert "the file system gave" in problem


@needs_huge
@pytest.mark.parametrize("reading", [0, 1])
def test_pages_are_read_before_and_after(
    kernel: Build, monkeypatch: pytest.MonkeyPatch, reading: int
) -> None:
    real, calls = smaps.read, itertools.count()

    def read(pid: int) -> str:
        found = real(pid)
        return found.replace("AnonHugePages:", "Gone:") if next(calls) == reading else found

    monkeypatch.setattr(smaps, "read", read)
    rows, (problem,) = taken(kernel, configuration(HUGE[0]), 2)
    assert [row["ok"] for row in rows] == [False, True]
    assert "no huge page" in problem


def failing(real: Callable[..., Any], function: str, *which: int) -> Callable[..., Any]:
    """A worker's ``call`` that answers ENOMEM for some of the calls of a function."""
    calls = itertools.count()

    def call(self: Any, name: str, *arguments: Any, timeout_s: float) -> Any:
        answer, outs = real(self, name, *arguments, timeout_s=timeout_s)
        if name == function and next(calls) in which:
            return 2 * 65536 + errno.ENOMEM, outs
        return answer, outs

    return call


def test_a_backing_that_fails_in_some_trials_costs_these(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "call", failing(Worker.call, "code_lay", 1, 2))
    rows, (problem,) = taken(kernel, configuration(), 4)
    assert [row["ok"] for row in rows] == [True, False, False, True]
    assert math.isnan(rows[1]["time_ns"])
    assert "4k, in some trials: could not map memory for the copy: Cannot allocate" in problem
    assert {tuple(row) for row in map(sorted, rows)} == {tuple(sorted(rows[0]))}, "the same columns"
    starts = [row["start_ns"] for row in rows]
    assert starts == sorted(starts), "on one clock"


def test_other_results_than_the_first_core_are_not_used(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = code_trials._run
    calls = itertools.count()

    def run(*given: Any) -> Any:
        done = real(*given)
        if next(calls) == 1:
            done = done.copy()
            done["checksum"] += 1
        return done

    monkeypatch.setattr(code_trials, "_run", run)
    wanted = [configuration(), configuration(core=1)]
    with trials_of(kernel, *wanted, cpus=[CPUS[0], CPUS[-1]]) as trials:
        rows = [one(trials.take(0, place)) for place in (0, 1, 0)]
        (problem,) = trials.violated
    assert [row["ok"] for row in rows] == [True, False, True]
    assert f"cpu{CPUS[-1]} ran other code" in problem
    assert ["found" in row for row in rows] == [False, True, False]


# --- names for a profiler ------------------------------------------------------------------------


def test_the_perf_map_names_the_cases_and_is_removed(kernel: Build) -> None:
    with trials_of(kernel, configuration(), perf_map=True) as trials:
        trials.take(0, 0)
        (worker,) = trials._workers
        path = Path(f"/tmp/perf-{worker.pid}.map")
        named = {}
        for line in path.read_text().splitlines():
            begin, size, name = line.split()
            named[name] = int(begin, 16), int(size, 16)
        bounds, (out,) = worker.call("code_bounds", Out("i8", 10), timeout_s=10.0)
        assert bounds == 0
        for number in (0, 1, 511):
            assert named[f"case_{number:05}"] == (int(out[2]) + 128 * number, 128)
        assert max(begin + size for begin, size in named.values()) == int(out[3])
    assert not path.exists()


# --- counters ------------------------------------------------------------------------------------


def test_misses_are_counted_where_there_is_a_counter(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A software event, which every kernel has, stands for the processor's."""
    monkeypatch.setattr(code_trials, "pmu", lambda: Pmu(available=True, reason=""))
    monkeypatch.setattr(code_trials, "_EVENT", "task-clock:u")
    with trials_of(kernel, configuration()) as trials:
        if trials.violated:
            pytest.skip(trials.violated[0])
        rows = [one(trials.take(round_, 0)) for round_ in (0, 1)]
        (worker,) = trials._workers
        worker.kill()
        rows.append(one(trials.take(2, 0)))
    for row in rows:
        assert row["itlb_misses"] >= 0.5 * row["cpu_time_ns"]  # of this trial, its warm-up with it
    assert rows[1]["itlb_misses"] < 100 * rows[0]["itlb_misses"]


def test_a_counter_that_is_refused_is_a_problem_and_no_column(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(code_trials, "pmu", lambda: Pmu(available=True, reason=""))
    monkeypatch.setattr(
        groups.CounterGroup.__init__, "__kwdefaults__", {"name": "", "opener": refuse}
    )
    (row,), (problem,) = taken(kernel, configuration())
    assert row["ok"] is True
    assert "itlb_misses" not in row
    assert problem.startswith("iTLB misses are not counted: not allowed")


# --- the plan's parts ----------------------------------------------------------------------------


BOUNDS = Bounds(most=32768, piece_bytes=128, chase_pages=4096, text_bytes=4 << 20)


def test_sizes_become_numbers_of_pieces() -> None:
    assert BOUNDS.pieces(["random", "page", "chase"], [1024, 4, 4]) == {
        "random": [32, 8192],
        "page": [1, 256],
        "chase": [1, 256],
    }
    assert BOUNDS.pieces(["chase", "line"], [8192]) == {"chase": [2048], "line": [2048]}
    assert BOUNDS.pieces(["chase"], [16385]) == {"chase": [4096]}
    assert BOUNDS.pieces(["page"], [8, 9, 11]) == {"page": [2]}, "each number once"


@pytest.mark.parametrize(
    ("pattern", "size", "says"),
    [
        ("random", 8192, "8192 KiB is not available with pattern 'random': .* from 1 to 4096 KiB"),
        ("page", 8192, "8192 KiB is not available with pattern 'page': .* from 4 to 4096 KiB"),
        ("line", 16388, "16388 KiB is not available with pattern 'line': .* from 4 to 16384 KiB"),
        ("chase", 16388, "16388 KiB is not available with pattern 'chase': .* from 4 to 16384 KiB"),
    ],
)
def test_sizes_beyond_what_was_built_are_refused(pattern: str, size: int, says: str) -> None:
    with pytest.raises(UserError, match=says):
        BOUNDS.pieces([pattern], [size])


def test_huge_pages_that_a_process_needs() -> None:
    """Twice as many: the old pages stay until the new ones are filled."""
    assert BOUNDS.huge_pages({"random": [64]}) == 4
    assert BOUNDS.huge_pages({"chase": [2]}) == 2
    assert BOUNDS.huge_pages({"random": [64], "chase": [2, 1024]}) == 8


@needs_huge
def test_the_control_of_page_sizes_is_timed_in_pairs(kernel: Build) -> None:
    found = page_reach(kernel, Conditions(cpu=CPUS[0]), [*HUGE, "hugectl"])
    assert list(found) == ["4k", *HUGE], "small pages first, whatever was requested"
    for pairs in found.values():
        assert len(pairs) == len(found["4k"])
        assert all(few > 0 and many > 0 for few, many in pairs)


def test_pages_that_fail_are_not_timed(kernel: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    call = failing(Worker.call, "code_page_reach", *range(1, 40, 2))
    monkeypatch.setattr(Worker, "call", call)
    assert list(page_reach(kernel, Conditions(cpu=CPUS[0]), ["thp"])) == ["4k"]


def test_a_backing_that_fails_is_found_out(kernel: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    call = failing(Worker.call, "code_lay", 1)
    monkeypatch.setattr(Worker, "call", call)
    conditions = Conditions(cpu=CPUS[0])
    steps, failed = calibrate(kernel, conditions, {"random": [64]}, ["4k", "thp"], 1.0)
    assert list(failed) == ["thp"]
    assert failed["thp"].startswith("could not map memory")
    assert list(steps) == [("random", 64)]
    call = failing(call, "code_lay", *range(9))
    monkeypatch.setattr(Worker, "call", call)
    with pytest.raises(MeasurementError, match="could not map memory"):
        calibrate(kernel, conditions, {"random": [64]}, ["4k"], 1.0)
