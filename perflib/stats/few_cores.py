"""Which of two or three cores are near each other: read from the diagonal of the matrix."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ALPHA = 0.002  # of a false first split, and of all later ones together


def both_ways(logs: Floats) -> Floats:
    """The mean of a pair's two directions, or the one that is known; the diagonal is NaN."""
    other = logs.swapaxes(1, 2)
    mean = (np.where(np.isnan(logs), other, logs) + np.where(np.isnan(other), logs, other)) / 2
    mean[:, np.arange(mean.shape[1]), np.arange(mean.shape[1])] = np.nan
    return mean


def above_local(logs: Floats, cores: Ints) -> Floats:
    """``[batch, core, core]``: a pair's log latency beyond that of its two cores to themselves."""
    own = logs[:, cores, cores]
    return both_ways(logs)[:, cores][:, :, cores] - (own[:, :, None] + own[:, None, :]) / 2


def leaves_of_few(beyond: Floats, cores: Ints, least: float) -> tuple[list[Ints], float]:
    """Groups of two or three cores: apart are those that are nearer to themselves.

    Cores between which that is not established stay together.
    """
    together = np.eye(cores.size, dtype=bool)
    above = np.triu_indices(cores.size, 1)
    least_p = 1.0
    for one, other in zip(*above, strict=True):
        p = _p_above(beyond[:, one, other], least) * above[0].size
        together[one, other] = together[other, one] = p > ALPHA
        least_p = min(least_p, p)
    together = np.linalg.matrix_power(together.astype(np.int64), max(cores.size, 1)) > 0
    _, labels = np.unique(together, axis=0, return_inverse=True)
    leaves = [cores[labels == n] for n in range(labels.max(initial=-1) + 1)]
    return sorted(leaves, key=lambda leaf: int(leaf[0])), least_p


def _p_above(values: Floats, least: float) -> float:
    """The one-sided p value of a mean above ``least``; 1 where there are too few values."""
    seen = values[np.isfinite(values)]
    if seen.size < 2:
        return 1.0
    scatter = float(seen.std(ddof=1)) / math.sqrt(seen.size)
    away = float(seen.mean()) - least
    if scatter == 0:
        return 0.0 if away > 0 else 1.0
    return float(distributions.t.sf(away / scatter, seen.size - 1))
