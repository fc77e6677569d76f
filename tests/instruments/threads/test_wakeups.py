"""Who woke whom, chains of that, and the critical path; against plain Python, and by stories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from perflib.instruments.threads.formats import INTERVAL, STATES, Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.wakeups import (
    PART,
    PATH_BY,
    chain,
    critical_path,
    gains,
    path_summary,
    wakeups,
)
from perflib.model.errors import UserError
from tests.instruments.threads.made import LOCKS, made_recording, recording_of
from tests.reference.thread_path import Cell, path_end, path_of
from tests.reference.thread_states import Interval

RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN = State
LOCK_A, LOCK_B = 0, 1

# --- against the reference -----------------------------------------------------------------------

PIECE = st.tuples(
    st.integers(0, 3),  # a gap before it
    st.integers(1, 6),
    st.sampled_from([0, 0, 1, 2, 2, 3, 4, 5]),
    st.integers(-1, 2),  # lock
    st.integers(-1, 3),  # other
)


@st.composite
def many_threads(draw: st.DrawFn) -> list[list[Interval]]:
    """Threads that need not make sense: gaps, wakers that sleep, threads that wake each other."""
    threads = []
    for _ in range(draw(st.integers(1, 4))):
        time, intervals = draw(st.integers(0, 4)), []
        for gap, length, state, lock, other in draw(st.lists(PIECE, max_size=6)):
            time += gap if gap == 3 else 0
            intervals.append(Interval(time, time + length, state, 0, 0, lock, other, lock))
            time += length
        threads.append(intervals)
    return [
        [one._replace(other=one.other if one.other < len(threads) else -1) for one in intervals]
        for intervals in threads
    ]


def _path(
    threads: list[list[Interval]], origin: list[int], start: int, end: int
) -> tuple[int, np.ndarray[Any, Any]]:
    kernel = kernels.load("thread_path")
    lib, ffi = kernel.lib, kernel.ffi
    intervals = np.array([tuple(one) for each in threads for one in each], dtype=INTERVAL)
    first = np.cumsum([0, *map(len, threads)])
    rows = np.arange(len(threads), dtype=np.int32)
    pointers = ffi.from_buffer("thread_interval[]", intervals), ffi.from_buffer("int64_t[]", first)
    last = lib.thread_path_end(*pointers, ffi.from_buffer("int32_t[]", rows), len(rows), start, end)
    parts = np.empty(0, dtype=PART)
    origins = np.array(origin, dtype=np.int32)
    for _ in range(2 if last >= 0 else 0):
        n = lib.thread_path(
            *pointers, len(threads), ffi.from_buffer("int32_t[]", origins), last, start, end,
            ffi.from_buffer("thread_part[]", parts), len(parts),
        )  # fmt: skip
        parts = parts if n <= len(parts) else np.empty(n, dtype=PART)
    return last, parts[::-1]


def _cells(parts: np.ndarray[Any, Any]) -> list[Cell]:
    cells = []
    for start, end, row, state, lock, stack, woken_by in parts.tolist():
        cells += [Cell(row, state, lock, stack, woken_by)]
        cells += [Cell(row, state, lock, stack)] * (end - start - 1)
    return cells


@given(many_threads(), st.integers(0, 20), st.integers(0, 20), st.randoms())
def test_any_intervals_give_the_path_that_plain_python_finds(
    threads: list[list[Interval]], start: int, length: int, random: Any
) -> None:
    end = start + length
    origin = [random.randint(-1, len(threads) - 1) for _ in threads]
    origin = [-1 if one == row else one for row, one in enumerate(origin)]
    last, parts = _path(threads, origin, start, end)
    assert last == path_end(threads, range(len(threads)), start, end)
    if last >= 0:
        assert _cells(parts) == path_of(threads, origin, last, start, end)
        assert parts["start_ns"][0] == start
        assert parts["end_ns"][-1] == end
        assert (parts["end_ns"][:-1] == parts["start_ns"][1:]).all()


# --- stories -------------------------------------------------------------------------------------


def _of(path: pd.DataFrame) -> list[tuple[int, int, int, str, int, int]]:
    columns = ("start_ns", "end_ns", "thread", "state", "lock", "woken_by")
    return [(*row[:3], STATES[row[3]], *row[4:]) for row in path[list(columns)].to_numpy().tolist()]


@pytest.fixture
def convoy(tmp_path: Path) -> Recording:
    """A holds lock A; B holds lock B and waits for A; C waits for B's lock."""
    return recording_of(
        tmp_path,
        [
            [(0, 10, RUNNING), (10, 12, SLEEPING)],
            [(0, 2, RUNNING), (2, 10, WAITING, 0, -1, LOCK_A, 0, 0), (10, 14, RUNNING)],
            [
                (0, 4, RUNNING),
                (4, 14, WAITING, 0, -1, LOCK_B, 1, 1),
                (14, 15, READY, 0, -1, LOCK_B, 1, 1),
                (15, 20, RUNNING),
            ],
        ],
        samples=[(5, 0, 4, 6), (12, 1, 5, 1), (13, 1, 4, 1), (16, 2, 5, 2), (3, 2, 4, 100)],
    )


