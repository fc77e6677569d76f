"""Blocks of time, and what can be said from them: intervals, permutation tests, corrections.

Successive rounds of a measurement are not independent: a neighbour on the host slows one core for
seconds, a clock drifts. An interval that counts rounds is then too narrow. Means over blocks that
are longer than such a disturbance are nearly independent, so the uncertainty is taken from their
scatter, with Student's t because there are few of them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy import stats as distributions

from perflib.stats.interval import Interval

__all__ = [
    "BLOCK_S",
    "block_means",
    "holm",
    "p_above",
    "robust_mean",
    "share_interval",
    "t_interval",
    "time_blocks",
    "within_block_p",
]

BLOCK_S = 4.0  # the disturbances seen on shared hosts last about three seconds
_MIN_BLOCKS, _MAX_BLOCKS = 8, 24
_EXACT_LIMIT = 2**13

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def time_blocks(start_s: Floats | None, rounds: int, block_s: float = BLOCK_S) -> Ints:
    """The block that each round belongs to: ``block_s`` long where the run is long enough.

    Parameters
    ----------
    start_s
        When each round began, ascending; ``None`` where it is not known.
    rounds
        How many rounds there are.
    block_s
        Longer than the disturbances that are left in the values.

    Returns
    -------
    Block numbers from 0, ascending. A run too short for ``_MIN_BLOCKS`` blocks of that length gets
    shorter ones, down to one round each.
    """
    if rounds == 0:
        return np.zeros(0, dtype=np.int64)
    wanted = float(_MIN_BLOCKS)
    if start_s is not None and rounds > 1:
        measured_s = float(np.median(np.diff(start_s))) * rounds  # a pause of a resumed run aside
        wanted = min(max(measured_s / block_s, _MIN_BLOCKS), _MAX_BLOCKS)
    count = max(1, min(rounds, int(wanted)))
    return (np.arange(rounds) * count // rounds).astype(np.int64)


def robust_mean(values: Floats, cut: float = 6.0) -> Floats:
    """The mean of each column that a few far values do not move: Tukey's biweight.

    ``cut`` is in units of the scaled median absolute deviation. At 6 the weights of ordinary
    values are near 1, so that an effect that comes in slices is averaged, not ignored. NaN values
    are left out; a column of nothing else gives NaN.
    """
    seen = np.isfinite(values)
    filled = np.where(seen, values, 0.0)
    some = seen.any(axis=0)
    centre = _medians(values)
    scale = 1.4826 * _medians(np.abs(values - centre))
    scale = np.where(scale > 0, scale, np.inf)  # most values equal: their plain mean
    for _ in range(10):
        away = np.minimum(np.abs(filled - centre) / (cut * scale), 1.0)
        weight = (1 - away**2) ** 2
        weight = np.where(seen & np.isfinite(weight), weight, 0.0)
        total = weight.sum(axis=0)
        moved = np.where(
            some, (weight * filled).sum(axis=0) / np.where(total > 0, total, 1), np.nan
        )
        settled = np.nanmax(np.abs(moved - centre), initial=0.0) < 1e-9
        centre = moved
        if settled:
            break
    return centre


def block_means(values: Floats, blocks: Ints) -> Floats:
    """``[block, ...]`` of ``[round, ...]``: robust means over the rounds of each block.

    ``blocks``: what ``time_blocks`` says of the rounds.
    """
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    count = int(blocks.max()) + 1 if blocks.size else 0
    means = [robust_mean(flat[blocks == block]) for block in range(count)]
    return np.array(means).reshape(count, *values.shape[1:])


def _medians(values: Floats) -> Floats:
    """The median of each column, NaN left out (numpy's nanmedian takes ten times as long)."""
    if not len(values):
        return np.full(values.shape[1], np.nan)
    ordered = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(values).sum(axis=0)
    columns = np.arange(values.shape[1])
    lower, upper = np.maximum(count - 1, 0) // 2, count // 2
    medians: Floats = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return medians


def t_interval(block_values: Floats, confidence: float = 0.95) -> Interval:
    """Mean of successive block values with Student's interval; NaN ends below two blocks.

    Blocks that resemble the one before (positive correlation at lag one, ``r``) carry less than
    their number says: the variance of the mean is taken (1 + r) / (1 - r) times as large.
    """
    values = block_values[np.isfinite(block_values)]
    count = values.size
    if count == 0:
        return Interval(math.nan, math.nan, math.nan)
    centre = float(values.mean())
    if count == 1:
        return Interval(centre, math.nan, math.nan)
    variance = float(values.var(ddof=1))
    dependence = 1.0
    if count >= _MIN_BLOCKS and variance > 0:
        away = values - centre
        r = float((away[1:] * away[:-1]).sum()) / (variance * (count - 1)) + 1 / count
        r = min(max(r, 0.0), 1 - 1e-9)
        dependence = min((1 + r) / (1 - r), count / 3)
    error = math.sqrt(variance * dependence / count)
    reach = float(special.stdtrit(count - 1, 0.5 + confidence / 2)) * error
    return Interval(centre, centre - reach, centre + reach)


def p_above(block_values: Floats, least: float) -> float:
    """One-sided p value of the mean of successive block values being no more than ``least``.

    The test that belongs to ``t_interval``; 1 below two blocks.
    """
    found = t_interval(block_values)
    if not math.isfinite(found.half_width):
        return 1.0
    if found.half_width == 0:
        return 0.0 if found.effect > least else 1.0
    freedom = int(np.isfinite(block_values).sum()) - 1
    error = found.half_width / float(distributions.t.ppf(0.975, freedom))
    return float(distributions.t.sf((found.effect - least) / error, freedom))


def share_interval(
    hit: NDArray[np.bool_], weight: Floats, blocks: Ints, confidence: float = 0.95
) -> Interval:
    """The share of time in which something held, from 0 to 1, with Wilson's interval.

    It speaks of the time of this run. How often it would hold in the long run is less certain: a
    run of a minute holds few bursts of seconds, or none.

    The number of independent looks is that of the rounds divided by the design effect: how much
    more the shares of blocks scatter than those of independent rounds would.
    """
    total = float(weight.sum())
    if hit.size == 0 or total <= 0:
        return Interval(math.nan, math.nan, math.nan)
    share = float((weight * hit).sum()) / total
    looks = float(total**2 / (weight**2).sum())
    count = int(blocks.max()) + 1
    block_weight = np.bincount(blocks, weights=weight, minlength=count)
    used = block_weight > 0
    block_hit = np.bincount(blocks, weights=weight * hit, minlength=count)
    block_share = block_hit[used] / block_weight[used]
    if 0 < share < 1 and block_share.size > 1:
        binomial = share * (1 - share) / looks
        observed = float(block_share.var(ddof=1)) / block_share.size
        looks = max(looks / max(1.0, observed / binomial), min(looks, 2.0))
    z = float(distributions.norm.ppf(0.5 + confidence / 2))
    middle = (share + z**2 / (2 * looks)) / (1 + z**2 / looks)
    reach = z * math.sqrt(share * (1 - share) / looks + z**2 / (4 * looks**2)) / (1 + z**2 / looks)
    return Interval(
        share, max(0.0, min(middle - reach, share)), min(1.0, max(middle + reach, share))
    )


def against_others(level: Floats) -> Floats:
    """Each column's value minus the median of the other columns', along the last axis."""
    columns = level.shape[-1]
    ordered = np.sort(level, axis=-1)

    def other(place: int) -> Floats:
        """What stands at that place when each column in turn is taken out."""
        below, above = ordered[..., [place]], ordered[..., [place + 1]]
        return np.where(level > below, below, above)

    return level - (other((columns - 2) // 2) + other((columns - 1) // 2)) / 2


def within_block_p(level: Floats, seed: int = 0, resamples: int = 4000) -> Floats:
    """One-sided p value for each core: as slow as this, if the cores' names meant nothing?

    Parameters
    ----------
    level
        ``[block, core]``: how slow each core was in each block (log time); blocks with a missing
        core are left out.

    Returns
    -------
    One p value a core, not yet corrected for the number of cores. The names of the cores are
    permuted within each block, whole blocks at a time, so that dependence between the rounds of a
    block does not count as evidence. Two cores and few blocks: exact; else ``resamples`` draws.
    """
    whole = level[np.isfinite(level).all(axis=1)]
    blocks, cores = whole.shape
    if blocks == 0 or cores < 2:
        return np.ones(cores)
    observed = against_others(whole.mean(axis=0))
    tiny = 1e-12 * (1 + float(np.abs(whole).max()))
    if cores == 2 and 2**blocks <= _EXACT_LIMIT:
        difference = whole[:, 0] - whole[:, 1]
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=blocks)))
        drawn = (signs @ difference) / blocks
        return np.array(
            [
                float((drawn >= observed[0] - tiny).mean()),
                float((-drawn >= observed[1] - tiny).mean()),
            ]
        )
    generator = np.random.default_rng(seed)
    at_least = np.zeros(cores)
    for _ in range(0, resamples, 500):
        order = generator.random((500, blocks, cores)).argsort(axis=2)
        shuffled = np.take_along_axis(np.broadcast_to(whole, order.shape), order, axis=2)
        at_least += (against_others(shuffled.mean(axis=1)) >= observed - tiny).sum(axis=0)
    drawn_count = math.ceil(resamples / 500) * 500
    return np.asarray((1 + at_least) / (1 + drawn_count))


def holm(p_values: Floats) -> Floats:
    """Holm's step-down correction: p values that hold for the whole family of cores."""
    order = np.argsort(p_values)
    count = p_values.size
    stepped = np.maximum.accumulate(p_values[order] * (count - np.arange(count)))
    corrected = np.empty(count)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected
