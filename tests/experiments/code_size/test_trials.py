"""One turn of a sweep, for real: laid, verified, run, verified again; and all that can go wrong."""

from __future__ import annotations

import errno
import itertools
import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.code_size import measure as code_turns
from perflib.experiments.code_size.measure import (
    Arm,
    Bounds,
    CodeTurns,
    bounds_of,
    calibrate,
    page_reach,
)
from perflib.instruments.counters import groups
from perflib.kernels import Build, build
from perflib.machine.activity.interrupts import core_activity
from perflib.machine.hardware.pmu import Pmu, pmu
from perflib.measure.conditions import Conditions
from perflib.measure.pages import smaps
from perflib.measure.pages.text_backings import why_not
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError

CPUS = sorted(os.sched_getaffinity(0))
KIB = 1024
HUGE = [name for name in ("thp", "collapse") if not why_not(name)]
COLUMNS = {column.name for column in get("code_segment").columns}
MADE_BY_ROUNDS = {"round", "position"}
FILE_PAGES = (
    "{begin:x}-{end:x} r-xp 00001000 fe:00 12 /tmp/lib.so\n"
    "KernelPageSize:        4 kB\nRss:            4096 kB\nFilePmdMapped:  2048 kB\n"
    "VmFlags: rd ex\n"
)

needs_huge = pytest.mark.skipif(not HUGE, reason="no transparent huge pages: " + why_not("thp"))
pytestmark = pytest.mark.skipif(
    bool(get("code_segment").unavailable()), reason=get("code_segment").unavailable()
)


@pytest.fixture(scope="module")
def kernel() -> Build:
    return build("code_segment")


def turns_of(kernel: Build, *arms: Arm, cpus: list[int] | None = None, **more: Any) -> CodeTurns:
    conditions = [Conditions(cpu=cpu) for cpu in cpus or CPUS[:1]]
    given = {"piece_bytes": 128, "seed": 1, "perf_map": False, **more}
    return CodeTurns(kernel, None, conditions, arms, **given)


def arm(backing: str = "4k", pattern: str = "random", n: int = 512, core: int = 0) -> Arm:
    return Arm(core, pattern, n, backing, 20_000)


def one(columns: Columns) -> dict[str, Any]:
    """The only row."""
    assert {len(values) for values in columns.values()} == {1}
    return {name: values[0] for name, values in columns.items()}


# --- as it should be -----------------------------------------------------------------------------


@pytest.mark.parametrize("backing", ["4k", *HUGE])
@pytest.mark.parametrize("pattern", ["random", "page", "chase", "line"])
def test_a_turn_measures_what_was_asked_for(kernel: Build, backing: str, pattern: str) -> None:
    with turns_of(kernel, arm(backing, pattern)) as turns:
        row = one(turns.take(0, 0))
        assert turns.unmet == []
    assert row["ok"] is True
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


def test_the_extent_is_that_of_the_cases_whole(kernel: Build) -> None:
    with turns_of(kernel, arm(n=8)) as turns:  # of 20,000 steps none of 8 cases is missed
        assert one(turns.take(0, 0))["code_bytes"] == 8 * 128


def test_rows_have_the_columns_that_this_machine_can_have(kernel: Build) -> None:
    known = core_activity(CPUS[0])
    unknown = {
        name for name in ("softirqs", "interrupts", "switches") if getattr(known, name) is None
    }
    if not pmu().available:
        unknown.add("itlb_misses")
    with turns_of(kernel, arm()) as turns:
        assert set(turns.take(0, 0)) == COLUMNS - MADE_BY_ROUNDS - unknown


def test_what_the_kernel_does_not_count_has_no_column(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        code_turns, "core_activity", lambda cpu: core_activity(cpu, Path("/nowhere"))
    )
    with turns_of(kernel, arm()) as turns:
        assert not {"softirqs", "interrupts", "switches"} & set(turns.take(0, 0))


