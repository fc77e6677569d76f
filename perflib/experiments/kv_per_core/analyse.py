"""What samples of KV say: from rows of events to findings about cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.kv_per_core.claims import INTERFERENCE, SLOWER, TIME_PER_EVENT
from perflib.framework.samples import round_starts, usable
from perflib.model.changes import changes
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.compare import CoreComparison, CoreEffect, compare_cores
from perflib.stats.decide import Reason
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import t_interval

__all__ = ["KvTable", "compare", "findings", "tables", "time_change"]

Floats = NDArray[np.float64]
_MOST_EVENTS_NAMED = 3


class KvTable:
    """The samples of one run as trials: ``log_time[round, core]``.

    A trial's time is the sum over its events, divided by what those events cost (the median over
    all cores and rounds): the work cancels, and an event missing on one core does no harm. Rows
    whose ``ok`` is false are left out.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples, ["time_ns"])
        self.samples = samples
        self.cost_ns = samples.groupby("event")["time_ns"].median()
        expected = samples["event"].map(self.cost_ns)
        trials = (
            samples.assign(expected_ns=expected)
            .groupby(["round", "cpu"])[["time_ns", "expected_ns"]]
            .sum()
        )
        ratio = (trials["time_ns"] / trials["expected_ns"]).unstack("cpu")
        self.start_s = round_starts(samples, ratio.index)
        self.rounds = ratio.index.to_numpy()
        self.cores = [int(cpu) for cpu in ratio.columns]
        self.log_time: Floats = np.log(ratio.to_numpy(dtype=np.float64))

    def compare(self) -> CoreComparison:
        """The cores compared."""
        return compare_cores(self.log_time, self.start_s)

    @cached_property
    def comparison(self) -> CoreComparison:
        """The cores compared, once."""
        return self.compare()

    @cached_property
    def clean(self) -> pd.DataFrame:
        """The samples without those of trials with interference."""
        interference = self.comparison.interference
        flags = pd.DataFrame(interference, index=self.rounds, columns=self.cores).stack()
        keys = pd.MultiIndex.from_frame(self.samples[["round", "cpu"]])
        return self.samples[~flags.reindex(keys).to_numpy(dtype=bool)]

    def event_slowdown(self) -> pd.DataFrame:
        """``[event, core]``: how much longer the core took for the event than the others did.

        In percent, against the median of the other cores; means over trials without interference.
        """
        mean = self.clean.groupby(["event", "cpu"])["time_ns"].mean().unstack("cpu")
        mean = mean.reindex(columns=self.cores)
        columns = {
            cpu: 100 * (mean[cpu] / mean.drop(columns=cpu).median(axis=1) - 1) for cpu in self.cores
        }
        return pd.DataFrame(columns)

    def seconds_per_event(self) -> pd.DataFrame:
        """Mean time of an event on each core in s, without interference and over all trials.

        All from the same events; the interval is that of the comparison between cores.
        """
        typical_s = float(self.cost_ns.mean()) / 1e9
        compared = self.comparison
        whole = compared.levels[np.isfinite(compared.levels).all(axis=1)]
        beside = whole.mean(axis=0) if len(whole) else np.zeros(len(self.cores))
        clear = self.log_time[~compared.interference & np.isfinite(self.log_time)]
        shared = float(clear.mean()) - float(beside.mean())
        rows = []
        for column, effect in enumerate(compared.effects):
            mean_s = typical_s * math.exp(shared + beside[column])
            ends = [
                mean_s * (100 + end) / (100 + effect.slowdown.effect)
                for end in (effect.slowdown.low, effect.slowdown.high)
            ]
            everything = float(np.nanmean(np.exp(self.log_time[:, column])))
            rows.append((mean_s, *ends, typical_s * everything))
        names = ["clean_s", "low_s", "high_s", "all_trials_s"]
        return pd.DataFrame(rows, index=pd.Index(self.cores, name="cpu"), columns=names)

    def effects(self) -> pd.DataFrame:
        """One row for each core: its slowdown and its share of interference, with intervals."""
        rows = [
            (cpu, *effect.slowdown, effect.p_holm, *effect.interference)
            for cpu, effect in zip(self.cores, self.comparison.effects, strict=True)
        ]
        ends = ("percent", "low", "high")
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
                "interference": self.comparison.interference.ravel(),
            }
        )


# --- findings ----------------------------------------------------------------------------------


def findings(run: Run) -> list[Finding]:
    """Two findings for each core: how slow it is, and how often something interferes with it."""
    slower = run.params["threshold_percent"]
    interference = run.params["interference_percent"]
    places = run.provenance.get("machine", {}).get("cpus", [])
    where = {place["cpu"]: place["where"] for place in places}
    table = KvTable(run.samples)
    by_event = table.event_slowdown() if len(table.cores) > 1 else None
    found = []
    for cpu, effect in zip(table.cores, table.comparison.effects, strict=True):
        of_events = by_event[cpu] if by_event is not None else pd.Series(dtype=float)
        found.append(_slowness(table, cpu, effect, slower, of_events, where.get(cpu)))
        share = effect.interference
        found.append(INTERFERENCE.decided(share, interference, about={"cpu": cpu}))
    return found


