"""Why a job takes as long as it does on each core: its time as a product of parts.

    total = own speed x clock x interrupts x sibling x other tasks x hypervisor

Each part is the ratio of two times of the same work: in cycles of the core and in ns (clock), the
typical time and the mean when the core is alone (interrupts), alone and always (sibling), CPU time
and with what was waited for the core (other tasks), and that and wall time (hypervisor). So the
parts of a batch multiply to its whole, without a rest.

"Typical" is where most of a batch's samples are in which the core was alone (their mode): even of
those, many hold a timer's tick, or a visit of the sibling that both probes missed, and for seconds
a neighbour's use of shared caches. All of that lengthens some samples by some percent, and moves
their median; the mode moved half as much in runs on busy machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perflib.stats.compare import CoreEffect, effects_of
from perflib.stats.interval import Interval, percent, widest
from perflib.stats.intervals import against_others, mean_of_known, t_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PARTS = ("own speed", "clock", "interrupts", "sibling", "other tasks", "hypervisor")
UNDIVIDED = "own speed or sibling"  # of a core that was never alone while others were
BATCH_S = 2.5  # samples that were alone are free of the bursts of seconds
_MODE_FRACTION = 0.35  # of the samples: the shortest interval that holds so many is the mode's
_MIN_MODE_SAMPLES = 20  # of fewer, the median
_FAR_SIGMAS, _MIN_FAR_LOG, _MAX_FAR_FRACTION = 6.0, 0.01, 0.25
_MIN_SAMPLES = 5  # of a core in a batch, or its typical time is not known
_FIT_PASSES = 4  # of the fit of work and cores; the second changes little
_MAJORITY_FRACTION = 0.5  # of samples or batches: from here on some stand for all


@dataclass(frozen=True)
class Rows:
    """Samples as columns; ``core``, ``batch``, ``item`` and ``group`` are numbers from 0.

    Parameters
    ----------
    core, batch
        Where, and in which batch.
    item
        What was done: the same number, the same work.
    group
        Which items belong together (the slices of an event): the unit in which slowdowns differ.
    wall_ns, cpu_ns
        Its times; CPU time NaN: not known, and taken for the wall time.
    delay_ns
        Ready to run, and waiting for the core; NaN: not known.
    throttled_ns
        Stopped because a quota was spent; NaN: not known.
    clock
        Logarithm of how much longer a cycle was than on the fastest core; NaN: not known.
    usable
        Whether it counts for the core's own speed: it was alone, or nothing is known of that.
    shared
        Whether its core was known to be shared.
    calibrated
        ``[core]``: whether the core's probes show when it was alone.
    """

    core: Ints
    batch: Ints
    item: Ints
    group: Ints
    wall_ns: Floats
    cpu_ns: Floats
    delay_ns: Floats
    throttled_ns: Floats
    clock: Floats
    usable: Bools
    shared: Bools
    calibrated: Bools


@dataclass(frozen=True)
class Decomposition:
    """What ``decompose`` finds; arrays are ``[batch, core]``, NaN where a batch has too little.

    Parameters
    ----------
    typical
        Logarithm of the typical time of the same work, relative to the run's typical work.
    clock
        The part of ``typical`` that the clock makes; NaN where it is not known.
    whole
        Logarithm of the wall time of the same work: ``typical`` and all ``parts``.
    parts
        Logarithm of each of ``PARTS`` but the first two.
    taken_share, quota_share, stolen_share
        Of the wall time, from 0 to 1: by other tasks and by the quota, the quota's part of that,
        and by the hypervisor.
    shared_share
        Of the wall time known to be shared; ``shared_cost``: logarithm of what the same work takes
        longer then.
    group_level
        ``[core, group]``: logarithm of the typical time of each group, at the same clock.
    calibrated
        ``[core]``, as given.
    """

    typical: Floats
    clock: Floats
    whole: Floats
    parts: dict[str, Floats]
    taken_share: Floats
    quota_share: Floats
    stolen_share: Floats
    shared_share: Floats
    shared_cost: Floats
    group_level: Floats
    calibrated: Bools

    @cached_property
    def _filled_clock(self) -> Floats:
        """Without gaps: see `_filled`."""
        return _filled(self.clock)

    @cached_property
    def own(self) -> list[CoreEffect]:
        """How much slower each core is in itself, at the same clock, against the others.

        Batches far from all others of their core are left out: for some seconds a
        neighbour on the host can slow every sample by some percent, which no probe shows.
        """
        levels = self.typical - self._filled_clock
        return effects_of(np.where(_outlying(levels), np.nan, levels))

    @cached_property
    def clocks(self) -> list[CoreEffect]:
        """How much longer a cycle of each core takes than the others'."""
        return effects_of(self.clock)

    @cached_property
    def totals(self) -> list[CoreEffect]:
        """How much longer the same work takes on each core than on the others, all in all."""
        return effects_of(self.whole)

    def cost(self, part: str, core: int) -> Interval:
        """By how many percent a part lengthens the work on a core."""
        return percent(t_interval(self.parts[part][:, core]))

    @property
    def half_width(self) -> float:
        """The widest half interval of a core's own slowdown; cores never alone do not count."""
        widths = [
            effect.slowdown.half_width
            for effect, calibrated in zip(self.own, self.calibrated, strict=True)
            if calibrated or not self.calibrated.any()
        ]
        return widest(widths, default=math.inf)

    def factors(self, core: int) -> list[tuple[str, Interval]]:
        """Each part's factor on a core, relative to the median core's speed and the best clock.

        The effects multiply to the last one's, ``total``: means over the batches that have all.
        """
        own = self.typical - self._filled_clock
        base = _median_of_known(mean_of_known(own, 0))
        whole = self.whole[:, core] - base
        rest = {name: self.parts[name][:, core] for name in PARTS[2:]}
        known = np.isfinite(own[:, core])
        if known.any():
            logs = {"own speed": own[:, core] - base, "clock": self._filled_clock[:, core], **rest}
        else:
            known = np.isfinite(whole)
            rest = {name: rest[name] for name in ("other tasks", "hypervisor")}
            logs = {UNDIVIDED: whole - sum(rest.values()), **rest}
        return [
            (name, Interval(*(math.exp(value) for value in t_interval(values[known]))))
            for name, values in {**logs, "total": whole}.items()
        ]

    def relative_to_others(self, core: int) -> dict[str, Interval]:
        """By how many percent each part lengthens the work here more than on the other cores.

        ``quota`` is within ``other tasks``; ``total`` is the whole. NaN: not known.
        """
        own = self.typical - self._filled_clock
        logs = {"own speed": own, "clock": self.clock, **self.parts, "total": self.whole}
        logs["quota"] = -np.log1p(-np.fmin(self.quota_share, 0.99))
        found = {}
        for name, values in logs.items():
            others = np.delete(values, core, axis=1)
            known = np.isfinite(values[:, core]) & np.isfinite(others).any(axis=1)
            difference = values[known, core] - np.nanmedian(others[known], axis=1)
            found[name] = percent(t_interval(difference))
        return found


