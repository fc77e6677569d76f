"""Which share of an extra time does a part of it make up: a ratio of means with its interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval

Floats = NDArray[np.float64]


def share_of(whole: Floats, part: Floats, level: float) -> Interval:
    """The ratio of the means in percent: all ratios at which nothing but noise is left over.

    Fieller's interval, with the batches' dependence taken into account as ``t_interval`` does. The
    mean of ``whole`` must differ from 0 (its interval at this level excludes it): then the set has
    two ends.
    """
    ratio = float(part.mean() / whole.mean())

    def contradicted(at: float) -> float:
        """Above 0: what is left over at this ratio is more than noise."""
        left = t_interval(part - at * whole, level)
        return abs(left.effect) - left.half_width

    ends = [ratio, ratio]
    if contradicted(ratio) < 0:  # else nothing scatters
        for place, side in enumerate((-1, 1)):
            reach = max(abs(ratio), 1e-3)
            while contradicted(ratio + side * reach) <= 0:
                reach *= 2
            ends[place] = float(brentq(contradicted, ratio, ratio + side * reach))
    return Interval(100 * ratio, 100 * ends[0], 100 * ends[1])
