"""What samples of KV say: from rows of events to findings about cores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.samples import round_starts, usable
from perflib.framework.verdicts import slowness_verdict
from perflib.model.errors import UserError
from perflib.model.finding import Finding, Verdict
from perflib.stats.compare import CoreComparison, CoreEffect, compare_cores
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import t_interval

__all__ = ["KvTable", "findings_of", "time_change"]

Floats = NDArray[np.float64]
_MOST_EVENTS_NAMED = 3


class KvTable:
    """The samples of one run as turns: ``log_time[round, core]``.

    A turn's time is the sum over its events, divided by what those events cost (the median over
    all cores and rounds): the work cancels, and an event missing on one core does no harm. Rows
    whose ``ok`` is false are left out.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples, ["time_ns"])
        self.samples = samples
        self.cost_ns = samples.groupby("event")["time_ns"].median()
        expected = samples["event"].map(self.cost_ns)
        turns = (
            samples.assign(expected_ns=expected)
            .groupby(["round", "cpu"])[["time_ns", "expected_ns"]]
            .sum()
        )
        ratio = (turns["time_ns"] / turns["expected_ns"]).unstack("cpu")
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
    def undisturbed(self) -> pd.DataFrame:
        """The samples without those of disturbed turns."""
        disturbed = pd.DataFrame(self.comparison.disturbed, index=self.rounds, columns=self.cores)
        flags = disturbed.stack()
        keys = pd.MultiIndex.from_frame(self.samples[["round", "cpu"]])
        return self.samples[~flags.reindex(keys).to_numpy(dtype=bool)]

    def event_slowdown(self) -> pd.DataFrame:
        """``[event, core]``: how much longer the core took for the event than the others did.

        In percent, against the median of the other cores; means over undisturbed turns.
        """
        mean = self.undisturbed.groupby(["event", "cpu"])["time_ns"].mean().unstack("cpu")
        mean = mean.reindex(columns=self.cores)
        columns = {
            cpu: 100 * (mean[cpu] / mean.drop(columns=cpu).median(axis=1) - 1) for cpu in self.cores
        }
        return pd.DataFrame(columns)

    def seconds_per_event(self) -> pd.DataFrame:
        """Mean time of an event on each core in s: undisturbed, with interval, and over all turns.

        All from the same events; the interval is that of the comparison between cores.
        """
        typical_s = float(self.cost_ns.mean()) / 1e9
        compared = self.comparison
        whole = compared.levels[np.isfinite(compared.levels).all(axis=1)]
        beside = whole.mean(axis=0) if len(whole) else np.zeros(len(self.cores))
        clear = self.log_time[~compared.disturbed & np.isfinite(self.log_time)]
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
        names = ["undisturbed_s", "low_s", "high_s", "all_turns_s"]
        return pd.DataFrame(rows, index=pd.Index(self.cores, name="cpu"), columns=names)


# --- findings ----------------------------------------------------------------------------------


def findings_of(
    table: KvTable,
    threshold_percent: float,
    disturbed_percent: float,
    where: Mapping[int, str],
) -> list[Finding]:
    """Two findings for each core: its slowdown when undisturbed, and its share of disturbance."""
    by_event = table.event_slowdown() if len(table.cores) > 1 else None
    findings = []
    for cpu, effect in zip(table.cores, table.comparison.effects, strict=True):
        of_events = by_event[cpu] if by_event is not None else pd.Series(dtype=float)
        findings.append(_slowness(table, cpu, effect, threshold_percent, of_events, where))
        findings.append(_disturbance(cpu, effect, disturbed_percent))
    return findings


