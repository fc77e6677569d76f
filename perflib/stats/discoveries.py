"""Very many comparisons at once: robust centres, noise with heavy tails, and the false among them.

A farm of 400 nodes with 128 cores makes fifty thousand comparisons. What decides there is the far
tail of the noise, so its weight is taken from the data; and of all that is reported, at most one in
twenty may be false (Benjamini and Hochberg 1995, doi:10.1111/j.2517-6161.1995.tb02031.x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy import stats as distributions

Floats = NDArray[np.float64]

_TRIMMED_FRACTION = 0.2  # of each side
_NORMAL_MEDIAN, _NORMAL_90 = 0.6745, 1.645  # quantiles of a normal deviate's size
_MAX_FREEDOM, _MIN_FREEDOM, _FEW_FREEDOM = 30.0, 2.0, 5.0
_FREEDOMS = np.array([_MIN_FREEDOM, 2.5, 3, 4, 5, 7, 10, 15, 20, _MAX_FREEDOM])
_QUANTILES = (0.9, 0.97, 0.99)
_MIN_TAIL_VALUES = 3  # values above a quantile that counts
_MIN_NOISE_VALUES = 20


class Centre(NamedTuple):
    """A location with its standard error and the degrees of freedom of that."""

    value: float
    error: float
    freedom: float


def centre(values: Floats) -> Centre:
    """The mean without the fifth at either end, with its standard error.

    Yuen 1974 (doi:10.1093/biomet/61.1.165). NaN values are left out. One value has no error.
    """
    seen = np.sort(values[np.isfinite(values)])
    count = seen.size
    if count == 0:
        return Centre(math.nan, math.nan, 0.0)
    cut = int(_TRIMMED_FRACTION * count)
    inner = seen[cut : count - cut]
    if inner.size < 2:
        return Centre(float(inner.mean()), math.nan, 0.0)
    pulled_in = np.clip(seen, inner[0], inner[-1])
    error = float(pulled_in.std(ddof=1)) * math.sqrt((count - 1) / (inner.size * (inner.size - 1)))
    return Centre(float(inner.mean()), error, float(inner.size - 1))


def difference(first: Centre, second: Centre) -> Centre:
    """The first minus the second, with the degrees of freedom of Welch."""
    squares = first.error**2, second.error**2
    total = sum(squares)
    parts = [
        square**2 / one.freedom
        for square, one in zip(squares, (first, second), strict=True)
        if square > 0
    ]
    freedom = total**2 / sum(parts) if parts else min(first.freedom, second.freedom)
    return Centre(first.value - second.value, math.sqrt(total), freedom)


def scale(noise: Floats) -> float:
    """The standard deviation of most of the noise around zero; NaN where there is none."""
    sizes = np.abs(noise[np.isfinite(noise)])
    if not sizes.size:
        return math.nan
    middle, far = np.quantile(sizes, (0.5, 0.9))
    # Where most values are equal (a coarse clock) the middle is 0, and the far ones say it.
    return max(float(middle) / _NORMAL_MEDIAN, 0.7 * float(far) / _NORMAL_90)


def tail_freedom(noise: Floats) -> float:
    """Of Student's distribution whose tails are as heavy as the noise's; of little noise, few."""
    sizes = np.abs(noise[np.isfinite(noise)])
    middle = float(np.median(sizes)) if sizes.size else 0.0
    if sizes.size < _MIN_NOISE_VALUES or middle == 0:
        return _FEW_FREEDOM
    found = _MAX_FREEDOM
    for quantile in _QUANTILES:
        if (1 - quantile) * sizes.size < _MIN_TAIL_VALUES:
            continue
        ratio = float(np.quantile(sizes, quantile)) / middle
        ends = special.stdtrit(_FREEDOMS, 0.5 + quantile / 2)
        ratios = ends / special.stdtrit(_FREEDOMS, 0.75)  # falling
        found = min(found, float(np.interp(-ratio, -ratios, _FREEDOMS)))
    return found


def discoveries(p_values: Floats, families: Sequence[str] | NDArray[np.object_]) -> Floats:
    """The least false discovery rate at which each claim would be reported, over all families.

    Parameters
    ----------
    p_values
        One a claim; NaN stays NaN, and is not counted.
    families
        Of which kind each claim is. Each family has an equal share of the error, however many
        claims it makes: fifty thousand cores do not drown ten racks (weights as of Genovese,
        Roeder and Wasserman 2006, doi:10.1093/biomet/93.3.509).

    Returns
    -------
    Adjusted p values: what is below 0.05 is false once in twenty, on average. They hold where
    claims are independent, or where they depend positively, as several experiments on one node do
    (Benjamini and Yekutieli 2001, doi:10.1214/aos/1013699998).
    """
    found = np.full(len(p_values), np.nan)
    counted = np.flatnonzero(np.isfinite(p_values))
    if not counted.size:
        return found
    _, codes, sizes = np.unique(
        np.asarray(families, dtype=str)[counted], return_inverse=True, return_counts=True
    )
    weighted = p_values[counted] * sizes[codes] * (sizes.size / counted.size)
    found[counted] = distributions.false_discovery_control(np.minimum(weighted, 1.0))
    return found
