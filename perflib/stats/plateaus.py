"""Levels in a latency curve: on which segments of array sizes does one level of memory answer?

While an array fits in a cache of ``C`` bytes the latency does not depend on its size ``s``. Beyond,
some accesses continue to the next level. Accesses at random hit with probability ``C / s``;
a cyclic chase through a cache that evicts about at random misses sooner, with one that evicts the
oldest line at once. So the curve is cut into segments, each of one of these forms::

    latency = a                     flat
    latency = a - b (1 / s) ** p    it settles, from the end of a cache on (p is 1, 2 or 4)
    log latency = a + b log s       a ramp: no level, or one whose end is blurred

with ``b`` positive. The cuts are those of least squares with a penalty for each (Jackson et al.,
IEEE Signal Process. Lett. 12 (2005) 105). A *level* is where the curve of a segment rises by less
than 15 % a doubling of the size; what is steeper is a transition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from perflib.stats.interval import Interval
from perflib.stats.intervals import robust_mean, row_means, t_interval

Floats = NDArray[np.float64]
_MAX_FLAT_SLOPE_LOG = math.log(1.15)  # per doubling of the size
_FORM_ERROR_LOG = 0.02  # real curves differ from the forms by this, however often they are measured
_SETTLING = (1.0, 2.0, 4.0)
_MAX_ALIKE_ERRORS = 3.0  # standard errors, within which a size is as fast as the level before it
_MIN_SIZES = 2  # sizes in a segment, and in a level
_MAX_BLUR_RATIO = 16.0  # a cache that others share may end this much below what it claims ...
_MAX_LARGER_RATIO = 2.0  # ... and one with other lines than the cache before it this much above


@dataclass(frozen=True)
class Plateau:
    """A range of sizes that one level of memory answers.

    ``latency``: the geometric mean over its sizes, in the unit of the data. ``first_bytes`` and
    ``last_bytes``: the sizes that it reaches from and to. ``array_bytes``: the measured size in
    its middle (of the logarithms), which represents it. ``next_bytes``: the first size that is
    slower; the level ends between it and ``last_bytes``. ``None``: it goes to the largest size.
    """

    latency: Interval
    first_bytes: float
    last_bytes: float
    array_bytes: float
    next_bytes: float | None

    @property
    def end_bytes(self) -> float | None:
        """Where it ends: the middle (of the logarithms) of the sizes that it ends between."""
        return None if self.next_bytes is None else math.sqrt(self.last_bytes * self.next_bytes)


@dataclass(frozen=True)
class Match:
    """A claimed size, and the level that ends there; ``level`` is ``None`` where none does.

    ``ratio``: the size seen over the size claimed; ``None`` where the level has no end in the data.
    ``agrees``: they are the same within a factor of the square root of two.
    """

    name: str
    claimed_bytes: float
    level: int | None
    ratio: float | None
    agrees: bool


@dataclass(frozen=True)
class Matches:
    """What ``match`` says; levels are numbers, counted from 0 and the smallest sizes.

    ``claims``: by ascending size. ``memory``: the level beyond all claims. ``unclaimed``: levels
    that end where nobody claims an end.
    """

    claims: tuple[Match, ...]
    memory: int | None
    unclaimed: tuple[int, ...]

    @property
    def unseen(self) -> tuple[str, ...]:
        """The claims that no level answers to."""
        return tuple(claim.name for claim in self.claims if claim.level is None)


class _Segment(NamedTuple):
    """One cut-out piece of the curve: its sizes, and the fitted log latency and slope at each."""

    start: int
    stop: int
    fit: Floats
    slope: Floats


def find_levels(
    sizes: Sequence[float] | Floats,
    log_latency: Floats,
    least: float = 0.1,
) -> tuple[Plateau, ...]:
    """Find the levels of memory that a latency curve shows.

    Parameters
    ----------
    sizes
        Of the arrays in bytes, ascending; three or more for each doubling are advised.
    log_latency
        ``[batch, size]``: natural logarithm of the latency, a mean or median over the rounds of a
        batch (see ``batches``); NaN where there is none.
    least
        Neighbouring levels whose log latencies differ by less are one.

    Returns
    -------
    The levels by ascending size. None where the curve rises all the way, and from fewer than four
    sizes; one where it is flat.

    Raises
    ------
    ValueError
        Sizes that do not ascend, or another number of columns.

    Notes
    -----
    Batches that are slower as a whole (a clock that drifts) are put to one height before the cuts
    are looked for, so they count only in the latencies' intervals. The penalty of a cut is that of
    the Bayesian information criterion, in units of the noise that batches show at one size (from a
    single batch: that neighbouring sizes show), but never less than 2 %. Two segments are one
    level if nothing steeper than a level is between them, or if they differ by less than
    ``least`` or by what chance does. An interval speaks of the mean over the level's sizes.

    Examples
    --------
    >>> kib = [4, 8, 16, 32, 64, 128, 256, 512]
    >>> rows = [[1.0, 1.0, 1.01, 1.0, 4.0, 4.01, 4.0, 4.0]] * 8
    >>> for level in find_levels([1024 * size for size in kib], np.log(rows)):
    ...     print(f"{level.first_bytes:.0f} to {level.last_bytes:.0f}: {level.latency.effect:.1f}")
    4096 to 32768: 1.0
    65536 to 524288: 4.0
    """
    places = np.asarray(sizes, dtype=np.float64)
    values = np.atleast_2d(np.asarray(log_latency, dtype=np.float64))
    if places.ndim != 1 or not (np.diff(places) > 0).all() or not (places > 0).all():
        msg = "sizes must ascend, and be positive"
        raise ValueError(msg)
    if values.ndim != 2 or values.shape[1] != places.size:
        msg = f"log_latency must be [batch, size], of {places.size} sizes, not {values.shape}"
        raise ValueError(msg)
    seen = np.isfinite(values).any(axis=0)
    places, values = places[seen], values[np.isfinite(values).any(axis=1)][:, seen]
    if places.size < 2 * _MIN_SIZES:
        return ()
    levelled = _without_batch_offsets(values)
    curve = robust_mean(levelled)
    noise = _noise(levelled, curve)
    pieces = _cut(np.log2(places), curve, noise)
    runs = [run for run in map(_flat_run, pieces) if run is not None]
    runs = _merged(runs, pieces, np.log2(places), levelled, least)
    if runs and runs[0][0] > 0 and _alike(curve, (0, runs[0][0]), runs[0], least):
        runs[0] = (0, runs[0][1])
    if runs and runs[-1][1] < curve.size and _alike(curve, (runs[-1][1], None), runs[-1], least):
        runs[-1] = (runs[-1][0], curve.size)
    grown = _grown(runs, curve, _MAX_ALIKE_ERRORS * noise)
    return tuple(_level(places, values, run) for run in grown)


def _grown(runs: list[tuple[int, int]], curve: Floats, within: float) -> list[tuple[int, int]]:
    """Runs that take in the sizes after them which are as fast.

    A transition that holds one size only is no segment of its own (two sizes fit any form), so it
    is put together with sizes of the level before.
    """
    grown = []
    limits = [*(start for start, _ in runs[1:]), curve.size]
    for (start, stop), limit in zip(runs, limits, strict=False):
        height, end = curve[start:stop].mean(), stop
        while end < limit and abs(curve[end] - height) < within:
            end += 1
        grown.append((start, end))
    return grown


def _alike(
    curve: Floats, outer: tuple[int, int | None], level: tuple[int, int], least: float
) -> bool:
    """Whether what is left at an end of the curve is the level's too, but for noise."""
    apart = curve[slice(*outer)].mean() - curve[slice(*level)].mean()
    return bool(abs(apart) < least)


