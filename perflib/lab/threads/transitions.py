"""Who woke whom, as the timeline draws it: arrows, chains of wake-ups, the critical path.

All of it is bounded. Of more wake-ups than can be distinguished, those of a slot of time from one
thread to another are one arrow, and only the largest such groups are drawn; how many wake-ups they
stand for is part of what is returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.threads.formats import Selection
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.wakeups import chain, critical_path, wakeups
from perflib.lab.threads.page import shown

_MAX_ARROWS = 150
_SLOTS = 24  # of time, where wake-ups are drawn in groups
_MAX_GROUPS = 60
_MAX_STEPS = 2000  # of a critical path that are drawn
_DEPTH = 20  # wake-ups back in time


def arrows(recording: Recording, selection: Selection) -> dict[str, Any]:
    """The wake-ups of the selected threads, one by one, or the largest groups of them.

    Returns
    -------
    dict
        ``time`` (ns since the recording began), ``waker`` (row, -1: not known), ``woken`` (row),
        ``lock`` (place in ``locks``, -1: none) and ``count`` of each arrow; ``locks`` (names),
        ``wakeups`` (how many there are), ``drawn`` (how many the arrows stand for).
    """
    table = wakeups(recording, selection)
    found = {
        name: table[column].to_numpy(dtype=np.int64)
        for name, column in (("time", "time_ns"), ("waker", "waker"), ("woken", "woken"),
                             ("lock", "lock"))
    }  # fmt: skip
    found["time"] = found["time"] - recording.start_ns
    many = len(table)
    found["count"] = np.ones(many, dtype=np.int64)
    if many > _MAX_ARROWS:
        found = _largest(found, len(recording.threads), len(recording.locks))
    used, places = np.unique(found["lock"], return_inverse=True)
    none = int(len(used) > 0 and used[0] < 0)
    return {
        **{name: numbers.tolist() for name, numbers in found.items()},
        "lock": (places - none).tolist(),
        "locks": [shown(recording.locks[lock].name) for lock in used[none:]],
        "wakeups": many,
        "drawn": int(found["count"].sum()),
    }


def _largest(found: dict[str, Any], threads: int, locks: int) -> dict[str, Any]:
    """The largest groups of one slot of time, waker, woken thread and lock, at their mean time."""
    time = found["time"]
    first, span = int(time.min()), int(np.ptp(time)) + 1
    slot = (time - first) * _SLOTS // span
    key = ((slot * (threads + 1) + found["waker"] + 1) * threads + found["woken"]) * (locks + 1)
    groups, begins, which, counts = np.unique(
        key + found["lock"] + 1, return_index=True, return_inverse=True, return_counts=True
    )
    largest = np.sort(np.argsort(-counts, kind="stable")[:_MAX_GROUPS])
    means = first + np.bincount(which, weights=time - first, minlength=len(groups)) / counts
    one_each = begins[largest]
    return {name: found[name][one_each] for name in ("waker", "woken", "lock")} | {
        "time": np.rint(means[largest]).astype(np.int64),
        "count": counts[largest],
    }


def links(recording: Recording, row: int, time_ns: int) -> list[list[Any]]:
    """The wake-ups that led to a thread's last one before a time, the last one first.

    Each as: time (ns since the recording began), waker (row, -1: not known), woken (row), lock (its
    name, or "").
    """
    return [
        [
            int(one["time_ns"]) - recording.start_ns,
            int(one["waker"]),
            int(one["woken"]),
            shown(recording.locks[int(one["lock"])].name) if one["lock"] >= 0 else "",
        ]
        for one in chain(recording, row, time_ns, depth=_DEPTH).to_dict("records")
    ]


def critical(recording: Recording, window: Selection) -> tuple[list[list[int]], str]:
    """The critical path of a span of time: start and end (ns since the recording began) and row.

    What one thread did without a break is one part. The text says what is left out, or is "".
    """
    parts = joined(recording, window)
    words = ""
    if len(parts) > _MAX_STEPS:
        words = f"Of the critical path's {len(parts):,} steps the last {_MAX_STEPS:,} are drawn."
        parts = parts.tail(_MAX_STEPS)
    edges = parts[["start_ns", "end_ns"]].to_numpy(dtype=np.int64) - recording.start_ns
    rows = parts["thread"].to_numpy(dtype=np.int64)
    return np.column_stack([edges, rows]).tolist(), words


def joined(recording: Recording, window: Selection) -> pd.DataFrame:
    """The critical path, where what one thread did without a break is one part.

    Its columns: start_ns, end_ns, thread (its row; -1: not known).
    """
    path = critical_path(recording, window)
    begins = (path["thread"].diff() != 0).cumsum()
    return path.groupby(begins, as_index=False).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), thread=("thread", "first")
    )
