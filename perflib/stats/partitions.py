"""Which partition of cores explains most of a matrix, and how much pure noise lets one explain.

Matrices of noise are searched by hundreds, all at once: a stack of matrices is one array.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.cluster.hierarchy import linkage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_GROUP_NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128)
_NULL_MATRICES = 100  # of matrices without groups
_CELLS_AT_ONCE = 2**21  # of simulated matrices


class Split(NamedTuple):
    """The best partition of a set of cores: what it explains, in units of a pair's variance."""

    labels: Ints
    gain: float
    variance: float
    apart: float  # log ratio between cells of two groups and of one


class _Splits(NamedTuple):
    """The best partitions of many matrices of the same cores; a gain of 0 where there is none."""

    labels: Ints
    gain: Floats
    variance: Floats
    apart: Floats


def seen_of(pairs: Floats) -> NDArray[np.bool_]:
    """The pairs that are known; the diagonal is none."""
    seen = np.isfinite(pairs)
    np.fill_diagonal(seen, val=False)
    return seen


@lru_cache(maxsize=64)
def _solution(cores: int, known: bytes) -> Floats:
    """Least squares: what cores add to their cells, from the sums of each core's known cells."""
    normal = np.frombuffer(known, dtype=bool).reshape(cores, cores).astype(np.float64)
    np.fill_diagonal(normal, normal.sum(axis=1))
    return np.asarray(np.linalg.pinv(normal, rcond=1e-9, hermitian=True))


def residual_of(pairs: Floats, seen: NDArray[np.bool_]) -> Floats:
    """``[..., core, core]``: symmetric matrices beyond what single cores add to all their cells.

    The diagonal and missing cells are 0.
    """
    known = np.where(seen, pairs, 0.0)
    core = known.sum(axis=-1) @ _solution(len(seen), seen.tobytes())
    return np.where(seen, known - core[..., :, None] - core[..., None, :], 0.0)


def freedom_of(seen: NDArray[np.bool_]) -> int:
    """Of what cores and one partition leave unexplained; of a whole matrix, n (n - 3) / 2 - 1."""
    return int(seen.sum()) // 2 - len(seen) - 1


def best_split(pairs: Floats, error: float) -> Split | None:
    """The partition into groups of two or more cores that explains most of a residual."""
    seen = seen_of(pairs)
    found = _best_splits(residual_of(pairs, seen)[None], seen, np.array([error]))
    if not found.gain[0]:
        return None
    _, labels = np.unique(found.labels[0], return_inverse=True)
    return Split(labels, float(found.gain[0]), float(found.variance[0]), float(found.apart[0]))


def _best_splits(residual: Floats, seen: NDArray[np.bool_], error: Floats) -> _Splits:
    """The same of many matrices at once, ``[matrix, core, core]``: noise is simulated by hundreds.

    Cores are taken out of an indicator "same group or not" as out of a matrix (a projection), so
    what is left of it needs no matrix: its squares are the pairs minus what their sums explain.
    """
    count, cores, _ = residual.shape
    solution, known = _solution(cores, seen.tobytes()), seen.astype(np.float64)
    labels = np.zeros((count, cores), dtype=np.int64)
    best, apart = np.zeros(count), np.zeros(count)
    for cut in _cuts(residual):
        moved, whole = _moved(residual, cut)
        member = _members(moved)
        partners = (member * (known @ member)).sum(axis=2)
        power = (partners.sum(axis=1) - 2 * ((partners @ solution) * partners).sum(axis=1)) / 2
        within = (member * (residual @ member)).sum(axis=(1, 2)) / 2
        ratio = np.divide(-within, power, out=np.zeros(count), where=power > 1e-9)
        better = whole & (ratio > 0) & (ratio**2 * power > best)
        labels[better], apart[better] = moved[better], ratio[better]
        best[better] = (ratio**2 * power)[better]
    left = (residual**2).sum(axis=(1, 2)) / 2 - best
    variance = np.maximum(np.maximum(left / freedom_of(seen), error), 1e-12)
    return _Splits(labels, best / variance, variance, apart)


def _members(labels: Ints) -> Floats:
    """``[matrix, core, group]``: 1 for a core's group."""
    return np.asarray(labels[:, :, None] == np.arange(labels.max() + 1), dtype=np.float64)


