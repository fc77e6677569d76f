"""Claims about cache coherence: the control, transitions, protocols, groups of cores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from perflib.experiments.core_pairs.analyse import core_findings, groups_finding, kernel_finding
from perflib.experiments.core_pairs.coherence.table import (
    ACCESSES,
    ALONE,
    CHASED,
    LAYOUTS,
    CoherenceTable,
    way_of,
)
from perflib.framework.verdicts import threshold_verdict
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval, percent

__all__ = ["coherence_findings"]

_SPREAD, _NEIGHBOURS, _ASCENDING, _BOTH = LAYOUTS
# Of each access: the states that the line is fetched in from elsewhere.
_FROM_CORES = ("modified", "exclusive", "shared", "forward", "owned")
_HERE = ("shared_here", "owned_here")
_MOVED = 50.0  # percent: a hardware thread, a core nearby and one farther off differ by more
_HELD = {
    "modified": "has modified",
    "exclusive": "holds alone and unchanged (Exclusive)",
    "shared": "shares with a third",
    "forward": "shares with a third and has loaded last (Forward, where there is such a state)",
    "owned": "has modified and then shared with a third (Owned, where there is such a state)",
    "shared_here": "shares with this one",
    "owned_here": "modified before this one loaded it",
}


def coherence_findings(
    table: CoherenceTable, machine: Mapping[str, Any], threshold: float
) -> list[Finding]:
    """All that samples say; what was not measured has no finding."""
    found = _layout_findings(table, threshold)
    found += _preparation_finding(table, threshold)
    for access in ACCESSES:
        found += _state_findings(table, access, threshold)
    found += _protocol_findings(table, threshold)
    found += _moved_finding(table)
    if (table.samples["control"] == ALONE).any():
        found.append(_together_finding(table, threshold))
    if table.main is not None:
        cells, words = table.cells(table.main), _words(table.main)
        where = {place["cpu"]: place["where"] for place in machine.get("cpus", ())}
        found.append(groups_finding(cells, words, "ns", threshold))
        found += filter(None, [kernel_finding(cells, machine, threshold, "last-level cache")])
        found += core_findings(cells, f"in {words}", threshold, where=where)
    return found


def _words(what: str) -> str:
    """A ``what`` with its way, which no number of it is told without."""
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
    helped = percent(table.layout_ratio(_SPREAD, _BOTH))
    order = percent(table.layout_ratio(_SPREAD, _ASCENDING))
    layouts = {name: math.exp(float(np.nanmean(table.layout(name)))) for name in LAYOUTS}
    evidence = {"latency_ns": layouts, "percent_by_neighbours": list(helped)}
    bites, why = threshold_verdict(helped, threshold)
    fetched = Finding(
        f"lines that another core modified come more than {threshold:g} % faster if they are "
        "neighbours and are taken in ascending order: the processor fetches them ahead",
        "fetching ahead", bites, *(_gain(helped)), unit="percent of the latency saved", reason=why,
        evidence=evidence,
    )  # fmt: skip
    verdict, reason = _same_verdict(order, threshold)
    if verdict == "supported" and bites != "supported":
        verdict = "inconclusive"
        reason = (
            "The order makes no difference, but nor is it seen that this processor fetches "
            "neighbours ahead: there is nothing to be safe from, or it was not provoked."
        )
    elif verdict == "supported":
        reason += " And where neighbours are taken in ascending order, it makes one."
    control = Finding(
        "spread over pages, lines cost the same in any order: neither a prefetcher nor the "
        f"fetching of a neighbour helps (by more than {threshold:g} %)",
        "control", verdict, *order, unit="percent by the order", reason=reason, evidence=evidence,
    )  # fmt: skip
    return [control, fetched]


def _gain(longer: Interval) -> Interval:
    """Percent longer, told as the percentage of the longer time that is saved."""
    return Interval(*(100 * share / (100 + share) for share in longer))


def _same_verdict(found: Interval, limit: float) -> tuple[Verdict, str]:
    """The verdict on "no more than ``limit`` either way"."""
    if not math.isfinite(found.half_width):
        return "inconclusive", "It takes two rounds or more."
    if -limit < found.low and found.high < limit:
        return "supported", f"The whole interval lies within {limit:g} %."
    if found.low > limit or found.high < -limit:
        return "refuted", "The whole interval lies outside."
    return "inconclusive", f"{limit:g} % lies within the interval: more rounds would narrow it."


def _preparation_finding(table: CoherenceTable, threshold: float) -> list[Finding]:
    """No instruction shows the state of a line: does all that can be seen agree with it?"""
    other = [
        f"{state} {access}"
        for access in ACCESSES
        for state in (*_FROM_CORES, "invalid")
        if f"{state} {access}" in table.whats and f"local {access}" in table.whats
    ]
    if not other:
        return []
    ratios = {what: percent(table.ratio(what, f"local {what.split()[1]}")) for what in other}
    nearest = min(ratios, key=lambda what: ratios[what].effect)
    verdict, reason = threshold_verdict(ratios[nearest], threshold)
    evidence: dict[str, Any] = {
        "nearest": nearest,
        "latency_ns": _of(table, *other, *{f"local {what.split()[1]}" for what in other}),
    }
    if "proven" in table.samples:
        share = float(table.samples["proven"].min())
        evidence["proven_share"] = share
        reason += " Every line held what its author wrote." if share == 1 else ""
    return [
        Finding(
            "states are what they should be, as far as can be seen: a line of another core, or of "
            f"memory, takes more than {threshold:g} % longer than one of this core's own",
            "preparation", verdict, *ratios[nearest], unit="percent", reason=reason,
            evidence=evidence,
        )
    ]  # fmt: skip


# --- transitions ---------------------------------------------------------------------------------


def _state_findings(table: CoherenceTable, access: str, threshold: float) -> list[Finding]:
    """Who answers: the other core, or memory? And a line at hand, that another has, too?"""
    verb, more = ("to load" if access == "load" else "to write"), f"more than {threshold:g} %"
    cases = []
    for state in _FROM_CORES:
        claim = f"a line that another core {_HELD[state]} is had sooner than from memory: {verb} "
        claim += f"it from there takes {more} longer"
        cases.append((state, f"invalid {access}", f"{state} {access}", claim))
    for state in _HERE:
        claim = f"{verb} a line that is at hand, but that another core {_HELD[state]}, takes "
        claim += f"{more} longer than one's own"
        cases.append((state, f"{state} {access}", f"local {access}", claim))
    found = []
    for state, slow, fast, claim in cases:
        if not {slow, fast} <= set(table.whats):
            continue
        longer = percent(table.ratio(slow, fast))
        verdict, reason = threshold_verdict(longer, threshold)
        told = _of(table, slow, fast)
        reason += f" ({', '.join(f'{what}: {ns[0]:.3g} ns' for what, ns in told.items())})"
        found.append(
            Finding(
                claim, f"{state} {access}", verdict, *longer, unit="percent", reason=reason,
                evidence={"latency_ns": told},
            )
        )  # fmt: skip
    return found


# --- protocols and pairs -------------------------------------------------------------------------


def _protocol_findings(table: CoherenceTable, threshold: float) -> list[Finding]:
    """By how much does the protocol alone move the number, all told as one way?"""
    if len(table.protocols) < 2:
        return []
    legs = {name: 2.0 if way_of(name) == "round trip" else 1.0 for name in table.protocols}
    one_way = {name: table.typical(name).effect / legs[name] for name in table.protocols}
    fastest, slowest = min(one_way, key=one_way.__getitem__), max(one_way, key=one_way.__getitem__)
    log_legs = math.log(legs[slowest] / legs[fastest])
    more = percent(Interval(*(end - log_legs for end in table.ratio(slowest, fastest))))
    verdict, reason = threshold_verdict(more, threshold)
    told = [table.typical(name).effect for name in table.protocols]
    return [
        Finding(
            f"the protocol alone moves what is told of the same cores by more than {threshold:g} "
            f"%, even if all is told as one way ({slowest} against {fastest})",
            "protocols", verdict, *more, unit="percent", reason=reason,
            evidence={
                "one_way_ns": one_way,
                "latency_ns": _of(table, *table.protocols),
                "times_as_they_are_told": max(told) / min(told),
            },
        )
    ]  # fmt: skip


def _moved_finding(table: CoherenceTable) -> list[Finding]:
    """Were the cores always as far from each other? Virtual ones need not be."""
    what = CHASED if CHASED in table.whats else table.main
    if what is None:
        return []
    change = 100 * math.expm1(table.range_over_time(what))
    verdict: Verdict = "supported" if change > _MOVED else "refuted"
    reason = "It is the same place that they had, as far as this tells."
    if not math.isfinite(change):
        verdict, reason = "inconclusive", "It takes two blocks of time or more."
    elif verdict == "supported":
        reason = (
            "A host that moves virtual cores does that: to hardware threads of one core, to cores "
            "that share a cache, and to others. Then medians of this run are of several distances."
        )
    return [
        Finding(
            f"the distance of the same two cores changed in the course of the run: {_words(what)} "
            f"by more than {_MOVED:g} % from one block of time to another",
            "moved", verdict, change, math.nan, math.nan, unit="percent", reason=reason,
            evidence={"latency_ns_by_block": table.over_time(what)},
        )
    ]  # fmt: skip


def _together_finding(table: CoherenceTable, threshold: float) -> Finding:
    """Does it change the numbers that other pairs are measured at the same time?"""
    change = percent(table.together())
    verdict, reason = _same_verdict(change, threshold)
    main = table.samples[table.samples["control"] == ""]
    evidence = {"pairs_at_once": float(main["at_once"].median())} if "at_once" in main else {}
    return Finding(
        "pairs may be measured at the same time: it changes their latencies by no more than "
        f"{threshold:g} %",
        "pairs at once", verdict, *change, unit="percent", reason=reason, evidence=evidence,
    )  # fmt: skip