def _slowness(
    table: KvTable,
    cpu: int,
    effect: CoreEffect,
    threshold: float,
    of_events: pd.Series[float],
    where: str | None,
) -> Finding:
    evidence: dict[str, Any] = {
        "p_holm": effect.p_holm,
        "segments_percent": list(effect.segments),
        "rounds": len(table.rounds),
        "where": where,
        **_events_evidence(of_events, threshold),
        **_sharing_evidence(table, cpu),
    }
    decision = effect.decide(threshold)
    if decision.verdict == "supported":
        decision = effect.decide(threshold, _remarks(effect, evidence))
    return SLOWER.found(
        decision, effect.slowdown, about={"cpu": cpu}, threshold=threshold, evidence=evidence
    )


def _events_evidence(of_events: pd.Series[float], threshold: float) -> dict[str, Any]:
    known = of_events.dropna()
    if known.empty:
        return {}
    return {
        "events": len(known),
        "events_slower_share": float((known > threshold).mean()),
        "event_slowdown_quartiles_percent": [float(q) for q in known.quantile([0.25, 0.5, 0.75])],
        "slowest_events": [int(event) for event in known.nlargest(_MOST_EVENTS_NAMED).index],
    }


def _sharing_evidence(table: KvTable, cpu: int) -> dict[str, Any]:
    """How much of the core's wall time the thread did not have the core, without interference."""
    rows = table.clean[table.clean["cpu"] == cpu]
    wall_ns = float(rows["time_ns"].sum())
    evidence: dict[str, Any] = {}
    if wall_ns > 0 and "cpu_time_ns" in rows and rows["cpu_time_ns"].notna().all():
        away = 100 * (1 - float(rows["cpu_time_ns"].sum()) / wall_ns)
        evidence["off_cpu_percent"] = max(0.0, away)
    if wall_ns > 0 and "involuntary_switches" in rows:
        switches = float(rows["involuntary_switches"].sum())
        evidence["involuntary_switches_per_s"] = switches / wall_ns * 1e9
    return evidence


def _remarks(effect: CoreEffect, evidence: Mapping[str, Any]) -> list[Reason]:
    """Of a slow core: did all events slow down, is it shared, and where does it lie?"""
    remarks = []
    if evidence.get("events", 0) >= _MOST_EVENTS_NAMED:
        share = evidence["events_slower_share"]
        code = "all_events" if share >= 0.8 else "few_events" if share <= 0.2 else "some_events"
        remarks.append(Reason(code, {"share": share, "events": evidence["slowest_events"]}))
    away = evidence.get("off_cpu_percent")
    if away is not None:
        shared = away > effect.slowdown.effect / 2
        switches = evidence.get("involuntary_switches_per_s", math.nan)
        numbers = {"off_cpu": away, "switches": switches}
        remarks.append(Reason("shared" if shared else "not_shared", numbers))
    if evidence["where"]:
        remarks.append(Reason("where", {"where": evidence["where"]}))
    return remarks


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``KvPerCore.tables``."""
    table = KvTable(run.samples)
    return {
        "cores": table.effects,
        "seconds_per_event": lambda: table.seconds_per_event().reset_index(),
        "event_by_event": table.slowdown_by_event,
        "drift": table.drift,
    }


# --- two runs ----------------------------------------------------------------------------------


def _typical_log_ns(table: KvTable, cost_ns: pd.Series[float]) -> Interval:
    """Log of the time of events over ``cost_ns``, median core, without interference, by batches."""
    rows = table.clean[table.clean["event"].isin(cost_ns.index)]
    sums = (
        rows.assign(expected_ns=rows["event"].map(cost_ns))
        .groupby(["round", "cpu"])[["time_ns", "expected_ns"]]
        .sum()
    )
    by_core = (sums["time_ns"] / sums["expected_ns"]).unstack("cpu")
    level = np.log(by_core.median(axis=1))
    blocks = pd.Series(table.comparison.blocks, index=table.rounds).reindex(level.index)
    return t_interval(level.groupby(blocks).mean().to_numpy(np.float64))


def compare(first: Run, second: Run) -> list[Finding]:
    """How much longer the second run's events take, and each core's change."""
    threshold = second.params["threshold_percent"]
    change = time_change(KvTable(first.samples), KvTable(second.samples), threshold)
    return [change, *changes(findings(first), findings(second), threshold)]


def time_change(first: KvTable, second: KvTable, threshold: float) -> Finding:
    """How much longer the same events take in the second run, on the median core."""
    common = first.cost_ns.index.intersection(second.cost_ns.index)
    if common.empty:
        msg = "the two runs have no event in common: nothing can be compared"
        raise UserError(msg)
    before, after = (_typical_log_ns(table, first.cost_ns.loc[common]) for table in (first, second))
    centre = after.effect - before.effect
    half = math.hypot(after.half_width, before.half_width)
    change = percent(Interval(centre, centre - half, centre + half))
    return TIME_PER_EVENT.decided(change, threshold, facts={"events": len(common)})
