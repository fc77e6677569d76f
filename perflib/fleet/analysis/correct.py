"""How rare wrong results are on a farm: all runs of `correctness` pooled, by class and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from perflib.experiments.correctness.table import PER, count_text, one_in, weakest
from perflib.fleet.analysis.table import farm_table, runs_of
from perflib.model.claim import read_claims
from perflib.model.finding import Finding
from perflib.stats.counted import clopper_pearson, rate
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval

CLAIMS = read_claims(__file__)
COLUMNS = ("node", "model", "cpu", "class", "trials", "operations", "wrong")
NONE = pd.DataFrame(columns=list(COLUMNS))
_MOST_NAMED = 3
_COUNTS = """
    SELECT run, cpu, class, count(*) AS trials, sum(operations)::DOUBLE AS operations,
        sum(wrong)::DOUBLE AS wrong
    FROM (SELECT run, cpu, class, try_cast(operations AS BIGINT) AS operations,
            try_cast(wrong AS BIGINT) AS wrong
        FROM correctness{used})
    WHERE operations > 0 AND wrong BETWEEN 0 AND operations AND cpu IS NOT NULL
        AND class IS NOT NULL
    GROUP BY ALL"""


def counts(plan: Path | None = None) -> pd.DataFrame:
    """What was computed: one row a node, core and class, with `COLUMNS`; no run: none.

    Samples that are not used, or that no run can have made, are left out.

    Raises
    ------
    UserError
        As `perflib.fleet.analysis.table.farm_table`.
    """
    from perflib.store.query import query

    runs, nodes = runs_of(plan), farm_table(plan)[1]
    if query("SELECT run FROM runs WHERE experiment = 'correctness' LIMIT 1").empty:
        return NONE
    known = query("SELECT * FROM correctness LIMIT 0").columns
    found = query(_COUNTS.format(used=" WHERE ok" if "ok" in known else ""))
    found["node"] = found["run"].map(runs.set_index("run")["node"])
    found["model"] = found["node"].map(nodes.set_index("node")["model"])
    by = ["node", "model", "cpu", "class"]
    return (
        found.dropna(subset=by).groupby(by, as_index=False)[["trials", "operations", "wrong"]].sum()
    )


def rates(found: pd.DataFrame, by: tuple[str, ...] = ("model", "class")) -> pd.DataFrame:
    """One row a group of `counts`: nodes, counts, ``rate_per_1e9`` with its 95 % interval.

    ``wrong_on`` names the cores with wrong results, the most first.
    """
    rows = []
    for key, mine in found.groupby(list(by), sort=True):
        pooled = rate(float(mine["wrong"].sum()), float(mine["operations"].sum()))
        rows.append({
            **dict(zip(by, key, strict=True)),
            "nodes": mine["node"].nunique(),
            **mine[["trials", "operations", "wrong"]].sum(),
            **{f"rate_per_1e9{end}": PER * one
               for end, one in zip(("", "_low", "_high"), pooled, strict=True)},
            "wrong_on": ", ".join(_wrong_on(mine)),
        })  # fmt: skip
    ends = [f"rate_per_1e9{end}" for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*by, "nodes", *COLUMNS[4:], *ends, "wrong_on"])


def _wrong_on(found: pd.DataFrame) -> list[str]:
    bad = found[found["wrong"] > 0].sort_values("wrong", ascending=False, kind="stable")
    return [
        f"{row['node']} cpu{row['cpu']} ({row['class']}: {count_text(row['wrong'])} of "
        f"{count_text(row['operations'])})"
        for row in bad.to_dict("records")
    ]


def findings(found: pd.DataFrame) -> list[Finding]:
    """Of each model how rare wrong results are; one with wrong results names the cores."""
    by_class = rates(found)
    return [
        _of_model(str(model), mine, by_class[by_class["model"] == model])
        for model, mine in found.groupby("model", sort=True)
    ]


def _of_model(model: str, found: pd.DataFrame, by_class: pd.DataFrame) -> Finding:
    wrong, operations = float(found["wrong"].sum()), float(found["operations"].sum())
    pooled = rate(wrong, operations)
    nodes, bad = found["node"].nunique(), found.loc[found["wrong"] > 0, "node"].nunique()
    share = rate(0, nodes).high if not bad else float(clopper_pearson(bad, nodes)[1])
    least = weakest(by_class.reset_index(drop=True))
    where = _wrong_on(found)
    more = [f"{len(where) - _MOST_NAMED} more"] if len(where) > _MOST_NAMED else []
    facts: dict[str, Any] = {
        "nodes": nodes, "operations": count_text(operations), "wrong": count_text(wrong),
        "rate": one_in(pooled.effect), "most": one_in(pooled.high),
        "where": [*where[:_MOST_NAMED], *more],
    }  # fmt: skip
    numbers = {"trials": int(found["trials"].sum()), "nodes": nodes, "bad": bad}
    reasons = (
        Reason("nodes", {**numbers, "share": 100 * share}),
        Reason("weakest", {
            "name": least["class"], "wrong": count_text(least["wrong"]),
            "operations": count_text(least["operations"]),
            "most": one_in(least["rate_per_1e9_high"] / PER),
        }),
    )  # fmt: skip
    return CLAIMS["farm_computes"].found(
        Decision("supported" if wrong else "refuted", reasons),
        Interval(*(PER * end for end in pooled)),
        about={"model": model},
        facts=facts,
        evidence={"operations": operations, "wrong": wrong, "nodes": nodes, "wrong_on": where},
    )
