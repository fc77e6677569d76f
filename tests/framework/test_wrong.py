"""Wrong results: whose they are, that one decides nothing, and that none is used as a timing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib import experiments
from perflib.framework.results import WRONG, results
from perflib.lab.summary import summary
from perflib.measure.schedule import frame_of
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store.run_files import load, save
from tests.experiments.judged import made_run
from tests.experiments.simulated import samples
from tests.stored import RUNS

COMPARED = [one for one in experiments.NAMES if experiments.get(one).same_work is not None]
KV = experiments.get("kv_per_core")


def spoiled(table: pd.DataFrame, rows: Any, found: Any = "0xbad") -> pd.DataFrame:
    """As if these rows differed from the first result."""
    table = table.reset_index(drop=True).assign(expected=None, found=None)
    table["ok"] = table["ok"].fillna(value=True).astype(bool) if "ok" in table else True
    table = table.astype({"expected": object, "found": object})
    table.loc[rows, "ok"] = False
    table.loc[rows, "expected"] = "0x1"
    table.loc[rows, "found"] = found
    return table


def wrong(run: Run) -> list[Finding]:
    """The findings of wrong results, which come before all others."""
    found = experiments.get(run.experiment).analyse(run)
    mine = [one for one in found if one.of.name in WRONG]
    assert found[: len(mine)] == mine
    return mine


def kv(cores: int, rounds: int = 8) -> pd.DataFrame:
    return samples(cores=cores, rounds=rounds, events=4).reset_index(drop=True)


def of_kv(table: pd.DataFrame) -> list[tuple[str, str]]:
    return [(one.subject, one.verdict) for one in wrong(made_run(KV, table))]


# --- whose it is ---------------------------------------------------------------------------------


def test_a_core_that_computes_wrongly_is_the_first_sentence_with_both_values() -> None:
    table = kv(3)
    run = made_run(KV, spoiled(table, table["cpu"] == 1))
    (found,) = wrong(run)
    assert (found.subject, found.verdict, found.about) == ("cpu1 wrong", "supported", {"cpu": 1})
    assert (found.kind, found.effect, found.high) == ("anomaly", 100.0, 100.0)
    first = summary(KV.analyse(run))[0]
    assert all(word in first for word in ("cpu1", "8 of 8", "event=0", "0x1", "0xbad"))


def test_a_core_that_computes_wrongly_now_and_then_by_other_values_is_found_among_two() -> None:
    table = kv(2)
    rows = table.index[(table["cpu"] == 1) & (table["round"] % 2 == 0)]
    values = [f"{7 + row:#x}" for row in rows]
    assert of_kv(spoiled(table, rows, values)) == [("cpu1 wrong", "supported")]


def test_the_first_result_may_be_the_wrong_one_and_its_core_s_times_are_not_used() -> None:
    table = kv(3)
    run = made_run(KV, spoiled(table, table["cpu"] != 1))
    (found,) = wrong(run)
    assert (found.subject, found.verdict) == ("cpu1 wrong", "supported")
    assert (found.facts["expected"], found.facts["found"]) == ("0xbad", "0x1")
    current = KV.current(run)
    assert not current.samples["ok"].any()
    assert [one.to_dict() for one in wrong(current)] == [found.to_dict()]


def test_of_two_cores_that_always_disagree_one_is_wrong_and_neither_is_used() -> None:
    table = kv(2)
    run = made_run(KV, spoiled(table, table["cpu"] == 1))
    (found,) = wrong(run)
    assert (found.subject, found.verdict) == ("cpus 0,1 wrong", "supported")
    assert not KV.current(run).samples["ok"].any()


def test_a_pilot_that_nobody_agrees_with_was_wrong_once() -> None:
    table = kv(3)
    assert of_kv(spoiled(table, table.index)) == [("cpus 0,1,2 wrong", "inconclusive")]


def test_one_core_whose_results_all_differ_is_wrong() -> None:
    table = kv(1)
    values = [f"{7 + row:#x}" for row in table.index]
    assert of_kv(spoiled(table, table.index, values)) == [("cpu0 wrong", "supported")]


def test_a_job_on_several_cores_names_them_all_and_on_one_that() -> None:
    table = load(RUNS / "threads.parquet").samples
    rows = [0, len(table) - 1]
    for cpus, subject in (((2, 5), "cpus 2,5 wrong"), ((5,), "cpu5 wrong")):
        experiment = experiments.get("threads")
        run = made_run(experiment, spoiled(table, rows), {"cpus": list(cpus)})
        assert [one.subject for one in wrong(run)] == [subject]


# --- every experiment that compares results ------------------------------------------------------


@pytest.mark.parametrize("name", COMPARED)
def test_one_wrong_row_or_one_wrong_round_supports_nothing_and_is_reported(name: str) -> None:
    run = load(RUNS / f"{name}.parquet")
    assert wrong(run) == []
    generator = np.random.default_rng(1)
    table = run.samples.reset_index(drop=True)
    timed = table.index[table["time_ns"].notna()] if "time_ns" in table else table.index
    for row in generator.choice(timed, 4):
        for rows in ([row], table["round"] == table.at[row, "round"]):
            found = wrong(dataclasses.replace(run, samples=spoiled(table, rows)))
            assert "supported" not in [one.verdict for one in found]
            assert found


@pytest.mark.parametrize("name", COMPARED)
def test_a_core_that_is_wrong_in_every_round_is_found_and_its_rows_are_not_used(name: str) -> None:
    run = load(RUNS / f"{name}.parquet")
    table = run.samples.reset_index(drop=True)
    cpu = table["cpu"].iloc[0] if "cpu" in table else None
    mine = table["cpu"] == cpu if cpu is not None else table["round"] > table["round"].min() - 1
    if table["round"].nunique() < 2:
        table = pd.concat([table, table.assign(round=1 + table["round"].max())], ignore_index=True)
        mine = pd.concat([mine, mine], ignore_index=True)
    values = [f"{7 + row:#x}" for row in np.flatnonzero(mine)]
    spoilt = dataclasses.replace(run, samples=spoiled(table, mine, values))
    assert "supported" in [one.verdict for one in wrong(spoilt)]
    used = experiments.get(name).current(spoilt).samples
    assert not used.loc[used["found"].notna() & (used["found"] != ""), "ok"].any()
    assert experiments.get(name).reported(spoilt)


# --- columns of a trial ---------------------------------------------------------------------------


def test_trials_without_a_wrong_result_have_no_columns_of_it(tmp_path: Path) -> None:
    assert results([1, 2], [1, 2]) == {}
    assert results(["ab"], ["ac"]) == {"expected": ["0xab"], "found": ["0xac"]}
    trials = [
        {"round": number, "position": 0, "columns": {"cpu": [0, 0], **results([2**63, 1], found)}}
        for number, found in enumerate(([2**63, 1], [5, 1], [2**63, 1]))
    ]
    table = frame_of(trials)
    assert table["found"].fillna("").tolist() == ["", "", "0x5", "", "", ""]
    assert table["expected"].fillna("").tolist()[2] == "0x8000000000000000"
    run = Run("kv_per_core-1", "kv_per_core", {}, table.assign(event=1, time_ns=5.0), {})
    kept = load(save(run, tmp_path / "run.parquet")).samples
    assert kept["found"].dropna().tolist() == ["0x5"]
    assert "found" not in frame_of(trials[::2])