def _without_batch_offsets(values: Floats) -> Floats:
    """Each batch moved as a whole, so that its sizes are as slow as usual in the middle."""
    usual = np.nanmedian(values, axis=0)
    offset = np.nanmedian(values - usual, axis=1, keepdims=True)
    return np.asarray(values - offset)


def _noise(levelled: Floats, curve: Floats) -> float:
    """The standard error of one size's log latency."""
    if len(levelled) > 1:
        away = levelled - curve
        scatter = 1.4826 * float(np.nanmedian(np.abs(away)))
        batches = float(np.median(np.isfinite(away).sum(axis=0)))
        # The median of n values about their own mean is too small by this factor.
        found = scatter / math.sqrt(max(batches - 1, 1.0))
    else:
        bend = curve[2:] - 2 * curve[1:-1] + curve[:-2]
        found = 1.4826 * float(np.median(np.abs(bend))) / math.sqrt(6)
    return max(found, _FORM_ERROR_LOG)


def _cut(octaves: Floats, curve: Floats, noise: float) -> list[_Segment]:
    """The segments of least squares with a penalty for each cut."""
    word = math.log(curve.size)  # what a parameter costs
    costs = np.full((curve.size + 1, curve.size + 1), math.inf)
    for start in range(curve.size - _MIN_SIZES + 1):
        x, y = octaves[start:] - octaves[start], curve[start:]
        fits = _squares(x, y) / noise**2 + np.array([0.0, *[word] * (1 + len(_SETTLING))])[:, None]
        costs[start, start + _MIN_SIZES :] = fits.min(axis=0)[_MIN_SIZES - 1 :]
    return [
        _segment(octaves, curve, start, stop, noise**2 * word)
        for start, stop in itertools.pairwise(_cheapest(costs, 3 * word))
    ]


