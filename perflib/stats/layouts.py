"""What random layouts say: how far a factor's levels differ, and by how much layouts alone scatter.

Each trial draws a level of every factor at random, so the mean over a level's trials compares it
with the others whatever the other factors do. As elsewhere the scatter is that of batches,
which may be disturbed as a whole (`perflib.stats.intervals`).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import mean_of_known, t_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_RESAMPLES = 4000
_RESAMPLES_AT_ONCE = 500


def within_rounds(values: Floats, rounds: Ints) -> Floats:
    """Values less the mean of their round; rounds are numbered from 0."""
    count = np.bincount(rounds)
    mean = np.bincount(rounds, weights=values) / np.maximum(count, 1)
    centred: Floats = values - mean[rounds]
    return centred


def batch_levels(values: Floats, levels: Ints, batches: Ints) -> Floats:
    """``[batch, level]``: the mean value of each level's trials in each batch, NaN without any.

    A batch's levels are given as differences from their mean: what the whole batch shares is gone.
    """
    shape = int(batches.max()) + 1, int(levels.max()) + 1
    cell = batches * shape[1] + levels
    count = np.bincount(cell, minlength=shape[0] * shape[1])
    total = np.bincount(cell, weights=values, minlength=shape[0] * shape[1])
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(shape)
    return np.asarray(means - mean_of_known(means, 1)[:, None])


def largest_difference(by_batch: Floats) -> tuple[Interval, tuple[int, int]]:
    """How far the slowest level is above the fastest, and which these are: (fastest, slowest).

    The interval holds for the largest true difference: each pair of levels has an interval, all of
    them hold at once with 95 % confidence (Bonferroni), the largest lower end is the lower end and
    the largest upper end the upper one. It begins at 0 where no pair is known to differ.

    Parameters
    ----------
    by_batch
        What `batch_levels` returns.
    """
    pairs = list(itertools.combinations(range(by_batch.shape[1]), 2))
    found = [t_interval(by_batch[:, b] - by_batch[:, a], 1 - 0.05 / len(pairs))
             for a, b in pairs]  # fmt: skip
    known = [place for place, one in enumerate(found) if math.isfinite(one.half_width)]
    if not known or len(known) < len(pairs):
        return NO_INTERVAL, (0, 0)
    low = max(max(one.low, -one.high, 0.0) for one in found)
    high = max(max(one.high, -one.low) for one in found)
    largest = max(known, key=lambda place: abs(found[place].effect))
    effect, (a, b) = found[largest].effect, pairs[largest]
    return Interval(abs(effect), min(low, abs(effect)), high), (a, b) if effect > 0 else (b, a)


def permuted_p(factors: list[Floats]) -> Floats:
    """For each factor: how often would any of all factors be like this if levels meant nothing?

    The names of a factor's levels are permuted within each batch, all of a batch's trials
    together, so that neighbouring trials that resemble each other count as one. The statistic is
    the scatter of the levels' means in standard units of its own permutations; each factor is
    compared with the largest over all factors (Westfall and Young's step, single).

    Parameters
    ----------
    factors
        Of each factor what `batch_levels` returns.

    Returns
    -------
    One p value a factor, corrected for their number.
    """
    observed, drawn = [], []
    generator = np.random.default_rng(0)
    for by_batch in factors:
        parts = [
            _scatter(_shuffled(by_batch, generator))
            for _ in range(0, _RESAMPLES, _RESAMPLES_AT_ONCE)
        ]  # fmt: skip
        under_null = np.concatenate(parts)
        centre, scale = float(under_null.mean()), float(under_null.std())
        unit = scale if scale > 0 else math.inf
        observed.append((float(_scatter(by_batch[None])[0]) - centre) / unit)
        drawn.append((under_null - centre) / unit)
    if not factors:
        return np.zeros(0)
    largest = np.max(drawn, axis=0)
    return np.array([(1 + float((largest >= one - 1e-9).sum())) / (1 + largest.size)
                     for one in observed])  # fmt: skip


def _shuffled(by_batch: Floats, generator: np.random.Generator) -> Floats:
    """``[draw, batch, level]``: the levels' names exchanged at random in each batch."""
    shape = (_RESAMPLES_AT_ONCE, *by_batch.shape)
    order = generator.random(shape).argsort(axis=2)
    return np.take_along_axis(np.broadcast_to(by_batch, shape), order, axis=2)


def _scatter(drawn: Floats) -> Floats:
    """``[draw]``: the sum of squares of the levels' means over batches."""
    known = np.isfinite(drawn)
    mean = np.where(known, drawn, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    scatter: Floats = (mean**2).sum(axis=1)
    return scatter


def shifted_correlations(counts: Floats, times: Floats) -> tuple[Floats, Floats]:
    """How each counter goes with the time, and how often one of them would do so by chance.

    Times and counts both wander, so values that are neighbours in time resemble each other whatever
    the layouts do. Chance is the same series shifted against the times, end to beginning: each
    keeps its wandering, and no value meets its own time. A counter is compared with the largest
    correlation of all of them.

    Parameters
    ----------
    counts
        ``[counter, layout]``, in the order of time; NaN where it was not counted.
    times
        ``[layout]``.

    Returns
    -------
    ``[counter]`` of Pearson's correlations, and of p values corrected for the number of counters;
    NaN where a counter is constant.
    """
    known = np.isfinite(counts)
    number = np.maximum(known.sum(axis=1, keepdims=True), 1)
    centred = np.where(known, counts - np.where(known, counts, 0).sum(axis=1)[:, None] / number, 0)
    deviations = times - times.mean()
    square = np.maximum(_at_all_shifts(known.astype(np.float64), deviations**2), 0)
    size = np.sqrt((centred**2).sum(axis=1)[:, None] * square)
    scale = np.where(size > 1e-12 * np.abs(np.where(known, counts, 0)).max(initial=1), size, np.inf)
    by_shift = _at_all_shifts(centred, deviations) / scale
    found = by_shift[:, 0]
    flat = ~np.isfinite(scale[:, 0])
    largest = np.abs(by_shift[:, 1:]).max(axis=0, initial=0)
    p = np.array([(1 + (largest >= abs(one) - 1e-9).sum()) / (1 + largest.size) for one in found])
    return np.where(flat, np.nan, found), np.where(flat, np.nan, p)


def _at_all_shifts(rows: Floats, series: Floats) -> Floats:
    """``[row, shift]``: the sum of products of each row with the series shifted so far."""
    transformed = np.fft.rfft(rows, axis=1) * np.conj(np.fft.rfft(series))
    found: Floats = np.fft.irfft(transformed, series.size, axis=1)
    return found


def layout_variance(centred: Floats, layouts: Ints, rounds: Ints, batches: Ints) -> Interval:
    """The variance between layouts, free of the scatter between starts of one layout.

    A layout that was started in two rounds has two values with nothing in common but the layout:
    the mean of their product is the variance between layouts, whatever the noise is. (It is
    negative by chance where layouts hardly differ.)

    Parameters
    ----------
    centred
        Of each trial what `within_rounds` returns; the layouts of a round are drawn at random.
    layouts, rounds, batches
        Of each trial its layout, its round and its batch.

    Returns
    -------
    The variance with its interval, from the scatter between batches.
    """
    order = np.lexsort((rounds, layouts))
    layout, round_ = layouts[order], rounds[order]
    first = np.flatnonzero((layout[1:] == layout[:-1]) & (round_[1:] != round_[:-1]))
    if not first.size:
        return NO_INTERVAL
    a, b = order[first], order[first + 1]
    count = np.bincount(rounds)
    _, place, shared = np.unique(
        rounds[a] * (int(rounds.max()) + 1) + rounds[b], return_inverse=True, return_counts=True
    )
    # A round's mean holds the layout itself, and those that the other round's mean holds, too.
    kept = 1 - 1 / count[rounds[a]] - 1 / count[rounds[b]]
    kept = kept + shared[place] / (count[rounds[a]] * count[rounds[b]])
    usable = kept > 0
    product, kept, batch = (centred[a] * centred[b])[usable], kept[usable], batches[b][usable]
    if not product.size:
        return NO_INTERVAL
    total, weight = np.bincount(batch, weights=product), np.bincount(batch, weights=kept)
    return t_interval(total[weight > 0] / weight[weight > 0])


def needed_pairs(differences: Floats, half_width_percent: float) -> tuple[int, ...]:
    """How many pairs a difference takes to be known within a half-width at 95 %.

    Parameters
    ----------
    differences
        Log ratios of a few pairs.
    half_width_percent
        What is wanted.

    Returns
    -------
    The likely number, and the least and the most that those few pairs allow (the scatter of normal
    values, 95 %); nothing for fewer than three pairs.
    """
    if differences.size < 3:
        return ()
    freedom = differences.size - 1
    variance = float(differences.var(ddof=1)) * 1e4
    ends = (special.chdtri(freedom, 1 - share) for share in (0.975, 0.025))
    least, most = (variance * freedom / float(end) for end in ends)
    return tuple(
        max(2, math.ceil((1.96 / half_width_percent) ** 2 * one)) for one in (variance, least, most)
    )
