"""Samples of memory under load as arrays: latency by round and rate, bandwidth by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.brackets import classify
from perflib.framework.samples import round_starts, usable
from perflib.framework.schema import check_cells
from perflib.stats.compare import CoreComparison, compare_cores
from perflib.stats.interval import NO_INTERVAL, Interval, exp, percent, widest
from perflib.stats.intervals import Floats, batch_means, t_interval, time_batches

_CORE_SHARE = 0.95  # of its time a core must have had, or the rate is not what it seems
_ALONE_ROUNDS = 0.5  # of all must have a sample that was alone, at each rate, or all count
_KEYS = ["memory_node", "core_node"]
_REPEATED = ["kind", "streams"]


class Nodes(NamedTuple):
    """A node's memory, and a node's cores."""

    memory_node: int
    core_node: int


class Rate(NamedTuple):
    """What the other cores do while latency is measured."""

    load: str  # idle, cache, memory
    percent: float


class Knee(NamedTuple):
    """Where latency has risen by so much; ``code`` says why it is what it is."""

    gb_s: Interval
    code: str


class Cores(NamedTuple):
    """Which cores stream what, through whose memory."""

    memory_node: int
    core_node: int
    streams: str
    kind: str


class Curve:
    """Latency and bandwidth of one pair of nodes, ``[round, rate]``; NaN where there is none.

    Parameters
    ----------
    rows
        The pair's samples of latency, with ``valid`` and ``alone`` (false where nothing is known).
    rounds, blocks
        All rounds of the run, and their batches.
    """

    def __init__(self, rows: pd.DataFrame, rounds: Floats, blocks: NDArray[np.int64]) -> None:
        self.cpu = int(rows["cpu"].iloc[0])
        self.kind = str(rows["kind"].iloc[0])
        pairs = rows[["load", "rate_percent"]].drop_duplicates()
        found = {Rate(str(load), float(at)) for load, at in pairs.itertuples(index=False)}
        order = {"idle": 0, "cache": 1, "memory": 2}
        self.rates = sorted(found, key=lambda rate: (order[rate.load], rate.percent))
        self._blocks = blocks
        loaded = rows[rows["load"] == "memory"]
        self.valid_percent = 100 * float(loaded["valid"].mean()) if len(loaded) else 0.0
        share = loaded["core_share"].mean() if "core_share" in loaded else math.nan
        self.core_percent = 100 * float(share)
        valid = rows[rows["valid"]]
        self.alone_percent = 100 * float(valid["alone"].mean()) if len(valid) else 0.0
        self.state = "all"
        self.latency = self._cells(valid, "log_latency", rounds)
        if self._alone_suffices(valid, rounds):
            alone = self._cells(valid[valid["alone"]], "log_latency", rounds)
            steadier = self._scatter(alone) < self._scatter(self.latency)
            self.state = "alone" if steadier else "steadier"
            self.latency = alone if steadier else self.latency
        used = valid[valid["alone"]] if self.state == "alone" else valid
        self.bandwidth = self._cells(used, "bandwidth_gb_s", rounds)

    def _alone_suffices(self, valid: pd.DataFrame, rounds: Floats) -> bool:
        """Whether at every rate enough rounds have a sample that was alone."""
        alone = valid[valid["alone"]]
        seen = alone.groupby(["load", "rate_percent"])["round"].nunique()
        enough = _ALONE_ROUNDS * len(rounds)
        return len(seen) == len(self.rates) and bool((seen >= enough).all())

    def _scatter(self, latency: Floats) -> float:
        """How wide the intervals of all rates are, together; infinite where one is not known."""
        widths = [t_interval(column).half_width for column in self._means(latency).T]
        return sum(width if math.isfinite(width) else math.inf for width in widths)

    def _cells(self, rows: pd.DataFrame, value: str, rounds: Floats) -> Floats:
        medians = rows.groupby(["round", "load", "rate_percent"])[value].median()
        wide = medians.unstack(["load", "rate_percent"])
        columns = pd.MultiIndex.from_tuples(self.rates, names=["load", "rate_percent"])
        return wide.reindex(index=rounds, columns=columns).to_numpy(np.float64)

    # --- what there is ----------------------------------------------------------------------------

    @property
    def loaded(self) -> list[int]:
        """The places of the rates at which memory is loaded, ascending."""
        return [place for place, rate in enumerate(self.rates) if rate.load == "memory"]

    @property
    def top(self) -> int | None:
        """The place of the highest rate; ``None``: nobody loads memory."""
        return self.loaded[-1] if self.loaded else None

    def place(self, load: str) -> int | None:
        """That of idle cores, or of cores in their caches."""
        return next((at for at, rate in enumerate(self.rates) if rate.load == load), None)

    @property
    def reference(self) -> int | None:
        """With what latency is compared: busy cores that leave memory alone, else idle ones."""
        control = self.place("cache")
        return control if control is not None else self.place("idle")

    # --- estimates --------------------------------------------------------------------------------

    def latency_ns(self, place: int | None) -> Interval:
        """At one rate."""
        if place is None:
            return NO_INTERVAL
        return exp(t_interval(self._means(self.latency[:, [place]])[:, 0]))

    def moved(self, place: int) -> Interval:
        """GB/s that the other cores moved meanwhile."""
        return t_interval(self._means(self.bandwidth[:, [place]])[:, 0])

    def rise(self, place: int | None, over: int | None, confidence: float = 0.95) -> Interval:
        """How much longer a load takes at one rate than at another, within rounds, in percent."""
        if place is None or over is None:
            return NO_INTERVAL
        ratio = self.latency[:, [place]] - self.latency[:, [over]]
        return percent(t_interval(self._means(ratio)[:, 0], confidence))

    def _means(self, values: Floats) -> Floats:
        return batch_means(values, self._blocks)

    def knee(self, threshold: float) -> Knee:
        """The bandwidth at which latency has risen by ``threshold`` percent.

        Its ends are measured points: below the low one no rate has risen, by intervals that hold
        for all rates together; at the high one it has. The estimate is where the curve, drawn
        straight from point to point, crosses the threshold first.

        ``code``: ``between``, ``up_to`` (no low end is sure), ``from_start`` (at the lowest rate
        already), ``never``, ``unsure`` or ``no_valid``.
        """
        places = self.loaded
        confidence = 1 - 0.05 / max(len(places), 1)
        rises = [self.rise(place, self.reference, confidence) for place in places]
        moved = [self.moved(place).effect for place in places]
        known = [
            (gb_s, rise) for gb_s, rise in zip(moved, rises, strict=True)
            if math.isfinite(rise.half_width) and math.isfinite(gb_s)
        ]  # fmt: skip
        if not known:
            return Knee(NO_INTERVAL, "no_valid")
        known.sort(key=lambda one: one[0])
        first = next((at for at, (_, rise) in enumerate(known) if rise.low > threshold), None)
        if first is None:
            never = len(known) == len(places) and all(rise.high < threshold for _, rise in known)
            return Knee(NO_INTERVAL, "never" if never else "unsure")
        low = 0.0
        for gb_s, rise in known[:first]:
            if rise.high >= threshold:
                break
            low = gb_s
        high = known[first][0]
        estimate = min(max(_crossing(known[: first + 1], threshold), low), high)
        code = "between" if low > 0 else "from_start" if first == 0 else "up_to"
        return Knee(Interval(estimate, low, high), code)


def _crossing(known: Sequence[tuple[float, Interval]], threshold: float) -> float:
    """Where straight lines between the points cross the threshold first; from nothing at zero."""
    before = (0.0, 0.0)
    for gb_s, rise in known:
        if rise.effect > threshold:
            part = (threshold - before[1]) / (rise.effect - before[1])
            return before[0] + part * (gb_s - before[0])
        before = (gb_s, rise.effect)
    return before[0]


class LoadTable:
    """The samples of one run.

    A sample is valid where every core had its time: those that stream, or the rate is not what it
    seems, and the one that loads. Latency is read off the valid samples whose core was alone, where
    at every rate there are enough, or off all of them, whichever scatters less. What a trial's
    repeats say is their median; rounds are compared within, and intervals are those of batches (see
    ``perflib.stats.intervals``).

    Parameters
    ----------
    samples
        Rows as the experiment makes them; of a user's, the required columns are enough.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        rows = usable(samples)
        self.rounds = np.array(sorted(set(rows["round"])))
        keys = ["what", *_KEYS, *_REPEATED, "load", "rate_percent"]
        configurations = len(rows[keys].drop_duplicates())
        check_cells({"rounds": len(self.rounds), "configurations": configurations}, len(rows))
        self.start_s = round_starts(rows, self.rounds)
        self.blocks = time_batches(self.start_s, len(self.rounds))
        self.rows = rows.assign(valid=valid(rows), alone=_alone(rows))

    # --- latency ----------------------------------------------------------------------------------

    @cached_property
    def curves(self) -> dict[Nodes, Curve]:
        """Those of all pairs of nodes."""
        rows = self.rows
        rows = rows[rows["what"] == "latency"]
        if "latency_ns" not in rows:
            return {}
        rows = rows[rows["latency_ns"].notna()]
        rows = rows.assign(log_latency=np.log(rows["latency_ns"].to_numpy(np.float64)))
        found = rows[_KEYS].drop_duplicates().itertuples(index=False)
        pairs = sorted(Nodes(int(memory), int(cores)) for memory, cores in found)
        return {
            pair: Curve(rows[(rows[_KEYS] == list(pair)).all(axis=1)], self.rounds, self.blocks)
            for pair in pairs
        }

    # --- bandwidth --------------------------------------------------------------------------------

    @cached_property
    def moved(self) -> dict[Cores, Floats]:
        """``[round]``: log GB/s, median of the repeats; NaN where there is none."""
        rows = self._bandwidths
        rows = rows[rows["valid"]]
        rows = rows.assign(log_gb_s=np.log(rows["bandwidth_gb_s"].to_numpy(np.float64)))
        found = {}
        for cores, mine in _by_cores(rows).items():
            medians = mine.groupby("round")["log_gb_s"].median()
            found[cores] = medians.reindex(self.rounds).to_numpy(np.float64)
        return found

    @property
    def _bandwidths(self) -> pd.DataFrame:
        rows = self.rows
        return rows[(rows["what"] == "bandwidth") & (rows["bandwidth_gb_s"] > 0)]

    @cached_property
    def valid_percent(self) -> dict[Cores, float]:
        """Of the samples of bandwidth, how many are valid."""
        by_cores = _by_cores(self._bandwidths)
        return {cores: 100 * float(mine["valid"].mean()) for cores, mine in by_cores.items()}

    @cached_property
    def best(self) -> dict[Cores, float]:
        """The highest GB/s of any valid sample: STREAM's best of n."""
        rows = self._bandwidths
        by_cores = _by_cores(rows[rows["valid"]])
        return {cores: float(mine["bandwidth_gb_s"].max()) for cores, mine in by_cores.items()}

    def gb_s(self, cores: Cores) -> Interval:
        """What these cores move."""
        return exp(t_interval(self._means(self.moved[cores])))

    def above(self, more: Cores, less: Cores) -> Interval:
        """How much more some cores move than others, within rounds, in percent."""
        return percent(t_interval(self._means(self.moved[more] - self.moved[less])))

    def _means(self, values: Floats) -> Floats:
        return batch_means(values[:, None], self.blocks)[:, 0]

    def alone(self, pair: Nodes, kind: str) -> dict[int, Cores]:
        """By CPU, its bandwidth when no other core streams."""
        return {
            int(cores.streams): cores for cores in self.moved
            if (cores.memory_node, cores.core_node) == pair and cores.kind == kind
            and cores.streams.isdecimal()
        }  # fmt: skip

    def together(self, pair: Nodes, kind: str) -> Cores | None:
        """All cores of a node that has several; ``None``: not measured."""
        return next(
            (cores for cores in self.moved if (cores.memory_node, cores.core_node) == pair
             and cores.kind == kind and not cores.streams.isdecimal()),
            None,
        )  # fmt: skip

    @property
    def pairs(self) -> list[Nodes]:
        """Those whose bandwidth or latency was measured."""
        return sorted({*self.curves, *(Nodes(*cores[:2]) for cores in self.moved)})

    @property
    def kinds(self) -> list[str]:
        """The kinds whose bandwidth is known."""
        return list(dict.fromkeys(cores.kind for cores in self.moved))

    def cores(self, kind: str) -> tuple[list[int], CoreComparison] | None:
        """Each core alone with its node's memory, compared with the others; ``None``: too few.

        From samples whose core was alone, where every core has enough of them.
        """
        by_cpu = {
            cpu: cores for pair in self.pairs if pair.memory_node == pair.core_node
            for cpu, cores in self.alone(pair, kind).items()
        }  # fmt: skip
        if len(by_cpu) < 2:
            return None
        rows = self._bandwidths
        rows = rows[rows["valid"] & (rows["kind"] == kind) & rows["streams"].str.isdecimal()]
        rows = rows[rows["memory_node"] == rows["core_node"]]
        visited = np.isin(self.rounds, rows["round"])
        alone = rows[rows["alone"]]
        seen = alone.groupby("cpu")["round"].nunique()
        if len(seen) == len(by_cpu) and (seen >= _ALONE_ROUNDS * visited.sum()).all():
            rows = alone
        medians = rows.groupby(["round", "cpu"])["bandwidth_gb_s"].median().unstack("cpu")
        rounds = self.rounds[visited]
        wide = medians.reindex(index=rounds, columns=sorted(by_cpu)).to_numpy(np.float64)
        start_s = None if self.start_s is None else self.start_s[visited]
        return sorted(by_cpu), compare_cores(-np.log(wide), start_s)

    # --- precision --------------------------------------------------------------------------------

    @property
    def half_width(self) -> float:
        """The widest: of a rise at the highest rate, of what all cores of a node move; percent."""
        widths = [curve.rise(curve.top, curve.reference).half_width for curve in
                  self.curves.values() if curve.loaded]  # fmt: skip
        for cores in self.moved:
            found = self.gb_s(cores)
            if not cores.streams.isdecimal():
                widths.append(100 * found.half_width / found.effect)
        if not widths:
            widths = [100 * curve.latency_ns(curve.place("idle")).half_width for curve in
                      self.curves.values()]  # fmt: skip
        return widest(widths, default=math.inf)


