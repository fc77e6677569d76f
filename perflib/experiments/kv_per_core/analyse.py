"""What samples of KV say: from rows of events to findings about cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.kv_per_core import claims
from perflib.experiments.kv_per_core.table import KvTable, kv_table
from perflib.framework.levels import levels_table
from perflib.model.changes import changes
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.compare import CoreEffect
from perflib.stats.decide import Reason, more_time
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import t_interval

_MAX_EVENTS_NAMED = 3
_TICKS_SIGMAS = 1.96
_SAME_WORK = ("job", "first_event", "events", "code_kib")  # or levels do not compare
_SAME_PROBES_PERCENT = 2.0  # probes further apart than this are not of one state


# --- findings ----------------------------------------------------------------------------------


def findings(run: Run) -> list[Finding]:
    """How slow each core is in itself, and what else takes its time."""
    slower = run.params["threshold_percent"]
    interference = run.params["interference_percent"]
    places = run.provenance.get("machine", {}).get("cpus", [])
    where = {place["cpu"]: place["where"] for place in places}
    table = kv_table(run.samples)
    by_event = table.event_slowdown() if len(table.cores) > 1 else None
    found = []
    for which, (cpu, effect) in enumerate(table.own.items()):
        of_events = by_event[cpu] if by_event is not None else pd.Series(dtype=float)
        found.append(_slowness(table, cpu, effect, slower, of_events, where.get(cpu)))
        if table.core_states is None:
            share = effect.interference
            found.append(claims.INTERFERENCE.decided(share, interference, about={"cpu": cpu}))
        if table.core_states is not None or "run_delay_ns" in table.samples:
            found += _parts(run, table, which, slower)
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
        **(_sharing_evidence(table, cpu) if table.core_states is None else _batches(table, cpu)),
    }
    basis, unsure = _basis(table, cpu)
    decision = effect.decide(threshold, basis, unsure)
    if decision.verdict == "supported":
        decision = effect.decide(threshold, [*_remarks(effect, evidence), *basis], unsure)
    elif decision.reasons[0].code == "open":
        decision = effect.decide(threshold, [*_wanted(table, effect.slowdown, threshold), *basis])
    return claims.SLOWER.found(
        decision, effect.slowdown, about={"cpu": cpu}, threshold=threshold, evidence=evidence
    )


def _wanted(table: KvTable, found: Interval, threshold: float) -> list[Reason]:
    """How long a run would decide it: an interval narrows with the root of its time."""
    if "start_ns" not in table.samples:
        return []
    lasted_s = float(np.ptp(table.samples["start_ns"])) / 1e9
    return [more_time(found, threshold, lasted_s)]


def _batches(table: KvTable, cpu: int) -> dict[str, Any]:
    """How many blocks of time the core's own speed is from, at most."""
    typical = table.decomposition.typical[:, table.cores.index(cpu)]
    return {"batches": int(np.isfinite(typical).sum())}


def _basis(table: KvTable, cpu: int) -> tuple[list[Reason], Reason | None]:
    """Which samples a core's own speed is from, and why nothing follows from them."""
    if table.core_states is None:
        return [], None
    status = table.core_states.calibrations[cpu].status
    mine = (table.samples["cpu"] == cpu).to_numpy()
    if status == "calibrated":
        return [Reason("alone", {"share": float(table.core_states.alone[mine].mean())})], None
    if table.core_states.any_calibrated:
        return [], Reason("never_alone")
    if all(one.clock_known for one in table.core_states.calibrations.values()):
        return [Reason("unclassified")], None
    probes = table.samples.groupby("cpu")["probe_before_ns"].median()
    difference = 100 * abs(probes[cpu] / probes.drop(cpu).median() - 1) if len(probes) > 1 else 0.0
    if difference > _SAME_PROBES_PERCENT:
        return [], Reason("probes_differ", {"difference": difference})
    return [Reason("unclassified")], None


