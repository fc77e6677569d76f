"""By how much a function grew beyond what all others have in common, from counts of samples.

A slower core, a burst of the host or a drift multiplies the cost of *all* functions: it cancels in
the odds of a function's samples against all others'. Odds are compared within each round and
combined as Mantel and Haenszel (1959) do, so that rounds of different events, or of a few samples,
may be mixed. How much the odds of a round scatter beyond counting is a dispersion, estimated for
each function from its rounds. With few rounds such an estimate is poor, so it is moderated by those
of all functions, as Smyth (2004, doi:10.2202/1544-6115.1027) does for genes; a function that
clearly scatters more than the others is judged by itself alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions
from scipy.special import digamma, polygamma

from perflib.stats.intervals import holm

__all__ = ["Excesses", "excesses"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ENOUGH_SAMPLES = 10  # of a function, in all: fewer cannot tell anything, and cost the others power
_WELL_COUNTED = 10  # samples a round, for a scatter whose distribution is known
_LEAST_PEERS = 5  # functions that are well counted, for a scatter typical of functions
_ODD = 0.95  # a scatter that this share of the functions stays below is the function's own


class Excesses(NamedTuple):
    """One value a function, in the order of the columns.

    ``log_odds`` is the natural logarithm of the ratio of odds, second over first: for a share that
    is not large, of the function's cost beside the common slowdown. ``error`` is its standard
    error, on ``df`` degrees of freedom (infinite: from counting alone); ``dispersion`` how much
    larger its square is than counting makes it. ``p`` is two-sided, and
    ``p_holm`` corrected for the number of functions that were ``tested``. ``named``: the places of
    those that stand out, the clearest first.
    """

    log_odds: Floats
    error: Floats
    dispersion: Floats
    df: Floats
    p: Floats
    p_holm: Floats
    tested: Flags
    named: tuple[int, ...]

    def interval(self, confidence: float, together: bool = False) -> tuple[Floats, Floats]:
        """The ends of the intervals; ``together``: all cover at once with that confidence."""
        tail = (1 - confidence) / 2
        if together:
            tail /= max(1, int(self.tested.sum()))
        half_width = distributions.t.ppf(1 - tail, self.df) * self.error
        return self.log_odds - half_width, self.log_odds + half_width


class _Odds(NamedTuple):
    """The odds ratios against one set of reference functions, and their uncertainty."""

    log: Floats
    counting_variance: Floats  # of log
    score: Floats
    score_variance: Floats  # by counting, if nothing differs
    dispersion: Floats  # the score's scatter over rounds beside that variance


def excesses(first: Floats, second: Floats, alpha: float) -> Excesses:
    """Which functions grew beyond what all others have in common?

    Parameters
    ----------
    first, second
        ``[round, function]``: samples (costs over the cost of one sample) of each configuration;
        every round has some of both.
    alpha
        How often any function may be named where none differs.

    Returns
    -------
    The excesses. The function that stands out most is named and taken out of what the others are
    compared with (or they would all seem to have shrunk); then the next is looked for, as long as
    its p value, corrected by Holm, lies below ``alpha``. One that was named only because another
    was still among those it was compared with is taken back.
    """
    tested = (first + second).sum(axis=0) >= ENOUGH_SAMPLES
    places = np.flatnonzero(tested)
    standing = np.zeros(tested.size, dtype=np.bool_)
    seen: set[bytes] = set()
    while True:
        seen.add(standing.tobytes())
        odds = _odds(first, second, ~standing)
        dispersion, df = _moderated(odds, first + second)
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.abs(odds.score) / np.sqrt(dispersion * odds.score_variance)
        p = np.where(np.isfinite(away), 2 * distributions.t.sf(away, df), 1.0)
        p_holm = np.full(tested.size, np.nan)
        p_holm[places] = holm(p[places])
        changed = _next(standing, p, p_holm, alpha)
        if changed is None:
            break
        standing = standing.copy()
        standing[changed] = not standing[changed]
        if standing.tobytes() in seen:  # to and fro between two that explain each other
            standing[changed] = not standing[changed]
            break
    named = np.flatnonzero(standing)
    order = np.lexsort((-away[named], p[named]))
    error = np.sqrt(dispersion * odds.counting_variance)
    return Excesses(
        odds.log, error, dispersion, df, p, p_holm, tested, tuple(int(f) for f in named[order])
    )


def _next(standing: Flags, p: Floats, p_holm: Floats, alpha: float) -> int | None:
    """Which function to take back, or else to name; None: neither."""
    back = np.flatnonzero(standing & (p_holm >= alpha))
    if back.size:
        return int(back[np.argmax(p_holm[back])])
    left = np.flatnonzero(~standing & np.isfinite(p_holm))
    # Of one function against the rest, or of two against each other, none is the odd one.
    if left.size <= 2:
        return None
    best = int(left[np.argmin(p[left])])
    return best if p_holm[best] < alpha else None


def _odds(first: Floats, second: Floats, common: Flags) -> _Odds:
    """Each function against those in ``common`` but itself."""
    rounds = len(first)
    rest_first = first[:, common].sum(axis=1, keepdims=True) - np.where(common, first, 0.0)
    rest_second = second[:, common].sum(axis=1, keepdims=True) - np.where(common, second, 0.0)
    rest_first, rest_second = np.maximum(rest_first, 0), np.maximum(rest_second, 0)

    total = first + second + rest_first + rest_second
    both, whole_second = first + second, second + rest_second
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(total > 0, second - whole_second * both / total, 0.0)
        weights = np.where(total > 0, whole_second * (total - whole_second) / total, 0.0)
        variances = np.where(
            total > 1,
            whole_second * (total - whole_second) * both * (total - both)
            / (total**2 * (total - 1)),
            0.0,
        )  # fmt: skip
        score_variance = variances.sum(axis=0)
        dispersion = np.ones(both.shape[1])
        if rounds > 1:
            # Beside a difference of shares that is the same in all rounds, whatever their size.
            away = scores - weights * scores.sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)
            scatter = rounds / (rounds - 1) * (away**2).sum(axis=0)
            dispersion = np.where(score_variance > 0, scatter / score_variance, 1.0)

    # Half a sample more of each configuration, in a round of its own: finite also for a function
    # that one of them never met, and nearer to the truth for one of few samples.
    a = np.vstack([second, np.full_like(second[:1], 0.5)])
    b = np.vstack([rest_second, np.maximum(rest_second.mean(axis=0, keepdims=True), 0.5)])
    c = np.vstack([first, np.full_like(first[:1], 0.5)])
    d = np.vstack([rest_first, np.maximum(rest_first.mean(axis=0, keepdims=True), 0.5)])
    total = np.maximum(a + b + c + d, 1e-300)
    agree, differ = (a + d) / total, (b + c) / total
    up, down = a * d / total, b * c / total
    sum_up, sum_down = up.sum(axis=0), down.sum(axis=0)
    # The variance of Robins, Breslow and Greenland (1986), good for few and for sparse rounds.
    variance = (
        (agree * up).sum(axis=0) / (2 * sum_up**2)
        + (agree * down + differ * up).sum(axis=0) / (2 * sum_up * sum_down)
        + (differ * down).sum(axis=0) / (2 * sum_down**2)
    )
    log = np.log(sum_up / sum_down)
    return _Odds(log, variance, scores.sum(axis=0), score_variance, dispersion)


def _moderated(odds: _Odds, samples: Floats) -> tuple[Floats, Floats]:
    """The dispersions, each drawn towards those of its peers, and their degrees of freedom."""
    rounds, functions = samples.shape
    if rounds == 1:
        return np.ones(functions), np.full(functions, np.inf)
    own = odds.dispersion
    own_df = rounds - 1.0
    peers = (samples.mean(axis=0) >= _WELL_COUNTED) & (own > 0) & (odds.score_variance > 0)
    count = int(peers.sum())
    if count < _LEAST_PEERS:
        return np.maximum(own, 1.0), np.full(functions, own_df)
    log_own = np.log(own[peers]) - digamma(own_df / 2) + np.log(own_df / 2)
    sampling = float(polygamma(1, own_df / 2))

    # Noise in proportion to a function's cost disperses large functions more than small ones: a
    # trend, shrunk to none where there is little evidence of it.
    size = np.log(np.maximum(odds.score_variance, 1e-300))
    middle, smallest = size[peers].mean(), size[peers].min()
    spread = size[peers] - middle
    spread_squared = float((spread**2).sum())
    slope = 0.0
    if spread_squared > 0:
        raw = float((spread * log_own).sum()) / spread_squared
        left = log_own - log_own.mean() - raw * spread
        slope_variance = max(sampling, float((left**2).sum()) / (count - 2)) / spread_squared
        if raw**2 > slope_variance:
            slope = min(max(raw * (1 - slope_variance / raw**2), 0.0), 1.0)
    left = log_own - log_own.mean() - slope * spread
    typical = log_own.mean() + slope * (np.maximum(size, smallest) - middle)

    prior_df = 2 * _inverse_trigamma(float(left.var(ddof=1)) - sampling)
    if np.isfinite(prior_df):
        typical = typical + digamma(prior_df / 2) - np.log(prior_df / 2)
    prior = np.exp(typical)
    prior_df = min(prior_df, count * own_df)  # what is typical is known no better than that
    moderated = (prior_df * prior + own_df * own) / (prior_df + own_df)
    odd = own > prior * distributions.f.ppf(_ODD, own_df, prior_df)
    return np.where(odd, own, moderated), np.where(odd, own_df, prior_df + own_df)


def _inverse_trigamma(value: float) -> float:
    """Where the trigamma function has that value; infinite at zero and below, by Newton."""
    if value <= 0:
        return np.inf
    place = 0.5 + 1 / value
    for _ in range(50):
        here = float(polygamma(1, place))
        step = here * (1 - here / value) / float(polygamma(2, place))
        place += step
        if abs(step) < 1e-8 * place:
            break
    return place
