"""The interval most people would draw, kept to show why it must not be trusted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.stats.blocks import Interval

__all__ = ["naive_interval"]


def naive_interval(
    log_ratio: NDArray[np.float64], confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Median of paired log ratios with an ordinary bootstrap interval over rounds.

    It takes rounds for independent. On a shared host, with nothing wrong, it excluded zero in 8 of
    14 runs; compare with ``compare_cores`` on the same data.
    """
    values = log_ratio[np.isfinite(log_ratio)]
    answer = distributions.bootstrap(
        (values,),
        np.median,
        confidence_level=confidence,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    ends = answer.confidence_interval
    return Interval(float(np.median(values)), float(ends.low), float(ends.high))
