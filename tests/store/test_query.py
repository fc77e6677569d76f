"""Queries: what each table holds, and that nothing else is read or written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.cli.query import query
from perflib.experiments import get
from perflib.model.errors import UserError
from perflib.model.run import Run
from perflib.store import run_files
from perflib.store.reported import FINDINGS, LEVELS
from tests.stored import RUNS

RUN = "kv_per_core-20260101-000000-node17-7aaaaaaaaa"


def measured(name: str, run_id: str = RUN) -> Run:
    return replace(run_files.load(RUNS / f"{name}.parquet"), id=run_id)


def made(reported: Mapping[str, str], name: str = "test-1", **provenance: Any) -> None:
    samples = pd.DataFrame({"x": [1, 2]})
    run_files.save(Run(name, "test", {"n": 1}, samples, provenance), reported=reported)


def reported(findings: Any = (), levels: Any = ()) -> dict[str, str]:
    return {
        FINDINGS: json.dumps({"perflib": "1.0", "findings": findings}),
        LEVELS: json.dumps({"perflib": "1.0", "levels": levels}),
    }


def test_the_tables_hold_what_was_saved() -> None:
    run = measured("kv_per_core")
    kv = get("kv_per_core")
    run_files.save(run, reported=kv.reported(run))
    (row,) = run_files.query("SELECT * FROM runs").to_dict("records")
    machine = run.provenance["machine"]
    assert (row["run"], row["experiment"], row["node"]) == (RUN, "kv_per_core", machine["hostname"])
    assert row["start"] == pd.Timestamp(run.provenance["start"]).tz_localize(None)
    assert (row["samples"], row["stopped"]) == (len(run.samples), run.provenance["stopped"])
    assert (row["model"], row["fingerprint"]) == (machine["processor"], machine["fingerprint"])
    assert json.loads(row["params"]) == run.params
    assert json.loads(row["provenance"])["trials"] == run.provenance["trials"]
    assert row["path"] == str(run_files.saved_path(RUN))

    table = run_files.query("SELECT * FROM findings")
    findings = kv.analyse(run)
    assert table["claim"].tolist() == [one.of.name for one in findings]
    assert table["exact"].tolist() == [one.claim for one in findings]
    for name in ("subject", "kind", "verdict", "effect", "low", "high", "unit", "plain"):
        assert table[name].tolist() == [getattr(one, name) for one in findings], name
    assert json.loads(table["about"][0])["cpu"] == 0

    levels = run_files.query("SELECT cpu, setting, value, unit FROM levels ORDER BY cpu")
    wanted = kv.levels(run)
    assert levels["value"].tolist() == pytest.approx(wanted["value"].tolist(), rel=1e-8)
    assert levels["setting"].tolist() == wanted["setting"].tolist()
    for name in ("samples", "kv_per_core"):
        assert run_files.query(f"SELECT count(*) AS n, any_value(run) AS run FROM {name}").to_numpy(
        ).tolist() == [[len(run.samples), RUN]]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["filename", "FileName", "run", "file_row_number", "file_index", "rowid", 'a"b', "*"]
)
def test_a_column_of_any_name_spoils_no_other_run(name: str) -> None:
    samples = pd.DataFrame({"x": [1], name: [7]})
    run_files.save(Run("test-2", "test", {"n": 1}, samples, {}), reported=reported())
    made(reported())
    for table in ("samples", "test"):
        found = run_files.query(f"SELECT * FROM {table} ORDER BY ALL")
        assert found["run"].tolist() == ["test-1", "test-1", "test-2"]
        assert found.columns[2].casefold() in (name.casefold(), "run_1")
        assert found.iloc[2, 2] == 7
        assert "file_" not in "".join(found.columns).replace(name, "")


ENDLESS = "SELECT count(*) FROM range(90000) a, range(90000) b, range(90000) c"  # of little memory


def test_a_query_ends_after_its_limit() -> None:
    made(reported())
    with pytest.raises(UserError, match=r"did not end within 0\.2 s.*--timeout"):
        run_files.query(ENDLESS, timeout_s=0.2)
    assert run_files.query("SELECT count(*) AS n FROM samples")["n"].tolist() == [2]
    with pytest.raises(UserError, match=r"within 0\.3 s"):
        query.main([ENDLESS, "--timeout", "300ms"], standalone_mode=False)


@pytest.mark.parametrize("limit_s", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none(limit_s: float) -> None:
    with pytest.raises(UserError, match="a query takes a positive number of seconds"):
        run_files.query("SELECT 1", limit_s)


def test_the_samples_of_an_experiment_are_its_own() -> None:
    run_files.save(measured("kv_per_core"))
    run_files.save(measured("machine", "machine-1"))
    assert "gap_ns" in run_files.query("SELECT * FROM machine")
    assert "gap_ns" not in run_files.query("SELECT * FROM kv_per_core")
    assert set(run_files.query("SELECT run FROM samples")["run"]) == {RUN, "machine-1"}


def test_times_are_in_utc() -> None:
    made({}, start="2026-01-02T03:04:05.678+02:00", end="yesterday")
    (row,) = run_files.query('SELECT start, "end" FROM runs').to_dict("records")
    assert row["start"] == pd.Timestamp("2026-01-02T01:04:05.678")
    assert row["end"] is pd.NaT


def test_only_what_has_the_right_shape_is_shown() -> None:
    """The rest is missing, whatever a stranger's file says; and the run is there all the same."""
    good = {"claim": "it is", "kind": "anomaly", "verdict": "refuted", "effect": 1.5, "about": {}}
    bad: list[Any] = [
        7, None, [], "x", {}, {**good, "verdict": "guilty"}, {**good, "claim": None},
        {**good, "effect": "much", "low": {"a": 1}, "unit": 5, "about": [1]},
    ]  # fmt: skip
    lists: list[Any] = [
        {"setting": "n=1", "unit": "ns", "cpu": [0, 1, 2, "x", 70000], "value": [1.0, -1, "y", 2]},
        {"setting": None, "cpu": [0], "value": [1.0]},
        {"setting": "n=2", "cpu": 5, "value": [1.0]},
        3,
    ]
    made(reported([good, *bad], lists))
    table = run_files.query("SELECT exact, effect, low FROM findings").fillna(-1)
    assert table.to_numpy().tolist() == [["it is", 1.5, -1], ["it is", -1, -1]]
    levels = run_files.query("SELECT setting, cpu, value FROM levels")
    assert levels.to_numpy().tolist() == [["n=1", 0, 1.0]]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"findings": 5}', '{"findings": ' + "[" * 3000 + "]" * 3000 + "}"]
)
def test_findings_that_are_none_spoil_nothing(text: str) -> None:
    made({FINDINGS: text, LEVELS: text})
    made(reported([]), "test-2")
    assert [entry.status for entry in run_files.runs()] == ["saved", "saved"]
    assert run_files.query("SELECT * FROM findings").empty
    assert run_files.query("SELECT * FROM levels").empty
    assert len(run_files.load("test-1").samples) == 2
    assert (
        run_files.query("SELECT run FROM runs WHERE analysed IS NOT NULL")["run"].iloc[-1]
        == "test-2"
    )


