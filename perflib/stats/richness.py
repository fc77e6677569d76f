"""How many kinds are met: compared at equal numbers of samples, because more samples meet more.

Ecologists compare the number of species of two places so (rarefaction). A kind that is rarely met
is missed on both sides alike; the ratio of the numbers that were met is nearer to 1 than that of
all kinds, until hardly any sample meets a new one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions
from scipy.special import gammaln

from perflib.stats.interval import Interval, percent

Ints = NDArray[np.int64]


def expected_distinct(counts: Ints, samples: int) -> float:
    """How many kinds a random part of the samples holds, on average over all parts of that size.

    Hurlbert 1971 (doi:10.2307/1934145): of ``N`` samples a part of ``n`` misses a kind that was met
    ``c`` times in ``C(N - c, n)`` of ``C(N, n)`` cases.

    Parameters
    ----------
    counts
        How often each kind was met; 0 counts for nothing.
    samples
        The size of the part, ``n``: at most the sum of ``counts``.

    Raises
    ------
    ValueError
        There are fewer samples than that, or ``samples`` is negative.

    Example
    -------
    >>> round(expected_distinct(np.array([2, 1, 1]), 2), 3)
    1.833
    """
    total = int(counts.sum())
    if not 0 <= samples <= total:
        msg = f"a part of {samples} samples cannot be taken of {total}: give 0 to {total}"
        raise ValueError(msg)
    met, kinds = np.unique(counts[counts > 0], return_counts=True)
    left = total - met - samples  # what neither the part nor the kind has; below 0: none is missed
    log_missed = (
        gammaln(total - met + 1.0)
        - gammaln(np.maximum(left, 0) + 1.0)
        - (gammaln(total + 1.0) - gammaln(total - samples + 1.0))
    )
    missed = np.where(left >= 0, np.exp(np.minimum(log_missed, 0.0)), 0.0)
    return float((kinds * (1 - missed)).sum())


@dataclass(frozen=True)
class Richness:
    """Two sides' numbers of kinds, in equally many samples.

    Parameters
    ----------
    more
        By how many percent the second met more kinds than the first.
    samples
        Of each side, that were compared.
    distinct
        The kinds that so many samples of the first and of the second meet.
    new
        The probability that the last of these samples met a kind that none had met before, on
        either side (Good 1953): near 0, more samples would hardly meet more.
    """

    more: Interval
    samples: int
    distinct: tuple[float, float]
    new: tuple[float, float]


def more_distinct(first: Ints, second: Ints, confidence: float = 0.95) -> Richness:
    """By how many percent more kinds the second side meets than the first, in as many samples.

    Parameters
    ----------
    first, second
        ``[batch, kind]``: how often each kind was met. A batch's two rows belong together.
    confidence
        What share of the intervals cover the truth, which is the ratio at this number of samples.

    Returns
    -------
    The comparison, at as many samples as both sides have without their largest batch. The interval
    is the jackknife's: batches are left out one at a time, of both sides; Student's t with one
    degree of freedom less than batches. NaN ends below two batches, all NaN without samples.
    """
    batches = len(first)
    spared = 1 if batches > 1 else 0
    samples = min(
        (int(side.sum() - spared * side.sum(axis=1).max(initial=0)) for side in (first, second)),
        default=0,
    )
    if samples < 1:
        nothing = (math.nan, math.nan)
        return Richness(Interval(math.nan, *nothing), 0, nothing, nothing)
    whole = first.sum(axis=0), second.sum(axis=0)
    distinct = _both(*whole, samples)
    before = _both(*whole, samples - 1)
    without = [
        _log_ratio(_both(whole[0] - here, whole[1] - there, samples))
        for here, there in zip(first, second, strict=True)
        if batches > 1
    ]
    centre, half_width = _log_ratio(distinct), math.nan
    if without:
        variance = (batches - 1) * float(np.var(without))
        quantile = float(distributions.t.ppf(0.5 + confidence / 2, batches - 1))
        half_width = quantile * math.sqrt(variance)
    return Richness(
        percent(Interval(centre, centre - half_width, centre + half_width)),
        samples,
        distinct,
        (distinct[0] - before[0], distinct[1] - before[1]),
    )


def _both(first: Ints, second: Ints, samples: int) -> tuple[float, float]:
    return expected_distinct(first, samples), expected_distinct(second, samples)


def _log_ratio(distinct: tuple[float, float]) -> float:
    return math.log(distinct[1] / distinct[0])
