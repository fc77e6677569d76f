"""Do starts of a job differ more than the events within a start do?

A program's addresses are chosen anew at each start. What depends on them is the same for all
events of a start, and another for the next one. Interference comes and goes: of each start the
event with least interference counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perflib.model.run import Run

_LEAST_STARTS = 8
_LEAST_SPREAD_PERCENT = 5.0
_BEYOND_EVENTS = 3.0  # times what the scatter of events within a start explains


@dataclass(frozen=True)
class Variation:
    """How much starts of a job differ.

    Parameters
    ----------
    starts
        How many there were.
    spread_percent
        Interquartile range of the starts' typical times, of starts on one core.
    by_events_percent
        What events of a start that scatter as they do would make of it.
    """

    starts: int
    spread_percent: float
    by_events_percent: float

    @property
    def varies(self) -> bool:
        """Whether starts differ for a reason of their own."""
        return (
            self.starts >= _LEAST_STARTS
            and self.spread_percent >= _LEAST_SPREAD_PERCENT
            and self.spread_percent >= _BEYOND_EVENTS * self.by_events_percent
        )


def variation(run: Run) -> Variation:
    """Of a run of ``kv_per_core`` whose job is a program: each trial is a start."""
    rows = run.samples
    if "ok" in rows:
        rows = rows[rows["ok"]]
    rows = rows.assign(log=np.log(rows["time_ns"].to_numpy(dtype=np.float64)))
    rows["log"] -= rows.groupby("event")["log"].transform("median")
    starts = rows.groupby(["cpu", "round"])["log"]
    level = starts.min()
    deviation = level - level.groupby("cpu").transform("median")
    # The least of two halves of a start: what the scatter of events makes of a level.
    half = rows.assign(half=starts.cumcount() % 2).groupby(["cpu", "round", "half"])["log"].min()
    apart = half.unstack("half").diff(axis=1).iloc[:, -1].abs() if len(half) else level
    scatter = float(apart.median()) if len(apart) else math.nan
    low, high = np.quantile(deviation, [0.25, 0.75]) if len(deviation) else (math.nan, math.nan)
    return Variation(len(level), 100 * math.expm1(high - low), 100 * scatter)