def test_soft_interrupts_are_those_between_two_readings(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = itertools.count(step=7)

    def activity(_cpu: int) -> Any:
        now = next(counts)
        return type(core_activity(CPUS[0]))({"NET_RX": now, "TIMER": 2 * now}, {"LOC": now}, now)

    monkeypatch.setattr(code_turns, "core_activity", activity)
    with turns_of(kernel, arm()) as turns:
        row = one(turns.take(0, 0))
    assert (row["softirqs"], row["interrupts"], row["switches"]) == (21, 7, 7)


def test_all_cores_run_the_same_code_in_a_round_and_other_code_in_the_next(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, ...]] = []
    real = CodeTurns._right

    def right(self: CodeTurns, wanted: Arm, round_: int, checksum: int, cpu: int) -> bool:
        seen.append((round_, checksum))
        return bool(real(self, wanted, round_, checksum, cpu))

    monkeypatch.setattr(CodeTurns, "_right", right)
    cpus = CPUS[:2]
    arms = [arm(core=core) for core in range(len(cpus))]
    with turns_of(kernel, *arms, cpus=cpus) as turns:
        rows = [one(turns.take(round_, place)) for round_ in (0, 1) for place in range(len(arms))]
        assert turns.unmet == []
    assert [row["cpu"] for row in rows] == [*cpus, *cpus]
    assert len(set(seen)) == 2


def test_conditions_of_the_workers_are_recorded(kernel: Build) -> None:
    with turns_of(kernel, arm()) as turns:
        recorded = turns.provenance()
    (condition,) = recorded["conditions"]
    assert condition["got"]["cpus"] == [CPUS[0]]
    assert recorded["kernel"]["kernel"] == "code_segment"
    assert "program" not in recorded


# --- the pages are not what they should be -------------------------------------------------------


def test_a_file_on_huge_pages_is_no_4k(kernel: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smaps, "read", lambda _pid: FILE_PAGES.format(begin=1 << 12, end=1 << 47))
    with turns_of(kernel, arm()) as turns:
        row = one(turns.take(0, 0))
        (problem,) = turns.unmet
    assert row["ok"] is False
    assert row["huge_bytes"] == 2048 * KIB
    assert row["time_ns"] > 0
    assert problem.startswith("4k, in some turns: asked for pages of 4 KiB (4k), found Fi")
    assert "the file system gave" in problem


@needs_huge
@pytest.mark.parametrize("reading", [0, 1])
def test_pages_are_looked_at_before_and_after(
    kernel: Build, monkeypatch: pytest.MonkeyPatch, reading: int
) -> None:
    real, calls = smaps.read, itertools.count()

    def read(pid: int) -> str:
        found = real(pid)
        return found.replace("AnonHugePages:", "Gone:") if next(calls) == reading else found

    monkeypatch.setattr(smaps, "read", read)
    with turns_of(kernel, arm(HUGE[0])) as turns:
        rows = [one(turns.take(round_, 0)) for round_ in range(2)]
        (problem,) = turns.unmet
    assert [row["ok"] for row in rows] == [False, True]
    assert "no huge page" in problem


def failing(real: Callable[..., Any], function: str, *turns: int) -> Callable[..., Any]:
    """A worker's ``call`` that answers ENOMEM for some of the calls of a function."""
    calls = itertools.count()

    def call(self: Any, name: str, *arguments: Any, timeout_s: float) -> Any:
        answer, outs = real(self, name, *arguments, timeout_s=timeout_s)
        if name == function and next(calls) in turns:
            return 2 * 65536 + errno.ENOMEM, outs
        return answer, outs

    return call


def test_a_backing_that_fails_in_some_turns_costs_these(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "call", failing(Worker.call, "code_lay", 1, 2))
    with turns_of(kernel, arm()) as turns:
        rows = [one(turns.take(round_, 0)) for round_ in range(4)]
        (problem,) = turns.unmet
    assert [row["ok"] for row in rows] == [True, False, False, True]
    assert math.isnan(rows[1]["time_ns"])
    assert "4k, in some turns: could not map memory for the copy: Cannot allocate" in problem
    assert {tuple(row) for row in map(sorted, rows)} == {tuple(sorted(rows[0]))}, "the same columns"
    starts = [row["start_ns"] for row in rows]
    assert starts == sorted(starts), "on one clock"


