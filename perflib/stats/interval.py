"""An estimate with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """An estimate with the two ends of its confidence interval, all in one unit."""

    effect: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2


_MAX_LOG = 700.0
NO_INTERVAL = Interval(math.nan, math.nan, math.nan)  # nothing could be estimated


def columns(name: str, found: Interval) -> dict[str, float]:
    """An interval as a table has it: ``name``, ``name_low``, ``name_high``."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


def exp(log: Interval) -> Interval:
    """The interval of a value from that of its logarithm."""
    return Interval(*(math.exp(end) for end in log))


def widest(half_widths: Iterable[float], default: float = 0.0) -> float:
    """The widest of some half-widths: infinite where one is not known, ``default`` of none."""
    return max((one if math.isfinite(one) else math.inf for one in half_widths), default=default)


def percent(log_ratio: Interval) -> Interval:
    """A log ratio as the percentage by which a time is longer."""
    return Interval(*(percent_of(value) for value in log_ratio))


def percent_of(log_ratio: float) -> float:
    """One number of ``percent``: infinite where a double cannot follow, as of two batches."""
    return math.inf if log_ratio > _MAX_LOG else 100 * math.expm1(log_ratio)