def _cheapest(costs: Floats, penalty: float) -> list[int]:
    """Where to cut so that ``costs[start, stop]``, and a penalty a segment, sum to the least.

    Exact, by dynamic programming: the best way to a place continues from the best way to an earlier
    one. With the ends, 0 and the last place.
    """
    count = len(costs)
    least, came_from = np.zeros(count), np.zeros(count, dtype=int)
    for stop in range(1, count):
        ways = least[:stop] + costs[:stop, stop] + penalty
        came_from[stop] = np.argmin(ways)
        least[stop] = ways[came_from[stop]]
    places = [count - 1]
    while places[-1]:
        places.append(int(came_from[places[-1]]))
    return places[::-1]


def _forms(x: Floats, y: Floats) -> list[tuple[Floats, Floats, Floats]]:
    """What is fitted but the flat: values, their weights, and the form that they may follow."""
    latency = np.exp(y - y[0])
    return [
        (y, np.ones_like(y), x),
        *((latency, 1 / latency**2, -(2.0 ** (-power * x))) for power in _SETTLING),
    ]


def _squares(x: Floats, y: Floats) -> Floats:
    """``[form, stop]``: what the flat and each form leave of the relative squares, up to a stop."""
    count = np.arange(1, y.size + 1)
    rows = [np.cumsum((y - y[0]) ** 2) - np.cumsum(y - y[0]) ** 2 / count]
    for value, weight, form in _forms(x, y):
        above = value - value[0]
        total, ups, shapes = (np.cumsum(weight * part) for part in (1.0, above, form))
        spread = np.cumsum(weight * form**2) - shapes**2 / total
        common = np.cumsum(weight * form * above) - shapes * ups / total
        left = np.cumsum(weight * above**2) - ups**2 / total
        rises = (common > 0) & (count > 2)  # two sizes fit any of these forms
        left -= np.divide(common**2, spread, out=np.zeros_like(spread), where=rises)
        rows.append(np.where(rises, left, math.inf))
    return np.maximum(np.stack(rows), 0.0)


def _segment(octaves: Floats, curve: Floats, start: int, stop: int, costlier: float) -> _Segment:
    """The best form on one segment: its log latency and its slope for each doubling."""
    x, y = octaves[start:stop] - octaves[start], curve[start:stop]
    squares = _squares(x, y)[:, -1]
    best = int(np.argmin(squares + np.array([0.0, *[costlier] * (1 + len(_SETTLING))])))
    if best == 0:
        return _Segment(start, stop, np.full(y.size, y.mean()), np.zeros(y.size))
    value, weight, form = _forms(x, y)[best - 1]
    middle, mean = weight @ form / weight.sum(), weight @ value / weight.sum()
    away = form - middle
    rise = float(weight @ (away * (value - mean)) / (weight @ away**2))
    fit = mean + rise * away
    if best == 1:
        return _Segment(start, stop, fit, np.full(y.size, rise))
    fit = np.maximum(fit, 0.1 * value)
    slope = -math.log(2) * _SETTLING[best - 2] * rise * form / fit
    return _Segment(start, stop, np.log(fit) + y[0], slope)


def _flat_run(piece: _Segment) -> tuple[int, int] | None:
    """The sizes of a segment at which it is flat; all forms are flattest at their end."""
    flat = np.flatnonzero(piece.slope <= _MAX_FLAT_SLOPE_LOG)
    if flat.size < _MIN_SIZES:
        return None
    return piece.start + int(flat[0]), piece.stop


