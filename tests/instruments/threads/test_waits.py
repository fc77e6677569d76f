"""Concurrency, the serial part and waits for locks: exact, and against plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflib.instruments.threads import intervals as sums
from perflib.instruments.threads.concurrency import (
    concurrency,
    concurrency_over_time,
    effective_concurrency,
    serial_parts,
)
from perflib.instruments.threads.formats import (
    INTERVAL,
    LOST,
    SAMPLE,
    STATES,
    Lock,
    Selection,
    State,
)
from perflib.instruments.threads.intervals import states_in_bins
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.waits import (
    lock_holders,
    lock_waits,
    longest_waits,
    wait_paths,
)
from perflib.model.errors import MeasurementError
from tests.instruments.threads.made import LOCKS, STACKS, recording_of
from tests.reference.thread_states import (
    Interval,
    bins_of,
    running_at_once,
    serial_of,
    waits_of,
)

END = 150
NO_WORK = {"condition", "barrier"}


@st.composite
def any_threads(draw: st.DrawFn) -> list[list[Interval]]:
    """Up to four threads in any states, with gaps and intervals without length."""
    lock, other = st.integers(-1, len(LOCKS) - 1), st.integers(-1, 3)
    one = st.tuples(
        st.sampled_from([0, 0, 1, 5]), st.integers(0, 20), st.integers(0, 5), lock, other
    )
    threads = []
    all_drawn = draw(st.lists(st.lists(one, max_size=12), min_size=1, max_size=4))
    for drawn in all_drawn:
        time, intervals = 0, []
        for gap, length, state, which, whom in drawn:
            start, time = time + gap, time + gap + length
            whom_ = min(whom, len(all_drawn) - 1)
            waits_ = state in {State.WAITING, State.READY}
            intervals.append(
                Interval(start, time, state, length % 4, 0, which if waits_ else -1, whom_, whom)
            )
        threads.append(intervals)
    return threads


def recorded(threads: list[list[Interval]]) -> Recording:
    """A recording that has no files, as many are asked."""
    return Recording(
        folder=Path(),
        threads=pd.DataFrame({"tid": range(len(threads)), "pid": 1, "name": "a"}),
        intervals=np.array([tuple(one) for each in threads for one in each], dtype=INTERVAL),
        first=np.cumsum([0, *map(len, threads)]),
        samples=np.zeros(0, dtype=SAMPLE),
        stacks=list(STACKS),
        locks=list(LOCKS),
        lost=np.zeros(0, dtype=LOST),
        meta={"start_ns": 0, "end_ns": END, "cpus": 1},
    )


# --- against the reference -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=[True, False], ids=["kernel", "numpy"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """As summed by the kernel, and without one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "compiled", lambda *_: request.param)
        yield


@pytest.mark.usefixtures("_way")
@given(any_threads(), st.integers(0, 60), st.integers(0, 90), st.integers(1, 40))
@settings(max_examples=50)
def test_bins_are_exact(threads: list[list[Interval]], start: int, length: int, bins: int) -> None:
    recording = recorded(threads)
    table = states_in_bins(recording, bins, Selection(start, start + length))
    rows = list(range(len(threads)))[::-1]
    some = states_in_bins(recording, bins, Selection(start, start + length, rows))
    over_time = concurrency_over_time(recording, bins, Selection(start, start + length))
    expected = [bins_of(one, start, start + length, bins) for one in threads]
    assert table.tolist() == expected
    assert some.tolist() == expected[::-1]
    lengths = (over_time["end_ns"] - over_time["start_ns"]).to_numpy()
    assert lengths.sum() == length
    for i, state in enumerate(STATES):
        together = over_time[state].to_numpy() * np.maximum(lengths, 1)
        assert together.tolist() == pytest.approx(np.sum(expected, axis=0)[:, i].tolist())


@pytest.mark.usefixtures("_way")
@given(any_threads(), st.integers(0, 60), st.integers(0, 90))
@settings(max_examples=50)
def test_concurrency_is_exact(threads: list[list[Interval]], start: int, length: int) -> None:
    recording = recorded(threads)
    at_once = concurrency(recording, Selection(start, start + length))
    mean = effective_concurrency(recording, Selection(start, start + length))
    assert at_once.tolist() == running_at_once(threads, start, start + length)
    if length:
        assert mean == pytest.approx(sum(k * ns for k, ns in enumerate(at_once)) / length)
    else:
        assert math.isnan(mean)


@pytest.mark.usefixtures("_way")
@given(any_threads(), st.sampled_from([0.0, 0.01, 0.2]))
@settings(max_examples=50)
def test_the_serial_part_is_exact(threads: list[list[Interval]], tolerance: float) -> None:
    awake = [0] * END
    for intervals in threads:
        for one in intervals:
            kind = LOCKS[one.lock].kind if one.lock >= 0 else "other"
            if one.state in {0, 1, 4} or (one.state == State.WAITING and kind not in NO_WORK):
                for time in range(one.start_ns, min(one.end_ns, END)):
                    awake[time] += 1
    recording = recorded(threads)
    found = serial_parts(recording, tolerance)
    begin, end = serial_of(awake, tolerance)
    assert (found.start_s, found.end_s) == (begin / 1e9, min(end, END - begin) / 1e9)
    if begin + end < END:
        alone = running_at_once(threads, begin, END - end)
        assert found.alone_share == pytest.approx(alone[1] / (END - end - begin))
    else:
        assert math.isnan(found.alone_share)


