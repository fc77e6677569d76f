"""What numbers mean: intervals that hold when rounds are not independent, and tests."""

from __future__ import annotations

from perflib.stats.compare import CoreComparison, CoreEffect, compare_cores, percent
from perflib.stats.interference import disturbed_turns
from perflib.stats.intervals import (
    Interval,
    block_means,
    holm,
    robust_mean,
    t_interval,
    time_blocks,
    within_block_p,
)
from perflib.stats.naive import naive_interval

__all__ = [
    "CoreComparison",
    "CoreEffect",
    "Interval",
    "block_means",
    "compare_cores",
    "disturbed_turns",
    "holm",
    "naive_interval",
    "percent",
    "robust_mean",
    "t_interval",
    "time_blocks",
    "within_block_p",
]
