"""What counting costs the job: from pairs of the same work, counted and not.

Where the job could be cut into segments (`pairs`), a pair is a slice of it with and without
counting, some 12 ms apart, and where probes can show it, both had their core for themselves. Of any
other job a pair is two runs in one round, seconds apart: on a busy machine the interval is wide.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perflib.experiments.counters.modes import ALONE
from perflib.framework.brackets import classify
from perflib.stats.interval import percent
from perflib.stats.intervals import p_above, t_interval

_FAR = 0.1  # log ratio to the same slice's usual time, alone: an interrupt does not cost so much
_MIN_SLICES = 5
_WARM_NS = 1e6  # of a segment: counters are opened just before it, and leave caches cold
_WAY = ["mode", "jobs"]


def by_trials(times: pd.DataFrame, column: str) -> pd.DataFrame:
    """The log ratio of each mode's time to the time alone, in each round.

    Parameters
    ----------
    times
        One row a trial: ``mode``, ``jobs``, ``round`` and a time; the modes of one round ran next
        to each other, in random order. Trials of one mode in one round are averaged.
    column
        The time that counts.

    Returns
    -------
    ``mode``, ``jobs``, ``round``, ``log_ratio``: a row for each round that has both.
    """
    logs = times.assign(log=np.log(times[column].astype(np.float64)))
    parts = []
    for jobs, part in logs.groupby("jobs", sort=False):
        table = part.pivot_table(index="round", columns="mode", values="log")
        if ALONE not in table:
            continue
        for mode in part["mode"].unique():
            if mode != ALONE:
                ratios = (table[mode] - table[ALONE]).dropna()
                found = {"mode": mode, "jobs": jobs, "round": ratios.index, "log_ratio": ratios}
                parts.append(pd.DataFrame(found))
    return pd.concat(parts, ignore_index=True) if parts else _nothing()


def by_slices(slices: pd.DataFrame, column: str) -> pd.DataFrame:
    """The log ratio of slices' times with and without counting, in each pair of segments.

    Parameters
    ----------
    slices
        One row a slice: ``mode``, ``jobs``, ``round``, ``set``, ``job_event`` and ``slice`` (equal
        numbers do the same work), ``pair`` and ``counted`` (0 or 1), ``cpu``, ``start_ns``, a time,
        and what its probes say.
    column
        The time that counts.

    Returns
    -------
    ``mode``, ``jobs``, ``round``, ``pair``, ``log_ratio``. Which of a pair came first was drawn, so
    that pairs are independent, however long what interferes with them lasts. The mean over slices,
    not their median: a sampling interrupt falls into one of several. Left out are those at the
    begin of a segment, those that migrated to another core, and where that is known those that
    had company; then pairs of which hardly a slice is left.
    """
    segment = [*_WAY, "round", "set", "pair", "counted"]
    begun_ns = slices.groupby(segment)["start_ns"].transform("min")
    here = slices[(slices["cpu"] >= 0) & (slices["start_ns"] - begun_ns >= _WARM_NS)]
    core_states = classify(here)
    far = np.inf
    if core_states is not None and core_states.any_calibrated:
        here, far = here[core_states.usable], _FAR
    here = here[here[column] > 0]
    here = here.assign(log=np.log(here[column].to_numpy(np.float64)))
    usual = here.groupby(["job_event", "slice"])["log"].transform("median")
    here["away"] = (here["log"] - usual).clip(-far, far)
    found = here.groupby(segment)["away"].agg(["mean", "size"])
    means = found["mean"].where(found["size"] >= _MIN_SLICES).unstack("counted")
    if not {0, 1} <= set(means):
        return _nothing()
    ratios = means.assign(log_ratio=means[1] - means[0])[["log_ratio"]].dropna()
    return ratios.reset_index().drop(columns="set")


def _nothing() -> pd.DataFrame:
    return pd.DataFrame(columns=[*_WAY, "round", "log_ratio"])


def cost_of_counting(ratios: pd.DataFrame) -> pd.DataFrame:
    """What each mode costs the job, in percent of its time without any counting.

    Returns
    -------
    One row for each ``mode`` and ``jobs`` of `by_trials` or `by_slices`: ``pairs``,
    ``cost_percent``, ``cost_percent_low``, ``cost_percent_high``: the mean of the log ratios with
    Student's interval, which is NaN for a single pair.
    """
    found = []
    for (jobs, mode), part in ratios.groupby(["jobs", "mode"], sort=False):
        values = part["log_ratio"].to_numpy(np.float64)
        cost = percent(t_interval(values))
        found.append(
            {
                "mode": mode,
                "jobs": jobs,
                "pairs": values.size,
                "cost_percent": cost.effect,
                "cost_percent_low": cost.low,
                "cost_percent_high": cost.high,
            }
        )
    return pd.DataFrame(found)


def p_costs_more(ratios: pd.DataFrame, limit_percent: float) -> float:
    """The p value of one mode's cost being no more than a limit."""
    return p_above(ratios["log_ratio"].to_numpy(np.float64), float(np.log1p(limit_percent / 100)))
