"""What samples of dependent loads say: latency against the size of the array, and its levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.samples import round_starts, usable
from perflib.machine.cpulist import parse_cpus
from perflib.machine.hardware.tlbs import Tlb, reach_bytes
from perflib.stats.compare import CoreComparison, compare_cores
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import block_means, robust_mean, t_interval, time_blocks
from perflib.stats.plateaus import Level, Matches, find_levels, match

__all__ = ["SMALL_PAGES", "MemoryTable", "Statistic", "data_caches", "primary", "tlb_reaches"]

Floats = NDArray[np.float64]
Statistic = Literal["median", "min"]
SMALL_PAGES = "4k"
_CYCLES, _NS = "latency_cycles", "latency_ns"
# The first is the one that levels are looked for in: it misses no TLB and no prefetcher helps it.
_ORDERS = ("window", "random", "page", "lmbench", "sequential")
_BACKINGS = (SMALL_PAGES, "thp", "collapse", "hugetlb")
_KIB = 1024


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


def primary(orders: Iterable[str], backings: Iterable[str]) -> tuple[str, str]:
    """Of what there is, the order and backing in whose curve levels are looked for.

    Windows on 4 KiB pages, or what resembles them most.
    """
    return _in_order(orders, _ORDERS)[0], _in_order(backings, _BACKINGS)[0]


def tlb_reaches(machine: Mapping[str, Any]) -> dict[str, int]:
    """How much data each level of the TLB reaches with 4 KiB pages, in bytes; as CPUID says."""
    known = [
        Tlb(**{**tlb, "page_bytes": tuple(tlb["page_bytes"])}) for tlb in machine.get("tlbs") or ()
    ]
    names = {1: "first-level TLB", 2: "second-level TLB"}
    found = {name: reach_bytes(known, "data", level) for level, name in names.items()}
    return {name: reach for name, reach in found.items() if reach}


class MemoryTable:
    """The samples of one run as log latency, ``[round, cpu, size]`` of each order and backing.

    A turn laid one array and loaded from it several times; the next round laid it anew, on other
    pages. Rows whose ``ok`` is false are left out, and so are repeats in which the thread was
    pushed aside, if the turn has others.

    **The minimum or the median of a turn's repeats?** As the source argues: nothing makes loads
    from a cache faster than they are, but an interrupt makes them slower, so the minimum is taken
    for arrays that the caches hold. Of an array in memory, however, a part may be in a cache by
    luck, and then the minimum picks the luck: there it is the median. This goes for the latencies
    that are told (``latency``). The *levels* are looked for in a curve of minima at all sizes: a
    change of the statistic at the size that a cache claims could draw an end there.

    **Between turns** it is neither: where pages come to lie differs from one laying to the next,
    and both kinds of luck count. Robust means over blocks of time are taken, and Student's
    interval from their scatter (see ``perflib.stats.intervals``).

    Parameters
    ----------
    samples
        Rows as the experiment makes them; of a user's, the required columns are enough.
    machine
        The description in the run's provenance: which caches it claims; empty: not known.
    """

    def __init__(self, samples: pd.DataFrame, machine: Mapping[str, Any] | None = None) -> None:
        samples = usable(samples, ["array_bytes", _NS])
        samples = samples.assign(
            order=samples["order"].astype(str), backing=samples["backing"].astype(str)
        )
        self.samples = samples
        self.orders = _in_order(samples["order"], _ORDERS)
        self.backings = _in_order(samples["backing"], _BACKINGS)
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        self.sizes = np.array(sorted(set(samples["array_bytes"])), dtype=np.float64)
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_blocks(self.start_s, len(self.rounds))
        self.machine = machine or {}
        self.claims = data_caches(self.machine, self.cores[0])
        keys = ["order", "backing", "round", "cpu", "array_bytes"]
        repeats = _undisturbed(samples, keys).groupby(keys, as_index=False)
        self._turns: dict[str, pd.DataFrame] = {
            "median": _turns(repeats.median(numeric_only=True), samples, keys),
            "min": _turns(repeats.min(numeric_only=True), samples, keys),
        }
        self._kept: dict[tuple[str, str, str, str], Floats] = {}

    @property
    def huge(self) -> list[str]:
        """The backings of 2 MiB pages, the one that comparisons use first."""
        return [name for name in self.backings if name != SMALL_PAGES]

    @property
    def held_bytes(self) -> int:
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
        """``[round, cpu, size]``: log of the turns' latency; NaN where there is none.

        ``statistic``: of the repeats of a turn.
        """
        key = order, backing, column, statistic
        if key not in self._kept:
            shape = len(self.rounds), len(self.cores), len(self.sizes)
            found = np.full(shape, np.nan)
            mine = self._turns[statistic]
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
        return block_means(values, self.blocks)

    def over_cores(self, values: Floats, cpus: Sequence[int] | None = None) -> Floats:
        """``[round, size]``: the mean over some cores, all unless they are named."""
        places = [self.cores.index(cpu) for cpu in cpus or self.cores]
        return mean(values[:, places], axis=1)

    # --- latency against size --------------------------------------------------------------------

    def curve(
        self, order: str, backing: str, cpu: int | None = None, column: str = _NS
    ) -> pd.DataFrame:
        """The latency at each size with its interval, of one core or of those that are alike.

        Columns: ``array_bytes``, ``latency``, ``low``, ``high``, in ns or core cycles as
        ``column`` says. Minima of the repeats, at all sizes.
        """
        chosen = self.alike if cpu is None else [cpu]
        log_latency = self.over_cores(self.values(order, backing, column, "min"), chosen)
        return self._told(self.by_block(log_latency), ["latency", "low", "high"])

    def ratio(self, above: tuple[str, str], below: tuple[str, str]) -> Floats:
        """``[block, size]``: log of one (order, backing) over another, within rounds and cores."""
        return self.by_block(self.over_cores(self.values(*above) - self.values(*below)))

    def ratio_curve(self, above: tuple[str, str], below: tuple[str, str]) -> pd.DataFrame:
        """``ratio`` at each size as a factor: columns ``array_bytes``, ``ratio``, ends."""
        return self._told(self.ratio(above, below), ["ratio", "low", "high"])

    def difference(
        self, above: tuple[str, str], below: tuple[str, str], places: Sequence[int]
    ) -> Interval:
        """How many percent longer the one takes, at some of the sizes (places in ``sizes``)."""
        return percent(t_interval(mean(self.ratio(above, below)[:, list(places)], axis=1)))

    def _told(self, blocks: Floats, names: list[str]) -> pd.DataFrame:
        rows = [
            tuple(math.exp(end) for end in t_interval(blocks[:, place]))
            for place in range(blocks.shape[1])
        ]
        told = pd.DataFrame(rows, columns=names)
        told.insert(0, "array_bytes", self.sizes)
        return told.dropna(subset=names[:1]).reset_index(drop=True)

    # --- levels ----------------------------------------------------------------------------------

    @cached_property
    def unit(self) -> str:
        """The column in which the primary curve scatters less between rounds: ns or core cycles.

        A clock that changes blurs the caches' ends in ns; where it does not change, measuring it
        only adds noise.
        """
        in_ns, in_cycles = (self.values(*self.primary, name, "min") for name in (_NS, _CYCLES))
        if (np.isfinite(in_ns) != np.isfinite(in_cycles)).any():
            return _NS
        return _CYCLES if _scatter(in_cycles) < _scatter(in_ns) else _NS

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels in the primary curve, by ascending size."""
        values = self.values(*self.primary, self.unit, "min")
        return find_levels(self.sizes, self.by_block(self.over_cores(values, self.alike)))

    @cached_property
    def matches(self) -> Matches:
        """Which level ends where a cache claims to, and which is memory."""
        return match(self.levels, self.claims)

    def latency(self, level: Level, column: str = _NS) -> Interval:
        """What a load takes in the array that represents a level, in ns or in core cycles."""
        statistic: Statistic = "min" if level.array_bytes <= self.held_bytes else "median"
        values = self.over_cores(self.values(*self.primary, column, statistic), self.alike)
        place = int(np.searchsorted(self.sizes, level.array_bytes))
        found = t_interval(self.by_block(values[:, [place]])[:, 0])
        return Interval(*(math.exp(end) for end in found))

    def levels_table(self) -> pd.DataFrame:
        """The source's table: each level that is claimed or found, and what a load from it takes.

        Columns: ``level``; ``size_kib``, as claimed; ``array_kib``, the array that was used; and
        ``latency_cycles`` (of the core) and ``latency_ns``, each with the ends of its 95 %
        interval, ``low_…`` and ``high_…``. What was not seen, or claims no size, is NaN.
        """
        named: list[tuple[str, float, int | None]] = [
            (claim.name, claim.claimed_bytes, claim.level) for claim in self.matches.claims
        ]
        named += [("unclaimed", math.nan, number) for number in self.matches.unclaimed]
        if self.matches.memory is not None:
            named.append(("memory", math.nan, self.matches.memory))

        def place(row: tuple[str, float, int | None]) -> float:
            _, size, number = row
            if number is None:
                return size
            return self.levels[number].end_bytes or math.inf

        rows: list[dict[str, Any]] = []
        for name, size, number in sorted(named, key=place):
            row: dict[str, Any] = {"level": name, "size_kib": size / _KIB, "array_kib": math.nan}
            found = {_CYCLES: _nothing(), _NS: _nothing()}
            if number is not None:
                level = self.levels[number]
                row["array_kib"] = level.array_bytes / _KIB
                found = {column: self.latency(level, column) for column in found}
            for column, value in found.items():
                unit = column.removeprefix("latency_")
                row |= dict(zip((column, f"low_{unit}", f"high_{unit}"), value, strict=True))
            rows.append(row)
        columns = ["level", "size_kib", "array_kib", _CYCLES, "low_cycles", "high_cycles"]
        return pd.DataFrame(rows, columns=[*columns, _NS, "low_ns", "high_ns"])

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
        curve = self.curve(*self.primary)
        width = float(np.median(50 * np.log(curve["high"] / curve["low"])))
        return width if math.isfinite(width) else math.inf

    @cached_property
    def half_width(self) -> float:
        """``curve_half_width``, or that of the difference between cores in memory, if wider."""
        if len(self.cores) < 2:
            return self.curve_half_width
        difference = self.core_difference(self.beyond(self.held_bytes))
        return max(self.curve_half_width, difference.half_width)


def mean(values: Floats, axis: int) -> Floats:
    """The mean along an axis of what there is; NaN where there is nothing."""
    seen = np.isfinite(values)
    count = seen.sum(axis=axis)
    total = np.where(seen, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _scatter(values: Floats) -> float:
    """How much ``[round, cpu, size]`` differ from round to round, at the usual size and core."""
    usual = robust_mean(values.reshape(len(values), -1)).reshape(values.shape[1:])
    away = np.abs(values - usual)
    return float(np.median(away[np.isfinite(away)]))


def _nothing() -> Interval:
    return Interval(math.nan, math.nan, math.nan)


def _turns(turns: pd.DataFrame, samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row a turn, with the latency in cycles by the highest frequency that the turn saw.

    Nothing makes dependent additions faster than the clock, but an interrupt makes them slower.
    """
    if "core_mhz" in samples:
        mhz = samples.groupby(keys)["core_mhz"].max().to_numpy()
        return turns.assign(latency_cycles=turns[_NS] * mhz / 1000)
    return turns if _CYCLES in turns else turns.assign(latency_cycles=math.nan)


def _undisturbed(samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Without the repeats in which the thread was pushed aside, unless a turn has no others."""
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
