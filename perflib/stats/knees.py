"""Where one curve leaves another: the reach of a TLB, from time ratios at ascending sizes.

Above its reach ``K`` a TLB misses. Accesses at random to ``s`` bytes find their page with
probability ``K / s``, whatever is evicted, so the time grows by a factor ``1 + A (1 - K / s)``. A
cyclic walk misses always as soon as it no longer fits, if the oldest entry is evicted: a step at
``K``. Where the TLB has sets, or evicts about at random, the step is a ramp that begins at ``K``
(a random victim gives a miss rate close to ``1 - (K / s) ** 2``). One family has them all::

    time ratio = B (1 + A1 rise1(s) + A2 rise2(s)),   rise(s) = 1 - (K / s) ** sharpness  above K

with ``A1`` and ``A2`` positive, one for each level of TLB. The data choose the sharpness among a
few, so ``K`` always is *where the rise begins*. ``B``, by which the curves differ below all knees,
is no knee.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.stats.interval import Interval
from perflib.stats.intervals import mean_of_known, t_interval, t_intervals

Floats = NDArray[np.float64]
_STEP_SHARPNESS = 1e4  # as good as infinite
_SHARPNESS = {"random": (1.0, 2.0), "cyclic": (_STEP_SHARPNESS, 20.0, 7.0, 2.0, 1.0)}
_MIN_KNEE_DISTANCE_LOG = math.log(
    1.6
)  # if two rises fit best that are closer, they are one that is blurred
_FORM_ERROR_FRACTION = 0.06  # real rises differ from the family's by this share of their height
_PLATEAU_SIZES = 3  # sizes whose median is what is above a knee
_PLACES_PER_GAP = 4  # that are tried in each gap between sizes
_MAX_EXACT_BATCHES = 12
_DRAWS = 4000


@dataclass(frozen=True)
class Knee:
    """A size at which the time begins to rise.

    ``size``: in the unit of the sizes. Its ends are measured sizes, so it is never narrower than
    the gap that it is in; its low end is 0 where the rise may begin below the smallest size.
    ``height``: the log ratio that it adds at the largest size. ``p``: of a rise like this by
    chance, if there were none.
    """

    size: Interval
    height: Interval
    p: float


@dataclass(frozen=True)
class Knees:
    """What ``find_knees`` says; all but ``knees`` and ``p`` are log ratios.

    ``knees``: none, one or two, ascending. ``p``: of no rise at all. ``bound``: upper confidence
    bound (one-sided) of the largest rise, NaN if there were too few data. ``offset``: the level
    below the first knee, of all sizes where there is none. ``excess``: the level at each size.
    """

    knees: tuple[Knee, ...]
    p: float
    bound: float
    offset: Interval
    excess: tuple[Interval, ...]


def find_knees(
    sizes: Sequence[float] | Floats,
    log_ratio: Floats,
    shape: Literal["random", "cyclic"],
    confidence: float = 0.95,
    seed: int = 0,
    least: float = 0.01,
) -> Knees:
    """Find the sizes, if any, above which one of two ways takes longer than the other.

    Parameters
    ----------
    sizes
        Ascending, in bytes (or pages, as you like).
    log_ratio
        ``[batch, size]``: log of one way's time over the other's, a mean or median over the rounds
        of a batch (see ``batches``); NaN where there is none.
    shape
        How the sizes were accessed: at ``random``, or in a ``cyclic`` order.
    confidence
        What share of the intervals cover the truth; a knee must have ``p`` below the rest.
    seed
        Of the signs that are drawn where there are too many batches to try all.
    least
        A smaller log ratio is no knee, however certain.

    Returns
    -------
    The knees; none, with ``p`` 1, from fewer than three sizes or two batches.

    Raises
    ------
    ValueError
        Sizes that do not ascend, another number of columns, an unknown shape.

    Notes
    -----
    The test changes the signs of whole batches: if the two ways are equal but for an offset, their
    names could be swapped in any batch. Each batch's own mean over the sizes is taken away before,
    so neither an offset nor batches that are shifted as a whole count. The statistic is the largest
    t value of all rises in the family; fewer than five batches can give no p below 5 %. No knee is
    named where the time rises from the smallest size on (``p`` is small then): it is below.

    A second knee is tested on what the best first leaves, and must be more than what the family is
    inexact by, 6 % of all that rises. It is none if the two that fit best are closer than a factor
    of 1.6: that is one rise, blurred.

    A size is in the interval of ``K`` if batches do not agree that the best curve fits better than
    the best one with a knee there (Student's t over batches), or if these curves agree within
    6 % of the knee's height. Heights are taken over all such curves.

    Examples
    --------
    >>> rows = [[0.0, 0.0, 0.0, 0.7, 0.7], [0.1, 0.1, 0.1, 0.8, 0.81]] * 4
    >>> found = find_knees([64, 128, 256, 512, 1024], np.array(rows), "cyclic")
    >>> [(knee.size.low, knee.size.high) for knee in found.knees]
    [(256.0, 512.0)]
    """
    grid = np.asarray(sizes, dtype=np.float64)
    values = np.asarray(log_ratio, dtype=np.float64)
    if grid.ndim != 1 or values.ndim != 2 or values.shape[1] != grid.size:
        msg = f"log_ratio must be [batch, size] with {grid.size} sizes, not {values.shape}"
        raise ValueError(msg)
    if not (np.isfinite(grid).all() and (grid > 0).all() and (np.diff(grid) > 0).all()):
        msg = f"sizes must be positive and ascend: {grid.tolist()}"
        raise ValueError(msg)
    if shape not in _SHARPNESS:
        msg = f"no shape {shape!r}; there are: {', '.join(_SHARPNESS)}"
        raise ValueError(msg)
    excess = tuple(t_intervals(values, confidence))
    seen = np.isfinite(values)
    while True:  # a batch with one size compares nothing, nor does a size with one batch
        left = seen & (seen.sum(axis=1) >= 2)[:, None] & (seen.sum(axis=0) >= 2)
        if (left == seen).all():
            break
        seen = left
    kept, used = seen.any(axis=1), seen.any(axis=0)
    if used.sum() < 3 or kept.sum() < 2:
        offset = t_interval(mean_of_known(values, 1), confidence)
        return Knees((), 1.0, math.nan, offset, excess)
    search = _Search(grid[used], values[np.ix_(kept, used)], shape, confidence, seed)
    p, knees = search.knees(least)
    first = knees[0].size.effect if knees else math.inf
    offset = t_interval(mean_of_known(values[:, grid < first], 1), confidence)
    return Knees(knees, p, search.bound(), offset, excess)


def half_rises(sizes: Sequence[float] | Floats, knees: Knees) -> tuple[Interval, ...]:
    """Of each knee, the size at which half of its rise has come.

    A level of TLB that evicts the oldest entry of all rises at one size, where it is full. Where
    pages fall on its sets by chance (a hash chooses the set) some sets are full long before: the
    rise begins too early, and half of it has come at about as many pages as there are entries.
    Where victims are random it begins when the level is full, and is half done at 1.4 times as
    many. So the number of entries is between where the rise begins and where half of it has come,
    whatever the TLB does.

    Parameters
    ----------
    sizes
        Those that ``find_knees`` was given.
    knees
        What it found.

    Returns
    -------
    One interval a knee: the size where the mean time ratio passes half of the way from what is
    below the knee to what is above (the median of the last three sizes below the next knee, or
    of all), interpolated on logarithms. It reaches from the low end of the knee to the first size
    whose own interval is above half of the way, or to the largest size.

    Examples
    --------
    >>> rows = np.array([[0.0, 0.0, 0.01, 0.7, 0.7], [0.0, 0.01, 0.0, 0.71, 0.7]] * 4)
    >>> sizes = [64, 80, 100, 125, 160]
    >>> [round(half.effect) for half in half_rises(sizes, find_knees(sizes, rows, "cyclic"))]
    [112]
    """
    grid = np.asarray(sizes, dtype=np.float64)
    logs = np.array([tuple(one) for one in knees.excess])  # [size, (effect, low, high)]
    grid, ratio = grid[np.isfinite(logs[:, 0])], np.exp(logs[np.isfinite(logs[:, 0])])
    starts = [*(knee.size.low for knee in knees.knees), math.inf]
    found, bottom = [], math.exp(knees.offset.effect)
    for start, stop in itertools.pairwise(starts):
        above = int(np.flatnonzero(grid <= stop)[-1])
        beyond = [place for place in range(above + 1) if grid[place] > start] or [above]
        plateau = ratio[beyond[-_PLATEAU_SIZES:]]
        top, _, most = np.median(np.nan_to_num(plateau, nan=math.inf), axis=0)
        half, surely = (bottom + top) / 2, (bottom + most) / 2
        before = int(np.searchsorted(grid, start, "right")) - 1
        rest = np.arange(max(before, 0), len(grid))
        at = int(rest[ratio[rest, 0] >= half][0]) if (ratio[rest, 0] >= half).any() else above
        low, high = grid[max(at - 1, 0)], grid[at]
        step = ratio[at, 0] - ratio[at - 1, 0] if at else 0.0
        part = (half - ratio[at - 1, 0]) / step if step else 1.0
        ends = [size for size in rest if size >= at and ratio[size, 1] >= surely]
        last = grid[ends[0]] if ends else grid[-1]
        middle = float(low * (high / low) ** min(max(part, 0.0), 1.0))
        found.append(Interval(middle, min(start, middle), float(max(last, middle))))
        bottom = top
    return tuple(found)


class _Curve(NamedTuple):
    """A curve with the rises ``chosen``: ``log_ratio`` [size], ``level`` of B and of each rise.

    ``tangent``: [size, term], how the log ratio changes with each level.
    """

    chosen: tuple[int, ...]
    log_ratio: Floats
    level: Floats
    tangent: Floats


class _Search:
    """All rises that are tried, and how well each and each pair of them fits the batches."""

    def __init__(
        self, sizes: Floats, values: Floats, shape: str, confidence: float, seed: int
    ) -> None:
        self.sizes, self.log_sizes = sizes, np.log(sizes)
        self.values = values
        self.confidence = confidence
        batches = len(values)
        self.exact = batches <= _MAX_EXACT_BATCHES
        if self.exact:
            self.signs = np.array(list(itertools.product((1.0, -1.0), repeat=batches)))
        else:
            self.signs = np.random.default_rng(seed).choice((1.0, -1.0), (_DRAWS, batches))
        parts = (np.arange(_PLACES_PER_GAP) + 0.5) / _PLACES_PER_GAP
        inside = self.log_sizes[:-1, None] + np.diff(self.log_sizes)[:, None] * parts
        self.places = np.append(self.log_sizes[0], inside)  # the first: from the smallest size on
        place, sharpness = np.meshgrid(np.arange(self.places.size), _SHARPNESS[shape])
        kept = (place > 0) | (sharpness < _STEP_SHARPNESS)  # a step there is one in the first gap
        self.place, sharpness = place[kept], sharpness[kept]
        above = np.maximum(self.log_sizes - self.places[self.place][:, None], 0)
        self.rises: Floats = -np.expm1(-sharpness[:, None] * above)  # [candidate, size]
        # Rises add in time, not in its log. Divided by the mean curve, they are fitted to 1, and
        # what is left is relative, as the noise is. B is projected out.
        self.scale = np.exp(-_mean_curve(values))
        unit = self.scale / np.linalg.norm(self.scale)
        fitted = self.rises * self.scale
        self.free = fitted - (fitted @ unit)[:, None] * unit
        self.along = self.free @ (1 - unit * unit.sum())
        self.power = (self.free**2).sum(axis=1)

    def knees(self, least: float) -> tuple[float, tuple[Knee, ...]]:
        """The p value of no rise at all, and the knees."""
        p = self._p(self._rows(np.zeros(self.log_sizes.size)), self.rises)
        if p > 1 - self.confidence:
            return p, ()
        gain = np.where(self.along > 0, self.along**2 / self.power, 0.0)
        curve = self._curve((int(gain.argmax()),))
        p_values: tuple[float, ...] = (p,)
        p_second = self._p_second(curve, least)
        if p_second <= 1 - self.confidence:
            pairs = self._pair_gain()
            first, second = np.unravel_index(int(pairs.argmax()), pairs.shape)
            both = self._curve((int(first), int(second)))
            heights = [height.effect for height in self._heights(both)]
            apart = (
                self.places[self.place[second]] - self.places[self.place[first]]
                >= _MIN_KNEE_DISTANCE_LOG
            )
            if apart and min(heights) >= max(least, _FORM_ERROR_FRACTION * sum(heights)):
                gain, curve = pairs, both
                p_values = (p, p_second) if heights[0] > heights[1] else (p_second, p)
        found = []
        for n, candidate in enumerate(curve.chosen):
            if self.place[candidate] > 0 and self._heights(curve)[n].effect >= least:
                found.append(Knee(*self._intervals(curve, gain, n), p_values[n]))
        return p, tuple(found)

    def bound(self) -> float:
        """The largest rise of the plain shape at any place, at its upper confidence bound."""
        rises = self.rises[np.unique(self.place, return_index=True)[1]]
        centred = rises - rises.mean(axis=1, keepdims=True)
        rows = self._rows(np.zeros(self.log_sizes.size))
        height = rows @ centred.T / (centred**2).sum(axis=1) * rises[:, -1]
        one_sided = 2 * self.confidence - 1
        return max(t_interval(column, one_sided).high for column in height.T)

    def _rows(self, curve: Floats) -> Floats:
        """What each batch's values are off a curve and their mean; 0 where there is none."""
        away = self.values - curve
        away = away - mean_of_known(away, 1)[:, None]
        return np.where(np.isfinite(away), away, 0.0)

    def _p(self, rows: Floats, directions: Floats) -> float:
        """How often changed signs of batches give a largest t value like the one observed."""
        along = rows @ directions.T
        scale = np.sqrt((along**2).sum(axis=0))
        some = scale > 1e-9
        if not some.any():
            return 1.0
        along = along[:, some] / scale[some]  # t grows with the sum of these
        hits = (self.signs @ along).max(axis=1) >= along.sum(axis=0).max() - 1e-9
        return float(hits.mean() if self.exact else (1 + hits.sum()) / (1 + hits.size))

    def _p_second(self, curve: _Curve, least: float) -> float:
        """The p value of what one rise leaves; 1 if it is no more than the family is inexact by."""
        rows = self._rows(curve.log_ratio)
        misfit = float(np.abs(rows.mean(axis=0)).max())
        total = float(curve.log_ratio[-1] - curve.log_ratio[0])
        if misfit < max(least / 2, _FORM_ERROR_FRACTION * total):
            return 1.0
        relative = np.exp(-curve.log_ratio)
        directions = self.rises * relative
        # What a slightly different place or sharpness of the first rise would explain is not left.
        near = np.abs(self.place - self.place[curve.chosen[0]]) <= _PLACES_PER_GAP // 2
        axes, weight, _ = np.linalg.svd(np.vstack([relative, directions[near]]).T)
        axes = axes[:, : int((weight > 0.03 * weight[0]).sum())]
        directions = directions - (directions @ axes) @ axes.T
        return self._p(rows, directions[np.linalg.norm(directions, axis=1) > 0.01])

    def _pair_gain(self) -> Floats:
        """``[first, second]``: the sum of squares that two rises explain; 0: they are no pair."""
        gram = self.free @ self.free.T
        left, right = self.along[:, None], self.along[None, :]
        left_power, right_power = self.power[:, None], self.power[None, :]
        common = left_power * right_power - gram**2
        first, second = left * right_power - right * gram, right * left_power - left * gram
        place = self.places[self.place]
        good = (place[None, :] > place[:, None]) & (first > 0) & (second > 0)
        good &= common > 1e-9 * left_power * right_power
        return np.where(good, (left * first + right * second) / np.where(good, common, 1), 0.0)

    def _curve(self, chosen: tuple[int, ...]) -> _Curve:
        """The best curve with these rises."""
        terms = np.vstack([np.ones(self.log_sizes.size), self.rises[list(chosen)]]).T
        level = np.linalg.lstsq(terms * self.scale[:, None], np.ones(len(terms)), rcond=None)[0]
        ratio = np.maximum(terms @ level, 1e-6)
        return _Curve(chosen, np.log(ratio), level, terms / ratio[:, None])

    def _heights(self, curve: _Curve) -> list[Interval]:
        """What each rise adds at the largest size, with the interval over batches."""
        moved = self._rows(curve.log_ratio) @ np.linalg.pinv(curve.tangent).T
        terms = np.append(1.0, self.rises[list(curve.chosen), -1])
        tops = np.maximum(np.cumsum(curve.level * terms), 1e-6)
        logs = np.log(tops) + np.cumsum(moved * terms, axis=1) / tops
        return t_intervals(np.diff(logs, axis=1), self.confidence)

    def _intervals(self, best: _Curve, gain: Floats, n: int) -> tuple[Interval, Interval]:
        """Size and height of the ``n``-th rise: the places, and their curves, that fit as well."""
        single = gain.ndim == 1
        profile = gain if single else gain.max(axis=1 - n)
        height = self._heights(best)[n]
        at = int(self.place[best.chosen[n]])
        heights, places = [height], [at]
        for place in np.unique(self.place[profile > 0]):
            group = np.flatnonzero(self.place == place)
            candidate = int(group[profile[group].argmax()])
            chosen = [candidate]
            if not single:
                partner = gain[candidate] if n == 0 else gain[:, candidate]
                chosen.insert(1 - n, int(partner.argmax()))
            curve = self._curve(tuple(chosen))
            toward = best.log_ratio - curve.log_ratio
            alike = float(np.abs(toward).max()) < _FORM_ERROR_FRACTION * height.effect
            axes = np.linalg.qr(curve.tangent)[0]  # levels that vary from batch to batch are no
            toward = toward - axes @ (axes.T @ toward)  # evidence for another place
            better = t_interval(self._rows(curve.log_ratio) @ toward, self.confidence)
            if alike or better.low <= 0:
                places.append(place)
            neighbour = (
                abs(place - at) == 1
                and (place - 1) // _PLACES_PER_GAP == (at - 1) // _PLACES_PER_GAP
            )
            if place in places or neighbour:  # the places tried are coarser than heights are sure
                heights.append(self._heights(curve)[n])
        equal = self.place[profile >= (1 - 1e-9) * profile.max()]  # steps anywhere in one gap
        logs = self.places[[*places, *equal]]
        ends = np.searchsorted(self.log_sizes, [logs.min(), logs.max()])
        low = 0.0 if 0 in places else float(self.sizes[ends[0] - 1])
        return (
            Interval(float(np.exp(self.places[equal].mean())), low, float(self.sizes[ends[1]])),
            Interval(height.effect, min(h.low for h in heights), max(h.high for h in heights)),
        )


def _mean_curve(values: Floats) -> Floats:
    """The mean of each column, from 0 on average, free of what a batch's values share."""
    column = np.zeros(values.shape[1])
    for _ in range(20):  # more than once only where values are missing
        column = mean_of_known(values - mean_of_known(values - column, 1)[:, None], 0)
        column -= column.mean()
    return column
