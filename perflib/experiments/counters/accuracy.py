"""How far multiplexed or sampled counts are from plain ones, by the formula of the source.

The same job is counted in several modes: one set at a time (the reference), sets in our or the
kernel's turns, with sampling on top; with one, two, three jobs on the machine. For ``n`` pairs of
a reference count ``X_ws`` and a count ``X_s`` of the same event in the mode under test, the source
(R. Jurga, *Practical experience with performance monitoring*, CERN openlab, 2006) reports::

    average = sum(|X_ws - X_s| / X_ws) / n * 100 %        and the largest of the n errors

Two runs of one job differ also when nothing is done to them: their errors by the same formula,
among the reference runs themselves, stand beside (``scatter``). They are what an error means
nothing below. Whether a mode's errors are larger is asked by permuting the modes' names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from perflib.model.errors import UserError, choose
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import t_interval

__all__ = ["accuracy", "beside_published", "job_cost", "relative_errors"]

Floats = NDArray[np.float64]

_NEEDED = ("mode", "jobs", "repetition", "event", "value")
_PERMUTATIONS = 2000
_SIGNIFICANT = 0.05


def relative_errors(reference: ArrayLike, measured: ArrayLike) -> Floats:
    """``|X_ws - X_s| / X_ws`` of each pair; NaN where the reference is zero or one was not counted.

    >>> relative_errors([100, 200], [99, 210]).tolist()
    [0.01, 0.05]
    """
    without = np.asarray(reference, dtype=np.float64)
    sampled = np.asarray(measured, dtype=np.float64)
    known = np.where(without > 0, without, np.nan)
    return np.asarray(np.abs(without - sampled) / known)


def accuracy(runs: pd.DataFrame, *, reference: str, seed: int = 0) -> pd.DataFrame:
    """Errors of each event in each mode, beside the run-to-run scatter of the reference.

    Parameters
    ----------
    runs
        One row a count: ``mode``, ``jobs`` (how many ran at once), ``repetition``, ``event``,
        ``value`` (scaled to the whole job; NaN: not counted). Optional: ``job`` (which of the jobs
        of one repetition), ``got`` and ``due`` (samples).
    reference
        The mode that counts one set at a time, without sampling.
    seed
        Of the permutations.

    Returns
    -------
    One row for each ``event``, ``mode``, ``jobs``: ``pairs``, ``average_error_percent``,
    ``max_error_percent``, ``collected_percent`` (samples got over due, else the share of counts
    that are there), ``scatter_average_percent`` and ``scatter_max_percent`` (pairs of different
    repetitions of the mode itself for the reference; of the reference for the others),
    ``p_value`` (one-sided: errors as large as this, if the mode's name meant nothing; not
    corrected for the number of rows) and ``verdict``, in words. For the reference the errors are
    those of the scatter.

    Raises
    ------
    UserError
        A column is missing, a run is there twice, or there is no such mode.
    """
    _check(runs, reference)
    keys = ["repetition", "job"]
    table = runs if "job" in runs else runs.assign(job=0)
    rows = []
    for (event, jobs), part in table.groupby(["event", "jobs"], sort=False):
        values = part.pivot_table(index=keys, columns="mode", values="value", dropna=False)
        if reference not in values:
            values[reference] = np.nan
        plain = values[reference].to_numpy(np.float64)
        repetitions = values.index.get_level_values("repetition").to_numpy()
        job = values.index.get_level_values("job").to_numpy()
        others = _same(job) & ~_same(repetitions)
        scatter = _all_errors(plain, plain)[others]
        for mode in part["mode"].unique():
            sampled = values[mode].to_numpy(np.float64)
            errors = scatter if mode == reference else relative_errors(plain, sampled)
            p_value = math.nan
            if mode != reference:
                p_value = _p_value(plain, sampled, job, np.random.default_rng(seed))
            rows.append(
                {
                    "event": event,
                    "mode": mode,
                    "jobs": jobs,
                    "pairs": int(np.isfinite(errors).sum()),
                    "average_error_percent": 100 * _mean(errors),
                    "max_error_percent": 100 * _max(errors),
                    "collected_percent": _collected(part[part["mode"] == mode]),
                    "scatter_average_percent": 100 * _mean(scatter),
                    "scatter_max_percent": 100 * _max(scatter),
                    "p_value": p_value,
                    "verdict": _verdict(mode == reference, errors, scatter, p_value, plain),
                }
            )
    return pd.DataFrame(rows)


def _check(runs: pd.DataFrame, reference: str) -> None:
    missing = [name for name in _NEEDED if name not in runs]
    if missing:
        msg = f"the table of runs lacks {', '.join(missing)}; it has {', '.join(map(str, runs))}"
        raise UserError(msg)
    modes = [str(mode) for mode in runs["mode"].unique()]
    if reference not in modes:
        raise UserError(choose("mode", reference, modes))
    key = [*_NEEDED[:4], *(["job"] if "job" in runs else [])]
    twice = runs[runs.duplicated(key)]
    if len(twice):
        first = ", ".join(f"{name}={twice.iloc[0][name]}" for name in key)
        msg = f"the table of runs has {first} more than once; several jobs need a column 'job'"
        raise UserError(msg)


def _mean(errors: Floats) -> float:
    known = errors[np.isfinite(errors)]
    return float(known.mean()) if known.size else math.nan


def _max(errors: Floats) -> float:
    known = errors[np.isfinite(errors)]
    return float(known.max()) if known.size else math.nan


def _same(labels: NDArray[np.generic]) -> NDArray[np.bool_]:
    return np.asarray(labels[:, None] == labels[None, :])


def _all_errors(reference: Floats, measured: Floats) -> Floats:
    """``[i, j]``: the error of the j-th count measured against the i-th reference."""
    return relative_errors(reference[:, None], measured[None, :])


def _collected(part: pd.DataFrame) -> float:
    if {"got", "due"} <= set(part) and part["due"].sum() > 0:
        return float(100 * part["got"].sum() / part["due"].sum())
    return float(100 * part["value"].notna().mean())


# Runs of one event in both modes are exchangeable if the mode does nothing. The statistic is the
# mean distance between the modes less that within the reference: a shift and a wider scatter
# raise it alike. Logarithms, so that no run is the scale of the others. Names are permuted over
# all repetitions of a job: a drift from one to the next makes the test stricter, not more lenient.
def _p_value(
    plain: Floats, sampled: Floats, job: NDArray[np.generic], generator: np.random.Generator
) -> float:
    known = (plain > 0) & (sampled > 0)
    count = int(known.sum())
    if not count:
        return math.nan
    logs = np.log(np.concatenate([plain[known], sampled[known]]))
    jobs = np.tile(job[known], 2)
    names = np.arange(2 * count) < count
    if len(np.unique(jobs)) == 1 and math.comb(2 * count, count) <= _PERMUTATIONS:
        chosen = itertools.combinations(range(2 * count), count)  # the first is as it was
        first = np.array([np.isin(np.arange(2 * count), one) for one in chosen])
    else:
        first = np.tile(names, (1 + _PERMUTATIONS, 1))
        for one in np.unique(jobs):
            mine = np.ix_(np.arange(1, 1 + _PERMUTATIONS), jobs == one)
            first[mine] = generator.permuted(first[mine], axis=1)
    pairs = (_same(jobs) & ~np.eye(2 * count, dtype=bool)).astype(np.float64)
    distance = pairs * np.abs(logs[:, None] - logs[None, :])
    ours, theirs = first.astype(np.float64), (~first).astype(np.float64)

    def mean(others: Floats) -> Floats:
        """The mean distance from the first mode's runs to others, for each draw."""
        number = ((ours @ pairs) * others).sum(axis=1)
        total = ((ours @ distance) * others).sum(axis=1)
        return np.asarray(np.where(number > 0, total / np.maximum(number, 1), np.nan))

    drawn = mean(theirs) - mean(ours)
    if math.isnan(drawn[0]):
        return math.nan
    return float((drawn >= drawn[0] - 1e-12).mean())