def test_other_results_than_the_first_core_are_not_used(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = code_turns._run
    calls = itertools.count()

    def run(*given: Any) -> Any:
        done = real(*given)
        if next(calls) == 1:
            done = done.copy()
            done["checksum"] += 1
        return done

    monkeypatch.setattr(code_turns, "_run", run)
    arms = [arm(), arm(core=1)]
    with turns_of(kernel, *arms, cpus=[CPUS[0], CPUS[-1]]) as turns:
        rows = [one(turns.take(0, place)) for place in (0, 1, 0)]
        (problem,) = turns.unmet
    assert [row["ok"] for row in rows] == [True, False, True]
    assert f"cpu{CPUS[-1]} ran other code" in problem


def test_a_thread_that_was_moved_is_not_used(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = code_turns._run

    def run(*given: Any) -> Any:
        done = real(*given).copy()
        done["cpu"] = -1
        return done

    monkeypatch.setattr(code_turns, "_run", run)
    with turns_of(kernel, arm()) as turns:
        assert one(turns.take(0, 0))["ok"] is False
        assert f"moved away from cpu{CPUS[0]}" in turns.unmet[0]


# --- killed --------------------------------------------------------------------------------------


def killed_after(real: Callable[..., Any], function: str) -> Callable[..., Any]:
    """A worker's ``call`` after which the worker is dead, the first time."""
    calls = itertools.count()

    def call(self: Any, name: str, *arguments: Any, timeout_s: float) -> Any:
        found = real(self, name, *arguments, timeout_s=timeout_s)
        if name == function and next(calls) == 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return found

    return call


@pytest.mark.parametrize("function", ["code_lay", "code_run", "code_write_map"])
def test_a_worker_that_is_killed_costs_that_turn_only(
    kernel: Build, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    call = killed_after(Worker.call, function)
    monkeypatch.setattr(Worker, "call", call)
    with turns_of(kernel, arm(), perf_map=True) as turns:
        with pytest.raises(WorkerError):
            turns.take(0, 0)
        rows = [one(turns.take(round_, 0)) for round_ in (0, 1)]
    assert [row["ok"] for row in rows] == [True, True]


def test_a_worker_that_is_killed_while_it_runs_says_so(kernel: Build) -> None:
    long = Arm(0, "random", 512, "4k", 2_000_000_000)
    with turns_of(kernel, long) as turns:
        (worker,) = turns._workers._workers
        assert worker.pid is not None
        timer = threading.Timer(0.3, os.kill, (worker.pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(WorkerError, match="SIGKILL"):
            turns.take(0, 0)
        timer.join()


# --- names for a profiler ------------------------------------------------------------------------


def map_of(turns: CodeTurns) -> Path:
    (worker,) = turns._workers._workers
    return Path(f"/tmp/perf-{worker.pid}.map")


def test_the_perf_map_names_the_cases_and_is_removed(kernel: Build) -> None:
    with turns_of(kernel, arm(), perf_map=True) as turns:
        turns.take(0, 0)
        (worker,) = turns._workers._workers
        path = map_of(turns)
        named = {}
        for line in path.read_text().splitlines():
            begin, size, name = line.split()
            named[name] = int(begin, 16), int(size, 16)
        bounds, (out,) = worker.call("code_bounds", Out("i8", 7), timeout_s=10.0)
        assert bounds == 0
        for number in (0, 1, 511):
            assert named[f"case_{number:05}"] == (int(out[2]) + 128 * number, 128)
        assert max(begin + size for begin, size in named.values()) == int(out[3])
    assert not path.exists()


def test_without_being_asked_no_perf_map_is_written(kernel: Build) -> None:
    with turns_of(kernel, arm()) as turns:
        turns.take(0, 0)
        assert not map_of(turns).exists()


# --- counters ------------------------------------------------------------------------------------


def test_misses_are_counted_where_there_is_a_counter(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A software event, which every kernel has, stands for the processor's."""
    monkeypatch.setattr(code_turns, "pmu", lambda: Pmu(available=True, reason=""))
    monkeypatch.setattr(code_turns, "_EVENT", "task-clock:u")
    with turns_of(kernel, arm()) as turns:
        if turns.unmet:
            pytest.skip(turns.unmet[0])
        rows = [one(turns.take(round_, 0)) for round_ in (0, 1)]
        (worker,) = turns._workers._workers
        worker.kill()
        rows.append(one(turns.take(2, 0)))
    for row in rows:
        assert row["itlb_misses"] >= 0.5 * row["time_ns"]  # of this turn, its warm-up with it
    assert rows[1]["itlb_misses"] < 100 * rows[0]["itlb_misses"]


def test_a_counter_that_is_refused_is_a_problem_and_no_column(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(code_turns, "pmu", lambda: Pmu(available=True, reason=""))
    monkeypatch.setattr(groups.Group.__init__, "__kwdefaults__", {"name": "", "opener": refuse})
    with turns_of(kernel, arm()) as turns:
        row = one(turns.take(0, 0))
        (problem,) = turns.unmet
    assert row["ok"] is True
    assert "itlb_misses" not in row
    assert problem.startswith("iTLB misses are not counted: not allowed")


# --- the plan's parts ----------------------------------------------------------------------------


def test_bounds_are_those_of_the_kernel(kernel: Build) -> None:
    bounds = bounds_of(kernel, Conditions(cpu=CPUS[0]))
    assert (bounds.most, bounds.piece_bytes, bounds.chase_pages) == (32768, 128, 4096)
    assert bounds.text_bytes == 4 << 20


BOUNDS = Bounds(most=32768, piece_bytes=128, chase_pages=4096, text_bytes=4 << 20)


def test_sizes_become_numbers_of_pieces() -> None:
    assert BOUNDS.pieces(["random", "page", "chase"], [4, 1024]) == {
        "random": {4: 32, 1024: 8192},
        "page": {4: 1, 1024: 256},
        "chase": {4: 1, 1024: 256},
    }
    assert BOUNDS.pieces(["chase", "line"], [8192]) == {"chase": {8192: 2048}, "line": {8192: 2048}}


@pytest.mark.parametrize(
    ("pattern", "size", "says"),
    [
        ("random", 8192, "8192 KiB cannot be had with pattern 'random': .* from 1 to 4096 KiB"),
        ("page", 8192, "8192 KiB cannot be had with pattern 'page': .* from 4 to 4096 KiB"),
        ("chase", 16385, None),
        ("line", 16388, "16388 KiB cannot be had with pattern 'line': .* from 4 to 16384 KiB"),
        ("chase", 16388, "16388 KiB cannot be had with pattern 'chase': .* from 4 to 16384 KiB"),
    ],
)
def test_sizes_beyond_what_was_built_are_refused(pattern: str, size: int, says: str | None) -> None:
    if says is None:
        assert BOUNDS.pieces([pattern], [size]) == {pattern: {size: 4096}}
        return
    with pytest.raises(UserError, match=says):
        BOUNDS.pieces([pattern], [size])


def test_huge_pages_that_a_process_needs() -> None:
    """Twice: what lies there is replaced by what is being laid."""
    assert BOUNDS.huge_pages({"random": {8: 64}}) == 4
    assert BOUNDS.huge_pages({"chase": {8: 2}}) == 2
    assert BOUNDS.huge_pages({"random": {8: 64}, "chase": {4096: 1024}}) == 8


def test_what_pages_are_worth_is_timed_in_pairs(kernel: Build) -> None:
    found = page_reach(kernel, Conditions(cpu=CPUS[0]), [*HUGE, "hugectl"])
    assert list(found) == ["4k", *HUGE], "small pages first, whatever was asked for"
    for pairs in found.values():
        assert len(pairs) == len(found["4k"])
        assert all(few > 0 and many > 0 for few, many in pairs)


def test_pages_that_cannot_be_had_are_worth_nothing(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = failing(Worker.call, "code_page_reach", *range(1, 40, 2))
    monkeypatch.setattr(Worker, "call", call)
    assert list(page_reach(kernel, Conditions(cpu=CPUS[0]), ["thp"])) == ["4k"]


def test_calibrated_steps_take_about_the_time(kernel: Build) -> None:
    pieces = {"random": {64: 512}, "chase": {64: 16}}
    steps, failed = calibrate(kernel, Conditions(cpu=CPUS[0]), pieces, ["4k"], 2.0)
    assert failed == {}
    assert set(steps) == {("random", 512), ("chase", 16)}
    assert all(count >= 2000 for count in steps.values())


def test_a_backing_that_cannot_be_laid_is_found_out(
    kernel: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = failing(Worker.call, "code_lay", 1)
    monkeypatch.setattr(Worker, "call", call)
    conditions = Conditions(cpu=CPUS[0])
    steps, failed = calibrate(kernel, conditions, {"random": {8: 64}}, ["4k", "thp"], 1.0)
    assert list(failed) == ["thp"]
    assert failed["thp"].startswith("could not map memory")
    assert list(steps) == [("random", 64)]
    call = failing(call, "code_lay", *range(9))
    monkeypatch.setattr(Worker, "call", call)
    with pytest.raises(MeasurementError, match="could not map memory"):
        calibrate(kernel, conditions, {"random": {8: 64}}, ["4k"], 1.0)
