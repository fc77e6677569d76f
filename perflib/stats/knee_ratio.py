"""How far apart two knees are: the ratio of the sizes at which two curves rise, with its interval.

``find_knees`` gives each knee an interval that ends at measured sizes, so a comparison of two is
as coarse as the sizes. Here both curves are fitted with the rise that accesses at
random have, ``1 - K / s`` above ``K``, at any ``K``. What the curves differ by from that shape,
they differ by alike, and it leaves their ratio as it is. The uncertainty comes from the batches,
which both curves share: each is left out once (the jackknife; Efron and Stein 1981,
doi:10.1214/aos/1176345462), and the pseudo-values of the log ratio have Student's t interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import mean_of_known, t_interval

Floats = NDArray[np.float64]
_KNEE_PLACES = 400  # places of a knee that are tried, evenly over log sizes
_MIN_SIZES, _MIN_BATCHES = 3, 3


class SizeCurve(NamedTuple):
    """Ascending ``sizes`` in bytes, and log ratios of two times, ``[batch, size]``; NaN: none."""

    sizes: Floats
    log_ratio: Floats


def knee_ratio(first: SizeCurve, second: SizeCurve) -> Interval:
    """Log of the second curve's knee over the first one's.

    Both must have a knee (``find_knees``); without one the ratio is of nothing, and wide.

    Parameters
    ----------
    first, second
        Of the same batches, row by row.

    Returns
    -------
    The log ratio with its interval; NaN from fewer than three sizes or three batches.

    Raises
    ------
    ValueError
        Another number of batches in one than in the other.
    """
    if len(first.log_ratio) != len(second.log_ratio):
        msg = (
            f"both curves must have the same batches, not {len(first.log_ratio)} and "
            f"{len(second.log_ratio)}"
        )
        raise ValueError(msg)
    seen = np.ones(len(first.log_ratio), dtype=np.bool_)
    for curve in (first, second):
        seen &= np.isfinite(curve.log_ratio).sum(axis=1) > 1
    batches = int(seen.sum())
    if batches < _MIN_BATCHES or min(len(first.sizes), len(second.sizes)) < _MIN_SIZES:
        return NO_INTERVAL
    fits = [_Fit(SizeCurve(curve.sizes, curve.log_ratio[seen])) for curve in (first, second)]
    every = np.ones(batches, dtype=np.bool_)
    whole = fits[1].log_knee(every) - fits[0].log_knee(every)
    without = np.array(
        [
            fits[1].log_knee(every & (np.arange(batches) != left))
            - fits[0].log_knee(every & (np.arange(batches) != left))
            for left in range(batches)
        ]
    )
    found = t_interval(batches * whole - (batches - 1) * without)
    return Interval(whole, whole - found.half_width, whole + found.half_width)


class _Fit:
    """Where one curve rises, from any of its batches."""

    def __init__(self, curve: SizeCurve) -> None:
        self.values = curve.log_ratio
        logs = np.log(curve.sizes)
        self.places = np.linspace(logs[0], logs[-2], _KNEE_PLACES)
        self.rises = -np.expm1(-np.maximum(logs - self.places[:, None], 0))

    def log_knee(self, chosen: NDArray[np.bool_]) -> float:
        """The place at which a level and a rise fit best, errors being relative."""
        scale = np.exp(-_mean_curve(self.values[chosen]))
        known = np.isfinite(scale)
        scale = scale[known]
        unit = scale / np.linalg.norm(scale)
        fitted = self.rises[:, known] * scale
        free = fitted - (fitted @ unit)[:, None] * unit
        along = free @ (1 - unit * unit.sum())
        power = np.maximum((free**2).sum(axis=1), 1e-12)
        gain = np.where(along > 0, along**2 / power, 0.0)
        best = int(gain.argmax())
        if not 0 < best < _KNEE_PLACES - 1:
            return float(self.places[best])
        before, here, after = gain[best - 1 : best + 2]
        bend = before - 2 * here + after
        step = self.places[1] - self.places[0]
        return float(self.places[best] + (0.5 * step * (before - after) / bend if bend else 0.0))


def _mean_curve(values: Floats) -> Floats:
    """The mean of each size relative to the batches' levels; NaN where no batch has it."""
    level = np.zeros((len(values), 1))
    for _ in range(20):  # more than once only where values are missing
        column = mean_of_known(values - level, 0)
        level = mean_of_known(values - column, 1)[:, None]
    return column - float(np.nanmean(column))