def _outlying(levels: Floats) -> Bools:
    """``[batch, core]``: batches far from where the core mostly is, relative to the others.

    None of a core with more than a quarter of such batches: then they are how it is.
    """
    found = np.zeros(levels.shape, dtype=np.bool_)
    whole = np.isfinite(levels).all(axis=1)
    if levels.shape[1] < 2 or not whole.any():
        return found
    relative = against_others(levels[whole])
    away = np.abs(relative - np.median(relative, axis=0))
    far = away > np.maximum(_FAR_SIGMAS * 1.4826 * np.median(away, axis=0), _MIN_FAR_LOG)
    found[whole] = far & (far.mean(axis=0) <= _MAX_FAR_FRACTION)
    return found


def _filled(clock: Floats) -> Floats:
    """A table ``[batch, core]`` of clocks without gaps: a core's mean in batches without it.

    A core whose clock is known in few batches is taken to have that of the others, batch by batch.
    Were it taken to have the clock of those few, which may be a step that it rarely reaches, it
    would seem slower in itself by what the others are corrected for.
    """
    finite = np.isfinite(clock)
    mostly = finite.mean(axis=0) >= _MAJORITY_FRACTION
    known = np.where(mostly, np.where(finite, clock, mean_of_known(clock, 0)), np.nan)
    others = mean_of_known(known, 1)
    return np.where(mostly, known, np.nan_to_num(others)[:, None])


