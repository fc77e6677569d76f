"""What samples of dependent loads say: latency against the size of the array, and its levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.memory_levels import ORDERS
from perflib.framework.brackets import CoreStates, classify
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.framework.schema import check_cells
from perflib.machine.cpulist import parse_cpus
from perflib.machine.hardware.known_tlbs import tlbs_of
from perflib.machine.hardware.tlbs import reach_bytes
from perflib.measure.pages.kinds import GIGANTIC_PAGES, SMALL_PAGES
from perflib.model.run import Run
from perflib.stats.compare import CoreComparison, compare_cores
from perflib.stats.interval import Interval, columns, exp, percent
from perflib.stats.intervals import Floats, batch_means, robust_mean, t_interval, time_batches
from perflib.stats.plateaus import Matches, Plateau, find_levels, match

Statistic = Literal["median", "min"]
# Of which samples: all, those that had the core alone, those next to a sibling that worked.
State = Literal["all", "alone", "shared"]
_KNOWN, _LONG = 1.25, 1.4  # a level's latency to within a factor; what it reaches over at least
_LEAST_SHARED = 0.02  # of the samples are next to a busy sibling, or nothing is said of them
_CYCLES, _NS = "latency_cycles", "latency_ns"
_BACKINGS = (SMALL_PAGES, "thp", "collapse", "hugetlb", GIGANTIC_PAGES)


def data_caches(machine: Mapping[str, Any], cpu: int) -> dict[str, int]:
    """The sizes in bytes of the caches for data that a CPU uses, by name: ``L1d``, ``L2``, ``L3``.

    ``machine``: its description in a run's provenance, which has them from sysfs.
    """
    found: dict[str, int] = {}
    for cache in machine.get("caches", ()):
        shared_by = cache.get("shared_by")
        mine = shared_by is None or any(cpu in parse_cpus(group) for group in shared_by)
        if cache["kind"] != "instruction" and mine:
            suffix = "d" if cache["kind"] == "data" else ""
            found.setdefault(f"L{cache['level']}{suffix}", int(cache["size_bytes"]))
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def own_bytes(machine: Mapping[str, Any], cpu: int) -> int:
    """The size of the largest cache that a core has for itself and its threads; 0: not known.

    Of the first two levels: a last-level cache looks like a core's own to a virtual machine that
    has one core.
    """
    threads = {cpu}
    for place in machine.get("cpus", ()):
        if place["cpu"] == cpu:
            threads |= set(place.get("siblings", ()))
    sizes = [0]
    for cache in machine.get("caches", ()):
        groups = [parse_cpus(group) for group in cache.get("shared_by") or ()]
        mine = any(cpu in group and threads.issuperset(group) for group in groups)
        if cache["kind"] != "instruction" and cache["level"] <= 2 and mine:
            sizes.append(int(cache["size_bytes"]))
    return max(sizes)


def primary(orders: Iterable[str], backings: Iterable[str]) -> tuple[str, str]:
    """Of what there is, the order and backing in whose curve levels are looked for.

    Windows on 4 KiB pages, or what resembles them most.
    """
    return _in_order(orders, ORDERS)[0], _in_order(backings, _BACKINGS)[0]


def tlb_reaches(machine: Mapping[str, Any]) -> dict[str, int]:
    """How much data each level of the TLB reaches with 4 KiB pages, in bytes, by its name.

    As CPUID reports; where it is silent, as published, and the name says so.
    """
    known = tlbs_of(machine)
    origin = "" if known.origin in ("", "CPUID") else f" ({known.origin})"
    names = {1: "first-level TLB", 2: "second-level TLB"}
    found = {
        f"{name}{origin}": reach_bytes(known.tlbs, "data", level) for level, name in names.items()
    }
    return {name: reach for name, reach in found.items() if reach}


class Estimate(Protocol):
    """What is known to within a half-width."""

    @property
    def half_width(self) -> float:
        """Of the interval, or of the widest of several; not finite where there is none."""


AnyEstimate = TypeVar("AnyEstimate", bound=Estimate)


class _Part(NamedTuple):
    """A part of a table's samples, by its rows."""

    state: State
    rows: NDArray[np.bool_]
    whole: MemoryTable


