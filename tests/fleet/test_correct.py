"""How rare wrong results are on a farm: pooled from stored runs, by class and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib import experiments
from perflib.fleet.analysis.correct import all_findings, counts, findings
from perflib.fleet.analysis.table import farm_table
from perflib.lab.farm import farm
from perflib.lab.farm_report import write_farm_report
from perflib.model.run import Run
from perflib.store import run_files
from tests.fleet.test_table import plan, saved

pytestmark = pytest.mark.usefixtures("home")


def made(seed: int = 1, wrong: float = 0.0, operations: int = 10**6) -> pd.DataFrame:
    """Rounds of one node, in which cpu1 errs in ``vnni`` at a rate that scatters from round on."""
    rng = np.random.default_rng(seed)
    rows = [
        (round_, "warm", cpu, name, operations, (cpu, name) == (1, "vnni")
         and rng.poisson(wrong * operations * rng.gamma(2.0, 0.5)), "", "", True)
        for round_ in range(10) for cpu in (0, 1) for name in ("integer", "vnni")
    ]  # fmt: skip
    names = ["round", "state", "cpu", "class", "operations", "wrong", "expected", "found", "ok"]
    return pd.DataFrame(rows, columns=names).astype({"wrong": int})


def stored(host: str, table: pd.DataFrame, model: str = "A") -> None:
    machine = {"hostname": host, "processor": model}
    provenance = {"machine": machine, "start": "2026-11-20T12:00:00.000+00:00"}
    params = experiments.get("correctness").params({}).model_dump(mode="json")
    run_files.save(Run(f"correctness-{host}", "correctness", params, table, provenance))


def test_null_of_healthy_nodes_is_the_rule_of_three_by_model() -> None:
    for number in range(5):
        stored(f"a{number}", made(number))
    stored("b1", made(9, operations=1000), model="B")
    first, second = findings(counts())
    assert first.plain == (
        "0 of 2.0 × 10⁸ results are wrong on 5 nodes of A: at most 1 in 6.7 × 10⁷ at 95 %"
    )
    assert (first.verdict, second.verdict) == ("refuted", "refuted")
    assert "at most 1 in 1.3 × 10⁴" in second.plain
    assert "Of 5 nodes 0 showed a wrong result: at most 45 %" in first.reason
    rows = [row for one in (first, second) for row in one.evidence["by_class"]]
    assert [row["model"] + row["class"] for row in rows] == [
        "Ainteger",
        "Avnni",
        "Binteger",
        "Bvnni",
    ]


def test_wrong_ones_are_named_by_node_core_and_class(tmp_path: Path) -> None:
    for number in range(4):
        stored(f"a{number}", made(number))
    stored("bad", made(7, wrong=1e-6))
    saved("a1", 20, {0: 40.0, 1: 41.0})  # levels, of another experiment
    wrong = int(counts()["wrong"].sum())
    assert wrong > 1
    (said,) = all_findings()
    assert (said.verdict, said.low <= 1e9 * wrong / 2e8 <= said.high) == ("supported", True)
    assert f"{wrong} of 2.0 × 10⁸ results are wrong on 5 nodes" in said.plain
    assert f"bad cpu1 (vnni: {wrong} of 10⁷)" in said.plain
    assert said.plain in [one.plain for one in farm().found]
    out = tmp_path / "farm.html"
    write_farm_report(*farm_table(), out, wrong=[said])
    page = out.read_text()
    assert "How rare wrong results are" in page
    assert page.count(f"bad cpu1 (vnni: {wrong} of 10⁷)") > 1


def test_the_limit_of_nodes_covers_where_one_in_twelve_is_bad() -> None:
    """Bad nodes differ by orders of magnitude in how often they err, which is no binomial noise."""
    rng, covered = np.random.default_rng(3), []
    for _ in range(100):
        share = np.where(rng.random(30) < 1 / 12, 1e-5 * 10 ** rng.uniform(0, 2, 30), 0.0)
        table = pd.DataFrame({
            "node": [f"n{one}" for one in range(30)], "model": "A", "cpu": 0, "class": "vnni",
            "trials": 1, "operations": 1e6, "wrong": rng.poisson(1e6 * share).astype(float),
        })  # fmt: skip
        (said,) = findings(table)
        covered.append(said.reasons[0].numbers["share"] >= 100 / 12)
    assert np.mean(covered) >= 0.93


@pytest.mark.parametrize("odd", [
    {"operations": 0}, {"operations": -5}, {"ok": False}, {"class": None},
    {"operations": 100, "wrong": 101}, {"wrong": -1},
])  # fmt: skip
def test_rows_that_no_run_makes_or_uses_are_left_out(odd: dict[str, Any]) -> None:
    stored("a1", made().assign(**odd))
    assert findings(counts()) == []


def test_without_such_a_run_nothing_is_said(tmp_path: Path) -> None:
    saved("n1", 20, {0: 40.0, 1: 41.0})
    assert findings(counts()) == []
    assert not farm().correctness().rows
    folder = plan(tmp_path / "plan", "node\nn1\n", "k1,n1,kv_per_core,n1-20,imported,\n")
    stored("a1", made().drop(columns="ok"))
    assert counts()["operations"].sum() == 4e7
    assert counts(folder).empty  # not of the plan
