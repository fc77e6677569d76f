"""A step in a series: on which date did it change, and by how much?

What comes and goes is no change: the load of working hours, a slow drift. Both are fitted next to
the step. What is left varies from day to day rather than from value to value, so the null
distribution and the intervals come from whole days put into another order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perflib.stats.interval import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_VALUES = 10
MIN_DAYS = 7
_DAY_S = 86400.0
_EDGE_VALUES = 3  # values before the first and after the last step that is considered
_MAX_PLACES = 400
_MAX_DEVIATIONS = 5.0  # robust standard deviations at which a value is cut
_CUT_PASSES = 4
_MIN_LEFT_FRACTION = 0.05  # of a step's variance: what drift and working hours leave of it at least
_VALUES_PER_REGRESSOR = 6  # values
_MAX_CORRELATION = 0.8  # of successive days; more is a random walk as far as so few days show


@dataclass(frozen=True)
class StepChange:
    """The largest step of a series.

    Parameters
    ----------
    at, first, last
        The index of the first value after it, and the interval of that index.
    size
        By how much the values after it are higher, in the values' unit, with its interval.
    p
        How often series without a step show one as clear.
    """

    at: int
    first: int
    last: int
    size: Interval
    p: float


def find_steps(
    time_s: Floats,
    values: Floats,
    *,
    resamples: int = 999,
) -> list[StepChange | None]:
    """The largest step of each series, adjusted for drift, hours of the day and weekends.

    Parameters
    ----------
    time_s
        When the values were taken, seconds since 1970 in UTC, ascending; shape (n,).
    values
        For example logarithms of times; shape (n, series). NaN: none was taken.
    resamples
        Orders that the days are put into.

    Returns
    -------
    The step of each series; ``None``: there are fewer than `MIN_VALUES` values or `MIN_DAYS`
    days, all values are the same, or no step differs from drift and working hours. Its ``p``
    is corrected for the number of series: how often the clearest of them all is as clear.

    Notes
    -----
    Next to a step the model has a line; hours of the day (harmonics of 24 and 12 hours) from two
    days on, the weekend from ten days on, where there are values enough. The statistic is the
    largest squared t of all places; its null distribution comes from permuted days, and where
    successive days are alike it counts for less by the effective number of days. A series that
    wanders like a random walk has steps everywhere: the p value is not made for it.
    """
    count = values.shape[1]
    days = np.floor((time_s - time_s[:1]) / _DAY_S)
    known = np.isfinite(values)
    if len(values) < MIN_VALUES or len(np.unique(days)) < MIN_DAYS:
        return [None] * count
    usual = _usual(time_s)
    basis = np.linalg.qr(usual)[0]
    places = _steps(len(values), basis)
    enough = (known.sum(axis=0) >= max(MIN_VALUES, len(values) / 2)) & bool(places.at.size)
    medians = np.array(
        [np.median(values[known[:, i], i]) if enough[i] else 0 for i in range(count)]
    )
    filled = np.where(known, values, medians)
    wanted = np.flatnonzero(enough & (np.ptp(filled, axis=0) > 0))
    orders = _orders(days, resamples, np.random.default_rng(0))
    found = {int(i): _searched(_cut(filled[:, i], basis), basis, places, days) for i in wanted}
    clearest = np.zeros(resamples)
    for one in found.values():
        clearest = np.maximum(clearest, _best(one.healthy[orders], basis, places)[2])
    steps: list[StepChange | None] = [None] * count
    freedom = max(1, len(values) - usual.shape[1] - 2)
    few_days = _student(len(np.unique(days)) - 3)  # a line, and the step
    for i, one in found.items():
        p = (1 + int((clearest >= one.clear / one.inflation).sum())) / (1 + resamples)
        wider = few_days * math.sqrt(one.inflation * len(values) / freedom)
        again, sizes, _ = _best(one.fitted[:, None] + wider * one.left[orders], basis, places)
        tail = [0.025, 0.975]
        first, last = np.quantile(places.at[again], tail, method="nearest")
        # The resampled sizes scatter around the estimate: mirrored, they are where the truth is.
        low, high = 2 * one.size - np.quantile(sizes, tail[::-1])
        steps[i] = StepChange(
            at=one.at,
            first=int(min(first, one.at)),
            last=int(max(last, one.at)),
            size=Interval(one.size, float(low), float(high)),
            p=float(p),
        )
    return steps


def _student(freedom: int) -> float:
    """By how much an interval is longer because its scatter is known from few units."""
    return float(special.stdtrit(freedom, 0.975) / special.ndtri(0.975))


@dataclass(frozen=True)
class _Places:
    """Where a step is sought; each step without what the usual explains, of length one."""

    at: Ints
    steps: Floats
    lengths: Floats


@dataclass(frozen=True)
class _Found:
    """A series taken apart: its best step, what is left with it and without."""

    at: int
    size: float
    clear: float
    fitted: Floats
    left: Floats
    healthy: Floats
    inflation: float


def _searched(values: Floats, basis: Floats, places: _Places, days: Floats) -> _Found:
    which, size, clear = _best(values[:, None], basis, places)
    step = places.steps[:, which[0]]
    usual = basis @ (basis.T @ values)
    fitted = usual + step * (step @ values)
    left = values - fitted
    return _Found(
        at=int(places.at[which[0]]),
        size=float(size[0]),
        clear=float(clear[0]),
        fitted=fitted,
        left=left,
        healthy=values - usual,
        inflation=_inflation(left, days),
    )


def _best(series: Floats, basis: Floats, places: _Places) -> tuple[Ints, Floats, Floats]:
    """Place, size and clearness of the largest step of each column."""
    scores = places.steps.T @ series
    which = np.argmax(np.abs(scores), axis=0)
    score = scores[which, np.arange(series.shape[1])]
    rest = (series**2).sum(axis=0) - ((basis.T @ series) ** 2).sum(axis=0)
    without = np.maximum(rest - score**2, np.finfo(float).tiny)
    return which, score / places.lengths[which], score**2 / without


def _usual(time_s: Floats) -> Floats:
    """What a healthy series may do: a level, a drift, hours of the day, weekends."""
    n, days = len(time_s), (time_s - time_s[0]) / _DAY_S
    columns = [np.ones(n), days / max(days[-1], 1e-9) - 0.5]
    angle = 2 * np.pi * time_s / _DAY_S
    daily = [f(k * angle) for k in (1, 2) for f in (np.sin, np.cos)]
    weekend = ((np.floor(time_s / _DAY_S) + 3) % 7 >= 5).astype(float)  # 1970 began on a Thursday
    if days[-1] >= 2 and n / (len(columns) + len(daily)) >= _VALUES_PER_REGRESSOR:
        columns += daily
    if days[-1] >= 10 and n / (len(columns) + 1) >= _VALUES_PER_REGRESSOR:
        columns += [weekend]
        if len(columns) > 3 and n / (len(columns) + len(daily)) >= _VALUES_PER_REGRESSOR:
            columns += [weekend * one for one in daily]
    return np.column_stack(columns)


def _cut(values: Floats, basis: Floats) -> Floats:
    """Outlying values are drawn near: one bad run is no step, and hides none."""
    for _ in range(_CUT_PASSES):  # the first fit may follow what is to be cut
        fitted = basis @ (basis.T @ values)
        rest = values - fitted
        middle = np.median(rest)
        scale = 1.4826 * np.median(np.abs(rest - middle))
        if scale == 0:
            break
        reach = _MAX_DEVIATIONS * scale
        values = fitted + np.clip(rest, middle - reach, middle + reach)
    return values


def _steps(n: int, basis: Floats) -> _Places:
    every = max(1, math.ceil((n - 2 * _EDGE_VALUES) / _MAX_PLACES))
    places = np.arange(_EDGE_VALUES, n - _EDGE_VALUES + 1, every)
    raw = (np.arange(n)[:, None] >= places).astype(float)
    alone = raw - basis @ (basis.T @ raw)
    lengths = np.sqrt((alone**2).sum(axis=0))
    whole = np.sqrt((raw - raw.mean(axis=0)).var(axis=0) * n)
    distinct = lengths > math.sqrt(_MIN_LEFT_FRACTION) * whole
    return _Places(places[distinct], alone[:, distinct] / lengths[distinct], lengths[distinct])


def _inflation(left: Floats, days: Floats) -> float:
    """By how much the variance of means grows because successive days are alike; at least 1."""
    _, which = np.unique(days, return_inverse=True)
    daily = np.bincount(which, left) / np.bincount(which)
    daily = daily - daily.mean()
    square = float((daily**2).sum())
    found = float((daily[1:] * daily[:-1]).sum()) / square if square else 0.0
    alike = found + (1 + 4 * found) / len(daily)  # without the bias of a short series
    alike = min(max(alike, 0.0), _MAX_CORRELATION)
    return (1 + alike) / (1 - alike)


def _orders(days: Floats, resamples: int, rng: np.random.Generator) -> Ints:
    """Orders of the values in which days stay together, one a column."""
    pieces = np.split(np.arange(len(days)), np.flatnonzero(np.diff(days)) + 1)
    drawn = [
        np.concatenate([pieces[i] for i in rng.permutation(len(pieces))]) for _ in range(resamples)
    ]
    return np.stack(drawn, axis=1)