def test_a_convoy_of_locks_is_the_critical_path(convoy: Recording) -> None:
    assert _of(critical_path(convoy)) == [
        (0, 2, 0, "running", -1, -1),
        (2, 10, 0, "running", LOCK_A, -1),  # C waits from 4 on, but B's wait is the inner one
        (10, 14, 1, "running", LOCK_B, 0),
        (14, 15, 2, "ready", LOCK_B, 1),
        (15, 20, 2, "running", -1, -1),
    ]


def test_its_parts_have_names_and_shares(convoy: Recording) -> None:
    by_lock = path_summary(convoy, "lock").set_index("name")["share_percent"]
    assert by_lock.to_dict() == pytest.approx({LOCKS[0].name: 40, "": 35, LOCKS[1].name: 25})
    by_thread = path_summary(convoy, "thread").set_index("name")["share_percent"]
    assert by_thread.to_dict() == pytest.approx({"event-0": 50, "event-2": 30, "event-1": 20})
    by_state = path_summary(convoy, "state").set_index("name")["share_percent"]
    assert by_state.to_dict() == pytest.approx({"running": 95, "ready": 5})
    for by in PATH_BY:
        table = path_summary(convoy, by)
        assert table["seconds"].sum() <= 20e-9 * (1 + 1e-9)


def test_functions_on_the_path_share_its_running_time_as_its_samples_do(
    convoy: Recording,
) -> None:
    # 19 ns ran; samples of 10 ns are on the path, the one of 100 ns is not
    table = path_summary(convoy, "function").set_index("name")
    assert table["samples"].to_dict() == {"physics": 2, "scatter": 2}
    assert table["seconds"].to_dict() == pytest.approx(
        {"physics": 19e-9 * 7 / 10, "scatter": 19e-9 * 3 / 10}
    )


def test_a_path_without_samples_names_no_function(convoy: Recording) -> None:
    path = critical_path(convoy, Selection(17, 20))
    assert path_summary(convoy, "function", path)["name"].tolist() == ["[no samples]"]


def test_the_path_of_a_part_of_the_time_and_of_chosen_threads(convoy: Recording) -> None:
    assert _of(critical_path(convoy, Selection(8, 12))) == [
        (8, 10, 0, "running", LOCK_A, -1),
        (10, 12, 1, "running", -1, 0),
    ]
    assert critical_path(convoy, Selection(5, 5)).empty
    assert _of(critical_path(convoy, Selection(rows=[0], end_ns=9))) == [
        (0, 9, 0, "running", -1, -1)
    ]


def test_wake_ups_in_the_order_of_time(convoy: Recording) -> None:
    found = wakeups(convoy)
    assert found[["time_ns", "waker", "woken", "lock", "state"]].to_numpy().tolist() == [
        [10, 0, 1, LOCK_A, WAITING],
        [14, 1, 2, LOCK_B, WAITING],
    ]
    assert wakeups(convoy, Selection(rows=[0]))["time_ns"].tolist() == [10]
    assert wakeups(convoy, Selection(10, 14))["time_ns"].tolist() == [10]
    assert wakeups(convoy, Selection(locks=[LOCK_B]))["time_ns"].tolist() == [14]
    assert wakeups(convoy, Selection(function="^formula$"))["time_ns"].tolist() == [14]
    with pytest.raises(UserError, match="no lock 9: this recording has 4"):
        wakeups(convoy, Selection(locks=[9]))


