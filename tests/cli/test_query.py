"""perflib query, import and export: what they print, and how they end."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from perflib.experiments import get
from perflib.model.run import Run
from perflib.store import run_files
from tests.cli.calling import call, call_json
from tests.stored import RUNS


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")


def saved(name: str = "kv_per_core", *, analysed: bool = True) -> Run:
    run = run_files.load(RUNS / f"{name}.parquet")
    run_files.save(run, reported=get(name).reported(run) if analysed else None)
    return run


def test_a_query_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    saved()
    sql = "SELECT subject, effect, NULL AS none, start FROM findings WHERE claim = 'slower'"
    assert call("query", sql) == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["subject", "effect", "none", "start"]
    assert [row.split()[0] for row in rows] == ["cpu0", "cpu1"]
    assert [row.split()[2][:5] for row in rows] == ["2026-"] * 2
    assert err == ""
    assert call("query", "SELECT plain FROM findings") == 0
    assert "…" in capsys.readouterr().out
    assert call("query", "-v", "SELECT plain FROM findings") == 0
    assert "…" not in capsys.readouterr().out


def test_a_query_as_json_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    saved()
    sql = "SELECT cpu, value, 'nan'::DOUBLE AS n, [1, 2] AS l FROM levels ORDER BY cpu"
    found = call_json(capsys, "query", sql, "--json")
    levels = run_files.query("SELECT value FROM levels ORDER BY cpu")["value"].tolist()
    assert found["columns"] == ["cpu", "value", "n", "l"]
    assert found["rows"] == [[cpu, levels[cpu], None, [1, 2]] for cpu in (0, 1)]
    assert call("query", sql, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["value"]) for row in rows] == levels
    assert call("query", sql, "--csv", "--json") == 2
    assert "exclude each other" in capsys.readouterr().err


def test_mistakes_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("query", "SELECT 1") == 2
    assert "no runs are saved in" in capsys.readouterr().err
    saved()
    assert call("query", "DROP TABLE runs") == 2
    assert "a query is one SELECT" in capsys.readouterr().err


def test_without_sql_the_tables_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    saved()
    assert call("query", "-q") == 0
    names = capsys.readouterr().out.split()
    assert names == ["runs", "findings", "levels", "samples", "kv_per_core"]
    tables = call_json(capsys, "query", "--json")["tables"]
    assert tables["levels"][-2:] == ["value", "unit"]
    assert call("query") == 0
    assert "findings: run, experiment, node, start" in capsys.readouterr().out


def test_runs_without_findings_are_counted_and_analysed(capsys: pytest.CaptureFixture[str]) -> None:
    saved(analysed=False)
    saved("machine")
    count = "SELECT count(*) AS n FROM findings WHERE experiment = 'kv_per_core'"
    assert call("query", count) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["n", "0"]
    assert "1 of 2 runs have no findings: 'perflib query --analyse'" in " ".join(err.split())
    assert call("query", "--analyse", count) == 0
    out, err = capsys.readouterr()
    assert (out.split(), err) == (["n", "4"], "")


def test_runs_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    run = run_files.load(RUNS / "machine.parquet")
    run_files.save(replace(run, id="machine-1"), other / "a.parquet")
    assert call("import", str(other)) == 0
    assert capsys.readouterr().out.splitlines() == ["1 imported, 0 there already"]
    (entry,) = call_json(capsys, "import", str(other), "--json")["imported"]
    assert entry == {
        "path": str(other / "a.parquet"), "run": "machine-1", "state": "there already", "reason": ""
    }  # fmt: skip
    other.joinpath("b.parquet").write_text("no run")
    assert call("import", str(other)) == 1
    out, err = capsys.readouterr()
    assert f"refused: {other / 'b.parquet'}: " in out
    assert "0 imported, 1 there already" in out
    assert "1 of 2 were refused" in err
    assert call("import", str(tmp_path / "none")) == 1
    assert "there is no such file or folder" in capsys.readouterr().out


def test_export_has_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = saved()
    out = tmp_path / "out"
    assert call("export", run.id, "--out", str(out), "--format", "openmetrics", "--json") == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert Path(file).read_text().endswith("# EOF\n")
    assert call("export", run.id, "--out", str(out), "--format", "cvs") == 2
    assert "unknown format 'cvs': did you mean 'csv'" in capsys.readouterr().err


def test_runs_are_exported_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = [str(RUNS / f"{name}.parquet") for name in ("machine", "kv_per_core")]
    out = tmp_path / "out"
    assert call("export", *stored, "--out", str(out), "--json") == 0
    files = [Path(file) for file in json.loads(capsys.readouterr().out)["files"]]
    assert [run_files.load(file).experiment for file in files] == ["machine", "kv_per_core"]
    assert call("export", *stored, "--out", str(out)) == 2
    assert "already: name another folder" in capsys.readouterr().err
    assert call("export", stored[0], "--out", str(tmp_path / "b"), "--anonymous") == 0
    (file,) = (tmp_path / "b").iterdir()
    assert capsys.readouterr().out == f"exported: {file}\n"
    assert run_files.load(file).provenance["machine"]["hostname"] == "host-1"
