"""Where the threads of a recording ran or waited: samples for `instruments.profile.views`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads.formats import ALL, Selection
from perflib.instruments.threads.intervals import waits
from perflib.instruments.threads.recording import Recording

__all__ = ["cpu_samples", "wait_samples"]


def cpu_samples(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """Where threads spent CPU time; a sample's period is the CPU time (ns) that it stands for."""
    start, end = recording.span(selection)
    low = bisect_left(recording.samples, start, key=lambda one: one["time_ns"])
    high = bisect_left(recording.samples, end, low, key=lambda one: one["time_ns"])
    found = recording.samples[low:high]
    if selection.rows is not None:
        found = found[np.isin(found["thread"], recording.rows(selection.rows))]
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
