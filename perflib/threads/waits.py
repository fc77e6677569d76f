"""What a recording of threads says: how many worked at once, what they waited for, on whom.

Every function takes a span of time and rows of threads; what is not given is everything. They are
methods of `perflib.threads.recording.Recording` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.threads import intervals
from perflib.threads.formats import STATES, State

if TYPE_CHECKING:
    from perflib.threads.recording import Recording, Rows

__all__ = [
    "Cores",
    "Limit",
    "Serial",
    "compare",
    "concurrency",
    "concurrency_over_time",
    "cores",
    "effective_concurrency",
    "holders",
    "limiting",
    "lock_waits",
    "longest",
    "paths",
    "serial",
    "waits",
]

_AT_WORK = (State.RUNNING, State.SPINNING)
_RUNNABLE = (State.RUNNING, State.SPINNING, State.READY)
_NO_WORK = ("join", "condition", "barrier")  # who waits so, waits for work, not for permission
_PIECE = 1 << 20  # intervals looked at at once


class Serial(NamedTuple):
    """Begin and end of the job that only one thread worked, in seconds, and what lies between.

    ``alone_share``: the share of the time between them in which just one thread was running; NaN if
    there is no time between them.
    """

    start_s: float
    end_s: float
    alone_share: float


class Cores(NamedTuple):
    """Whether there were more threads than cores.

    ``cpus``: how many the job could use. ``ready_s``: time that threads were ready without a core,
    of all threads. ``over_share``: share of the time in which more threads wanted to run than
    there are CPUs. ``others_s``: CPU time that other processes had while a thread of the job was
    ready. ``more_threads_than_cores``: whether the job's own threads, not other processes, are why
    threads had no core.
    """

    cpus: int
    ready_s: float
    over_share: float
    others_s: float
    more_threads_than_cores: bool


class Limit(NamedTuple):
    """The lock that was waited for longest: its number, its name, the time and its share.

    ``share``: of the time of all threads that did not sleep.
    """

    lock: int
    name: str
    kind: str
    total_s: float
    share: float


# --- how many at once ----------------------------------------------------------------------------


class _Steps(NamedTuple):
    """``level[i]`` threads from ``time_ns[i]`` on, until ``time_ns[i + 1]``."""

    time_ns: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]


def _steps(
    recording: Recording,
    span: tuple[int, int],
    rows: npt.NDArray[np.int32],
    states: Sequence[int],
    awake_in: npt.NDArray[np.bool_] | None = None,
) -> _Steps:
    """How many threads were in one of some states at once; also those waiting for some locks."""
    start, end = span
    counted = np.isin(np.arange(256), states)
    edges = [np.array([start, end]) * 2]  # time and direction in one number, so that it is sorted
    for low, high in _pieces(recording, rows):
        piece = recording.intervals[low:high]
        kept = counted[piece["state"]]
        if awake_in is not None:
            kept |= (piece["state"] == State.WAITING) & awake_in[piece["lock"]]
        kept &= (piece["start_ns"] < end) & (piece["end_ns"] > start)
        edges.append(np.maximum(piece["start_ns"][kept], start) * 2 + 1)
        edges.append(np.minimum(piece["end_ns"][kept], end) * 2)
    keys = np.concatenate(edges)
    keys.sort()
    up = keys & 1
    level = np.cumsum(2 * up - 1)
    level += np.searchsorted(keys, start * 2, side="right") * 0
    return _Steps(keys >> 1, level)


def _pieces(
    recording: Recording, rows: npt.NDArray[np.int32]
) -> list[tuple[int, int]]:
    """Where the rows' intervals lie, in pieces of bounded size; neighbours together."""
    spans: list[list[int]] = []
    for row in np.unique(rows).tolist():
        low, high = int(recording.first[row]), int(recording.first[row + 1])
        if spans and spans[-1][1] == low:
            spans[-1][1] = high
        else:
            spans.append([low, high])
    return [
        (at, min(at + _PIECE, high)) for low, high in spans for at in range(low, high, _PIECE)
    ]
