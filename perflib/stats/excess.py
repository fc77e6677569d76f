"""By how much a function grew beyond what all others have in common, from counts of samples.

A slower core, a burst of the host or a drift multiplies the cost of *all* functions: it cancels in
the odds of a function's samples against all others'. Odds are compared within each round and
combined as Mantel and Haenszel (1959) do, so that rounds of different events, or of a few samples,
may be mixed. How much the odds of a round scatter beyond counting is a dispersion, estimated for
each function from its rounds. With few rounds such an estimate is poor, so it is moderated by those
of all functions, as Smyth (2004, doi:10.2202/1544-6115.1027) does for genes; a function that
clearly scatters more than the others is judged by itself alone. Rounds that resemble the one before
say less than their number: the dispersion grows by their correlation, as in ``t_interval``.

What slows a core for seconds does not slow all functions alike: a busy sibling thread costs those
that fill the execution ports most. How a function's odds follow the time of the whole is seen
within the repeated recordings of each core: a slope. A core that was slower throughout the run may
have been so for the same cause, or for another. So what the slope explains of a difference is
anything between nothing and all that it can: half is subtracted, and half is a systematic error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions
from scipy.special import digamma, polygamma

from perflib.stats.intervals import holm

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MIN_SAMPLES = 10  # of a function, in all: fewer show nothing, and cost the others power
_MIN_SAMPLES_PER_ROUND = 10  # samples a round, for a scatter whose distribution is known
_MIN_PEERS = 5  # functions that are well counted, for a scatter typical of functions
_ODD_QUANTILE = 0.95  # a scatter that this share of the functions stays below is the function's own
_MIN_SLOPE_ROUNDS = 6  # rounds; fewer show how odds scatter, but not what they follow
_MAX_DEVIATIONS = 8.0  # standard deviations between rounds: what is farther is no such fluctuation
_MIN_VARIANCE_FRACTION = 0.3  # of the slowdown's variance, beyond what counting makes of it
_USUAL_SLOPE = 1.0  # of log odds on log time, for what a run does not show itself


class Excesses(NamedTuple):
    """One value a function, in the order of the columns.

    ``log_odds`` is the natural logarithm of the ratio of odds, second over first: for a share that
    is not large, of the function's cost relative to the common slowdown. ``error`` is its standard
    error, on ``df`` degrees of freedom (infinite: from counting alone); ``dispersion`` how much
    larger its square is than counting makes it; ``systematic`` by how much it may be off whatever
    the number of samples. ``p`` is two-sided, and ``p_holm`` corrected for the number of functions
    that were ``tested``. ``named``: the places of those that stand out, the clearest first.
    """

    log_odds: Floats
    error: Floats
    systematic: Floats
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
        half_width = distributions.t.ppf(1 - tail, self.df) * self.error + self.systematic
        return self.log_odds - half_width, self.log_odds + half_width


class _Odds(NamedTuple):
    """The odds ratios against one set of reference functions, and their uncertainty."""

    log: Floats
    counting_variance: Floats  # of log
    score: Floats
    score_variance: Floats  # by counting, if nothing differs
    dispersion: Floats  # the score's scatter over rounds relative to that variance
    df: float  # of the dispersion
    explained: Floats  # of the score: at most so much follows from the slowdown of the whole
    leverage: Floats  # variance of the score without that, relative to the score's


def excesses(first: Floats, second: Floats, alpha: float, *, fluctuates: bool = True) -> Excesses:
    """Which functions grew beyond what all others have in common?

    Parameters
    ----------
    first, second
        ``[round, function]``: samples (costs over the cost of one sample) of each configuration;
        every round has some of both.
    alpha
        How often any function may be named where none differs.
    fluctuates
        Whether what slows a core for a while may differ between the two. It may not where all
        samples were taken while their core was alone.

    Returns
    -------
    The excesses. The function that stands out most is named and taken out of what the others are
    compared with (or they would all seem to have shrunk); then the search continues, as long as
    its p value, corrected by Holm, is below ``alpha``. One that was named only because another
    was still among those it was compared with is taken back.
    """
    tested = (first + second).sum(axis=0) >= MIN_SAMPLES
    places = np.flatnonzero(tested)
    standing = np.zeros(tested.size, dtype=np.bool_)
    seen: set[bytes] = set()
    while True:
        seen.add(standing.tobytes())
        odds = _odds(first, second, ~standing, fluctuates)
        dispersion, df = _moderated(odds, first + second)
        half = odds.explained / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.abs(odds.score - half) - np.abs(half)
            away = np.maximum(beyond, 0.0) / np.sqrt(
                dispersion * odds.leverage * odds.score_variance
            )
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
    # Of the score: per unit of log odds it changes by its own variance.
    half = np.where(odds.score_variance > 0, half / np.maximum(odds.score_variance, 1e-300), 0.0)
    return Excesses(
        odds.log - half,
        np.sqrt(dispersion * odds.leverage * odds.counting_variance),
        np.abs(half),
        dispersion,
        df,
        p,
        p_holm,
        tested,
        tuple(int(f) for f in named[order]),
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


def _odds(first: Floats, second: Floats, common: Flags, fluctuates: bool) -> _Odds:
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
        dispersion, df = np.ones(both.shape[1]), rounds - 1.0
        explained, leverage = np.zeros(both.shape[1]), np.ones(both.shape[1])
        if rounds > 1:
            # Next to a difference of shares that is the same in all rounds, whatever their size.
            away = scores - weights * scores.sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)
            slope = fluctuates and rounds >= _MIN_SLOPE_ROUNDS
            if slope:
                # The time of all others, those that stand out too: it shows what slowed the core.
                others = [side.sum(axis=1, keepdims=True) - side for side in (first, second)]
                slower = np.log(np.maximum(others[1], 0.5) / np.maximum(others[0], 0.5))
                chance = sum(1 / np.maximum(side, 0.5) for side in others)
                both_total = [side.sum(axis=1, keepdims=True) for side in (first, second)]
                noise = sum(
                    side / total_side / np.maximum(rest, 0.5)
                    for side, total_side, rest in zip(
                        (first, second), both_total, others, strict=True
                    )
                )
                unit = score_variance / np.maximum(weights.sum(axis=0), 1e-300)
                away, explained, reached, leverage = _followed(
                    away, weights, slower, chance * unit, noise
                )
                df -= 1
            scatter = rounds / df * (away**2).sum(axis=0) * _dependence(away, variances)
            dispersion = np.where(score_variance > 0, scatter / score_variance, 1.0)
            if slope:
                # A function's count is in its odds and, as what is left, in the others' time.
                dispersion = np.maximum(dispersion, 1.0)
                known = _USUAL_SLOPE**2 * reached**2 * score_variance
                known = known / np.maximum(known + dispersion * (leverage - 1), 1e-300)
                explained, leverage = explained * known, 1 + (leverage - 1) * known

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
    return _Odds(
        log, variance, scores.sum(axis=0), score_variance, dispersion, df, explained, leverage
    )


def _followed(
    away: Floats, weights: Floats, slower: Floats, chance: Floats, noise: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """What is left of ``away`` after a slope on the rounds' slowdown, and what that explains.

    All are ``[round, function]``; ``slower``: the log ratio of the other functions' time. A sample
    that by chance falls into the function falls into none of the others: what that adds to the
    covariance of the two is ``chance``, to the slowdown's variance ``noise``, and neither counts.
    Returned with what is left: the explained part of the score, for the slowdown as far as it is
    one of those that come and go; that slowdown; and how much larger the score's variance is
    without it.
    """
    whole = np.maximum(weights.sum(axis=0), 1e-300)
    middle = (weights * slower).sum(axis=0) / whole
    apart = slower - middle
    squares = (weights * apart**2).sum(axis=0)
    seen = squares - (weights * noise).sum(axis=0)
    fluctuates = seen > _MIN_VARIANCE_FRACTION * squares
    seen = np.where(fluctuates, seen, 1.0)
    slope = ((away * apart).sum(axis=0) + (weights * chance).sum(axis=0)) / seen
    slope = np.where(fluctuates, slope, 0.0)
    reach = np.where(fluctuates, _MAX_DEVIATIONS * np.sqrt(seen / whole), 0.0)
    middle = np.clip(middle, -reach, reach)
    left = away - weights * slope * apart
    return left, slope * middle * whole, middle, 1 + whole * middle**2 / seen


def _dependence(away: Floats, variances: Floats) -> float:
    """By how much the correlation of a round with the one before it widens a mean's variance.

    One number for all functions, each counted as its rounds scatter: of one alone it is unknown.
    """
    rounds = len(away)
    if rounds < _MIN_SLOPE_ROUNDS:
        return 1.0
    scaled = np.where(variances > 0, away / np.sqrt(np.maximum(variances, 1e-300)), 0.0)
    squares = float((scaled**2).sum())
    if squares <= 0:
        return 1.0
    r = float((scaled[1:] * scaled[:-1]).sum()) / squares + 1 / rounds
    r = min(max(r, 0.0), 0.9)
    return min((1 + r) / (1 - r), rounds / 3)


def _moderated(odds: _Odds, samples: Floats) -> tuple[Floats, Floats]:
    """The dispersions, each drawn towards those of its peers, and their degrees of freedom."""
    rounds, functions = samples.shape
    if rounds == 1:
        return np.ones(functions), np.full(functions, np.inf)
    own = odds.dispersion
    own_df = odds.df
    peers = (samples.mean(axis=0) >= _MIN_SAMPLES_PER_ROUND) & (own > 0) & (odds.score_variance > 0)
    count = int(peers.sum())
    if count < _MIN_PEERS:
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
    odd = own > prior * distributions.f.ppf(_ODD_QUANTILE, own_df, prior_df)
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