class MemoryTable:
    """The samples of one run as log latency, ``[round, cpu, size]`` of each order and backing.

    A trial places one array and loads from it several times; the next round places it anew, on
    other pages. Rows whose ``ok`` is false are left out, and so are repeats in which the thread was
    preempted, if the trial has others.

    **The minimum or the median of a trial's repeats?** Derumigny and Thomas argue: nothing makes
    loads from a cache faster than they are, but an interrupt makes them slower. So the minimum is
    taken for arrays that the caches hold. A part of an array in memory, however, may be in a cache
    by chance, and the minimum picks that chance: there it is the median. This goes for the
    latencies that are reported (``latency``). The *levels* are looked for in a curve of minima at
    all sizes: a change of the statistic at the size that a cache claims could draw an end there.

    **Alone or not?** Where samples have probes (``perflib.framework.brackets``), ``alone`` is the
    table of those that had their core alone, ``shared`` that of those next to a sibling that
    worked. Whatever is the core's own, its first two levels and where they end, is read off the
    one or the other, and so is a core's difference from the others. What cores share is known from
    the samples alone or from all, whichever scatters less (``steadier``). A sibling makes caches
    smaller and slower, so the minimum would pick the repeat in which it worked least: of shared
    samples it is the median everywhere.

    **Between trials** it is neither: where pages are placed differs from one placement to the
    next, for better and for worse. Robust means over batches are taken, and Student's interval
    from their scatter (see ``perflib.stats.intervals``).

    Parameters
    ----------
    samples
        Rows as the experiment makes them; of a user's, the required columns are enough.
    machine
        The description in the run's provenance: which caches it claims; empty: not known.
    part
        Which of the samples count; rounds, sizes and cores are those of all.
    """

    def __init__(
        self,
        samples: pd.DataFrame,
        machine: Mapping[str, Any] | None = None,
        part: _Part | None = None,
    ) -> None:
        samples = usable(samples)
        samples = samples.assign(
            order=samples["order"].astype(str), backing=samples["backing"].astype(str)
        )
        self.samples = samples
        self.orders = _in_order(samples["order"], ORDERS)
        self.backings = _in_order(samples["backing"], _BACKINGS)
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        self.sizes = np.array(sorted(set(samples["array_bytes"])), dtype=np.float64)
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_batches(self.start_s, len(self.rounds))
        self.machine = machine or {}
        self.claims = data_caches(self.machine, self.cores[0])
        self.own_bytes = own_bytes(self.machine, self.cores[0])
        self.state: State = "all" if part is None else part.state
        self._whole = self if part is None else part.whole
        if part is not None:
            samples = samples[part.rows]
        keys = ["order", "backing", "round", "cpu", "array_bytes"]
        repeats = _not_preempted(samples, keys).groupby(keys, as_index=False)
        self._trials: dict[str, pd.DataFrame] = {
            "median": _trials(repeats.median(numeric_only=True), samples, keys),
            "min": _trials(repeats.min(numeric_only=True), samples, keys),
        }
        self._kept: dict[tuple[str, str, str, str], Floats] = {}

    @classmethod
    def of(cls, run: Run) -> Self:
        """That of a run."""
        return cls(run.samples, run.provenance.get("machine"))

    # --- alone, or next to a sibling that works ---------------------------------------------------

    @cached_property
    def _core_states(self) -> CoreStates | None:
        return classify(self._whole.samples)

    @cached_property
    def alone(self) -> MemoryTable:
        """That of the samples that had the core alone; of all where no probes classify them."""
        core_states = self._core_states
        if self.state == "alone" or core_states is None or not core_states.any_calibrated:
            return self
        return MemoryTable(
            self.samples, self.machine, _Part("alone", core_states.usable, self._whole)
        )

    @cached_property
    def shared(self) -> MemoryTable | None:
        """That of the samples next to a sibling that worked; ``None`` where there are too few."""
        core_states = self._core_states
        if core_states is None or core_states.shared.mean() < _LEAST_SHARED:
            return None
        return MemoryTable(
            self.samples, self.machine, _Part("shared", core_states.shared, self._whole)
        )

    @property
    def samples_percent(self) -> float:
        """How many of all samples these are."""
        core_states = self._core_states
        if self.state == "all" or core_states is None:
            return 100.0
        return 100 * float(
            (core_states.usable if self.state == "alone" else core_states.shared).mean()
        )

    @property
    def least(self) -> Statistic:
        """Which of a trial's repeats stands for it where caches answer."""
        return "median" if self.state == "shared" else "min"

    def steadier(self, measure: Callable[[MemoryTable], AnyEstimate]) -> tuple[AnyEstimate, State]:
        """What these samples say or what all say, whichever is narrower; and which."""
        mine = measure(self)
        if self._whole is self:
            return mine, self.state
        every = measure(self._whole)
        if mine.half_width <= every.half_width or math.isnan(every.half_width):
            return mine, self.state
        return every, "all"

    def part(self, state: State) -> MemoryTable:
        """The table that ``steadier`` names."""
        return self if state == self.state else self._whole

    @property
    def probed(self) -> bool:
        """Are there probes, whatever they show?"""
        return self._core_states is not None

    # --- what was measured -----------------------------------------------------------------------

    @property
    def huge(self) -> list[str]:
        """The backings of larger pages than 4 KiB, the one that comparisons use first."""
        return [name for name in self.backings if name != SMALL_PAGES]

    @property
    def caches_bytes(self) -> int:
        """What the largest cache claims to hold; 0 where nothing is known."""
        return max(self.claims.values(), default=0)

    @property
    def primary(self) -> tuple[str, str]:
        """The order and backing in whose curve levels are looked for."""
        return primary(self.orders, self.backings)

    @property
    def alike(self) -> list[int]:
        """The cores that claim the caches of the first one: levels are those of all of them."""
        return [cpu for cpu in self.cores if data_caches(self.machine, cpu) == self.claims]

    def measured(self, order: str, backing: str) -> bool:
        """Are there samples of this order on this backing?"""
        return bool(np.isfinite(self.values(order, backing)).any())

    def values(
        self, order: str, backing: str, column: str = _NS, statistic: Statistic = "median"
    ) -> Floats:
        """``[round, cpu, size]``: log of the trials' latency; NaN where there is none.

        ``statistic``: of the repeats of a trial.
        """
        key = order, backing, column, statistic
        if key not in self._kept:
            shape = len(self.rounds), len(self.cores), len(self.sizes)
            check_cells(
                dict(zip(("rounds", "cores", "sizes"), shape, strict=True)), len(self.samples)
            )
            found = np.full(shape, np.nan)
            mine = self._trials[statistic]
            mine = mine[(mine["order"] == order) & (mine["backing"] == backing)]
            found[
                np.searchsorted(self.rounds, mine["round"]),
                np.searchsorted(self.cores, mine["cpu"]),
                np.searchsorted(self.sizes, mine["array_bytes"]),
            ] = np.log(mine[column].astype(float))
            self._kept[key] = found
        return self._kept[key]

    def by_block(self, values: Floats) -> Floats:
        """``[block, size]`` of ``[round, size]``: robust means over the rounds of each block."""
        return batch_means(values, self.blocks)

    def over_cores(self, values: Floats, cpus: Sequence[int] | None = None) -> Floats:
        """``[round, size]``: the mean over some cores, all unless they are named."""
        places = [self.cores.index(cpu) for cpu in cpus or self.cores]
        return mean_of_known(values[:, places])

    # --- latency against size --------------------------------------------------------------------

    def curve(
        self, order: str, backing: str, cpu: int | None = None, column: str = _NS
    ) -> pd.DataFrame:
        """The latency at each size with its interval, of one core or of those that are alike.

        Columns: ``array_bytes``, and ``column`` with its ends.
        Minima of the repeats, at all sizes; of shared samples, medians.
        """
        chosen = self.alike if cpu is None else [cpu]
        log_latency = self.over_cores(self.values(order, backing, column, self.least), chosen)
        return self._by_size(self.by_block(log_latency), column)

    def ratio(self, above: tuple[str, str], below: tuple[str, str]) -> Floats:
        """``[block, size]``: log of one (order, backing) over another, within rounds and cores."""
        return self.by_block(self.over_cores(self.values(*above) - self.values(*below)))

    def ratio_curve(self, above: tuple[str, str], below: tuple[str, str]) -> pd.DataFrame:
        """``ratio`` at each size as a factor: columns ``array_bytes``, ``ratio``, ends."""
        return self._by_size(self.ratio(above, below), "ratio")

    def difference(
        self, above: tuple[str, str], below: tuple[str, str], places: Sequence[int]
    ) -> Interval:
        """How many percent longer the one takes, at some of the sizes (places in ``sizes``)."""
        return percent(t_interval(mean_of_known(self.ratio(above, below)[:, list(places)])))

    def _by_size(self, blocks: Floats, name: str) -> pd.DataFrame:
        """Of log values ``[block, size]``, one row for each size that has a value."""
        found = [exp(t_interval(column)) for column in blocks.T]
        rows = pd.DataFrame([columns(name, one) for one in found])
        rows.insert(0, "array_bytes", self.sizes)
        return rows.dropna(subset=name).reset_index(drop=True)

    # --- levels ----------------------------------------------------------------------------------

    @cached_property
    def unit(self) -> str:
        """The column in which the primary curve scatters less between rounds: ns or core cycles.

        A clock that changes blurs the caches' ends in ns; where it does not change, measuring it
        only adds noise.
        """
        in_ns, in_cycles = (self.values(*self.primary, name, self.least) for name in (_NS, _CYCLES))
        if (np.isfinite(in_ns) != np.isfinite(in_cycles)).any():
            return _NS
        return _CYCLES if _scatter(in_cycles) < _scatter(in_ns) else _NS

    @cached_property
    def levels(self) -> tuple[Plateau, ...]:
        """The levels in the primary curve, by ascending size.

        With probes a run may have few visits of an array, and sizes are closer where caches should
        end. What looks like a level there and reaches over less than half a doubling, or is not
        known to within a quarter, is none: on a slope two sizes may be as fast by chance, and
        next to a busy neighbour an array may answer from the last-level cache in one round and from
        memory in the next.
        """
        found = find_levels(self.sizes, self.level_curve(self.unit))
        if not self.probed:
            return found
        return tuple(
            one
            for one in found
            if one.latency.high < _KNOWN**2 * one.latency.low
            and one.last_bytes > _LONG * one.first_bytes
        )

    def level_curve(self, column: str) -> Floats:
        """``[block, size]``: log of the curve in which levels are looked for."""
        values = self.values(*self.primary, column, self.least)
        return self.by_block(self.over_cores(values, self.alike))

    @cached_property
    def matches(self) -> Matches:
        """Which level ends where a cache claims to, and which is memory."""
        return match(self.levels, self.claims)

    def latency(self, level: Plateau, column: str = _NS) -> Interval:
        """What a load takes in the array that represents a level, in ns or in core cycles."""
        statistic = self.least if level.array_bytes <= self.caches_bytes else "median"
        values = self.over_cores(self.values(*self.primary, column, statistic), self.alike)
        place = int(np.searchsorted(self.sizes, level.array_bytes))
        return exp(t_interval(self.by_block(values[:, [place]])[:, 0]))

    def sampled(self, level: Plateau) -> MemoryTable:
        """The table of samples that a level's latency is read off: see ``steadier``."""
        if level.array_bytes <= self.own_bytes:
            return self
        _, state = self.steadier(lambda table: table.latency(level))
        return self.part(state)

    # --- parts of the curve ----------------------------------------------------------------------

    def beyond(self, size_bytes: float) -> list[int]:
        """Places of the sizes from twice a size on; where there are none, of the largest half."""
        far = np.flatnonzero(self.sizes >= 2 * size_bytes)
        if not size_bytes or not far.size:
            far = np.flatnonzero(self.sizes >= 0.49 * self.sizes.max())
        return [int(place) for place in far]

    def within(self, size_bytes: float) -> list[int]:
        """Places of the sizes up to half of a size; at least the smallest."""
        fits = np.flatnonzero(self.sizes <= size_bytes / 2)
        return [int(place) for place in fits] or [0]

    def core_difference(
        self, places: Sequence[int], column: str = _NS, statistic: Statistic = "median"
    ) -> CoreComparison:
        """The cores compared, by their mean log latency over some of the sizes.

        Cores that lack a size in a round are left out of that round.
        """
        values = self.values(*self.primary, column, statistic)[:, :, list(places)]
        return compare_cores(values.mean(axis=2), self.start_s)

    def clocks(self) -> dict[int, float]:
        """The median frequency of each core in MHz, where it is known."""
        if "core_mhz" not in self.samples:
            return {}
        known = self.samples.groupby("cpu")["core_mhz"].median().dropna()
        return dict(zip(map(int, known.index), map(float, known), strict=True))

    # --- how precise -----------------------------------------------------------------------------

    @cached_property
    def curve_half_width(self) -> float:
        """Half an interval of a latency in percent, at the usual size of the primary curve."""
        return self.half_width_at(0.0, math.inf)

    def half_width_at(self, above: float, most: float) -> float:
        """``curve_half_width`` of the arrays larger than one size, and no larger than another.

        With probes a round need not visit all sizes: those without an interval are then a part of
        what is usual. Without probes there is no half-width as long as one size has none.
        """
        curve = self.curve(*self.primary)
        curve = curve[curve["array_bytes"].between(above, most, inclusive="right")]
        widths = 50 * np.log((curve[f"{_NS}_high"] / curve[f"{_NS}_low"]).to_numpy(np.float64))
        if self.probed:
            widths = np.where(np.isfinite(widths), widths, math.inf)
        width = float(np.median(widths)) if widths.size else math.inf
        return width if math.isfinite(width) else math.inf

    @cached_property
    def half_width(self) -> float:
        """``curve_half_width``, or that of the difference between cores in memory, if wider."""
        if len(self.cores) < 2:
            return self.curve_half_width
        difference = self.core_difference(self.beyond(self.caches_bytes))
        return max(self.curve_half_width, difference.half_width)