def _verdict(
    is_reference: bool, errors: Floats, scatter: Floats, p_value: float, plain: Floats
) -> str:
    if not np.isfinite(plain).any():
        return "not counted"
    if not (plain > 0).any():
        return "the reference counted none: no relative error"
    if not np.isfinite(errors).any():
        return "not counted in this mode" if not is_reference else "one run: no scatter known"
    if is_reference:
        return "the scatter from run to run"
    if not np.isfinite(scatter).any() or math.isnan(p_value):
        return "too few repetitions to know the scatter"
    if p_value <= _SIGNIFICANT:
        return "larger than the scatter from run to run"
    if math.comb(2 * len(plain), len(plain)) * _SIGNIFICANT < 1:
        return "too few repetitions to tell from the scatter"
    return "no larger than the scatter from run to run"


def job_cost(times: pd.DataFrame, *, without: str, confidence: float = 0.95) -> pd.DataFrame:
    """What each mode costs the job, in percent of its time without any counting.

    Parameters
    ----------
    times
        One row a run: ``mode``, ``jobs``, ``repetition``, ``time_ns``; the modes of one repetition
        ran next to each other, in random order. Optional: ``job``; the times of the jobs of one
        repetition are then averaged first.
    without
        The mode without any counting.
    confidence
        What share of the intervals cover the truth.

    Returns
    -------
    One row for each ``mode`` and ``jobs``: ``pairs``, ``cost_percent``, ``cost_low_percent``,
    ``cost_high_percent``: the mean of the paired log ratios with Student's interval, which is NaN
    for a single pair.

    Raises
    ------
    UserError
        A column is missing, or there is no such mode.
    """
    missing = [name for name in ("mode", "jobs", "repetition", "time_ns") if name not in times]
    if missing:
        msg = f"the table of times lacks {', '.join(missing)}"
        raise UserError(msg)
    modes = [str(mode) for mode in times["mode"].unique()]
    if without not in modes:
        raise UserError(choose("mode", without, modes))
    logs = times.assign(log=np.log(times["time_ns"].astype(np.float64)))
    rows = []
    for jobs, part in logs.groupby("jobs", sort=False):
        table = part.pivot_table(index="repetition", columns="mode", values="log")
        for mode in part["mode"].unique():
            if mode == without or without not in table:
                continue
            ratios = (table[mode] - table[without]).dropna().to_numpy(np.float64)
            cost: Interval = percent(t_interval(ratios, confidence))
            rows.append(
                {
                    "mode": mode,
                    "jobs": jobs,
                    "pairs": ratios.size,
                    "cost_percent": cost.effect,
                    "cost_low_percent": cost.low,
                    "cost_high_percent": cost.high,
                }
            )
    return pd.DataFrame(rows)


def beside_published(
    measured: pd.DataFrame, published: pd.DataFrame, counters: Mapping[str, str]
) -> pd.DataFrame:
    """The measured table with the published one under it, in the same columns.

    Parameters
    ----------
    measured
        What `accuracy` returns.
    published
        ``perflib.framework.published.published("perfctr_sampling_accuracy")``.
    counters
        The source's name of a counter to ours; a counter without one keeps its own.

    Returns
    -------
    The columns of ``measured`` that both have, and ``from``: ``this machine`` or ``published``.
    """
    theirs = published.rename(columns={"counter": "event"})
    theirs["event"] = theirs["event"].map(lambda name: counters.get(name, name))
    theirs["mode"] = "published"
    theirs["from"] = "published"
    ours = measured.assign(**{"from": "this machine"})
    both = [name for name in ours if name in theirs]
    return pd.concat([ours[both], theirs[both]], ignore_index=True)