def _merged(
    runs: list[tuple[int, int]],
    pieces: list[_Segment],
    octaves: Floats,
    levelled: Floats,
    least: float,
) -> list[tuple[int, int]]:
    """Neighbouring runs that are one level put together, the most alike first."""
    fit = np.concatenate([piece.fit for piece in pieces])
    runs = list(runs)
    while len(runs) > 1:
        alike = []
        for (start, stop), (begin, end) in itertools.pairwise(runs):
            paired = row_means(levelled[:, begin:end]) - row_means(levelled[:, start:stop])
            apart = t_interval(paired)
            slope = (fit[begin] - fit[stop - 1]) / (octaves[begin] - octaves[stop - 1])
            chance = apart.low <= 0 <= apart.high  # never from a single batch: its ends are NaN
            same = abs(slope) <= _MAX_FLAT_SLOPE_LOG or abs(apart.effect) < least or chance
            alike.append(abs(apart.effect) if same else math.inf)
        closest = int(np.argmin(alike))
        if math.isinf(alike[closest]):
            break
        runs[closest : closest + 2] = [(runs[closest][0], runs[closest + 1][1])]
    return runs


def _level(places: Floats, values: Floats, run: tuple[int, int]) -> Plateau:
    start, stop = run
    latency = t_interval(row_means(values[:, start:stop]))
    own = places[start:stop]
    middle = float(np.log(own[[0, -1]]).mean())
    return Plateau(
        latency=Interval(*(math.exp(end) for end in latency)),
        first_bytes=float(own[0]),
        last_bytes=float(own[-1]),
        array_bytes=float(own[np.argmin(np.abs(np.log(own) - middle))]),
        next_bytes=float(places[stop]) if stop < places.size else None,
    )


def match(levels: Sequence[Plateau], claimed: Mapping[str, float]) -> Matches:
    """Which level ends at which claimed size.

    Parameters
    ----------
    levels
        What ``find_levels`` says.
    claimed
        Sizes in bytes by name: of the data caches (CPUID, sysfs), of the reach of a TLB.

    Returns
    -------
    Each claim gets the level whose end is nearest, no level twice, at a twofold of the claim at
    most and at a sixteenth at least: a cache that others share can end far below its size. A level
    without an end is what is beyond all claims if the largest size measured exceeds them all;
    else it is of the smallest claim that it may reach.

    Examples
    --------
    >>> one = Plateau(Interval(1.0, 0.9, 1.1), 2048, 32768, 8192, 49152)
    >>> rest = Plateau(Interval(4.0, 3.9, 4.1), 65536, 4194304, 524288, None)
    >>> found = match([one, rest], {"L1d": 32768, "L2": 1048576})
    >>> found.claims[0].level, found.unseen, found.memory
    (0, ('L2',), 1)
    """
    ordered = sorted(claimed.items(), key=lambda claim: claim[1])
    memory = None
    if levels and levels[-1].next_bytes is None:
        beyond = not ordered or levels[-1].last_bytes > ordered[-1][1]
        memory = len(levels) - 1 if beyond else None
    never = 1e3
    costs = np.full((len(ordered), len(levels)), never)
    for row, (_, size) in enumerate(ordered):
        for column, level in enumerate(levels):
            ratio = (level.end_bytes or level.last_bytes) / size
            if column != memory and 1 / _MAX_BLUR_RATIO <= ratio <= _MAX_LARGER_RATIO:
                costs[row, column] = abs(math.log(ratio))
    rows, columns = linear_sum_assignment(costs)
    taken = {
        int(row): int(column)
        for row, column in zip(rows, columns, strict=True)
        if costs[row, column] < never
    }
    claims = []
    for row, (name, size) in enumerate(ordered):
        number = taken.get(row)
        end = None if number is None else levels[number].end_bytes
        ratio_seen = None if end is None else end / size
        agrees = ratio_seen is not None and abs(math.log2(ratio_seen)) <= 0.5
        claims.append(Match(name, size, number, ratio_seen, agrees))
    named = {*taken.values(), memory}
    return Matches(tuple(claims), memory, tuple(n for n in range(len(levels)) if n not in named))