def _slowness(
    table: KvTable,
    cpu: int,
    effect: CoreEffect,
    threshold: float,
    of_events: pd.Series[float],
    where: Mapping[int, str],
) -> Finding:
    evidence: dict[str, Any] = {
        "p_holm": effect.p_holm,
        "stretches_percent": list(effect.stretches),
        "rounds": len(table.rounds),
        "where": where.get(cpu),
        **_events_evidence(of_events, threshold),
        **_sharing_evidence(table, cpu),
    }
    verdict, reason = slowness_verdict(effect, threshold)
    if verdict == "supported":
        reason += _which_events(of_events, evidence) + _shared_words(effect, evidence)
        if where.get(cpu):
            reason += f" It is {where[cpu]}."
    return Finding(
        claim=f"cpu{cpu} is more than {threshold:g} % slower than the median of the other cores",
        subject=f"cpu{cpu}",
        verdict=verdict,
        effect=effect.slowdown.effect,
        low=effect.slowdown.low,
        high=effect.slowdown.high,
        unit="percent",
        reason=reason,
        evidence=evidence,
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


def _which_events(of_events: pd.Series[float], evidence: Mapping[str, Any]) -> str:
    """Did all events slow down, or a few?"""
    share = evidence.get("events_slower_share")
    if share is None or len(of_events) < _MOST_EVENTS_NAMED:
        return ""
    if share >= 0.8:
        return " All events slowed down, not a few."
    if share <= 0.2:
        named = ", ".join(map(str, evidence["slowest_events"]))
        return f" Only {share:.0%} of the events slowed down, events {named} most."
    return f" {share:.0%} of the events slowed down."


def _sharing_evidence(table: KvTable, cpu: int) -> dict[str, Any]:
    """How much of the core's wall time the thread did not have the core, in undisturbed turns."""
    rows = table.undisturbed[table.undisturbed["cpu"] == cpu]
    wall_ns = float(rows["time_ns"].sum())
    evidence: dict[str, Any] = {}
    if wall_ns > 0 and "cpu_time_ns" in rows and rows["cpu_time_ns"].notna().all():
        away = 100 * (1 - float(rows["cpu_time_ns"].sum()) / wall_ns)
        evidence["off_cpu_percent"] = max(0.0, away)
    if wall_ns > 0 and "involuntary_switches" in rows:
        switches = float(rows["involuntary_switches"].sum())
        evidence["involuntary_switches_per_s"] = switches / wall_ns * 1e9
    return evidence


def _shared_words(effect: CoreEffect, evidence: Mapping[str, Any]) -> str:
    away = evidence.get("off_cpu_percent")
    if away is None:
        return ""
    if away > effect.slowdown.effect / 2:
        return (
            f" For {away:.1f} % of the time another task of this system had the core "
            f"({evidence.get('involuntary_switches_per_s', math.nan):.0f} switches a second): the "
            "core is shared, not slow."
        )
    return (
        f" Other tasks of this system had the core for {away:.1f} % of the time only: the core "
        "itself, or what the hypervisor or its sibling takes of it, is slower."
    )


def _disturbance(cpu: int, effect: CoreEffect, limit: float) -> Finding:
    share = effect.disturbed
    verdict: Verdict = "inconclusive"
    reason = f"{limit:g} % lies within the interval."
    if share.low > limit:
        verdict, reason = "supported", "Some turns lie far above the core's own low state."
    elif share.high < limit:
        verdict, reason = "refuted", f"A share of {limit:g} % lies outside the interval."
    return Finding(
        claim=f"cpu{cpu} was disturbed for more than {limit:g} % of the time",
        subject=f"cpu{cpu} disturbed",
        verdict=verdict,
        effect=share.effect,
        low=share.low,
        high=share.high,
        unit="percent",
        reason=reason,
    )


# --- two runs ----------------------------------------------------------------------------------


def _typical_log_ns(table: KvTable, cost_ns: pd.Series[float]) -> Interval:
    """Log of the time of events over ``cost_ns``, median core, undisturbed, over blocks of time."""
    rows = table.undisturbed[table.undisturbed["event"].isin(cost_ns.index)]
    sums = (
        rows.assign(expected_ns=rows["event"].map(cost_ns))
        .groupby(["round", "cpu"])[["time_ns", "expected_ns"]]
        .sum()
    )
    by_core = (sums["time_ns"] / sums["expected_ns"]).unstack("cpu")
    level = np.log(by_core.median(axis=1))
    blocks = pd.Series(table.comparison.blocks, index=table.rounds).reindex(level.index)
    return t_interval(level.groupby(blocks).mean().to_numpy(np.float64))


def time_change(first: KvTable, second: KvTable, threshold: float) -> Finding:
    """How much longer the same events take in the second run, on the median core, undisturbed."""
    common = first.cost_ns.index.intersection(second.cost_ns.index)
    if common.empty:
        msg = "the two runs have no event in common: nothing can be compared"
        raise UserError(msg)
    before, after = (_typical_log_ns(table, first.cost_ns.loc[common]) for table in (first, second))
    centre = after.effect - before.effect
    reach = math.hypot(after.half_width, before.half_width)
    change = percent(Interval(centre, centre - reach, centre + reach))
    verdict: Verdict = "inconclusive"
    if change.low > threshold or change.high < -threshold:
        verdict = "supported"
    elif -threshold < change.low and change.high < threshold:
        verdict = "refuted"
    claim = f"the same {len(common)} events take more than {threshold:g} % longer, or shorter"
    return Finding(claim, "time per event", verdict, *change, unit="percent")