def _by_cores(rows: pd.DataFrame) -> dict[Cores, pd.DataFrame]:
    """The rows of each set of cores and kind."""
    places: dict[Cores, list[int]] = {}
    keys = zip(*(rows[name] for name in Cores._fields), strict=True)
    for place, (memory_node, core_node, streams, kind) in enumerate(keys):
        cores = Cores(int(memory_node), int(core_node), str(streams), str(kind))
        places.setdefault(cores, []).append(place)
    return {cores: rows.iloc[at] for cores, at in places.items()}


def valid(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether every core had its time."""
    valid = np.ones(len(rows), dtype=np.bool_)
    if "core_share" in rows:
        share = rows["core_share"].to_numpy(np.float64, na_value=np.nan)
        valid &= ~(share < _CORE_SHARE)
    if {"cpu_time_ns", "time_ns"} <= set(rows):
        cpu = rows["cpu_time_ns"].to_numpy(np.float64, na_value=np.nan)
        wall = rows["time_ns"].to_numpy(np.float64, na_value=np.nan)
        valid &= ~((cpu >= 0) & (cpu < _CORE_SHARE * wall))
    return valid


def _alone(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether the probes say that the core was alone; false where they say nothing."""
    alone = np.zeros(len(rows), dtype=np.bool_)
    if "probe_before_ns" not in rows or "probe_after_ns" not in rows:
        return alone
    probed = (rows["probe_before_ns"].notna() & rows["probe_after_ns"].notna()).to_numpy()
    if probed.any() and (core_states := classify(rows[probed])) is not None:
        alone[probed] = core_states.alone
    return alone
