"""Where the threads of a recording ran or waited: samples for `instruments.profile.views`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads.formats import ALL, INTERVAL, STATES, Selection, State
from perflib.instruments.threads.intervals import waits
from perflib.instruments.threads.recording import Recording

OFF_CPU = (State.WAITING, State.SLEEPING, State.READY)
"""The states of a thread that has no core."""


def cpu_samples(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """Where threads spent CPU time; a sample's period is the CPU time (ns) that it stands for."""
    start, end = recording.span(selection)
    low = bisect_left(recording.samples, start, key=lambda one: one["time_ns"])
    high = bisect_left(recording.samples, end, low, key=lambda one: one["time_ns"])
    found = recording.samples[low:high]
    if selection.rows is not None:
        found = found[np.isin(found["thread"], recording.rows(selection.rows))]
    found = recording.selected(selection, found)
    return _table(recording, "cpu", found["time_ns"], found["thread"], found["stack"],
                  found["weight_ns"])  # fmt: skip


def wait_samples(
    recording: Recording, selection: Selection = ALL, lock: int | None = None
) -> pd.DataFrame:
    """Where threads waited for locks (or one): a row a wait, its period the time (ns) it took.

    That includes the time ready for a core at its end.
    """
    found = waits(recording, selection, lock)
    return _table(recording, "wait", found["start_ns"], found["row"], found["stack"],
                  found["waiting_ns"] + found["ready_ns"])  # fmt: skip


def off_cpu_samples(
    recording: Recording, selection: Selection = ALL, states: Sequence[State] = OFF_CPU
) -> pd.DataFrame:
    """Run-queue delays and waits: a row an interval, its period the time (ns) it took.

    For a flame graph weighted by ``period``. The innermost frame is the state, in brackets:
    ``[waiting]`` for a lock, ``[sleeping]``, ``[ready]`` (run-queue delay; one that was preempted
    has no stack of its own).
    """
    start, end = recording.span(selection)
    parts, rows = [], []
    for row in np.unique(recording.rows(selection.rows)).tolist():
        low, high = int(recording.first[row]), int(recording.first[row + 1])
        low = bisect_right(recording.intervals, start, low, high, key=lambda one: one["end_ns"])
        high = bisect_left(recording.intervals, end, low, high, key=lambda one: one["start_ns"])
        mine = recording.intervals[low:high]
        mine = recording.selected(selection, mine[np.isin(mine["state"], states)])
        parts.append(mine)
        rows.append(np.full(len(mine), row, dtype=np.int32))
    found = np.concatenate([np.empty(0, dtype=INTERVAL), *parts])
    row = np.concatenate([np.empty(0, dtype=np.int32), *rows])
    begin = np.maximum(found["start_ns"], start)
    recording.check(stacks=found["stack"])
    # Each pair of a stack and a state is a stack of its own.
    pairs = found["stack"].astype(np.int64) * len(STATES) + found["state"]
    used, codes = np.unique(pairs, return_inverse=True)
    stacks = recording.stack_texts((used // len(STATES)).tolist())
    names = [f"[{STATES[number]}]" for number in (used % len(STATES)).tolist()]
    texts = [
        f"{stack};{name}" if stack else name for stack, name in zip(stacks, names, strict=True)
    ]
    return _frame(recording, "off-CPU", begin, row, (codes, texts, names),
                  np.minimum(found["end_ns"], end) - begin)  # fmt: skip


def _table(
    recording: Recording,
    event: str,
    time_ns: npt.NDArray[np.int64],
    row: npt.NDArray[np.int32],
    stack: npt.NDArray[np.int32],
    period: npt.NDArray[np.int64],
) -> pd.DataFrame:
    recording.check(rows=row, stacks=stack)
    used, codes = np.unique(stack, return_inverse=True)
    texts = recording.stack_texts(used)
    leaves = [text.rpartition(";")[2] or "[unknown]" for text in texts]
    return _frame(recording, event, time_ns, row, (codes, texts, leaves), period)


def _frame(
    recording: Recording,
    event: str,
    time_ns: npt.NDArray[np.int64],
    row: npt.NDArray[np.int32],
    stacks: tuple[npt.NDArray[np.intp], Sequence[str], Sequence[str]],
    period: npt.NDArray[np.int64],
) -> pd.DataFrame:
    """The table; ``stacks``: of each row the number of its stack, their texts, their leaves."""
    codes, texts, leaves = stacks
    one_value = np.zeros(len(row), dtype=np.int64)
    return pd.DataFrame(
        {
            "time_ns": np.array(time_ns),
            "pid": recording.threads["pid"].to_numpy()[row],
            "tid": recording.threads["tid"].to_numpy()[row],
            "comm": _categorical(row, list(recording.threads["name"])),
            "event": _categorical(one_value, [event]),
            "period": np.array(period),
            "symbol": _categorical(codes, leaves),
            "object": _categorical(one_value, [""]),
            "stack": _categorical(codes, texts),
        }
    )


def _categorical(codes: npt.NDArray[np.integer[Any]], texts: Sequence[str]) -> pd.Categorical:
    numbers, names = pd.factorize(np.asarray(texts, dtype=object))
    return pd.Categorical.from_codes(numbers[codes], pd.Index(names, dtype=object))
