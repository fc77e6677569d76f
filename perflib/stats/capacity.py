"""How large an array a level of memory answers as fast as a small one; and how much that shrinks.

A cache that two threads of a core share holds less for each. Where its curve of latency against
size bends is then at a smaller size. The *capacity* that a curve shows is the size up to which a
load takes less than the square root of two times what it takes in small arrays of the level; the
curve's own small arrays, so that one that is slower as a whole (a lower clock) has no smaller
capacity. Between two sizes it is interpolated on logarithms, so it is known to a part of the step
from one size to the next at best.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perflib.stats.interval import NO_INTERVAL, Interval, percent_of
from perflib.stats.intervals import robust_mean, t_interval

Floats = NDArray[np.float64]
_MIN_STEP_LOG = 0.5 * math.log(2.0)
_SMALL_ARRAY_RATIO = 4.0  # a level's small arrays are so many times smaller than its end
_MIN_BATCHES = 3
_STEP_ERROR_FRACTION = 0.25  # of the step between two sizes


def capacity(sizes: Floats, curve: Floats, first: float, last: float) -> float:
    """The size up to which a level is fast; NaN where the curve does not show it.

    Parameters
    ----------
    sizes
        Of the arrays, ascending.
    curve
        Logarithm of the latency at each; NaN where there is none.
    first, last
        The sizes that the level reaches from and to, at least about.

    Examples
    --------
    >>> sizes = np.array([8.0, 16.0, 32.0, 64.0, 128.0])
    >>> round(capacity(sizes, np.log([1.0, 1.0, 1.0, 2.0, 4.0]), 8.0, 32.0), 1)
    45.3
    """
    seen = np.isfinite(curve) & (sizes >= first)
    places, values = np.log(sizes[seen]), curve[seen]
    small = places <= math.log(max(first, last / _SMALL_ARRAY_RATIO)) + 1e-9
    if not small.any():
        return math.nan
    limit = float(np.median(values[small])) + _MIN_STEP_LOG
    above = values > limit
    # One size that is slow by chance is no end: the next one is slow, too, or there is none.
    ends = np.flatnonzero(above & np.append(above[1:], True))
    if not ends.size or ends[0] == 0:
        return math.nan
    end = int(ends[0])
    before, after = values[end - 1], values[end]
    part = min(max((limit - before) / (after - before), 0.0), 1.0) if after > before else 1.0
    return math.exp(places[end - 1] + part * (places[end] - places[end - 1]))


def shrinkage(
    sizes: Floats,
    usual: Floats,
    other: Floats,
    first: float,
    last: float,
) -> tuple[Interval, float, float]:
    """How much smaller a level is in one state than in the usual one.

    Parameters
    ----------
    sizes
        Of the arrays, ascending.
    usual, other
        ``[batch, size]``: log latency in two states, in the same batches; NaN where a batch
        has none.
    first, last
        See ``capacity``.

    Returns
    -------
    By how many percent the capacity is smaller, with its interval by the jackknife over batches,
    and both capacities. NaN where a curve shows none, or there are fewer than three batches. The
    interval is wider by a quarter of the step between the sizes next to each end: so inexact is
    interpolation where a curve is steep.
    """

    def both(kept: NDArray[np.bool_]) -> tuple[float, float]:
        found = (capacity(sizes, robust_mean(rows[kept]), first, last) for rows in (usual, other))
        return next(found), next(found)

    batches = len(usual)
    whole = both(np.ones(batches, dtype=np.bool_))
    if batches < _MIN_BATCHES or not all(map(math.isfinite, whole)):
        return NO_INTERVAL, *whole
    effect = math.log(whole[1] / whole[0])
    values = []
    for batch in range(batches):
        there = np.isfinite(usual[batch]).any() or np.isfinite(other[batch]).any()
        one, two = both(np.arange(batches) != batch) if there else (math.nan, math.nan)
        values.append(batches * effect - (batches - 1) * math.log(two / one))
    found = t_interval(np.array(values))
    inexact = _STEP_ERROR_FRACTION * sum(_step(sizes, end) for end in whole)
    ends = sorted([found.low - inexact, effect, found.high + inexact])
    low, middle, high = (-percent_of(end) for end in (ends[2], effect, ends[0]))
    return Interval(middle, low, high), *whole


def _step(sizes: Floats, end: float) -> float:
    """The logarithm of the ratio of the sizes next to an end."""
    after = min(max(int(np.searchsorted(sizes, end)), 1), len(sizes) - 1)
    return math.log(sizes[after] / sizes[after - 1])
