"""Which cores are near which, from a matrix of latencies alone.

A matrix of cores holds groups within groups: cores of one CCX, one die, one socket. The search goes
from the whole downwards. For a set of cores it tries partitions (average linkage at several numbers
of groups, then each core moved to the group that it is nearest to) and takes the one for which
"same group or not" explains most of the matrix, besides what single cores add to all their cells.
Is that more than noise could give the best of as many partitions? Matrices of pure noise show it,
searched in the same way (``perflib.stats.partitions``). If so, the same is asked of each group.
What is left are the smallest groups; pairs of them, whose means are precise now, are put into as
few classes of distance as their scatter allows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from perflib.stats.few_cores import ALPHA, above_local, both_ways, leaves_of_few
from perflib.stats.interval import Interval
from perflib.stats.intervals import robust_mean, row_means, t_interval, t_intervals
from perflib.stats.partitions import (
    Split,
    best_split,
    freedom_of,
    residual_of,
    score_of,
    scores_of_noise,
    scores_of_shuffled,
    seen_of,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_MIN_CORES = 4  # of which two and two can differ: fewer pass for single slow cores
_MIN_P = 1e-8  # no kind of noise gives a p value below
_MIN_KNOWN_FRACTION = 0.75  # the share of known pairs from which on a matrix counts as whole
_MAX_SKEW = 0.5  # the most that the scores of noise have, in the smallest matrices


@dataclass(frozen=True)
class Groups:
    """What ``find_groups`` says; latencies are in the unit of the data.

    ``labels``: the group of each core, counted from 0 in the order of their first cores; -1 for a
    core of which no cell is known.
    ``classes``: the classes of distance, from near to far, each with its latency.
    ``membership``: ``[a, b]``, the class of each pair of cores (a core with itself: of its group's
    pairs), -1 where there is none.
    ``hierarchy``: the labels of each level of grouping, from the smallest groups to the largest;
    empty for one group.
    ``partners``: pairs of groups that are in different groups of the top level and are nearer to
    each other than to others there.
    ``p``: of groups like these in a matrix without; 1 where there are too few cores to decide.
    ``bound``: one group: upper confidence bound (one-sided) of the log ratio by which the cores of
    two halves could be nearer to each other than to the other half; of two and three cores, by
    which one could be farther from another than from itself or, of three without a diagonal, any
    cell from their mean. NaN if the data cannot show groups, and for several groups.
    ``core``: log ratio by which all cells of a core are slower than usual in its group.
    ``own``: log ratio of the memory of others in the group to a core's own (off the diagonal to on
    it).
    """

    labels: Ints
    classes: tuple[Interval, ...]
    membership: Ints
    hierarchy: tuple[Ints, ...]
    partners: tuple[tuple[int, int], ...]
    p: float
    bound: float
    core: tuple[Interval, ...]
    own: Interval

    @property
    def count(self) -> int:
        """How many groups there are, the smallest ones counted."""
        return int(self.labels.max(initial=-1)) + 1


def find_groups(latency: Floats, confidence: float = 0.95, least: float = 0.02) -> Groups:
    """Find groups of cores and classes of distance in a matrix of latencies.

    Parameters
    ----------
    latency
        ``[batch, alloc_cpu, load_cpu]``: mean or median of each cell in each batch, in any
        unit, or one matrix ``[alloc_cpu, load_cpu]``; NaN where a cell is missing. The diagonal may
        be missing.
    confidence
        What share of the intervals cover the truth.
    least
        Smaller log ratios are no difference, however certain.

    Returns
    -------
    The groups; one of them where there is nothing more than noise.

    Raises
    ------
    ValueError
        Something else than square matrices of positive numbers.

    Notes
    -----
    Both directions of a pair are averaged, and the diagonal is left out. A core that is slow in all
    its cells is no group of its own: off the diagonal the two are alike, so a group has two
    cores or more, and ``core`` says how slow it is. Four cores are the fewest of which the cells
    between them can show two groups. Of two and three the diagonal can: cores that are farther
    from each other than from themselves are of different groups. The chance of a false group in a
    matrix of noise is held to 0.2 % at the first split and to as much over all later ones.

    The error of a cell is what batches say, or what the partition leaves unexplained where that is
    more; so a single matrix can show groups too. But sizes matter: with 10 % of noise in a
    cell and 10 % between two groups of three cores, no method finds them in one matrix; eight
    batches can.

    Examples
    --------
    >>> generator = np.random.default_rng(1)
    >>> socket = np.arange(8) % 2
    >>> cycles = np.where(socket[:, None] == socket, 220.0, 360.0)
    >>> noisy = cycles * np.exp(0.1 * generator.standard_normal((8, 8, 8)))
    >>> found = find_groups(noisy)
    >>> found.labels.tolist(), [round(near.effect, -1) for near in found.classes]
    ([0, 1, 0, 1, 0, 1, 0, 1], [220.0, 360.0])
    """
    cells = np.asarray(latency, dtype=np.float64)
    cells = cells[None] if cells.ndim == 2 else cells
    if cells.ndim != 3 or cells.shape[1] != cells.shape[2]:
        msg = f"latency must be [batch, core, core] or [core, core], not {np.shape(latency)}"
        raise ValueError(msg)
    if (cells <= 0).any() or np.isinf(cells).any():
        msg = "latencies must be positive"
        raise ValueError(msg)
    logs = _without_batch_offsets(np.log(cells))
    pairs = both_ways(logs)
    usual = _over_batches(pairs)
    known = np.flatnonzero(np.isfinite(usual).any(axis=1))
    labels = np.full(cells.shape[1], -1, dtype=np.int64)
    error, readings = _batch_error(pairs, usual)
    few = known.size < _MIN_CORES
    leaves, p = (
        leaves_of_few(above_local(logs, known), known, least)
        if few
        else _leaves(pairs, usual, known, least)
    )
    for number, leaf in enumerate(leaves):
        labels[leaf] = number
    return _described(np.log(cells), usual, labels, p, confidence, least, (error, readings))


def _without_batch_offsets(logs: Floats) -> Floats:
    """Batches that are slower as a whole put to one height."""
    flat = logs.reshape(len(logs), -1)
    usual = robust_mean(flat)
    seen = np.isfinite(flat)
    count = np.maximum(seen.sum(axis=1), 1)
    offset = np.where(seen, flat - usual, 0.0).sum(axis=1) / count
    return np.asarray(logs - offset[:, None, None])


def _over_batches(pairs: Floats) -> Floats:
    return robust_mean(pairs.reshape(len(pairs), -1)).reshape(pairs.shape[1:])


def _batch_error(pairs: Floats, usual: Floats) -> tuple[float, int]:
    """Variance of a pair's mean as batches say, and their number; 0 from a single one."""
    above = np.triu_indices(len(usual), 1)
    away = (pairs - usual)[:, above[0], above[1]]
    seen = np.isfinite(away)
    count = seen.sum(axis=0)
    freedom = int(np.maximum(count - 1, 0).sum())
    if freedom == 0:
        return 0.0, 1
    variance = float((np.where(seen, away, 0.0) ** 2).sum()) / freedom
    batches = max(round(float(np.median(count[count > 0]))), 2)
    return variance / batches * _robust_excess(batches), batches


