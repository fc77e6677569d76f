"""The interval most people would draw, kept to show why it must not be trusted."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perflib.stats.interval import Interval


def naive_interval(log_ratio: NDArray[np.float64], confidence: float = 0.95) -> Interval:
    """Median of paired log ratios with an ordinary bootstrap interval over rounds.

    It takes rounds for independent. On a shared host, with nothing wrong, it excluded zero in 8 of
    14 runs; compare with ``compare_cores`` on the same data.
    """
    values = log_ratio[np.isfinite(log_ratio)]
    if values.size < 2:
        return Interval(float(values[0]) if values.size else math.nan, math.nan, math.nan)
    drawn = np.random.default_rng(0).choice(values, (2000, values.size))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.median(drawn, axis=1), (tail, 1 - tail))
    return Interval(float(np.median(values)), float(low), float(high))
