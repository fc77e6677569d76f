"""What both kinds of files take from a recording: its intervals in pieces, checked, with names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perflib.instruments.threads.formats import STATES, State
from perflib.instruments.threads.recording import Recording
from perflib.model.escape import visible

__all__ = ["names", "pieces", "woken"]

_PIECE = 1 << 16  # intervals in memory


def pieces(recording: Recording, row: int) -> Iterator[npt.NDArray[np.void]]:
    """The intervals of a thread, by time; their numbers are of what there is."""
    first, last = (int(at) for at in recording.first[row : row + 2])
    for at in range(first, last, _PIECE):
        piece = np.array(recording.intervals[at : min(at + _PIECE, last)])
        known = piece["lock"][piece["lock"] >= 0]
        recording.check(others=piece["other"], stacks=piece["stack"], locks=known)
        piece["state"] = np.minimum(piece["state"], State.UNKNOWN)
        yield piece[piece["end_ns"] > piece["start_ns"]]


def names(recording: Recording) -> list[str]:
    """What an interval is called: number ``state * (locks + 1) + lock + 1``."""
    locks = ["", *(f": {visible(lock.name)}" for lock in recording.locks)]
    return [state + lock for state in STATES for lock in locks]


def woken(piece: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which intervals another thread of the job ended."""
    asleep = (piece["state"] == State.WAITING) | (piece["state"] == State.SLEEPING)
    return np.asarray(asleep & (piece["other"] >= 0), dtype=bool)
