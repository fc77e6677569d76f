"""An estimate with its uncertainty."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["NO_INTERVAL", "Interval", "percent"]


class Interval(NamedTuple):
    """An estimate with the two ends of its confidence interval, all in one unit."""

    effect: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2


NO_INTERVAL = Interval(math.nan, math.nan, math.nan)  # nothing could be estimated


def percent(log_ratio: Interval) -> Interval:
    """A log ratio as the percentage by which a time is longer."""
    return Interval(*(100 * math.expm1(value) for value in log_ratio))
