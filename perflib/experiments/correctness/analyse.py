"""Which core computes wrong, in what and when; or at most how often."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from perflib.experiments.correctness import CLASSES, opinion
from perflib.experiments.correctness.claims import COVERAGE, WRONG
from perflib.experiments.correctness.table import (
    PER,
    CorrectnessTable,
    bits_of,
    count_text,
    one_in,
    weakest,
)
from perflib.framework.levels import levels_table
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.counted import rate
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval

_MIN_ROUNDS = 2  # with wrong results: no single sample decides
_WHEN = {
    "cold": "after an idle pause",
    "warm": "while the core is warm",
    "changing": "while the clock changes",
    "together": "when all cores work",
}


def findings(run: Run) -> list[Finding]:
    """Of each core whether it computes wrong; which classes were not tested; a second opinion."""
    table = CorrectnessTable(run.samples)
    limits, counts = table.pooled(["cpu", "class"]), table.pooled(["cpu"])
    least = float(counts["operations"].min())
    common = {"least": count_text(least), "least_most": one_in(rate(0, least).high)}
    cores = [_core(table, limits, cpu, common) for cpu in table.cores]
    second = opinion.findings(run.provenance.get("opendcdiag", {}))
    return [*cores, _coverage(run, table), *second]


def _core(
    table: CorrectnessTable, limits: pd.DataFrame, cpu: int, common: dict[str, str]
) -> Finding:
    found, bad = table.of_core(cpu)
    mine = limits[limits["cpu"] == cpu]
    names = list(dict.fromkeys(mine.loc[mine["bad"] > 0, "class"]))
    rows = table.rows[table.rows["cpu"] == cpu]
    disputed = sorted(set(rows.loc[rows["software"] == "disputed", "class"]))
    rounds = int(bad["round"].nunique())
    seen = [one for one in names if (bad.loc[bad["class"] == one, "wrong"] > 0).any()]
    remarks = [_rate(table, cpu, one, bad[bad["class"] == one]) for one in seen]
    software = sorted(set(bad.loc[bad["software"] == "wrong", "class"]))
    if software:
        whom = "the other cores, or from the table that is known"
        remarks.append(Reason("software", {"names": software, "whom": whom}))
    if rounds >= _MIN_ROUNDS:
        decision = Decision("supported", (*remarks, Reason("again", {"rounds": rounds})))
    elif rounds:
        decision = Decision("inconclusive", (Reason("once"), *remarks))
    elif disputed:
        decision = Decision("inconclusive", (Reason("disputed", {"names": disputed}),))
    else:
        row = weakest(mine)
        decision = Decision("refuted", (Reason("weakest", {"name": row["class"], **_counts(row)}),))
    rates = dict(zip(seen, (f", 1 in {one.numbers['rate']}" for one in remarks), strict=False))
    where = [f"{one}{rates.get(one, '')}{_when(table, cpu, one)}" for one in names]
    if not names:
        where = [f"cores disagree on {', '.join(disputed)}"]
    operations = float(mine["operations"].sum())
    return WRONG.found(
        decision,
        found,
        about={"cpu": cpu},
        facts={
            "where": where,
            "operations": count_text(operations),
            "most": one_in(found.high / PER),
            **common,
        },
        evidence={
            "operations": operations,
            "wrong": float(mine["wrong"].sum()),
            "classes": names,
            "states": sorted(set(bad["state"])),
            "bad_samples": len(bad),
            "p_holm": 0.0 if rounds >= _MIN_ROUNDS else 1.0,
        },
    )


def _counts(row: pd.Series[Any]) -> dict[str, str]:
    return {
        "operations": count_text(row["operations"]),
        "most": one_in(row["rate_per_1e9_high"] / PER),
    }


def _rate(table: CorrectnessTable, cpu: int, name: str, bad: pd.DataFrame) -> Reason:
    """What is wrong in a class: how often, in its one state if it has one, and the first result."""
    first = bad.iloc[0].to_dict()
    expected, found = (str(first.get(one) or "something else") for one in ("expected", "found"))
    bits = bits_of(expected, found)
    state, _ = table.only_state(cpu, name)
    sums = table.pooled(["cpu", "class", "state"] if state else ["cpu", "class"])
    mine = (sums["cpu"] == cpu) & (sums["class"] == name)
    row = sums[mine & (sums["state"] == state)] if state else sums[mine]
    low, high = (row[f"rate_per_1e9_{end}"].iloc[0] / PER for end in ("low", "high"))
    numbers = {
        "name": name,
        "wrong": count_text(row["wrong"].iloc[0]),
        "operations": count_text(row["operations"].iloc[0]),
        "rate": one_in(row["rate_per_1e9"].iloc[0] / PER),
        "low": one_in(low),
        "high": one_in(high),
        "when": f" {_WHEN[state]}" if state else "",
        "state": first["state"],
        "index": first.get("first_index", "?"),
        "expected": expected,
        "found": found,
        "bits": f" (bits that differ: {' '.join(map(str, bits))})" if bits else "",
    }
    return Reason("rate", numbers)


def _when(table: CorrectnessTable, cpu: int, name: str) -> str:
    """The state in which alone a class is wrong."""
    state, alone = table.only_state(cpu, name)
    return f" ({'only' if alone else 'seen so far'} {_WHEN[state]})" if state else ""


def _coverage(run: Run, table: CorrectnessTable) -> Finding:
    tested = set(table.rows["class"])
    absent = run.provenance.get("plan", {}).get("absent", {})
    lacking = [one for one in CLASSES if one not in tested]
    reasons = [Reason("absent", {"name": n, "why": absent[n]}) for n in lacking if n in absent]
    if others := [one for one in lacking if one not in absent]:
        reasons.append(Reason("not_requested", {"names": others}))
    return COVERAGE.found(
        Decision("refuted", tuple(reasons)) if lacking else Decision("supported"),
        Interval(*[float(len(tested))] * 3),
        facts={"count": len(tested), "every": len(CLASSES), "lacking": lacking},
        evidence={"lacking": {one: absent.get(one, "not requested") for one in lacking}},
    )


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Correctness.tables``."""
    table = CorrectnessTable(run.samples)
    return {
        "limits": partial(table.pooled, ["cpu", "class"]),
        "states": partial(table.pooled, ["cpu", "state"]),
        "wrong": table.wrong,
    }


def levels(run: Run) -> pd.DataFrame:
    """At most how many of 10⁹ results are wrong, on each core: a core that errs stands out."""
    rows = CorrectnessTable(run.samples).pooled(["cpu"])
    ends = zip(rows["cpu"], rows["rate_per_1e9_high"], strict=True)
    return levels_table([(cpu, "at most wrong", high, "in 10⁹") for cpu, high in ends])
