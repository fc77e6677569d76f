"""The monitor: series, rotation, two at once, a process that goes, and nothing left behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pytest

from perflib.instruments.counters import follower
from perflib.instruments.counters.events import CounterEvent, event
from perflib.instruments.counters.groups import Lacking, Requested
from perflib.instruments.counters.monitor import Monitor, totals
from perflib.instruments.counters.watched import watch
from perflib.model.errors import UserError
from tests.counted import skip_unless_allowed
from tests.instruments.counters.tables import series_row
from tests.processes import open_files, soon

FAULTS, CLOCK, SWITCHES = (
    event(name) for name in ("page-faults", "task-clock", "context-switches")
)
ABSENT = CounterEvent("no-such-event", type=1, config=10**6)
ONE: dict[str, list[Requested]] = {"a": [CLOCK, FAULTS]}
SETS: dict[str, list[Requested]] = {"a": [CLOCK, FAULTS], "b": [CLOCK, SWITCHES], "c": [FAULTS]}


@pytest.fixture(autouse=True)
def _allowed() -> None:
    skip_unless_allowed()


# Touches new pages until it is asked to end; then says how many page faults it had since it began.
JOB = """
import mmap, resource, select, sys
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print("ready", flush=True)
sys.stdin.readline()
before = faults()
while not select.select([sys.stdin], [], [], 0)[0]:
    with mmap.mmap(-1, 64 * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(64):
            memory[page * mmap.PAGESIZE] = 1
print(faults() - before, flush=True)
sys.stdin.readline()  # what ended the loop
sys.stdin.readline()
"""


@contextmanager
def job() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert hear(process) == "ready\n"
            yield process
        finally:
            process.kill()


def tell(job: subprocess.Popen[str]) -> None:
    print(file=job.stdin, flush=True)


def hear(job: subprocess.Popen[str]) -> str:
    assert job.stdout is not None
    return job.stdout.readline()


def all_ran(monitor: Monitor) -> bool:
    return "did not run" not in set(totals(monitor.series())["status"])


def by_event(table: pd.DataFrame) -> dict[tuple[str, str], Any]:
    return {(str(row["set"]), str(row["event"])): row for row in table.to_dict("records")}


# --- series --------------------------------------------------------------------------------------


def test_ticks_that_went_by_are_counted() -> None:
    with job() as one:
        monitor = Monitor(ONE, watch(pid=one.pid), period_s=0.01)
        monitor.start()
        assert soon(lambda: monitor.samples[0] >= 1)
        monitor._follower._plan.start_ns -= 10**9  # type: ignore[union-attr]
        assert soon(lambda: monitor.samples[1] >= 100)
        monitor.stop()
    got, due = monitor.samples
    assert due - got >= 90
    rows = by_event(totals(monitor.series()))
    assert rows["a", "task-clock"]["collected_percent"] < 100


def test_buffers_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower._Buffer, "LEAST_TICKS", 2)
    monkeypatch.setattr(follower, "_READINGS_IN_BUFFER", 1)
    with job() as one, Monitor(ONE, watch(pid=one.pid), period_s=0.01) as monitor:
        tell(one)
        assert soon(lambda: monitor.samples[0] >= 7)
        tell(one)
        faults = int(hear(one))
    assert 0 <= by_event(totals(monitor.series()))["a", "page-faults"]["value"] - faults < 100


# --- rotation ------------------------------------------------------------------------------------


def test_the_random_order_has_one_set_at_a_time_each_once_a_round() -> None:
    with job() as one:
        with Monitor(SETS, watch(pid=one.pid), period_s=0.01, seed=3) as monitor:
            tell(one)
            # Each set is on for some time in which the job has the core, also under a load.
            assert soon(lambda: monitor.samples[0] >= 30 and all_ran(monitor))
            tell(one)
            faults = int(hear(one))
        series = monitor.series()
    per_tick = series.groupby("time_ns")["set"].unique()
    assert (per_tick.str.len() == 1).all()
    sets = [str(one[0]) for one in per_tick][:30]
    rounds = [sets[i : i + 3] for i in range(0, 30, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    total = by_event(totals(series))
    for name in ("a", "c"):
        row = total[name, "page-faults"]
        assert row["status"] == "scaled"
        assert row["value"] < faults
        assert 0 < row["scaled_error"] < row["scaled"]
        assert row["scaled"] == pytest.approx(faults, rel=0.5)
    seen = sum(total[name, event_]["running_ns"] for name, event_ in (
        ("a", "task-clock"), ("b", "task-clock"), ("c", "page-faults")))  # fmt: skip
    clock = series.drop_duplicates("time_ns")["clock_ns"].sum()
    assert 0.5 * clock < seen < 1.01 * clock  # less what ran while sets were switched


# --- what is lacking -----------------------------------------------------------------------------


def test_what_cannot_be_counted_is_one_row_and_the_rest_goes_on() -> None:
    sets: dict[str, Sequence[Requested]] = {
        "a": [ABSENT, FAULTS],
        "b": [Lacking("odd", "absent: why")],
        "c": [event("cycles"), CLOCK],
    }
    with job() as one, Monitor(sets, watch(pid=one.pid), period_s=0.01) as monitor:
        tell(one)
        assert soon(lambda: monitor.samples[0] >= 4)
    series = monitor.series()
    assert list(series[series["event"] == "odd"]["status"]) == ["absent: why"]
    assert len(series[series["event"] == "no-such-event"]) == 1
    total = by_event(totals(series))
    assert total["a", "page-faults"]["value"] > 0
    assert total["c", "task-clock"]["value"] > 0
    assert math.isnan(total["b", "odd"]["value"])
    assert total["b", "odd"]["status"] == "absent: why"
    assert total["b", "odd"]["samples"] == 0


def test_nothing_to_count_ends_at_once_with_rows() -> None:
    before = open_files()
    with job() as one:
        with Monitor({"a": [ABSENT]}, watch(pid=one.pid)) as monitor:
            assert monitor.wait(0)
            assert monitor.ended.startswith("nothing of this can be counted")
        assert len(monitor.series()) == 1
    assert open_files() == before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sets": {}}, "at least one set"),
        ({"sets": {"a": [CLOCK], "b": []}}, "no events in set 'b'"),
        ({"period_s": 0.001}, "0.001 s cannot be kept"),
        ({"period_s": math.nan}, "cannot be kept"),
        ({"order": "kernle"}, "did you mean 'kernel'"),
    ],
)
def test_what_is_asked_is_checked(wrong: dict[str, Any], says: str) -> None:
    before = open_files()
    with pytest.raises(UserError, match=says):
        Monitor(**{"sets": ONE, "watched": watch(), **wrong})
    assert open_files() == before


# --- ends ----------------------------------------------------------------------------------------


def test_a_process_that_has_gone_before() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    before = open_files()
    with Monitor(SETS, watch(pid=process.pid)) as monitor:
        assert monitor.wait()
    assert monitor.ended == f"process {process.pid} is gone"
    series = monitor.series()
    assert set(series["status"]) == {f"process {process.pid} is gone"}
    assert totals(series)["scaled"].isna().all()
    assert open_files() == before


def test_stopping_twice_and_starting_again() -> None:
    with job() as one:
        monitor = Monitor(ONE, watch(pid=one.pid), period_s=0.01)
        monitor.start()
        with pytest.raises(UserError, match="make a new one"):
            monitor.start()
        monitor.stop()
        monitor.stop()
        with pytest.raises(UserError, match="make a new one"):
            monitor.start()


def test_a_monitor_that_never_started_leaves_nothing() -> None:
    before = open_files()
    Monitor(ONE, watch(), period_s=0.01).stop()
    assert open_files() == before


def test_no_descriptor_and_no_thread_is_left() -> None:
    files, threads = open_files(), threading.active_count()
    with job() as one:
        for _ in range(3):
            with Monitor(SETS, watch(pid=one.pid), period_s=0.01) as monitor:
                assert soon(lambda now=monitor: now.samples[0] >= 1)  # type: ignore[misc]
    assert (open_files(), threading.active_count()) == (files, threads)


INTERRUPTED = """
import os, sys, time
from pathlib import Path
from perflib.instruments.counters.events import event
from perflib.instruments.counters.monitor import Monitor
from perflib.instruments.counters.watched import watch
before = len(list(Path("/proc/self/fd").iterdir()))
try:
    with Monitor({"a": [event("task-clock")]}, watch(pid=os.getpid()), period_s=0.01) as monitor:
        while monitor.samples[0] < 3:
            pass
        print("ready", flush=True)
        while True:
            monitor.wait(10)
except KeyboardInterrupt:
    after = len(list(Path("/proc/self/fd").iterdir()))
    print(monitor.ended, len(monitor.series()) >= 3, before == after)
"""


def test_ctrl_c_ends_it_and_keeps_what_there_is() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "stopped True True\n"
        finally:
            process.kill()


def test_a_counter_that_fails_ends_it_and_says_so() -> None:
    with job() as one:
        monitor = Monitor({"a": [FAULTS]}, watch(pid=one.pid), period_s=0.01)
        monitor.start()
        assert soon(lambda: monitor.samples[0] >= 1)
        counter = int(monitor._counting[0].counters[0, 0])
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, counter)  # no counter any more: reading it fails
        os.close(null)
        assert monitor.wait(30)
        monitor.stop()
    assert monitor.ended == "the counters failed: Bad file descriptor"
    assert len(monitor.series()) >= 1


# --- totals --------------------------------------------------------------------------------------


def test_totals_scale_to_the_time_that_the_program_ran() -> None:
    """Two sets, each of which was on in every second slice."""
    values = [100, 7, 110, 7, 90, 7]
    rows = [series_row(tick, "ab"[tick % 2], "loads", one) for tick, one in enumerate(values)]
    row = by_event(totals(pd.DataFrame(rows)))["a", "loads"]
    assert (row["value"], row["scaled"], row["status"]) == (300, 600, "scaled")
    assert row["scaled_error"] == pytest.approx(math.sqrt(0.5 * 3 * (100 + 400) / 4) * 2)
    assert row["samples"] == 3
    assert row["collected_percent"] == 100
