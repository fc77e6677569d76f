"""How rare wrong results are on a farm: all runs of `correctness` pooled, by class and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from perflib.experiments.correctness.table import PER, count_text, one_in
from perflib.fleet.analysis.table import farm_table, runs_of, wrong_results
from perflib.model.claim import read_claims
from perflib.model.finding import Finding
from perflib.stats.counted import rate
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval

CLAIMS = read_claims(__file__)
NONE = pd.DataFrame(columns=["node", "model", "cpu", "class", "trials", "operations", "wrong"])
_SUMS = ["trials", "operations", "wrong"]
_MOST_NAMED = 3
_COUNTS = """
    SELECT run, cpu, class, count(*) AS trials, sum(operations)::DOUBLE AS operations,
        sum(wrong)::DOUBLE AS wrong
    FROM (SELECT run, cpu, class, try_cast(operations AS BIGINT) AS operations,
            try_cast(wrong AS BIGINT) AS wrong
        FROM correctness{used})
    WHERE operations > 0 AND wrong BETWEEN 0 AND operations
    GROUP BY ALL"""


def counts(plan: Path | None = None) -> pd.DataFrame:
    """What was computed: one row a node, core and class, with the columns of `NONE`.

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
    return found.groupby(list(NONE.columns[:4]), as_index=False)[_SUMS].sum()  # without NaN


def all_findings(plan: Path | None = None) -> list[Finding]:
    """What is known of wrong results: those of nodes and cores first, then all pooled."""
    return [*wrong_results(plan), *findings(counts(plan))]


def findings(found: pd.DataFrame) -> list[Finding]:
    """Of each model how rare wrong results are; the evidence has the same of each class."""
    return [_of_model(str(model), mine) for model, mine in found.groupby("model", sort=True)]


def _of_model(model: str, found: pd.DataFrame) -> Finding:
    pooled, said = _pooled(found)
    classes = {str(name): _pooled(mine) for name, mine in found.groupby("class", sort=True)}
    least = max(classes, key=lambda name: classes[name][0].high)
    share = 100 * rate(said["bad"], said["nodes"]).high
    more = [f"{len(said['where']) - _MOST_NAMED} more"] if len(said["where"]) > _MOST_NAMED else []
    return CLAIMS["farm_computes"].found(
        Decision(
            "supported" if said["where"] else "refuted",
            (
                Reason("nodes", {**said, "share": share}),
                Reason("weakest", {"name": least, **classes[least][1]}),
            ),
        ),
        Interval(*(PER * end for end in pooled)),
        about={"model": model},
        facts={**said, "where": [*said["where"][:_MOST_NAMED], *more]},
        evidence={
            "by_class": [
                {"model": model, "class": name, **one} for name, (_, one) in classes.items()
            ]
        },
    )


def _pooled(found: pd.DataFrame) -> tuple[Interval, dict[str, Any]]:
    """The rate of some counts, and what is said of it; ``where``: the most wrong cores first."""
    wrong, operations = float(found["wrong"].sum()), float(found["operations"].sum())
    bad = found[found["wrong"] > 0].sort_values("wrong", ascending=False, kind="stable")
    pooled = rate(wrong, operations)
    return pooled, {
        "nodes": found["node"].nunique(),
        "bad": bad["node"].nunique(),
        "trials": int(found["trials"].sum()),
        "wrong": count_text(wrong),
        "operations": count_text(operations),
        "rate": one_in(pooled.effect),
        "most": one_in(pooled.high),
        "where": [
            f"{one['node']} cpu{one['cpu']} ({one['class']}: {count_text(one['wrong'])} of "
            f"{count_text(one['operations'])})"
            for one in bad.to_dict("records")
        ],
    }
