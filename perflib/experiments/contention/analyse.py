"""What samples of contention say: own lines, false sharing, all cores together, locks, shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pandas as pd

from perflib.experiments.contention import COUNTERS, KINDS, LOCKS, claims
from perflib.experiments.contention.table import ContentionTable
from perflib.framework.levels import levels_table
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import NO_INTERVAL, Interval, columns

_MIN_VALID_PERCENT, _MAX_NONE_VALID_PERCENT = 90.0, 5.0  # percent of the samples
_SHARED = ("fetch_add", "cas", *LOCKS)
_DISTANCE_WORDS = {
    "sibling": "threads of one core",
    "sibling (measured)": "threads of one core, as measured, though the kernel says two",
    "cache": "of one last-level cache",
    "node": "of one NUMA node, as far as is known",
    "far": "of several NUMA nodes",
}


def table_of(run: Run) -> ContentionTable:
    """The run's samples as arrays."""
    return ContentionTable(run.samples)


def findings(run: Run) -> list[Finding]:
    """Of pairs of cores and of all: false sharing; of all: each way to share, and who gets less."""
    table, threshold = table_of(run), run.params["threshold_percent"]
    if table.all is None:
        return [
            claims.FALSE_SHARING.decided(
                table.more("one_line", None, "own_lines", None),
                threshold,
                about={"cpus": table.sets[0]},
                facts={"count": 1, "distance": "alone"},
                prevented=Reason("one_core"),
            )
        ]
    found: list[Finding] = []
    outside = Reason("cycles", {"outside": run.params["outside_cycles"]})
    if "own_lines" in table.kinds:
        more = table.first_slower("own_lines")
        found.append(_made(claims.OWN_LINES, table, "own_lines", table.all, more, threshold))
        for claim, kind in (
            (claims.FALSE_SHARING, "one_line"),
            (claims.NEIGHBOURS, "neighbour_lines"),
        ):
            if kind in table.kinds:
                found += [
                    _made(claim, table, kind, cpus, table.more(kind, cpus, "own_lines", cpus),
                          threshold, [outside])
                    for cpus in table.pairs
                ]  # fmt: skip
    for kind in _ordered(table.kinds, _SHARED):
        more = table.more(kind, table.all, kind, table.alone)
        found.append(_made(claims.TOGETHER, table, kind, table.all, more, threshold, [outside]))
    if "pthread" in table.kinds:
        found += [
            _made(claims.LOCK, table, kind, table.all,
                  table.more(kind, table.all, "pthread", table.all), threshold, [outside])
            for kind in _ordered(table.kinds, LOCKS) if kind != "pthread"
        ]  # fmt: skip
    return found + [_unfair(table, kind, threshold) for kind in _ordered(table.kinds, _SHARED)]


def _ordered(kinds: Iterable[str], wanted: Iterable[str]) -> list[str]:
    there = set(kinds)
    return [kind for kind in wanted if kind in there]


def _made(
    claim: Claim,
    table: ContentionTable,
    kind: str,
    cpus: str,
    more: Interval,
    threshold: float,
    remarks: Iterable[Reason] = (),
) -> Finding:
    """The finding of one kind and set of cores."""
    far = table.distance[cpus]
    valid = table.valid_percent(kind, cpus)
    few = [Reason("few_valid", {"percent": valid})] if valid < _MIN_VALID_PERCENT else []
    return claim.decided(
        more,
        threshold,
        about={"cpus": cpus, "kind": kind},
        facts={
            "count": len(table.cpus[cpus]),
            "distance": _DISTANCE_WORDS.get(far, "at an unknown distance"),
            "together_ns": table.gap_ns(kind, cpus).effect,
            "alone_ns": table.gap_ns(kind, table.alone).effect,
        },
        evidence={"valid_percent": valid},
        prevented=_prevented(valid, more),
        remarks=[*remarks, *few],
    )