@given(any_threads(), st.integers(0, 60), st.integers(1, 90))
@settings(max_examples=50)
def test_waits_are_exact(threads: list[list[Interval]], start: int, length: int) -> None:
    end = start + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "RETRY_NS", 5)
        recording = recorded(threads)
        expected = waits_of(threads, start, end, 5)
        found = sums.waits(recording, Selection(start, end))
        names = ("row", "lock", "start_ns", "end_ns", "waiting_ns", "ready_ns")
        for name in (*names, "other", "stack", "flags"):
            assert found[name].tolist() == [getattr(one, name) for one in expected]
        table = lock_waits(recording, Selection(start, end))
        totals = {
            lock: sum(one.waiting_ns + one.ready_ns for one in expected if one.lock == lock)
            for lock in {one.lock for one in expected}
        }
        assert dict(zip(table["lock"], table["total_s"], strict=True)) == {
            lock: ns / 1e9 for lock, ns in totals.items()
        }
        assert table["total_s"].is_monotonic_decreasing
        for row in table.itertuples():
            mine = [one for one in expected if one.lock == row.lock]
            assert row.waits == len(mine)
            assert row.threads == len({one.row for one in mine})
            assert row.longest_ms == max(one.waiting_ns + one.ready_ns for one in mine) / 1e6
        for table in (
            wait_paths(recording, None, Selection(start, end)),
            lock_holders(recording, None, Selection(start, end)),
        ):
            assert table["waits"].sum() == len(expected)
            assert table["total_s"].sum() == pytest.approx(sum(totals.values()) / 1e9)


# --- by hand -------------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Two threads; the second waits twice for the first lock, the first once for the second's end.

    The second wait is interrupted: it runs for 2 us, and asks again.
    """
    us = 1000
    return recording_of(
        tmp_path,
        [
            [(0, 100 * us, 0), (100 * us, 900 * us, 2, 0, -1, 3, -1, 3), (900 * us, 1000 * us, 0)],
            [
                (100 * us, 200 * us, 0),
                (200 * us, 300 * us, 2, 0, -1, 0, 0, 0),
                (300 * us, 310 * us, 1, 0, -1, 0, 0, 0),
                (310 * us, 400 * us, 4),
                (400 * us, 450 * us, 2, 0, -1, 0, 0, 0),
                (450 * us, 452 * us, 0),
                (452 * us, 480 * us, 2, 0, -1, 0, 0, 0),
                (480 * us, 900 * us, 0),
            ],
        ],
        names=["job", "event-0"],
        meta={"cpus": 1},
    )


def test_locks_on_one_line_are_named_beside_each_other(tmp_path: Path) -> None:
    """Of one process; a join is none, and what the symbol table names is not named twice."""
    locks = (
        Lock("lock in take", "mutex", 0x1000, 100),
        Lock("lock in give", "mutex", 0x1028, 100),
        Lock("queue", "mutex", 0x1040, 100, ("hits",)),
        Lock("other process", "mutex", 0x1008, 101),
        Lock("pthread_join", "join", 0x1010, 100),
    )
    intervals = [
        (100 * at, 100 * at + 50, State.WAITING, 0, -1, at, -1, -1) for at in range(len(locks))
    ]
    found = lock_waits(recording_of(tmp_path, [intervals], locks=locks))
    beside = dict(zip(found["name"], found["on_its_line"], strict=True))
    assert beside == {
        "lock in take": "lock in give at 0x1028",
        "lock in give": "lock in take at 0x1000",
        "queue": "hits",
        "other process": "",
    }


def test_paths_holders_and_the_longest(recording: Recording) -> None:
    (path,) = wait_paths(recording, 0).to_dict("records")
    assert (path["stack"], path["waits"], path["total_s"]) == (STACKS[0], 2, 188e-6)
    (holder,) = lock_holders(recording, 0).to_dict("records")
    assert (holder["holder"], holder["thread"], holder["total_s"]) == (0, "job", 188e-6)
    (longest,) = longest_waits(recording, 1, Selection(rows=[1])).to_dict("records")
    assert (longest["thread"], longest["name"]) == ("event-0", "output_module")
    assert longest["total_ms"] == 0.11
    assert (longest["start_ns"], longest["end_ns"], longest["holder"]) == (200_000, 310_000, "job")
    assert len(longest_waits(recording)) == 2


def test_waiting_for_work_is_no_work_but_waiting_for_a_lock_is(tmp_path: Path) -> None:
    def begin(lock: int) -> float:
        threads: Any = [[(0, 1000, 0)], [(0, 600, 2, 0, -1, lock), (600, 1000, 0)]]
        return serial_parts(recording_of(tmp_path / str(lock), threads)).start_s

    kinds = [lock.kind for lock in LOCKS]
    assert [begin(kinds.index(kind)) for kind in ("condition", "join")] == [600 / 1e9] * 2
    assert begin(kinds.index("mutex")) == begin(-1) == 0.0


def test_too_little_memory_is_said(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = SimpleNamespace(thread_levels=lambda *_: -1)
    refusing = SimpleNamespace(lib=lib, ffi=sums.load().ffi)
    monkeypatch.setattr(sums, "compiled", lambda *_: True)
    monkeypatch.setattr(sums, "load", lambda: refusing)
    with pytest.raises(MeasurementError, match="not enough memory for the 2 threads"):
        concurrency(recording)