def test_without_a_lock_the_job_is_as_much_shorter_as_its_end_depends_on_it(
    convoy: Recording, tmp_path: Path
) -> None:
    """Without A, B releases its own lock 8 ns earlier; without B, C never waits for it."""
    assert gains(convoy, [[LOCK_A], [LOCK_B], [LOCK_A, LOCK_B], []]) == pytest.approx(
        [8e-9, 10e-9, 10e-9, 0]
    )
    assert gains(convoy, [[LOCK_A], [LOCK_B]], Selection(8, 12)) == pytest.approx([2e-9, 0])
    assert gains(convoy, [[LOCK_A], [LOCK_B]], Selection(rows=[1, 2])) == pytest.approx(
        [8e-9, 6e-9]  # without B, B's own end is the last one
    )
    assert gains(convoy, [[LOCK_A]], Selection(5, 5)) == [0.0]
    born = [(12, 14, READY, 0, -1, -1, 1), (14, 25, RUNNING)]  # by who waited for A
    held = [(0, 10, RUNNING)], [(0, 2, RUNNING), (2, 10, WAITING, 0, -1, LOCK_A, 0, 0)]
    late = recording_of(tmp_path / "born", [held[0], [*held[1], (10, 14, RUNNING)], born])
    assert gains(late, [[LOCK_A], [LOCK_B]]) == pytest.approx([8e-9, 0])


def test_a_chain_goes_back_to_who_woke_whom(convoy: Recording) -> None:
    assert chain(convoy, 2, 20)["time_ns"].tolist() == [14, 10]
    assert chain(convoy, 2, 14)["waker"].tolist() == [1, 0]
    assert chain(convoy, 2, 14, depth=1)["waker"].tolist() == [1]
    assert chain(convoy, 2, 13).empty
    with pytest.raises(UserError, match="no thread 7"):
        chain(convoy, 7, 13)


def test_a_thread_that_is_born_comes_from_its_parent(tmp_path: Path) -> None:
    made = recording_of(
        tmp_path,
        [
            [(0, 5, RUNNING), (5, 9, SLEEPING, 0, -1, -1, 1, 3), (9, 10, RUNNING)],
            [(3, 4, READY, 0, -1, -1, 0), (4, 9, RUNNING)],
        ],
    )
    assert wakeups(made)[["time_ns", "waker", "woken", "state"]].to_numpy().tolist() == [
        [3, 0, 1, -1],
        [9, 1, 0, SLEEPING],
    ]
    assert [part[:4] for part in _of(critical_path(made))] == [
        (0, 3, 0, "running"),
        (3, 4, 1, "ready"),
        (4, 9, 1, "running"),
        (9, 10, 0, "running"),
    ]
    assert chain(made, 0, 10)["woken"].tolist() == [0, 1]


def test_threads_that_do_not_wait_for_each_other_have_a_path_through_one(tmp_path: Path) -> None:
    """Null: nothing depends on anything, so nobody is woken and no lock has a share."""
    made = made_recording(tmp_path, threads=4, seconds=0.2, waits=False)
    path = critical_path(made)
    assert set(path["thread"]) == {0}
    assert (path["lock"] == -1).all()
    assert (path["woken_by"] == -1).all()
    assert int((path["end_ns"] - path["start_ns"]).sum()) == made.end_ns - made.start_ns


def test_a_recording_without_threads_has_no_path(tmp_path: Path) -> None:
    made = recording_of(tmp_path, [], meta={"end_ns": 10})
    assert critical_path(made).empty
    assert wakeups(made).empty
    for by in PATH_BY:
        assert path_summary(made, by)["seconds"].sum() == 0


def test_numbers_of_nothing_are_refused(tmp_path: Path) -> None:
    made = recording_of(
        tmp_path, [[(0, 5, RUNNING)], [(0, 5, WAITING, 0, -1, 0, -1, 0), (5, 9, RUNNING)]]
    )
    intervals = np.load(made.folder / "intervals.npy", mmap_mode="r+")
    intervals["lock"][1] = 99
    intervals.flush()
    with pytest.raises(UserError, match="names lock 99 of 4"):
        critical_path(Recording.open(made.folder))
    intervals["other"][1] = 0
    intervals.flush()
    with pytest.raises(UserError, match="names lock 99 of 4"):
        wakeups(Recording.open(made.folder))