def _cuts(residual: Floats) -> Iterator[Ints]:
    """Average linkage at several numbers of groups, from many to few: ``[matrix, core]`` each."""
    count, cores, _ = residual.shape
    above = np.triu_indices(cores, 1)
    distance = residual[:, above[0], above[1]] - residual.min(axis=(1, 2))[:, None]
    merges = np.array([linkage(one, "average")[:, :2] for one in distance]).astype(np.int64)
    names = np.tile(np.arange(cores), (count, 1))
    for merge in range(cores - 2):
        pair = merges[:, merge, :, None]
        names[(names == pair[:, 0]) | (names == pair[:, 1])] = cores + merge
        if (number := cores - merge - 1) in _GROUP_NUMBERS and number <= cores // 2:
            there = np.zeros((count, 2 * cores), dtype=np.int64)
            np.put_along_axis(there, names, 1, axis=1)
            yield np.take_along_axis(there.cumsum(axis=1) - 1, names, axis=1)


def _moved(residual: Floats, labels: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Cores moved to the groups that they are nearest to, until they stay.

    Groups that are left with one core are given up. Second: whether there are two groups or more,
    each of two cores or more.
    """
    labels, moving = labels.copy(), np.arange(len(labels))
    for _ in range(10):
        own = labels[moving]
        member = _members(own)
        sizes = member.sum(axis=1, keepdims=True)
        others = sizes - member  # a core is not compared with itself
        away = np.full_like(others, np.inf)
        np.divide(residual[moving] @ member, others, out=away, where=(others > 0) & (sizes > 1))
        nearest = np.argmin(away, axis=2)
        here = np.take_along_axis(away, own[:, :, None], axis=2)[:, :, 0]
        stays = np.isfinite(here) & (here <= away.min(axis=2))
        labels[moving] = np.where(stays, own, nearest)
        several = (sizes > 1).sum(axis=(1, 2)) > 1
        moving = moving[several & (labels[moving] != own).any(axis=1)]
        if not moving.size:
            break
    sizes = _members(labels).sum(axis=1)
    return labels, ((sizes > 0).sum(axis=1) > 1) & (sizes != 1).all(axis=1)


def score_of(gain: Floats, seen: NDArray[np.bool_], readings: int) -> Floats:
    """What gains are on the normal scale, if the partition had been given beforehand (F test)."""
    freedom = max(freedom_of(seen), (readings - 1) * (int(seen.sum()) // 2))
    return np.asarray(-special.ndtri(special.fdtrc(1, freedom, gain).clip(1e-300, 1.0)))


@lru_cache(maxsize=256)
def scores_of_noise(cores: int, known: bytes, readings: int) -> tuple[float, float]:
    """Mean and standard deviation of the best partition's score in matrices of pure noise."""
    generator = np.random.default_rng([cores, readings])
    seen = np.frombuffer(known, dtype=bool).reshape(cores, cores)
    freedom = (readings - 1) * (int(seen.sum()) // 2)
    wanted = max(_NULL_MATRICES, 3000 // cores)  # small matrices' scores scatter more
    scores = np.empty(0)
    while scores.size < wanted:
        noise, error = [], []
        for _ in range(_at_once(cores, wanted)):
            half = np.triu(generator.standard_normal((cores, cores)), 1)
            noise.append(half + half.T)
            error.append(float(generator.chisquare(freedom)) / freedom if freedom else 0.0)
        gain = _best_splits(residual_of(np.array(noise), seen), seen, np.array(error)).gain
        scores = np.append(scores, score_of(gain[gain > 0], seen, readings))
    return float(scores[:wanted].mean()), float(scores[:wanted].std())


def scores_of_shuffled(pairs: Floats) -> tuple[float, float]:
    """The same of a matrix's own cells, exchanged at random: their noise need not be normal."""
    seen = seen_of(pairs)
    residual = residual_of(pairs, seen)
    generator = np.random.default_rng(len(pairs))
    places = np.nonzero(np.triu(seen))
    scores = np.empty(0)
    while scores.size < _NULL_MATRICES:
        shuffled = np.zeros(
            (min(_at_once(len(pairs), _NULL_MATRICES), _NULL_MATRICES - scores.size), *pairs.shape)
        )
        for one in shuffled:
            one[places] = generator.permutation(residual[places])
        shuffled = residual_of(shuffled + shuffled.swapaxes(1, 2), seen)
        gain = _best_splits(shuffled, seen, np.zeros(len(shuffled))).gain
        scores = np.append(scores, np.where(gain > 0, score_of(gain, seen, 1), 0.0))
    return float(scores.mean()), float(scores.std())


def _at_once(cores: int, most: int) -> int:
    """How many matrices are simulated together, so that they take little memory."""
    return min(most, _CELLS_AT_ONCE // cores**2 + 1)
