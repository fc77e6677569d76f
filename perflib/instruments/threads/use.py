"""How well a job uses its cores, in the classes of Intel's VTune: idle, poor, ok, ideal, over.

VTune counts active threads, which run or could run, and compares them with a target, by default the
number of cores (Intel VTune Profiler User Guide, CPU Metrics Reference, "Thread Concurrency").
None active: idle. Up to 50 % of the target: poor. Up to 85 %: ok. Up to 115 %: ideal. More: over.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads.formats import ALL, Selection, State
from perflib.instruments.threads.intervals import levels
from perflib.instruments.threads.recording import Recording
from perflib.model.errors import UserError

CLASSES = ("idle", "poor", "ok", "ideal", "over")
"""The classes of use, from none to too many active threads."""

_MAX_PERCENT = (0, 50, 85, 115)  # of the target: what a class but the last has at most
_ACTIVE = (State.RUNNING, State.SPINNING, State.READY)


def use_of(threads: npt.ArrayLike, target: int) -> npt.NDArray[np.int64]:
    """The class, by its number in ``CLASSES``, of so many active threads.

    >>> [CLASSES[one] for one in use_of([0, 4, 5, 7, 9, 10], 8)]
    ['idle', 'poor', 'ok', 'ideal', 'ideal', 'over']
    """
    return np.searchsorted(_bounds(target), np.asarray(threads), side="left").astype(np.int64)


def active(recording: Recording, selection: Selection = ALL) -> npt.NDArray[np.int64]:
    """For how many ns k threads were active at once, for k from 0 to all."""
    return levels(recording, _ACTIVE, selection)[0]


def use_of_time(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """How long the cores were in each class of use.

    Returns
    -------
    pandas.DataFrame
        Five rows: use (its name), seconds, share_percent of the time.
    """
    at_once = active(recording, selection)
    use = use_of(np.arange(len(at_once)), _target(recording))
    seconds = np.bincount(use, weights=at_once, minlength=len(CLASSES)) / 1e9
    shares = 100 * seconds / max(float(seconds.sum()), 1e-12)
    return pd.DataFrame({"use": list(CLASSES), "seconds": seconds, "share_percent": shares})


def use_over_time(
    recording: Recording,
    bins: int,
    selection: Selection = ALL,
) -> pd.DataFrame:
    """The share of each bin of time in each class of use, from 0 to 1.

    Returns
    -------
    pandas.DataFrame
        start_ns, end_ns, and a column for each of ``CLASSES``.

    Raises
    ------
    UserError
        There are no bins.
    """
    if bins < 1:
        msg = f"bins={bins}: at least one is needed"
        raise UserError(msg)
    start, end = recording.span(selection)
    edges = start + np.arange(bins + 1) * (end - start) // bins
    above = [np.diff(edges).astype(np.float64)]
    for times in _changes(recording, selection):
        inside = np.arange(len(times) + 1) % 2  # whether it is above between two changes
        ends = np.concatenate([[start], times, [end]])
        before = np.append(0, np.cumsum(np.diff(ends) * inside))
        above.append(np.diff(np.interp(edges, ends, before)))
    shares = -np.diff(np.array([*above, np.zeros(bins)]), axis=0) / np.maximum(np.diff(edges), 1)
    table = pd.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:]})
    return table.assign(**dict(zip(CLASSES, np.clip(shares, 0, 1), strict=True)))


def use_by_function(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """In which functions CPU time was spent while the cores were in each class of use.

    Returns
    -------
    pandas.DataFrame
        The function with most CPU time first: function, cpu_s, and a column of seconds for each of
        ``CLASSES`` (idle only where a sample is at the very end of a run).
    """
    from perflib.instruments.threads.samples import cpu_samples

    samples = cpu_samples(recording, selection)
    times = samples["time_ns"].to_numpy() - 1  # a sample speaks of the time before it
    everybody = Selection(selection.start_ns, selection.end_ns)
    changes = _changes(recording, everybody)
    above = [np.searchsorted(each, times, side="right") % 2 for each in changes]
    use = np.sum(above, axis=0, dtype=np.int64) if len(samples) else np.empty(0, np.int64)
    table = pd.DataFrame(
        {"function": samples["symbol"].astype(object), "use": use, "seconds": samples["period"]}
    )
    sums = table.pivot_table(
        index="function", columns="use", values="seconds", aggfunc="sum", fill_value=0
    ).reindex(columns=range(len(CLASSES)), fill_value=0)
    made = pd.DataFrame({"function": pd.Series(list(sums.index), dtype=object)})
    made["cpu_s"] = sums.sum(axis=1).to_numpy(dtype=np.float64) / 1e9
    for place, name in enumerate(CLASSES):
        made[name] = sums[place].to_numpy(dtype=np.float64) / 1e9
    return made.sort_values(["cpu_s", "function"], ascending=[False, True], ignore_index=True)


def _target(recording: Recording) -> int:
    """How many threads are ideal: as many as the job has CPUs."""
    return max(1, int(recording.meta["cpus"]))


def _bounds(target: int) -> list[int]:
    """How many threads each class but the last has at most."""
    return [target * percent // 100 for percent in _MAX_PERCENT]


def _changes(recording: Recording, selection: Selection) -> list[npt.NDArray[np.int64]]:
    """Of each class but the last: when there came to be more threads than it has, and not more."""
    bounds = _bounds(_target(recording))
    return [levels(recording, _ACTIVE, selection, most=most)[1] for most in bounds]
