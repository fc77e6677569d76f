"""What samples of cache coherence say: the control, transitions, protocols, groups of cores."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from perflib.experiments.core_pairs.analyse import (
    core_findings,
    groups_finding,
    kernel_finding,
    last_level_caches,
)
from perflib.experiments.core_pairs.coherence import claims
from perflib.experiments.core_pairs.coherence.names import ACCESSES, ALONE, CHASED, LAYOUTS, way_of
from perflib.experiments.core_pairs.coherence.table import CoherenceTable
from perflib.experiments.core_pairs.tables import cells_frame
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Witness
from perflib.stats.interval import Interval, percent

_SPREAD, _NEIGHBOURS, _ASCENDING, _BOTH = LAYOUTS
# Of each access: the states that the line is fetched in from elsewhere, and those with a copy here.
_FROM_CORES = ("modified", "exclusive", "shared", "forward", "owned", "last_level")
_HERE = ("shared_here", "owned_here")
_DOING = {"load": "loading", "write": "writing"}
_MIGRATED = 50.0  # percent: a hardware thread, a core nearby and one farther off differ by more


def findings(run: Run) -> list[Finding]:
    """All that samples say; what was not measured has no finding."""
    table, threshold = CoherenceTable(run.samples), run.params["threshold_percent"]
    found = _layout_findings(table, threshold)
    found += _preparation_finding(table, threshold)
    for access in ACCESSES:
        found += _state_findings(table, access, threshold)
    found += _protocol_findings(table, threshold)
    found += _migrated_finding(table)
    if (table.samples["control"] == ALONE).any():
        found.append(_at_once_finding(table, threshold))
    if table.main is not None:
        cells, words = table.cells(table.main), _words(table.main)
        groups = groups_finding(cells, run, words)
        found.append(groups)
        found += filter(None, [kernel_finding(cells, run, groups, "last-level cache")])
        both = way_of(table.main) in ("round trip", "")
        found += core_findings(cells, run, f"in {words}", both=both)
    return found


def _words(what: str) -> str:
    """A ``what`` with its way, which no number of it is reported without."""
    way = way_of(what)
    return f"{what} ({way})" if way else what


def _of(table: CoherenceTable, *whats: str) -> dict[str, list[float]]:
    """Medians in ns with their intervals, for the evidence."""
    return {_words(what): list(table.typical(what)) for what in whats}


# --- is the layout right, were the states reached? -----------------------------------------------


def _layout_findings(table: CoherenceTable, threshold: float) -> list[Finding]:
    """Does fetching ahead help where it should, and does it not where lines are spread?"""
    if set(table.layouts) != set(LAYOUTS):
        return []
    longer = percent(table.layout_ratio(_SPREAD, _BOTH))
    evidence = {
        "latency_ns": {name: table.layout_typical(name).effect for name in LAYOUTS},
        "percent_by_neighbours": list(longer),
    }
    saved = Interval(*(100 * share / (100 + share) for share in longer))
    ahead = claims.AHEAD.decided(saved, threshold, facts={"saved": saved}, evidence=evidence)
    provoked = ahead.verdict == "supported"
    change = percent(table.layout_ratio(_SPREAD, _ASCENDING))
    control = claims.CONTROL.decided(
        change,
        threshold,
        facts={"change": change},
        evidence=evidence,
        to_support=[Witness(provoked, Reason("unprovoked"), Reason("neighbours"))],
    )
    return [control, ahead]


def _preparation_finding(table: CoherenceTable, threshold: float) -> list[Finding]:
    """No instruction shows the state of a line: does all that can be seen agree with it?"""
    local_of = {
        f"{state} {access}": f"local {access}"
        for access in ACCESSES
        for state in (*_FROM_CORES, "invalid")
        if {f"{state} {access}", f"local {access}"} <= set(table.whats)
    }
    if not local_of:
        return []
    ratios = {what: percent(table.ratio(what, local)) for what, local in local_of.items()}
    nearest = min(ratios, key=lambda what: ratios[what].effect)
    evidence: dict[str, Any] = {
        "nearest": nearest,
        "latency_ns": _of(table, *local_of, *dict.fromkeys(local_of.values())),
    }
    if "proven" in table.samples:
        evidence["proven_share"] = float(table.samples["proven"].min())
    return [
        claims.PREPARED.decided(
            ratios[nearest],
            threshold,
            facts={"nearest": nearest},
            evidence=evidence,
            remarks=[Reason("proven")] if evidence.get("proven_share") == 1 else [],
        )
    ]


# --- transitions ---------------------------------------------------------------------------------


def _state_findings(table: CoherenceTable, access: str, threshold: float) -> list[Finding]:
    """Who answers: the other core, or memory? And a line at hand, that another has, too?"""
    cases = [
        (claims.FORWARDED, state, f"invalid {access}", f"{state} {access}") for state in _FROM_CORES
    ]
    cases += [(claims.AT_HAND, state, f"{state} {access}", f"local {access}") for state in _HERE]
    found = []
    for claim, state, slow, fast in cases:
        if not {slow, fast} <= set(table.whats):
            continue
        latencies = {
            "slow": _words(slow),
            "slow_ns": table.typical(slow).effect,
            "fast": _words(fast),
            "fast_ns": table.typical(fast).effect,
        }
        found.append(
            claim.decided(
                percent(table.ratio(slow, fast)),
                threshold,
                about={"state": state, "access": access},
                facts={"copy": claims.COPIES[state], "doing": _DOING[access], **latencies},
                evidence={"latency_ns": _of(table, slow, fast)},
                remarks=[Reason("latencies", latencies)],
            )
        )
    return found


# --- protocols and pairs -------------------------------------------------------------------------


def _protocol_findings(table: CoherenceTable, threshold: float) -> list[Finding]:
    """By how much does the protocol alone change the number, all reported as one way?"""
    if len(table.protocols) < 2:
        return []
    legs = {name: 2.0 if way_of(name) == "round trip" else 1.0 for name in table.protocols}
    reported = {name: table.typical(name).effect for name in table.protocols}
    one_way = {name: reported[name] / legs[name] for name in table.protocols}
    fastest, slowest = min(one_way, key=one_way.__getitem__), max(one_way, key=one_way.__getitem__)
    log_legs = math.log(legs[slowest] / legs[fastest])
    return [
        claims.PROTOCOL.decided(
            percent(Interval(*(end - log_legs for end in table.ratio(slowest, fastest)))),
            threshold,
            facts={"slowest": slowest, "fastest": fastest},
            evidence={
                "one_way_ns": one_way,
                "latency_ns": _of(table, *table.protocols),
                "times_as_reported": max(reported.values()) / min(reported.values()),
            },
        )
    ]


def _migrated_finding(table: CoherenceTable) -> list[Finding]:
    """Were the cores always as far from each other? Virtual ones need not be."""
    what = CHASED if CHASED in table.whats else table.main
    if what is None:
        return []
    change = 100 * math.expm1(table.range_over_time(what))
    if not math.isfinite(change):
        decision = Decision("inconclusive", (Reason("batches"),))
    elif change > _MIGRATED:
        decision = Decision("supported", (Reason("other_places"),))
    else:
        decision = Decision("refuted", (Reason("same_place"),))
    return [
        claims.MIGRATED.found(
            decision,
            Interval(change, math.nan, math.nan),
            about={"what": what},
            threshold=_MIGRATED,
            facts={"of": _words(what)},
            evidence={"latency_ns_by_batch": table.over_time(what)},
        )
    ]


def _at_once_finding(table: CoherenceTable, threshold: float) -> Finding:
    """Does it change the numbers that other pairs are measured at the same time?"""
    main = table.samples[table.samples["control"] == ""]
    evidence = {"pairs_at_once": float(main["at_once"].median())} if "at_once" in main else {}
    return claims.AT_ONCE.decided(percent(table.together()), threshold, evidence=evidence)


# --- tables --------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Coherence.tables``."""
    table = CoherenceTable(run.samples)
    made: dict[str, Callable[[], pd.DataFrame]] = {
        f"heatmap_{what.replace(' ', '_')}": partial(_heatmap, table, what, run)
        for what in table.protocols or [name for name in [table.main] if name]
    }
    if table.states:
        made["states"] = table.state_latencies
    if table.protocols:
        made["protocols"] = table.distributions
    if table.layouts:
        made["control"] = table.layout_latencies
    if len(table.rounds) > 1 and table.whats:
        made["over_time"] = table.followed
    return made | {"latencies": table.latencies}


def _heatmap(table: CoherenceTable, what: str, run: Run) -> pd.DataFrame:
    """The cells of a ``what``, by NUMA nodes and last-level caches."""
    cells, machine = table.cells(what), run.provenance.get("machine", {})
    node = {place["cpu"]: place["node"] for place in machine.get("cpus", ())}
    cache = last_level_caches(machine)
    order = sorted(cells.cpus, key=lambda cpu: (node.get(cpu) or 0, cache.get(cpu, 0), cpu))
    rows = cells_frame(cells, order, node=node, cache=cache)
    return rows.assign(what=what, way=way_of(what))
