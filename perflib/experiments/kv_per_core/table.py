"""Samples of KV as tables: what each event costs, and what the cores did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.brackets import CoreStates, classify
from perflib.framework.samples import round_starts, usable
from perflib.stats.alone import STATES
from perflib.stats.compare import CoreComparison, CoreEffect, compare_cores
from perflib.stats.decomposition import BATCH_S, UNDIVIDED, Decomposition, Rows, decompose
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import Floats, t_interval, time_batches


def kv_table(samples: pd.DataFrame) -> KvTable:
    """The samples of one run; those between probes are analysed as such."""
    samples = usable(samples).reset_index(drop=True)
    core_states = classify(samples)
    return KvTable(samples) if core_states is None else BracketedTable(samples, core_states)


class KvTable:
    """The samples of one run as trials: ``log_time[round, core]``.

    A trial's time is the sum over its events, divided by what those events cost (the median over
    all cores and rounds): the work cancels, and an event missing on one core does no harm.
    """

    core_states: CoreStates | None = None  # what probes say, if there are any

    def __init__(self, samples: pd.DataFrame) -> None:
        self.samples = samples
        cost_ns, work = self._costs()
        self.cost_ns: pd.Series[float] = cost_ns
        trials = (
            samples.assign(expected_ns=work)
            .groupby(["round", "cpu"])[["time_ns", "expected_ns"]]
            .sum()
        )
        ratio = (trials["time_ns"] / trials["expected_ns"]).unstack("cpu")
        self.start_s = round_starts(samples, ratio.index)
        self.rounds = ratio.index.to_numpy()
        self.cores = [int(cpu) for cpu in ratio.columns]
        self.log_time: Floats = np.log(ratio.to_numpy(dtype=np.float64))

    def _costs(self) -> tuple[pd.Series[float], pd.Series[float]]:
        """What each event costs in ns, and each row's work."""
        cost_ns = self.samples.groupby("event")["time_ns"].median()
        return cost_ns, self.samples["event"].map(cost_ns)

    @cached_property
    def comparison(self) -> CoreComparison:
        """The cores compared by their trials without interference."""
        return compare_cores(self.log_time, self.start_s)

    @property
    def half_width(self) -> float:
        """The widest half interval of a core's slowdown, in percentage points."""
        return self.comparison.half_width

    @property
    def own(self) -> Mapping[int, CoreEffect]:
        """How much slower each core is than the others."""
        return dict(zip(self.cores, self.comparison.effects, strict=True))

    @cached_property
    def clean(self) -> pd.DataFrame:
        """The samples without those of trials with interference."""
        interference = self.comparison.interference
        flags = pd.DataFrame(interference, index=self.rounds, columns=self.cores).stack()
        keys = pd.MultiIndex.from_frame(self.samples[["round", "cpu"]])
        return self.samples[~flags.reindex(keys).to_numpy(dtype=bool)]

    def _cost_on_core(self) -> pd.DataFrame:
        """``[event, core]``: the event's typical time there."""
        mean = self.clean.groupby(["event", "cpu"])["time_ns"].mean().unstack("cpu")
        return mean.reindex(columns=self.cores)

    def event_slowdown(self) -> pd.DataFrame:
        """``[event, core]``: how much longer the core took for the event than the others did.

        In percent, against the median of the other cores; from the samples that count.
        """
        mean = self._cost_on_core()
        columns = {
            cpu: 100 * (mean[cpu] / mean.drop(columns=cpu).median(axis=1) - 1) for cpu in self.cores
        }
        return pd.DataFrame(columns)

    def seconds_per_event(self) -> pd.DataFrame:
        """Mean time of an event on each core in s: from the samples that count, and from all.

        All from the same events; the interval is that of the comparison between cores.
        """
        typical_s = float(self.cost_ns.mean()) / 1e9
        compared = self.comparison
        whole = compared.levels[np.isfinite(compared.levels).all(axis=1)]
        against_others = whole.mean(axis=0) if len(whole) else np.zeros(len(self.cores))
        clear = self.log_time[~compared.interference & np.isfinite(self.log_time)]
        shared = float(clear.mean()) - float(against_others.mean())
        rows = []
        for column, effect in enumerate(compared.effects):
            mean_s = typical_s * math.exp(shared + against_others[column])
            ends = [
                mean_s * (100 + end) / (100 + effect.slowdown.effect)
                for end in (effect.slowdown.low, effect.slowdown.high)
            ]
            everything = float(np.nanmean(np.exp(self.log_time[:, column])))
            rows.append((mean_s, *ends, typical_s * everything))
        names = ["clean_s", "clean_s_low", "clean_s_high", "all_trials_s"]
        return pd.DataFrame(rows, index=pd.Index(self.cores, name="cpu"), columns=names)

    def effects(self) -> pd.DataFrame:
        """One row for each core: its slowdown and its share of interference, with intervals."""
        rows = [
            (cpu, *effect.slowdown, effect.p_holm, *effect.interference)
            for cpu, effect in self.own.items()
        ]
        ends = ("percent", "percent_low", "percent_high")
        columns = ["cpu", *(f"slowdown_{end}" for end in ends), "p_holm"]
        return pd.DataFrame(rows, columns=[*columns, *(f"interference_{end}" for end in ends)])

    def slowdown_by_event(self) -> pd.DataFrame:
        """One row for each event on each core: what it costs, and its slowdown there."""
        slowdown = self.event_slowdown().melt(
            ignore_index=False, var_name="cpu", value_name="slowdown_percent"
        )
        slowdown.insert(0, "cost_ms", self.cost_ns.reindex(slowdown.index) / 1e6)
        return slowdown.reset_index()

    def drift(self) -> pd.DataFrame:
        """One row for each trial: when, where, its time against what its events cost."""
        rounds, cores = self.log_time.shape
        start_s = np.full(rounds, np.nan) if self.start_s is None else self.start_s
        return pd.DataFrame(
            {
                "round": np.repeat(self.rounds, cores),
                "start_s": np.repeat(start_s, cores),
                "cpu": np.tile(self.cores, rounds),
                "excess_percent": 100 * np.expm1(self.log_time).ravel(),
                "interference": self.disturbed().ravel(),
            }
        )

    def disturbed(self) -> NDArray[np.bool_]:
        """``[round, core]``: trials with interference."""
        return self.comparison.interference

    @cached_property
    def decomposition(self) -> Decomposition:
        """The time of each core as a product of parts."""
        samples, core_states = self.samples, self.core_states
        group, _ = pd.factorize(samples["event"], sort=True)
        item = group
        if "slice" in samples:
            item, _ = pd.factorize(pd.MultiIndex.from_frame(samples[["event", "slice"]]))
        core = pd.Index(self.cores).get_indexer(pd.Index(samples["cpu"]))
        blocks = time_batches(self.start_s, len(self.rounds), BATCH_S)
        block = blocks[pd.Index(self.rounds).get_indexer(pd.Index(samples["round"]))]
        count = len(samples)
        counted, shared = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        clock, known = np.full(count, np.nan), np.zeros(len(self.cores), dtype=np.bool_)
        if core_states is not None:
            counted, shared = core_states.usable, core_states.states == STATES.index("shared")
            clock = core_states.clock
            known = np.array([core_states.calibrations[cpu].calibrated for cpu in self.cores])
        return decompose(
            Rows(
                core=core.astype(np.int64),
                batch=block,
                item=item.astype(np.int64),
                group=group.astype(np.int64),
                wall_ns=samples["time_ns"].to_numpy(np.float64),
                cpu_ns=self._column("cpu_time_ns"),
                delay_ns=self._column("run_delay_ns"),
                throttled_ns=self._column("throttled_ns"),
                clock=clock,
                usable=counted,
                shared=shared,
                calibrated=known,
            )
        )

    def _column(self, name: str) -> Floats:
        if name not in self.samples:
            return np.full(len(self.samples), np.nan)
        return self.samples[name].to_numpy(np.float64, na_value=np.nan)

    def parts(self) -> pd.DataFrame:
        """One row for each part of each core's time: its factor, and ms of a mean event.

        The factors of a core multiply to its last row, ``total``; the ms add up to it.
        """
        typical_ms = float(self.cost_ns.mean()) / 1e6
        rows = []
        for which, cpu in enumerate(self.cores):
            product = typical_ms
            for part, factor in self.decomposition.factors(which):
                before, product = product, product * factor.effect
                ms = {
                    "own speed": product,
                    UNDIVIDED: product,
                    "total": typical_ms * factor.effect,
                }
                rows.append((cpu, part, *factor, ms.get(part, product - before)))
        columns = ["cpu", "part", "factor", "factor_low", "factor_high", "ms_per_event"]
        return pd.DataFrame(rows, columns=columns)

    def log_ns(self, cost_ns: pd.Series[float]) -> Interval:
        """Log of the time of events over ``cost_ns``, median core, from the samples that count."""
        rows = self.clean[self.clean["event"].isin(cost_ns.index)]
        sums = (
            rows.assign(expected_ns=rows["event"].map(cost_ns))
            .groupby(["round", "cpu"])[["time_ns", "expected_ns"]]
            .sum()
        )
        by_core = (sums["time_ns"] / sums["expected_ns"]).unstack("cpu")
        level = np.log(by_core.median(axis=1))
        blocks = pd.Series(self.comparison.batches, index=self.rounds).reindex(level.index)
        return t_interval(level.groupby(blocks).mean().to_numpy(np.float64))