@lru_cache(maxsize=64)
def _robust_excess(batches: int) -> float:
    """How much more a robust mean of normal values scatters than their plain mean would."""
    values = np.random.default_rng(batches).standard_normal((batches, 50_000))
    means = robust_mean(values)
    plain = ((values - means) ** 2).sum() / (batches - 1) / batches
    return float((means**2).sum() / plain)


def _is_batch_noise(split: Split, error: float, seen: NDArray[np.bool_], readings: int) -> bool:
    """Whether noise of the batches explains what a split leaves; else cells differ in all alike."""
    freedom = freedom_of(seen), (readings - 1) * (int(seen.sum()) // 2)
    if freedom[1] == 0:
        return False
    return split.variance <= error * float(distributions.f.ppf(0.9999, *freedom))


def _p_of(score: float, noise: tuple[float, float]) -> float:
    mean, scatter = noise
    return float(distributions.pearson3.sf((score - mean) / scatter, _MAX_SKEW))


def _leaves(batches: Floats, usual: Floats, cores: Ints, least: float) -> tuple[list[Ints], float]:
    """The smallest groups, by their first cores, and the p value of the first split.

    Cells of a group may have been measured more often than others: its own batches show its error.
    """
    first_p, leaves, waiting = 1.0, [], [cores]
    while waiting:
        own = waiting.pop()
        split, p, enough = None, 1.0, ALPHA * own.size / max(cores.size, 1)
        pairs = usual[np.ix_(own, own)]
        error, readings = _batch_error(batches[:, own][:, :, own], pairs)
        seen = seen_of(pairs)
        if own.size >= _MIN_CORES and freedom_of(seen) > 0:
            split = best_split(pairs, error)
        if split is not None:
            counted = readings if _is_batch_noise(split, error, seen, readings) else 1
            # A few gaps change little, and each matrix has others: they are not worth a simulation.
            alike = seen if seen.mean() < _MIN_KNOWN_FRACTION else ~np.eye(own.size, dtype=bool)
            score = float(score_of(np.array(split.gain), seen, counted))
            p = _p_of(score, scores_of_noise(own.size, alike.tobytes(), counted))
            if counted == 1 and _MIN_P < p <= enough:
                p = max(p, _p_of(score, scores_of_shuffled(pairs)))
            first_p = p if own.size == cores.size else first_p
        if split is None or split.apart < least or p > enough:
            leaves.append(own)
        else:
            waiting += [own[split.labels == n] for n in range(split.labels.max() + 1)]
    return sorted((leaf for leaf in leaves if leaf.size), key=lambda leaf: int(leaf[0])), first_p


def _described(
    logs: Floats,
    usual: Floats,
    labels: Ints,
    p: float,
    confidence: float,
    least: float,
    noise: tuple[float, int],
) -> Groups:
    """Classes of distance, hierarchy and partners of the smallest groups."""
    pairs = both_ways(logs)
    typical, _ = _group_pairs(usual, labels, np.median)
    away = _core_effects(usual[None], typical, labels)[0]
    evened = usual - away[:, None] - away
    means, counts = _group_pairs(evened, labels, np.mean)
    left = evened - _spread(means, labels)
    freedom = int((counts[np.triu_indices(len(counts))] - 1).clip(0).sum())
    variance = max(noise[0], float(np.nansum(left**2)) / 2 / max(freedom, 1))
    # A cell that was measured more often than most counts for more.
    readings = np.isfinite(pairs).sum(axis=0).astype(np.float64)
    readings[~seen_of(usual)] = np.nan
    if np.isfinite(readings).any():
        counts = counts * _group_pairs(readings, labels, np.mean)[0] / np.nanmedian(readings)
    kinds, number = _classes(means, counts, variance, least)
    membership = _spread(kinds, labels)
    above = np.triu_indices(len(labels), 1)
    cells = (pairs - away[:, None] - away)[:, above[0], above[1]]
    classes = tuple(
        Interval(
            *map(math.exp, t_interval(row_means(cells[:, membership[above] == n]), confidence))
        )
        for n in range(number)
    )
    hierarchy = _hierarchy(means, kinds, labels)
    one = len(means) <= 1
    return Groups(
        labels=labels,
        classes=classes,
        membership=np.nan_to_num(membership, nan=-1).astype(np.int64),
        hierarchy=hierarchy,
        partners=() if one else _partners(hierarchy[-1], kinds, labels),
        p=p,
        bound=_bound(logs, usual, labels, noise, confidence) if one else math.nan,
        core=tuple(t_intervals(_core_effects(pairs, typical, labels), confidence)),
        own=t_interval(_others_over_own(logs, pairs, labels), confidence),
    )


def _group_pairs(
    pairs: Floats, labels: Ints, middle: Callable[[Floats], np.floating[Any]]
) -> tuple[Floats, Ints]:
    """``[group, group]``: the middle of the known cells (NaN: none), and their number of pairs."""
    number = int(labels.max(initial=-1)) + 1
    middles = np.full((number, number), np.nan)
    counts = np.zeros((number, number), dtype=np.int64)
    members = [np.flatnonzero(labels == n) for n in range(number)]
    for one, other in itertools.combinations_with_replacement(range(number), 2):
        batch = pairs[np.ix_(members[one], members[other])]
        known = batch[np.isfinite(batch)]
        if known.size:
            middles[one, other] = middles[other, one] = middle(known)
            counts[one, other] = counts[other, one] = known.size // (1 + (one == other))
    return middles, counts


def _spread(by_group: Floats, labels: Ints) -> Floats:
    """``[core, core]`` from ``[group, group]``; NaN where a core has no group."""
    padded = np.full((len(by_group) + 1, len(by_group) + 1), np.nan)
    padded[:-1, :-1] = by_group
    return np.asarray(padded[np.ix_(labels, labels)])


def _core_effects(pairs: Floats, typical: Floats, labels: Ints) -> Floats:
    """``[batch, core]``: what a core adds to its cells, 0 in the middle of its group."""
    away = pairs - _spread(typical, labels)
    effects = np.stack([robust_mean(batch) for batch in away])
    for n in range(len(typical)):
        own = effects[:, labels == n]
        seen = np.isfinite(own).any(axis=1)
        own[seen] -= np.nanmedian(own[seen], axis=1, keepdims=True)
        effects[:, labels == n] = own
    return effects if len(pairs) > 1 else np.nan_to_num(effects)


def _classes(
    means: Floats, counts: Floats | Ints, variance: float, least: float
) -> tuple[Floats, int]:
    """The class of each pair of groups, from near to far, and how many classes there are.

    Neighbours are put together, the most alike first, as long as their scatter is what a cell's
    variance and differences of half of ``least`` explain (chi-squared at 0.1 %).
    """
    above = np.triu_indices(len(means))
    places = np.flatnonzero(counts[above] > 0)
    places = places[np.argsort(means[above][places])]
    weight = 1 / (variance / counts[above][places] + (least / 2) ** 2)
    # Each class: its members' number, weight, weighted mean, and squares about it.
    size, mean = np.ones(places.size, dtype=np.int64), means[above][places]
    limit = distributions.chi2.ppf(0.999, np.arange(places.size + 1))
    squares = np.zeros(places.size)
    while size.size > 1:
        joint = weight[:-1] * weight[1:] / (weight[:-1] + weight[1:]) * np.diff(mean) ** 2
        together = squares[:-1] + squares[1:] + joint
        fits = together <= limit[size[:-1] + size[1:] - 1]
        if not fits.any():
            break
        n = int(np.argmin(np.where(fits, joint, np.inf)))
        total = weight[n] + weight[n + 1]
        mean[n] = (weight[n] * mean[n] + weight[n + 1] * mean[n + 1]) / total
        size[n], weight[n], squares[n] = size[n] + size[n + 1], total, together[n]
        size = np.delete(size, n + 1)
        weight, mean, squares = (np.delete(part, n + 1) for part in (weight, mean, squares))
    kinds = np.full(means.shape, np.nan)
    kinds[above[0][places], above[1][places]] = np.repeat(np.arange(size.size), size)
    return np.where(np.isnan(kinds), kinds.T, kinds), size.size


def _hierarchy(means: Floats, kinds: Floats, labels: Ints) -> tuple[Ints, ...]:
    """The distinct groupings that cuts between the classes of distance make, the finest first."""
    if len(means) < 2:
        return ()
    levels = [np.arange(len(means))]
    if len(means) > 2:
        distance = np.where(np.isnan(means), np.nanmax(means), means)
        base = float(distance.min())  # linkage wants no negative distances
        np.fill_diagonal(distance, base)
        tree = linkage(squareform(distance - base, checks=False), "average")
        for n in range(int(np.nanmax(kinds))):
            between = (np.nanmax(means[kinds <= n]) + np.nanmin(means[kinds > n])) / 2
            merged = fcluster(tree, between - base, "distance") - 1
            if 1 < merged.max() + 1 < levels[-1].max() + 1:
                levels.append(merged)
    named = []
    for level in levels:
        _, first, inverse = np.unique(level, return_index=True, return_inverse=True)
        named.append(np.append(np.argsort(np.argsort(first))[inverse], -1)[labels])
    return tuple(named)


def _partners(top: Ints, kinds: Floats, labels: Ints) -> tuple[tuple[int, int], ...]:
    """Pairs of groups in different top groups, each nearest to the other and farther from some."""
    group_top = np.array([top[np.argmax(labels == n)] for n in range(len(kinds))])

    def prefers(one: int, other: int) -> bool:
        there = kinds[one, group_top == group_top[other]]
        return bool(kinds[one, other] == np.nanmin(there) < np.nanmax(there))

    return tuple(
        (one, other)
        for one, other in itertools.combinations(range(len(kinds)), 2)
        if group_top[one] != group_top[other]
        and np.isfinite(kinds[one, other])
        and prefers(one, other)
        and prefers(other, one)
    )


def _bound(
    logs: Floats, usual: Floats, labels: Ints, noise: tuple[float, int], confidence: float
) -> float:
    """What difference one group can hide."""
    cores = np.flatnonzero(labels >= 0)
    split = None
    if cores.size >= _MIN_CORES:
        pairs = usual[np.ix_(cores, cores)]
        split = best_split(pairs, noise[0]) if freedom_of(seen_of(pairs)) > 0 else None
    if split is not None:
        half = np.arange(cores.size) < cores.size // 2
        same = (half[:, None] == half).astype(np.float64)
        power = float((residual_of(same, seen_of(pairs)) ** 2).sum()) / 2
        z = float(distributions.norm.ppf(confidence))
        return (math.sqrt(split.gain) + z) * math.sqrt(split.variance / power)
    if cores.size < _MIN_CORES and np.isfinite(logs[:, cores, cores]).all(axis=1).any():
        above = np.triu_indices(cores.size, 1)
        cells = above_local(logs, cores)[:, above[0], above[1]]
        each = 1 - 2 * (1 - confidence) / max(cells.shape[1], 1)
        ends = t_intervals(cells, each)
        # No core is nearer to another than to itself: an estimate below 0 is noise.
        return float(np.max([max(0.0, one.effect) + one.half_width for one in ends], initial=0.0))
    if cores.size < 3:
        return math.nan  # one pair and nothing to compare it with
    cells = logs[:, cores][:, :, cores].reshape(len(logs), -1)
    cells = cells[:, np.isfinite(cells).any(axis=0)]
    away = cells - row_means(cells)[:, None]
    each = 1 - 2 * (1 - confidence) / max(cells.shape[1], 1)
    reach = t_intervals(away, each)
    return float(np.max([(-ends.low, ends.high) for ends in reach])) if reach else math.nan


def _others_over_own(logs: Floats, pairs: Floats, labels: Ints) -> Floats:
    """By batch: log latency to other cores of the group over that of a core to itself."""
    same = (labels[:, None] == labels) & (labels >= 0)
    cores = np.arange(len(labels))
    apart = np.where(same, pairs - logs[:, cores, cores][:, :, None], np.nan)
    return row_means(apart.reshape(len(apart), -1))