def test_an_experiment_named_like_a_table_takes_no_place() -> None:
    for number, name in enumerate(
        ("runs", "findings", "indexed", "here", 'x" AS y, (SELECT 1) --')
    ):
        run_files.save(Run(f"r-{number}", name, {}, pd.DataFrame({"x": [1]}), {}))
    assert len(run_files.query("SELECT * FROM runs")) == 5
    assert run_files.query("SELECT * FROM findings").empty
    assert run_files.query("SELECT * FROM samples")["x"].tolist() == [1] * 5


# --- it reads the store, and nothing else --------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "COPY runs TO '{out}'",
        "COPY (SELECT 1) TO '{out}' (FORMAT csv)",
        "CREATE TABLE x AS SELECT 1",
        "ATTACH '{out}'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "PRAGMA version",
        "EXPORT DATABASE '{out}'",
        "DROP VIEW runs",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO '{out}'",
        "",
        "-- nothing",
    ],
)
def test_what_is_no_single_select_is_refused(sql: str, tmp_path: Path) -> None:
    made(reported())
    with pytest.raises(UserError, match="a query is one SELECT"):
        run_files.query(sql.format(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('{secret}')", "read_text('{secret}')", "read_blob('{secret}')", "'{secret}'",
        "read_json('{secret}')", "glob('{folder}/*')", "read_parquet('{folder}/other.parquet')",
        "parquet_metadata('{folder}/other.parquet')", "query('SELECT * FROM ''{secret}''')",
    ],
)  # fmt: skip
def test_other_files_are_out_of_reach(source: str, tmp_path: Path) -> None:
    made(reported())
    secret = tmp_path / "secret.csv"
    secret.write_text("word\nxyzzy\n")
    run_files.save(measured("machine"), tmp_path / "other.parquet")
    for also in ("", " , samples"):  # with files that it may read
        sql = f"SELECT * FROM {source.format(secret=secret, folder=tmp_path)}{also}"
        with pytest.raises(UserError, match="the query fails") as refused:
            run_files.query(sql)
        assert "xyzzy" not in str(refused.value)


def test_a_mistake_is_answered_with_what_there_is() -> None:
    made(reported())
    with pytest.raises(UserError, match=r'"clam" .* "claim"') as caught:
        run_files.query("SELECT clam FROM findings")
    assert "findings has run, experiment, node, start, claim, subject, kind" in str(caught.value)
    with pytest.raises(UserError, match="The tables are runs, findings, levels, samples, test"):
        run_files.query("SELECT * FROM finding")
    with pytest.raises(UserError, match="syntax error"):
        run_files.query("SELEC 1")
