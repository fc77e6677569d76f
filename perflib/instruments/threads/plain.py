"""Two sums of ``kernels_c/readers/thread_bins.c`` in numpy, where that cannot be compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perflib.instruments.threads.formats import STATES, State
from perflib.instruments.threads.recording import Recording


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
    wanted: npt.NDArray[np.int32],
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