def _median_of_known(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else 0.0


def _medians(keys: Ints, values: Floats, count: int) -> Floats:
    """The median of the values of each key below ``count``; NaN: there are none."""
    order = np.lexsort((values, keys))
    ordered = values[order]
    many = np.bincount(keys, minlength=count)
    begin = np.cumsum(many) - many
    found = np.full(count, np.nan)
    some = many > 0
    lower, upper = begin[some] + (many[some] - 1) // 2, begin[some] + many[some] // 2
    found[some] = (ordered[lower] + ordered[upper]) / 2
    return found


def _costs(rows: Rows, log_cpu: Floats, cores: int, items: int) -> Floats:
    """What each item takes on the typical core, as a logarithm: log time = item + core, fitted.

    So an item that was seen more often on a slow core does not pass for a costly one.
    """
    use = rows.usable
    keys = rows.item[use] * cores + rows.core[use]
    table = _medians(keys, log_cpu[use], items * cores).reshape(items, cores)
    core = np.zeros(cores)
    item = np.full(items, np.nan)
    for _ in range(_FIT_PASSES):
        item = mean_of_known(table - core, 1)
        away = table - item[:, None]
        core = np.array([_median_of_known(away[:, which]) for which in range(cores)])
        core -= core.mean()
    # Items that were never alone stand as far above the others as all items do when not alone.
    every = _medians(rows.item, log_cpu, items)
    lifted = _median_of_known(every - item)
    return np.where(np.isfinite(item), item, every - lifted)


def mode(values: Floats) -> float:
    """The mean of the shortest interval that holds 35 % of the values; of a few, their median."""
    if len(values) < _MIN_MODE_SAMPLES:
        return float(np.median(values))
    ordered = np.sort(values)
    held = int(_MODE_FRACTION * len(ordered)) + 1
    widths = ordered[held - 1 :] - ordered[: len(ordered) - held + 1]
    first = int(np.argmin(widths))
    return float(ordered[first : first + held].mean())


def _modes(cell: Ints, away: Floats, cells: int) -> Floats:
    """The mode of the samples of each cell; NaN where there are too few."""
    order = np.argsort(cell, kind="stable")
    ends = np.cumsum(np.bincount(cell, minlength=cells))
    parts = np.split(away[order], ends[:-1])
    return np.array([mode(part) if len(part) >= _MIN_SAMPLES else np.nan for part in parts])


def _uneven(by_group: Floats, common: Floats, cost: Floats) -> Floats:
    """``[core]``: how much groups that are slower than most add to the time, as a logarithm.

    The mode is that of most samples; a few groups that are slow count with what they cost.
    """
    there = np.isfinite(by_group).all(axis=0)
    if not there.any():
        return np.zeros(len(by_group))
    away = by_group[:, there] - common[:, None]
    weight = cost[there] / cost[there].sum()
    return np.asarray(np.log(np.exp(away) @ weight), dtype=np.float64)


def decompose(rows: Rows) -> Decomposition:
    """Decompose the time of the same work on several cores.

    Returns
    -------
    The parts, batch by batch. Where it is not known whether cores were alone, the sibling's
    part is within the typical time, and the parts called ``sibling`` and ``interrupts`` are one.
    """
    cores, batches = len(rows.calibrated), int(rows.batch.max()) + 1
    items, groups = int(rows.item.max()) + 1, int(rows.group.max()) + 1
    cpu_ns = np.where(np.isfinite(rows.cpu_ns), rows.cpu_ns, rows.wall_ns)
    log_cpu = np.log(np.maximum(cpu_ns, 1.0))
    item = _costs(rows, log_cpu, cores, items)
    cost_ns = np.exp(item)[rows.item]
    away = log_cpu - item[rows.item]
    group_cost = np.zeros(groups)
    group_of = np.zeros(items, dtype=np.int64)
    group_of[rows.item] = rows.group
    np.add.at(group_cost, group_of, np.nan_to_num(np.exp(item)))

    cell = rows.batch * cores + rows.core
    shape = (batches, cores)
    use = rows.usable
    by_core = _medians(rows.core[use] * groups + rows.group[use], away[use], cores * groups)
    by_core = by_core.reshape(cores, groups)
    common = _medians(rows.core[use], away[use], cores)
    known = np.isfinite(common)
    uneven = np.zeros(cores)
    uneven[known] = _uneven(by_core[known], common[known], group_cost)
    typical = _modes(cell[use], away[use], batches * cores).reshape(shape) + uneven

    def total(values: Floats, which: Bools | None = None) -> Floats:
        """Sums in each batch and core; NaN where a value is not known, or there is none."""
        chosen = slice(None) if which is None else which
        sums = np.bincount(cell[chosen], weights=values[chosen], minlength=batches * cores)
        return np.where(sums > 0, sums, np.nan).reshape(shape)

    worked, worked_alone = total(cost_ns), total(cost_ns, use)
    wall, cpu, cpu_alone = total(rows.wall_ns), total(cpu_ns), total(cpu_ns, use)
    delay, quota = _waits(rows, cpu_ns)
    waited = np.nan_to_num(total(delay + quota), nan=0.0)
    if not np.isfinite(rows.delay_ns).any():
        waited = np.full(shape, np.nan)
    reached = np.fmin(cpu + waited, wall)
    counted = np.where(np.isfinite(waited), reached, wall)  # else all that is missing is one part
    alone = np.log(cpu_alone / worked_alone)
    known_clock = np.isfinite(rows.clock) & use
    ticks = np.bincount(
        cell[known_clock], weights=rows.clock[known_clock], minlength=cell.max() + 1
    )
    ticks = np.pad(ticks, (0, batches * cores - len(ticks)))
    looks = np.bincount(cell[known_clock], minlength=batches * cores)
    # Where probes are rarely at a level that was found, the core mostly ran at another clock.
    counted_in = np.bincount(cell[use], minlength=batches * cores)
    clock = np.where(
        looks >= np.maximum(_MAJORITY_FRACTION * counted_in, 1),
        ticks / np.maximum(looks, 1),
        np.nan,
    ).reshape(shape)
    shared_wall = np.nan_to_num(total(rows.wall_ns, rows.shared)) / wall
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = {
            "interrupts": alone - typical,
            "sibling": np.log(cpu / worked) - alone,
            "other tasks": np.log(counted / np.fmin(cpu, counted)),
            "hypervisor": np.log(wall / counted) + np.log(np.fmin(cpu, counted) / cpu),
        }
        shared_cost = np.log(total(cpu_ns, rows.shared) / total(cost_ns, rows.shared)) - alone
        return Decomposition(
            typical=typical,
            clock=clock,
            whole=np.log(wall / worked),
            parts=parts,
            taken_share=(counted - np.fmin(cpu, counted)) / wall,
            quota_share=np.nan_to_num(total(quota)) / wall,
            stolen_share=np.where(np.isfinite(waited), (wall - counted) / wall, np.nan),
            shared_share=np.where(rows.calibrated, shared_wall, np.nan),
            shared_cost=shared_cost,
            group_level=by_core - _filled(clock).mean(axis=0)[:, None],
            calibrated=rows.calibrated,
        )


def _waits(rows: Rows, cpu_ns: Floats) -> tuple[Floats, Floats]:
    """How long each sample waited for other tasks, and for its quota.

    Some kernels count a stop by the quota as waiting for the core, others do not; where both
    together are more than the thread was away, it is within.
    """
    gap = np.maximum(rows.wall_ns - cpu_ns, 0.0)
    quota = np.minimum(np.nan_to_num(rows.throttled_ns, nan=0.0), gap)
    delay = np.nan_to_num(rows.delay_ns, nan=0.0)
    within = delay + quota > 1.02 * gap
    return np.where(within, np.maximum(delay - quota, 0.0), delay), quota