class BracketedTable(KvTable):
    """Samples between probes: cores are compared by those that had their core alone."""

    core_states: CoreStates

    def __init__(self, samples: pd.DataFrame, core_states: CoreStates) -> None:
        self.core_states = core_states
        super().__init__(samples)

    def _costs(self) -> tuple[pd.Series[float], pd.Series[float]]:
        parts = ["event", "slice"] if "slice" in self.samples else ["event"]
        counted = self.samples[self.core_states.usable]
        missing = self.samples[~self.samples["event"].isin(counted["event"])]
        chosen = pd.concat([counted, missing])
        cost_ns = chosen.groupby(parts)[self._time_column()].median()
        work = self.samples[parts].merge(
            cost_ns.rename("work").reset_index(), on=parts, how="left"
        )["work"]
        every = self.samples.groupby(parts)[self._time_column()].transform("median")
        return cost_ns.groupby("event").sum(), work.fillna(every)

    def _time_column(self) -> str:
        return "cpu_time_ns" if "cpu_time_ns" in self.samples else "time_ns"

    @property
    def half_width(self) -> float:
        """As of all tables; cores that are never alone do not keep the others waiting."""
        return self.decomposition.half_width

    @property
    def own(self) -> Mapping[int, CoreEffect]:
        """How much slower each core is in itself: samples that had it alone, at one clock."""
        return dict(zip(self.cores, self.decomposition.own, strict=True))

    def _cost_on_core(self) -> pd.DataFrame:
        events = np.sort(self.samples["event"].unique())
        level = np.exp(self.decomposition.group_level.T)
        index = pd.Index(events, name="event")
        return pd.DataFrame(level, index, self.cores).mul(self.cost_ns, axis=0)

    def seconds_per_event(self) -> pd.DataFrame:
        """Mean time of an event on each core in s: alone, with its interval, and all in all."""
        typical_s = float(self.cost_ns.mean()) / 1e9
        rows = []
        for which, (cpu, effect) in enumerate(self.own.items()):
            factors = dict(self.decomposition.factors(which))
            own, clock = factors.get("own speed"), factors.get("clock")
            alone_s = typical_s * own.effect * clock.effect if own and clock else math.nan
            ends = [
                alone_s * (100 + end) / (100 + effect.slowdown.effect)
                for end in (effect.slowdown.low, effect.slowdown.high)
            ]
            rows.append((cpu, alone_s, *ends, typical_s * factors["total"].effect))
        names = ["cpu", "clean_s", "clean_s_low", "clean_s_high", "all_trials_s"]
        return pd.DataFrame(rows, columns=names).set_index("cpu")

    def disturbed(self) -> NDArray[np.bool_]:
        """``[round, core]``: trials that for most of their time did not have their core alone."""
        time_ns = self.samples["time_ns"]
        counted = time_ns.where(self.core_states.usable, 0.0)
        keys = [self.samples["round"], self.samples["cpu"]]
        share = (counted.groupby(keys).sum() / time_ns.groupby(keys).sum()).unstack("cpu")
        return np.asarray(share.reindex(self.rounds)[self.cores].to_numpy(np.float64) < 0.5)

    def log_ns(self, cost_ns: pd.Series[float]) -> Interval:
        """As of all tables, from the typical times when alone."""
        common = self.cost_ns.index.intersection(cost_ns.index)
        levels = self.decomposition.typical
        shift = math.log(self.cost_ns[common].sum() / cost_ns[common].sum())
        known = np.isfinite(levels).any(axis=1)
        if not known.any():
            return NO_INTERVAL
        return t_interval(np.nanmedian(levels[known], axis=1) + shift)
