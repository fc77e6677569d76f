"""Many claims at once: how often any of them would be supported where none is true."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.stats.decide import Direction
from perflib.stats.interval import Interval
from perflib.stats.intervals import holm

Floats = NDArray[np.float64]

# Of a run's interval: ``time_batches`` makes eight batches or more. Fewer degrees of freedom
# than there were make p larger, so nothing is claimed by it that the data do not.
_FREEDOM: Final = 7
_CLOSE: Final = 0.5  # a larger p: the estimate is on the side where the claim does not hold


def p_of_interval(
    found: Interval,
    threshold: float,
    direction: Direction = "above",
    *,
    confidence: float = 0.95,
    batches: int | None = None,
) -> float:
    """The p value of a quantity's lying on the claimed side of the threshold, from its interval.

    Parameters
    ----------
    found
        The quantity with its interval, in the threshold's unit.
    threshold, direction
        The claim, as in ``decide``.
    confidence
        Of the interval.
    batches
        What the interval was made of; ``None``: not known, and taken for eight.

    Returns
    -------
    How often at most an estimate so far on the claimed side comes about where the claim does not
    hold, by Student's distribution: the half of the interval on the threshold's side is so many
    standard errors long as ``confidence`` says. At the edge of being supported a one-sided claim at
    95 % has 0.025. NaN: there is no interval.
    """
    effect, low, high = found
    if not all(map(math.isfinite, (effect, low, high))):
        return math.nan
    freedom = _FREEDOM if batches is None else max(1, batches - 1)
    errors = float(distributions.t.ppf(0.5 + confidence / 2, freedom))

    def beyond(distance: float, reach: float) -> float:
        """Of an estimate at a distance from the threshold, its interval reaching so far back."""
        if reach <= 0:  # no scatter at all
            return 0.0 if distance > 0 else 1.0
        return float(distributions.t.sf(errors * distance / reach, freedom))

    above = beyond(effect - threshold, effect - low)
    below = beyond(threshold - effect, high - effect)
    if direction == "above":
        return above
    if direction == "below":
        return below
    above_mirrored = beyond(effect + threshold, effect - low)
    below_mirrored = beyond(-threshold - effect, high - effect)
    if direction == "within":
        return max(below, above_mirrored)
    return min(1.0, 2 * min(above, below_mirrored))


def family_p(p_values: Floats) -> Floats:
    """P values that hold for a whole family of claims: below 0.05 for any in one family of twenty.

    Holm's correction over the claims that come near, those with p below one half; for having been
    chosen so, their p values are divided by that half. The others' estimates are where the claim
    does not hold: they cannot be supported, and most of what is measured on a healthy machine is of
    that kind. (Zhao, Small and Su 2019, doi:10.1080/01621459.2018.1497499: valid for p values that
    are larger, and relatively rarely small, the less a claim holds, as those of Student's test.)

    Parameters
    ----------
    p_values
        One a claim; NaN stays NaN, and is not counted.
    """
    found = np.where(np.isfinite(p_values), 1.0, np.nan)
    close = np.flatnonzero(p_values <= _CLOSE)
    if close.size:
        found[close] = holm(p_values[close] / _CLOSE)
    return found
