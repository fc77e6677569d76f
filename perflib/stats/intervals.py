"""Batches of time, and what can be said from them: intervals, permutation tests, corrections.

Successive rounds of a measurement are not independent: a neighbour on the host slows one core for
seconds, a clock drifts. An interval that counts rounds is then too narrow. Means over batches that
are longer than such a disturbance are nearly independent, so the uncertainty is taken from their
scatter, with Student's t because there are few of them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perflib.stats.interval import Interval

BATCH_S = 4.0  # the disturbances seen on shared hosts last about three seconds
_MIN_BATCHES, _MAX_BATCHES = 8, 24
_EXACT_LIMIT = 2**13

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def time_batches(start_s: Floats | None, rounds: int, batch_s: float = BATCH_S) -> Ints:
    """The batch that each round belongs to: ``batch_s`` long where the run is long enough.

    Parameters
    ----------
    start_s
        When each round began, ascending; ``None`` where it is not known.
    rounds
        How many rounds there are.
    batch_s
        Longer than the disturbances that are left in the values.

    Returns
    -------
    Batch numbers from 0, ascending. A run too short for ``_MIN_BATCHES`` batches of that length
    gets shorter ones, down to one round each.
    """
    if rounds == 0:
        return np.zeros(0, dtype=np.int64)
    wanted = float(_MIN_BATCHES)
    if start_s is not None and rounds > 1:
        measured_s = float(np.median(np.diff(start_s))) * rounds  # a pause of a resumed run aside
        wanted = min(max(measured_s / batch_s, _MIN_BATCHES), _MAX_BATCHES)
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
    centre = medians(values)
    scale = 1.4826 * medians(np.abs(values - centre))
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


def batch_means(values: Floats, batches: Ints) -> Floats:
    """``[batch, ...]`` of ``[round, ...]``: robust means over the rounds of each batch.

    ``batches``: what ``time_batches`` says of the rounds.
    """
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    count = int(batches.max()) + 1 if batches.size else 0
    means = [robust_mean(flat[batches == batch]) for batch in range(count)]
    return np.array(means).reshape(count, *values.shape[1:])


def medians(values: Floats) -> Floats:
    """The median of each column, NaN left out (numpy's nanmedian takes ten times as long)."""
    if not len(values):
        return np.full(values.shape[1], np.nan)
    ordered = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(values).sum(axis=0)
    columns = np.arange(values.shape[1])
    lower, upper = np.maximum(count - 1, 0) // 2, count // 2
    found: Floats = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return found


def mean_of_known(values: Floats, axis: int) -> Floats:
    """The mean along an axis, NaN left out; NaN where there is nothing else."""
    seen = np.isfinite(values)
    count = seen.sum(axis=axis)
    total = np.where(seen, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def row_means(values: Floats) -> Floats:
    """Each row's mean; where it lacks some, by how far the others are from usual.

    A mean of those that are there would be another column's. NaN: a row has nothing.
    """
    values = values[:, np.isfinite(values).any(axis=0)]
    usual = robust_mean(values)
    level = float(usual.mean()) if usual.size else math.nan
    return level + mean_of_known(values - usual, axis=1)


def t_interval(batch_values: Floats, confidence: float = 0.95) -> Interval:
    """Mean of successive batch values with Student's interval; NaN ends below two batches.

    Batches that resemble the one before (positive correlation at lag one, ``r``) carry less than
    their number says: the variance of the mean is taken (1 + r) / (1 - r) times as large.
    """
    values = batch_values[np.isfinite(batch_values)]
    if values.size == 0:
        return Interval(math.nan, math.nan, math.nan)
    return Interval(*_of_rows(values[None, :], confidence)[0].tolist())


def t_intervals(batches: Floats, confidence: float = 0.95) -> list[Interval]:
    """``t_interval`` of each column of ``[batch, column]``."""
    if len(batches) and np.isfinite(batches).all():  # together: there may be thousands
        ends = _of_rows(np.ascontiguousarray(batches.T), confidence)
        return [Interval(*row) for row in ends.tolist()]
    return [t_interval(column, confidence) for column in batches.T]


def _of_rows(values: Floats, confidence: float) -> Floats:
    """``[row, estimate and ends]`` of ``[row, batch]``, all of it known."""
    count = values.shape[1]
    centre = values.mean(axis=1)
    if count == 1:
        unknown = np.full_like(centre, math.nan)
        return np.column_stack([centre, unknown, unknown])
    variance = values.var(axis=1, ddof=1)
    dependence = np.ones_like(variance)
    if count >= _MIN_BATCHES:
        away = values - centre[:, None]
        products = (away[:, 1:] * away[:, :-1]).sum(axis=1)
        varies = variance > 0
        r = products[varies] / (variance[varies] * (count - 1)) + 1 / count
        r = np.clip(r, 0.0, 1 - 1e-9)
        dependence[varies] = np.minimum((1 + r) / (1 - r), count / 3)
    error = np.sqrt(variance * dependence / count)
    reach = float(special.stdtrit(count - 1, 0.5 + confidence / 2)) * error
    return np.column_stack([centre, centre - reach, centre + reach])


def p_above(batch_values: Floats, least: float) -> float:
    """One-sided p value of the mean of successive batch values being no more than ``least``.

    The test that belongs to ``t_interval``; 1 below two batches.
    """
    found = t_interval(batch_values)
    if not math.isfinite(found.half_width):
        return 1.0
    if found.half_width == 0:
        return 0.0 if found.effect > least else 1.0
    freedom = int(np.isfinite(batch_values).sum()) - 1
    error = found.half_width / float(special.stdtrit(freedom, 0.975))
    return float(special.stdtr(freedom, -(found.effect - least) / error))


def share_interval(
    hit: NDArray[np.bool_], weight: Floats, batches: Ints, confidence: float = 0.95
) -> Interval:
    """The share of time in which something held, from 0 to 1, with Wilson's interval.

    It speaks of the time of this run. How often it would hold in the long run is less certain: a
    run of a minute holds few bursts of seconds, or none.

    The number of independent readings is that of the rounds divided by the design effect: how much
    more the shares of batches scatter than those of independent rounds would.
    """
    total = float(weight.sum())
    if hit.size == 0 or total <= 0:
        return Interval(math.nan, math.nan, math.nan)
    share = float((weight * hit).sum()) / total
    readings = float(total**2 / (weight**2).sum())
    count = int(batches.max()) + 1
    batch_weight = np.bincount(batches, weights=weight, minlength=count)
    used = batch_weight > 0
    batch_hit = np.bincount(batches, weights=weight * hit, minlength=count)
    batch_share = batch_hit[used] / batch_weight[used]
    if 0 < share < 1 and batch_share.size > 1:
        binomial = share * (1 - share) / readings
        observed = float(batch_share.var(ddof=1)) / batch_share.size
        readings = max(readings / max(1.0, observed / binomial), min(readings, 2.0))
    return Interval(share, *map(float, wilson(share, readings, confidence)))


def wilson(
    share: float | Floats, readings: float, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """The ends of Wilson's interval (1927) of a share, from 0 to 1, of independent readings."""
    z = float(special.ndtri(0.5 + confidence / 2))
    middle = (share + z**2 / (2 * readings)) / (1 + z**2 / readings)
    root = np.sqrt(share * (1 - share) / readings + z**2 / (4 * readings**2))
    half = z * root / (1 + z**2 / readings)
    return np.clip(middle - half, 0, share), np.clip(middle + half, share, 1)


def against_others(level: Floats) -> Floats:
    """Each column's value minus the median of the other columns', along the last axis.

    NaN is left out; NaN where there is no other.
    """
    count = np.isfinite(level).sum(axis=-1, keepdims=True)
    ordered = np.sort(level, axis=-1)  # NaN last
    last = level.shape[-1] - 1

    def other(place: Ints) -> Floats:
        """What stands at that place when each column in turn is taken out."""
        below = np.take_along_axis(ordered, np.clip(place, 0, last), axis=-1)
        above = np.take_along_axis(ordered, np.clip(place + 1, 0, last), axis=-1)
        return np.where(level > below, below, above)

    found = level - (other((count - 2) // 2) + other((count - 1) // 2)) / 2
    return np.where(count > 1, found, np.nan)


def within_batch_p(level: Floats, seed: int = 0, resamples: int = 4000) -> Floats:
    """One-sided p value for each core: as slow as this, if the cores' names meant nothing?

    Parameters
    ----------
    level
        ``[batch, core]``: how slow each core was in each batch (log time); batches with a missing
        core are left out.

    Returns
    -------
    One p value a core, not yet corrected for the number of cores. The names of the cores are
    permuted within each batch, whole batches at a time, so that dependence between the rounds of a
    batch does not count as evidence. Two cores and few batches: exact; else ``resamples`` draws.
    """
    whole = level[np.isfinite(level).all(axis=1)]
    batches, cores = whole.shape
    if batches == 0 or cores < 2:
        return np.ones(cores)
    observed = against_others(whole.mean(axis=0))
    tiny = 1e-12 * (1 + float(np.abs(whole).max()))
    if cores == 2 and 2**batches <= _EXACT_LIMIT:
        difference = whole[:, 0] - whole[:, 1]
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=batches)))
        drawn = (signs @ difference) / batches
        return np.array(
            [
                float((drawn >= observed[0] - tiny).mean()),
                float((-drawn >= observed[1] - tiny).mean()),
            ]
        )
    generator = np.random.default_rng(seed)
    at_least = np.zeros(cores)
    for _ in range(0, resamples, 500):
        order = generator.random((500, batches, cores)).argsort(axis=2)
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
