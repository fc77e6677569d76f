"""How often something happens, from how often it was counted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perflib.stats.interval import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]


def clopper_pearson(
    hits: Ints | int, number: Ints | int, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Both ends of the exact interval of a binomial share (Clopper and Pearson 1934)."""
    tail, hits, number = (1 - confidence) / 2, np.asarray(hits), np.asarray(number)
    missed = number - hits
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), missed + 1, tail), 0.0)
    high = np.where(missed > 0, special.betaincinv(hits + 1, np.maximum(missed, 1), 1 - tail), 1.0)
    return low, high


def rate(hits: float, number: float, confidence: float = 0.95) -> Interval:
    """The share with its interval; of none the one-sided limit: the rule of three, 3 / number.

    >>> round(rate(0, 3_000_000).high, 9)
    9.99e-07
    """
    if hits == 0:
        return Interval(0.0, 0.0, float(-np.expm1(np.log1p(-confidence) / number)))
    low, high = clopper_pearson(int(hits), int(number), confidence)
    share = hits / number
    return Interval(share, min(float(low), share), max(float(high), share))
