"""How often something happens, from how often it was counted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from perflib.stats.interval import Interval

Floats = NDArray[np.float64]


def clopper_pearson(
    hits: NDArray[np.number], number: NDArray[np.number], confidence: float
) -> tuple[Floats, Floats]:
    """Both ends of the exact interval of a binomial share (Clopper and Pearson 1934)."""
    tail = (1 - confidence) / 2
    low = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1), number - hits + 1), 0)
    high = np.where(hits < number, beta.ppf(1 - tail, hits + 1, np.maximum(number - hits, 1)), 1.0)
    return low, high


def rate(hits: float, number: float, confidence: float = 0.95) -> Interval:
    """The share with its interval; of none the one-sided limit: the rule of three, 3 / number.

    >>> round(rate(0, 3_000_000).high, 9)
    9.99e-07
    """
    if hits == 0:
        return Interval(0.0, 0.0, float(-np.expm1(np.log1p(-confidence) / number)))
    low, high = clopper_pearson(np.array([hits]), np.array([number]), confidence)
    share = hits / number
    return Interval(share, min(float(low[0]), share), max(float(high[0]), share))