def _parts(run: Run, table: KvTable, which: int, threshold: float) -> list[Finding]:
    """What the clock, the sibling, other tasks and the hypervisor take of one core, and the sum."""
    parts, cpu = table.decomposition, table.cores[which]
    status = table.core_states.calibrations[cpu].status if table.core_states else "no probes"
    unclassified = None if status == "calibrated" else Reason(status.replace(" ", "_"))
    about = {"cpu": cpu}
    clock, total = parts.clocks[which], parts.totals[which]
    clocked = table.core_states is not None and table.core_states.calibrations[cpu].clock_known
    found = []
    if table.core_states is not None:
        share = (
            float(np.nanmean(parts.shared_share[:, which])) if unclassified is None else math.nan
        )
        evidence = {
            "share_percent": 100 * share,
            "share_interval_percent": _share(parts.shared_share[:, which]),
            "cost_while_shared_percent": percent(t_interval(parts.shared_cost[:, which])),
        }
        found += [
            claims.CLOCK.found(
                clock.decide(threshold, prevented=None if clocked else unclassified),
                clock.slowdown,
                about=about,
                threshold=threshold,
            ),
            claims.SHARED.decided(
                parts.cost("sibling", which) if unclassified is None else NO_INTERVAL,
                threshold,
                about=about,
                facts={"share": share},
                evidence=evidence if unclassified is None else {},
                prevented=unclassified,
            ),
        ]
    quota = _share(parts.quota_share[:, which])
    tasks = run.provenance.get("tasks", {}).get(str(cpu), [])
    names = list(dict.fromkeys(task["name"] for task in tasks))
    remarks = [Reason("tasks", {"tasks": names})] if tasks else []
    known = "run_delay_ns" in table.samples and table.samples["run_delay_ns"].notna().any()
    silent = None if known else Reason("no_run_delay")
    if quota.effect > threshold / 2:
        found.append(claims.QUOTA.decided(quota, threshold, about=about))
    found += [
        claims.TAKEN.decided(
            _share((parts.taken_share - parts.quota_share)[:, which]),
            threshold,
            about=about,
            evidence={"tasks": tasks},
            prevented=silent,
            remarks=remarks,
        ),
        claims.STOLEN.decided(
            _share(parts.stolen_share[:, which]), threshold, about=about, prevented=silent
        ),
        *_softirqs(run, cpu, threshold),
        claims.TOTAL.found(
            total.decide(threshold),
            total.slowdown,
            about=about,
            threshold=threshold,
            evidence={
                "factors": {name: factor.effect for name, factor in parts.factors(which)},
                "relative_to_others": {
                    name: list(interval)
                    for name, interval in parts.relative_to_others(which).items()
                },
            },
        ),
    ]
    return found


def _softirqs(run: Run, cpu: int, threshold: float) -> list[Finding]:
    """What soft interrupts take, counted in ticks of the kernel's clock, while KV ran anywhere."""
    counted = run.provenance.get("softirqs", {}).get(str(cpu))
    if counted is None:
        return []
    ticks, per_tick = counted["ticks"], 100 / counted["of_ticks"]
    half = _TICKS_SIGMAS * math.sqrt(ticks + 1)  # a tick sees one or none: as good as a count
    share = Interval(*(per_tick * max(0.0, n) for n in (ticks, ticks - half, ticks + half)))
    most = max(counted["kinds"], key=counted["kinds"].__getitem__, default="of unknown kind")
    return [
        claims.SOFTIRQ.decided(
            share, threshold, about={"cpu": cpu}, facts={"kind": most}, evidence=counted
        )
    ]


def _share(shares: NDArray[np.float64]) -> Interval:
    """A share of time in percent, from batches."""
    return Interval(*(100 * value for value in t_interval(shares)))


def _events_evidence(of_events: pd.Series[float], threshold: float) -> dict[str, Any]:
    known = of_events.dropna()
    if known.empty:
        return {}
    return {
        "events": len(known),
        "events_slower_share": float((known > threshold).mean()),
        "event_slowdown_quartiles_percent": [float(q) for q in known.quantile([0.25, 0.5, 0.75])],
        "slowest_events": [int(event) for event in known.nlargest(_MAX_EVENTS_NAMED).index],
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
    """Of a slow core: did all events slow down, is it shared, and where is it?"""
    remarks = []
    if evidence.get("events", 0) >= _MAX_EVENTS_NAMED:
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
    table = kv_table(run.samples)
    return {
        "cores": table.effects,
        "seconds_per_event": lambda: table.seconds_per_event().reset_index(),
        "event_by_event": table.slowdown_by_event,
        "drift": table.drift,
        "parts": table.parts,
    }


def levels(run: Run) -> pd.DataFrame:
    """Each core's own time for a mean event; a core that was never alone has none."""
    table = kv_table(run.samples)
    setting = " ".join(f"{name}={run.params[name]}" for name in _SAME_WORK)
    if table.core_states is None:
        own_ms = 1e3 * table.seconds_per_event()["clean_s"]
    else:
        parts = table.parts().set_index("cpu")
        own_ms = parts.loc[parts["part"] == "own speed", "ms_per_event"]
    return levels_table([(cpu, setting, value, "ms") for cpu, value in own_ms.items()])


# --- two runs ----------------------------------------------------------------------------------


def compare(first: Run, second: Run) -> list[Finding]:
    """How much longer the second run's events take, and each core's change."""
    threshold = second.params["threshold_percent"]
    change = time_change(kv_table(first.samples), kv_table(second.samples), threshold)
    return [change, *changes(findings(first), findings(second), threshold)]


def time_change(first: KvTable, second: KvTable, threshold: float) -> Finding:
    """How much longer the same events take in the second run, on the median core."""
    common = first.cost_ns.index.intersection(second.cost_ns.index)
    if common.empty:
        msg = "the two runs have no event in common: nothing can be compared"
        raise UserError(msg)
    before, after = (table.log_ns(first.cost_ns.loc[common]) for table in (first, second))
    centre = after.effect - before.effect
    half = math.hypot(after.half_width, before.half_width)
    change = percent(Interval(centre, centre - half, centre + half))
    return claims.TIME_PER_EVENT.decided(change, threshold, facts={"events": len(common)})
