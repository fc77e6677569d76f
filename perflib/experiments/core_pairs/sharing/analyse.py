"""Which CPUs are threads of one core, which share caches; what changed; what the kernel says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.analyse import kernel_siblings
from perflib.experiments.core_pairs.sharing.claims import ALONE, CACHES, MOVED, NAMED, SHARED
from perflib.experiments.core_pairs.sharing.table import Pair, SharingTable
from perflib.framework.levels import levels_table
from perflib.machine.cpulist import parse_cpus
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Witness
from perflib.stats.interval import Interval, columns, percent_of

_SHARE = {
    "ports": "are threads of one core",
    "l1": "share a first-level cache",
    "l2": "share a second-level cache",
    "l3": "share a third-level cache",
    "memory": "take memory bandwidth from each other",
}
_SHARE_NOT = {
    "ports": "are on two cores",
    "l1": "have a first-level cache each",
    "l2": "have a second-level cache each",
    "l3": "have a third-level cache each",
    "memory": "take little memory bandwidth from each other",
}
_MOST_NAMED = 3  # cases in a sentence; the evidence has all
_LEAST_PARTS = 8  # rounds, in which a change could show


def findings(run: Run) -> list[Finding]:
    """Of each pair what it shares; of each CPU whether it is alone; what changed; the kernel."""
    table, threshold = SharingTable(run.samples), run.params["threshold_percent"]
    limit = math.log1p(threshold / 100)
    named = named_by_kernel(run, table)
    changes = {one: table.changes(*one, limit) for one in table.pairs}
    found = [_shared(table, one, threshold, named, changes[one]) for one in table.pairs]
    moved = [
        _moved(table, pair, at, threshold)
        for (pair, resource), at in changes.items()
        if resource == "ports"
    ]
    alone = [_alone(table, cpu, threshold) for cpu in table.listeners]
    return [*found, *alone, *moved, _kernel(found)]


def _shared(
    table: SharingTable,
    one: tuple[Pair, str],
    threshold: float,
    named: Mapping[tuple[Pair, str], bool | None],
    changes: list[int],
) -> Finding:
    (a, b), resource = one
    slower, beyond = table.slower(*one), table.beyond_clock(*one)
    prevented = None
    if changes:
        prevented = Reason("changed")
    elif not math.isfinite(slower.half_width):
        prevented = Reason("few_trials")
    facts = {"share": _SHARE[resource], "share_not": _SHARE_NOT[resource], "though": ""}
    finding = SHARED.decided(
        slower,
        threshold,
        about={"a": a, "b": b, "resource": resource},
        facts=facts,
        evidence={"kernel": named[one]},
        prevented=prevented,
        to_support=[Witness(beyond.low > 0, Reason("clock"))],
    )
    if not _disagrees(finding, named[one]):
        return finding
    though = f", though the kernel says {'one' if named[one] else 'two'}"
    return dataclasses.replace(finding, facts={**facts, "though": though})


def _disagrees(finding: Finding, named: bool | None) -> bool:
    return (finding.verdict, named) in (("supported", False), ("refuted", True))


def _alone(table: SharingTable, cpu: int, threshold: float) -> Finding:
    most, felt, others = table.alone(cpu)
    few = None if math.isfinite(most.half_width) else Reason("few_trials")
    return ALONE.decided(
        most,
        threshold,
        about={"cpu": cpu},
        facts={"felt": felt, "others": others},
        prevented=few,
    )


def _moved(table: SharingTable, pair: Pair, changes: list[int], threshold: float) -> Finding:
    values, starts = table.course(pair, "ports")
    parts = [percent_of(float(np.median(part))) for part in np.split(values, changes)]
    times = [float(starts[at]) if starts is not None else math.nan for at in changes]
    offset = table.began_s(pair)
    decision = Decision("refuted", (Reason("steady"),))
    if changes:
        decision = Decision("supported", (Reason("parts", {"parts": parts}),))
    elif len(values) < _LEAST_PARTS:
        decision = Decision("inconclusive", (Reason("few_trials"),))
    return MOVED.found(
        decision,
        Interval(float(len(changes)), math.nan, math.nan),
        about={"a": pair[0], "b": pair[1]},
        threshold=threshold,
        facts={
            "first": (_SHARE if parts[0] > threshold else _SHARE_NOT)["ports"],
            "times": [offset + one for one in times],
        },
        evidence={"changes_s": [offset + one for one in times], "parts_percent": parts},
    )


def _kernel(found: list[Finding]) -> Finding:
    """One finding of all: does the kernel say what was measured?"""
    known = [one for one in found if one.evidence["kernel"] is not None]
    decided = [one for one in known if one.verdict != "inconclusive"]
    wrong = [one for one in decided if _disagrees(one, one.evidence["kernel"])]
    cases = [
        f"cpu{one.about['a']} and cpu{one.about['b']} "
        + one.facts["share" if one.verdict == "supported" else "share_not"]
        + one.facts["though"]
        for one in wrong
    ]
    open_ = Reason("undecided", {"open": len(known) - len(decided), "count": len(known)})
    decision = Decision("supported", (Reason("agree", {"count": len(known)}),))
    if wrong:
        numbers = {"wrong": len(wrong), "count": len(decided)}
        decision = Decision("refuted", (Reason("disagree", numbers),))
    elif len(decided) < len(known) or not known:
        decision = Decision("inconclusive", (open_ if known else Reason("unknown"),))
    agreed = 100 * (1 - len(wrong) / len(decided)) if decided else math.nan
    more = [f"{len(cases) - _MOST_NAMED} more"] if len(cases) > _MOST_NAMED else []
    return NAMED.found(
        decision,
        Interval(agreed, math.nan, math.nan),
        facts={"cases": [*cases[:_MOST_NAMED], *more]},
        evidence={"cases": cases},
    )


def named_by_kernel(run: Run, table: SharingTable) -> dict[tuple[Pair, str], bool | None]:
    """Whether the kernel says that a pair shares what it was tried for; ``None``: it does not say.

    The kernel has it from CPUID, or from the firmware.
    """
    machine = run.provenance.get("machine", {})
    siblings = {one["cpu"]: kernel_siblings(one) for one in machine.get("cpus", ())}
    groups: dict[str, list[set[int]]] = {
        what: [
            set(parse_cpus(text))
            for cache in machine.get("caches", ())
            if (cache["kind"], cache["level"]) == place
            for text in cache["shared_by"]
        ]
        for what, place in CACHES.items()
    }
    found: dict[tuple[Pair, str], bool | None] = {}
    for pair, what in table.pairs:
        named: bool | None = None
        if what == "ports":
            named = pair[1] in siblings[pair[0]] if pair[0] in siblings else None
        elif set(pair) <= set().union(*groups.get(what, [])):
            named = any(set(pair) <= group for group in groups[what])
        found[pair, what] = named
    return found


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Sharing.tables``."""
    table = SharingTable(run.samples)
    return {"pairs": partial(_pairs, run, table)}


def _pairs(run: Run, table: SharingTable) -> pd.DataFrame:
    """One row a pair and resource."""
    named = named_by_kernel(run, table)
    said = {True: "one", False: "two", None: "not known"}
    rows = [
        {"resource": what, "a_cpu": pair[0], "b_cpu": pair[1]}
        | columns("slower_percent", table.slower(pair, what))
        | {"kernel": said[named[pair, what]]}
        for pair, what in table.pairs
    ]
    names = ["slower_percent", "slower_percent_low", "slower_percent_high"]
    return pd.DataFrame(rows, columns=["resource", "a_cpu", "b_cpu", *names, "kernel"])


def levels(run: Run) -> pd.DataFrame:
    """By how many times a busy CPU lengthens another's work."""
    table = SharingTable(run.samples)
    rows: list[tuple[Any, str, Any, str]] = [
        (-1, f"resource={what} cpus={a},{b}", 1 + table.slower((a, b), what).effect / 100, "times")
        for (a, b), what in table.pairs
    ]
    return levels_table(rows)