def _scatter(values: Floats) -> float:
    """How much ``[round, cpu, size]`` differ from round to round, at the usual size and core."""
    usual = robust_mean(values.reshape(len(values), -1)).reshape(values.shape[1:])
    away = np.abs(values - usual)
    known = away[np.isfinite(away)]
    return float(np.median(known)) if known.size else math.inf


def _trials(trials: pd.DataFrame, samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row a trial, with the latency in cycles by the highest frequency that the trial saw.

    Nothing makes dependent additions faster than the clock, but an interrupt makes them slower.
    """
    if "core_mhz" in samples:
        mhz = samples.groupby(keys)["core_mhz"].max().to_numpy()
        return trials.assign(latency_cycles=trials[_NS] * mhz / 1000)
    return trials if _CYCLES in trials else trials.assign(latency_cycles=math.nan)


def _not_preempted(samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Without the repeats in which the thread was preempted, unless a trial has no others."""
    if "involuntary_switches" not in samples:
        return samples
    pushed = samples["involuntary_switches"] > 0
    always = pushed.groupby([samples[key] for key in keys]).transform("all")
    return samples[~pushed | always]


def _in_order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Names in a given order, unknown ones (of a user's table) after it."""

    def place(name: str) -> tuple[int, str]:
        return (known.index(name) if name in known else len(known), name)

    return sorted(set(names), key=place)
