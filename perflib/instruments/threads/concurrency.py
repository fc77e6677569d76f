"""How many threads of a recording worked at once, and what each did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads import intervals
from perflib.instruments.threads.formats import ALL, STATES, Selection, State
from perflib.instruments.threads.recording import Recording

_AT_WORK = (State.RUNNING, State.SPINNING)
_RUNNABLE = (State.RUNNING, State.SPINNING, State.READY)
_NO_WORK = ("condition", "barrier")  # who waits so, waits for work, not for permission


class Serial(NamedTuple):
    """Begin and end of the job in which only one thread worked (seconds), and what is between.

    ``alone_share``: the share of the time between them in which just one thread was running; NaN if
    there is no time between them.
    """

    start_s: float
    end_s: float
    alone_share: float


def thread_states(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """Seconds of each thread (the index is its row) in each state; also tid, pid and name."""
    seconds = intervals.states_in_bins(recording, 1, selection)[:, 0, :] / 1e9
    table = recording.threads.loc[recording.rows(selection.rows), ["tid", "pid", "name"]]
    return table.assign(**{state: seconds[:, i] for i, state in enumerate(STATES)})


def concurrency(recording: Recording, selection: Selection = ALL) -> npt.NDArray[np.int64]:
    """For how many ns k threads were running (or spinning) at once, for k from 0 to all."""
    return intervals.levels(recording, _AT_WORK, selection)[0]


def effective_concurrency(recording: Recording, selection: Selection = ALL) -> float:
    """How many threads were running (or spinning) on average; NaN for no time at all."""
    start, end = recording.span(selection)
    if end == start:
        return float("nan")
    return float(concurrency_over_time(recording, 1, selection)["concurrency"].iloc[0])


def concurrency_over_time(
    recording: Recording, bins: int, selection: Selection = ALL
) -> pd.DataFrame:
    """How many threads were in each state on average, bin by bin.

    Returns
    -------
    pandas.DataFrame
        start_ns, end_ns, a column for each of ``STATES``, and concurrency: running and spinning.
    """
    start, end = recording.span(selection)
    sums = intervals.states_in_bins(recording, bins, selection, together=True)
    edges = start + np.arange(bins + 1) * (end - start) // bins
    lengths = np.maximum(np.diff(edges), 1)  # a bin without time has no threads
    table = pd.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:]})
    for i, state in enumerate(STATES):
        table[state] = sums[0, :, i] / lengths
    return table.assign(concurrency=table["running"] + table["spinning"])


def serial_parts(recording: Recording, tolerance: float = 0.01) -> Serial:
    """The begin and the end of the job that only one thread worked.

    The begin is the longest one during which at most one thread was awake, but for a share of
    ``tolerance`` (a helper that polls now and then does not make a job parallel); the end likewise.
    A thread is awake if it runs, spins, is ready, or waits for permission: for a mutex, for
    example. It is not awake if it sleeps, waits for work (a condition variable) or at a barrier, or
    if nothing is known of it.
    """
    start, end = recording.start_ns, recording.end_ns
    # The last place is that of no lock: a futex that is not known may be anybody's lock.
    awake = np.array([lock.kind not in _NO_WORK for lock in recording.locks] + [True])
    _, times = intervals.levels(recording, _RUNNABLE, awake=awake, most=1)
    lengths = np.diff(np.concatenate([[start], times, [end]]))
    several = np.arange(len(lengths)) % 2 == 1
    begin_ns = _begin(lengths, several, tolerance)
    end_ns = _begin(lengths[::-1], several[::-1], tolerance)
    middle = (start + begin_ns, end - end_ns)
    alone = float("nan")
    if middle[1] > middle[0]:
        alone = int(concurrency(recording, Selection(*middle))[1:2].sum()) / (middle[1] - middle[0])
    return Serial(begin_ns / 1e9, min(end_ns, end - start - begin_ns) / 1e9, alone)


def _begin(lengths: npt.NDArray[np.int64], several: npt.NDArray[np.bool_], tolerance: float) -> int:
    """How long it takes until several are awake for more than a tolerated share of the time."""
    before = np.append(0, np.cumsum(lengths))
    excess = np.append(0, np.cumsum(lengths * several))
    begins = np.flatnonzero(several & (lengths > 0))
    begins = begins[excess[begins] <= tolerance * before[begins]]
    if excess[-1] <= tolerance * before[-1]:
        return int(before[-1])
    return int(before[begins[-1]])