def _prevented(valid: float, found: Interval) -> Reason | None:
    """Where an interval is missing since others had the cores, that is the reason."""
    missing = not math.isfinite(found.half_width)
    return Reason("none_valid") if missing and valid < _MAX_NONE_VALID_PERCENT else None


def _unfair(table: ContentionTable, kind: str, threshold: float) -> Finding:
    """Of the core that gets the least."""
    assert table.all is not None
    shares = table.shares(kind, table.all)
    known = {cpu: share for cpu, share in shares.items() if math.isfinite(share.effect)}
    cpu = max(known, key=lambda one: known[one].effect, default=table.cpus[table.all][0])
    least = shares.get(cpu, NO_INTERVAL)
    beyond = table.beyond_own_lines(kind, table.all).get(cpu, NO_INTERVAL)
    valid = table.valid_percent(kind, table.all)
    return claims.UNFAIR.decided(
        least,
        threshold,
        about={"cpu": cpu, "kind": kind},
        facts={"count": len(table.cpus[table.all])},
        evidence={"valid_percent": valid},
        prevented=_prevented(valid, least),
        to_support=[
            Witness(
                "own_lines" not in table.kinds or beyond.low > 0,
                Reason("slow_core", {"beyond": beyond}),
            )
        ],
        remarks=[Reason("few_valid", {"percent": valid})] if valid < _MIN_VALID_PERCENT else [],
    )


# --- tables --------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Contention.tables``."""
    table = table_of(run)
    return {"cost": partial(_cost, table), "shares": partial(_shares, table)}


def _control(kind: str) -> str:
    """What a kind is compared with, by the same cores."""
    if kind in LOCKS:
        return "pthread"
    return "own_lines" if COUNTERS.index(kind) < COUNTERS.index("atomic_own") else "atomic_own"


def _cost(table: ContentionTable) -> pd.DataFrame:
    """One row a kind and set of cores."""
    rows = []
    for kind in _ordered(table.kinds, KINDS):
        for cpus in table.sets:
            count = len(table.cpus[cpus])
            rows.append(
                {
                    "kind": kind,
                    "cpus": cpus,
                    "count": count,
                    "distance": table.distance[cpus],
                    **columns("operation_ns", table.operation_ns(kind, cpus)),
                    **columns("gap_ns", table.gap_ns(kind, cpus)),
                    **columns(
                        "over_alone_percent", table.more(kind, cpus, kind, table.alone, count)
                    ),
                    "control": _control(kind),
                    **columns("over_control_percent", table.more(kind, cpus, _control(kind), cpus)),
                    "valid_percent": table.valid_percent(kind, cpus),
                }
            )
    ends = [f"{name}{end}" for name in ("operation_ns", "gap_ns", "over_alone_percent")
            for end in ("", "_low", "_high")]  # fmt: skip
    over = columns("over_control_percent", NO_INTERVAL)
    names = ["kind", "cpus", "count", "distance", *ends, "control", *over, "valid_percent"]
    return pd.DataFrame(rows, columns=names)


def _shares(table: ContentionTable) -> pd.DataFrame:
    """One row a kind and core, of all cores at once."""
    rows = [
        {
            "kind": kind,
            "cpu": cpu,
            **columns(
                "share_percent", Interval(100 - less.effect, 100 - less.high, 100 - less.low)
            ),
        }
        for kind in _ordered(table.kinds, KINDS)
        for cpu, less in (table.shares(kind, table.all) if table.all else {}).items()
    ]
    return pd.DataFrame(rows, columns=["kind", "cpu", *columns("share_percent", NO_INTERVAL)])


def levels(run: Run) -> pd.DataFrame:
    """What an operation takes a core, by kind and number of cores: larger is slower."""
    table = table_of(run)
    rows: list[tuple[Any, str, Any, str]] = [
        (
            table.cpus[cpus][0] if len(table.cpus[cpus]) == 1 else -1,
            f"kind={kind} cpus={cpus}",
            table.operation_ns(kind, cpus).effect,
            "ns",
        )
        for kind in table.kinds
        for cpus in table.sets
    ]
    return levels_table(rows)
