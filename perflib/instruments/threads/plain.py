"""The sums of ``kernels_c/readers/thread_bins.c`` in numpy, where that cannot be compiled.

Recordings are read on any system; this takes some ten times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.instruments.threads.formats import STATES, State
from perflib.instruments.threads.recording import Recording

_Rows = npt.NDArray[np.int32]


def _within(
    recording: Recording, row: int, start_ns: int, end_ns: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A thread's intervals, and their ends within a span."""
    found = recording.intervals[recording.first[row] : recording.first[row + 1]]
    begin, end = (found[name].clip(start_ns, end_ns) for name in ("start_ns", "end_ns"))
    return found, begin, end


def bins_of(
    recording: Recording, row: int, span: tuple[int, int], bins: int
) -> npt.NDArray[np.float64]:
    """As ``thread_bins``, of one thread: ns by bin and state."""
    edges = np.array([span[0] + number * (span[1] - span[0]) // bins for number in range(bins + 1)])
    intervals, begin, end = _within(recording, row, *span)
    table = np.zeros((bins, len(STATES)))
    for state in range(len(STATES)):
        mine = np.minimum(intervals["state"], State.UNKNOWN) == state
        if mine.any():
            starts, stops = begin[mine], end[mine]
            begun = np.searchsorted(starts, edges)  # before an edge; the last may reach beyond it
            beyond = (stops[begun - 1] - edges).clip(0) * (begun > 0)
            until = np.concatenate([[0], np.cumsum(stops - starts)])[begun] - beyond
            table[:, state] = np.diff(until)
    return table


def levels(
    recording: Recording,
    wanted: _Rows,
    span: tuple[int, int],
    states: list[int],
    awake: npt.NDArray[np.uint8],
    most: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """As ``thread_levels``: ns with k threads counted, and when there came to be more than most."""
    begins, ends = [], []
    for row in wanted:
        intervals, begin, end = _within(recording, row, *span)
        lock = intervals["lock"]
        lock = np.where((lock < 0) | (lock >= len(awake) - 1), len(awake) - 1, lock)
        waits_awake = (intervals["state"] == State.WAITING) & (awake[lock] > 0)
        counted = (np.isin(intervals["state"], states) | waits_awake) & (begin < end)
        begins.append(begin[counted])
        ends.append(end[counted])
    begun, ended = np.concatenate(begins), np.concatenate(ends)
    times, place = np.unique(np.concatenate([begun, ended]), return_inverse=True)
    change = np.bincount(place, np.repeat([1, -1], [len(begun), len(ended)]), len(times))
    level = np.concatenate([[0], np.cumsum(change)]).astype(np.int64).clip(0, len(wanted))
    lasts = np.diff(np.concatenate([span[:1], times, span[1:]]))
    by_level = np.bincount(level, lasts, len(wanted) + 1).astype(np.int64)
    return by_level, times[np.diff(level > most) & (times < span[1])]


def waits(
    recording: Recording, wanted: _Rows, span: tuple[int, int], retry_ns: int, kind: np.dtype[Any]
) -> npt.NDArray[np.void]:
    """As ``thread_waits``: one operation on a lock a record."""
    found: list[dict[str, int]] = []
    for row in wanted:
        now: dict[str, int] = {"lock": -1}
        intervals, begin, end = _within(recording, row, *span)
        for one, at, until in zip(intervals, begin.tolist(), end.tolist(), strict=True):
            state, flags, _, lock, other, stack = (int(value) for value in one.tolist()[2:])
            if until <= at:
                continue
            if lock < 0:
                if state != State.RUNNING or one["end_ns"] - one["start_ns"] >= retry_ns:
                    now = {"lock": -1}
                continue
            if lock != now["lock"]:
                zeros = dict.fromkeys(kind.names or (), 0)
                now = zeros | {"start_ns": at, "row": int(row), "lock": lock}
                now |= {"other": other, "stack": stack}
                found.append(now)
            now["ready_ns" if state == State.READY else "waiting_ns"] += until - at
            now |= {"end_ns": until, "flags": now["flags"] | flags}
            now["other"] = other if now["other"] < 0 else now["other"]
            now["stack"] = stack if now["stack"] < 0 else now["stack"]
    return np.array([tuple(one[name] for name in kind.names or ()) for one in found], dtype=kind)
