"""Runs for other programs: what they read is what the run holds."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from perflib.experiments import get
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run
from perflib.store import run_files
from perflib.store.export import export
from perflib.store.formats import FORMATS, METRICS
from tests.disk import files_no_larger_than
from tests.stored import RUNS

KV = RUNS / "kv_per_core.parquet"
HOSTILE = '=cmd|"x"\\\n\x1b[2J{y="z"} # EOF\u202e'


def say(run: Run) -> Mapping[str, str]:
    return get(run.experiment).reported(run)


def exported(out: Path, form: str, *paths: Path) -> dict[str, Path]:
    files = export(map(str, paths or (KV,)), out, form=form, report=say)
    return {file.name: file for file in files}


def metrics(path: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus's own parser reads, of OpenMetrics and of the older text format."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    older = pytest.importorskip("prometheus_client.parser")
    text = path.read_text()
    found = [
        {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parse(text)
            for sample in family.samples
        }
        for parse in (
            parser.text_string_to_metric_families,
            older.text_string_to_metric_families,
        )
    ]
    assert found[0] == found[1]
    assert len(found[0]) == len([one for one in text.splitlines() if not one.startswith("#")])
    return found[0]


def test_csv_has_samples_findings_and_levels(tmp_path: Path) -> None:
    run = run_files.load(KV)
    files = exported(tmp_path, "csv")
    assert list(files) == [f"{run.id}{end}.csv" for end in ("", ".findings", ".levels")]
    assert len(run_files.read_table(files[f"{run.id}.csv"])) == len(run.samples)
    with files[f"{run.id}.findings.csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    findings = get("kv_per_core").analyse(run)
    assert [row["claim"] for row in rows] == [one.of.name for one in findings]
    assert [float(row["effect"]) for row in rows] == [one.effect for one in findings]
    assert {row["run"] for row in rows} == {run.id}
    with files[f"{run.id}.levels.csv"].open(newline="") as file:
        levels = list(csv.DictReader(file))
    assert [row["cpu"] for row in levels] == ["0", "1"]
    values = get("kv_per_core").levels(run)["value"].tolist()
    assert [float(row["value"]) for row in levels] == pytest.approx(values)


def test_json_is_one_object(tmp_path: Path) -> None:
    run = run_files.load(KV)
    (path,) = exported(tmp_path, "json").values()
    whole = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (whole["run"], whole["params"]) == (run.id, run.params)
    assert whole["samples"]["columns"] == list(run.samples)
    at = whole["samples"]["columns"].index("time_ns")
    assert [row[at] for row in whole["samples"]["rows"]] == run.samples["time_ns"].tolist()
    assert len(whole["findings"]) == 4
    assert [one["cpu"] for one in whole["levels"]] == [0, 1]


def test_parquet_has_plain_columns_and_is_no_run(tmp_path: Path) -> None:
    run = run_files.load(KV)
    files = exported(tmp_path, "parquet")
    with duckdb.connect() as connection:
        for path in files.values():
            kinds = connection.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
            assert not [kind for _, kind, *_ in kinds if "STRUCT" in kind or kind == "JSON"]
            assert connection.execute(f"FROM parquet_kv_metadata('{path}')").fetchall() == []
    assert len(run_files.read_table(files[f"{run.id}.samples.parquet"])) == len(run.samples)
    with pytest.raises(UserError, match="no run"):
        run_files.load(files[f"{run.id}.samples.parquet"])


def test_metrics_have_findings_and_levels(tmp_path: Path) -> None:
    run = run_files.load(KV)
    (path,) = exported(tmp_path, "openmetrics").values()
    assert path.name == METRICS
    assert path.read_text().endswith("\n# EOF\n")
    found = metrics(path)
    node = run.provenance["machine"]["hostname"]
    for one in get("kv_per_core").analyse(run):
        where = {"cpu": str(one.about["cpu"]), "experiment": "kv_per_core", "node": node}
        labels = {**where, "claim": one.of.name, "subject": one.subject}
        key = tuple(sorted({**labels, "unit": one.unit}.items()))
        assert found["perflib_finding_effect", key] == one.effect
        assert found["perflib_finding_low", key] == one.low
        verdict = tuple(sorted({**labels, "kind": one.kind, "verdict": one.verdict}.items()))
        assert found["perflib_finding_verdict", verdict] == 1
    assert len([name for name, _ in found if name == "perflib_level"]) == 2
    assert [name for name, _ in found].count("perflib_run_start_timestamp_seconds") == 1


def test_metrics_of_all_experiments_are_valid(tmp_path: Path) -> None:
    (path,) = exported(tmp_path, "openmetrics", *sorted(RUNS.glob("*.parquet"))).values()
    found = metrics(path)
    assert len(found) > 100
    assert all(math.isfinite(value) for value in found.values())


def test_metrics_are_of_the_newest_run_and_replaced(tmp_path: Path) -> None:
    run = run_files.load(KV)
    times = {"a": "2026-03-01T00:00:00+00:00", "b": "2026-02-01T00:00:00+00:00"}
    paths = [
        run_files.save(
            replace(run, id=f"kv-{end}", provenance={**run.provenance, "start": start}),
            tmp_path / f"{end}.parquet",
        )
        for end, start in times.items()
    ]
    for _ in range(2):
        (path,) = exported(tmp_path / "out", "openmetrics", *paths).values()
    starts = [value for (name, _), value in metrics(path).items() if "start" in name]
    assert starts == [1772323200.0]
    assert [one.name for one in path.parent.iterdir()] == [METRICS]


def hostile(tmp_path: Path) -> Path:
    run = run_files.load(RUNS / "alias_offsets.parquet")
    provenance = {**run.provenance, "machine": {**run.provenance["machine"], "hostname": HOSTILE}}
    samples = run.samples.assign(function=run.samples["function"] + HOSTILE)
    return run_files.save(
        replace(run, samples=samples, provenance=provenance), tmp_path / "hostile.parquet"
    )


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_names_stay_data(form: str, tmp_path: Path) -> None:
    path = hostile(tmp_path)
    files = exported(tmp_path / "out", form, path)
    for name, file in files.items():
        assert file.stat().st_size > 0
        if form == "openmetrics":
            assert any("EOF" in dict(labels)["node"] for _, labels in metrics(file))
        if name.endswith(".csv"):
            with file.open(newline="") as opened:
                cells = [cell for row in csv.reader(opened) for cell in row]
            assert any(HOSTILE[-8:] in cell for cell in cells)
            assert not [cell for cell in cells if cell[:1] in "=@+" and cell]


@pytest.mark.parametrize("form", FORMATS)
def test_anonymous_exports_name_nobody(form: str, tmp_path: Path) -> None:
    """Findings are made anew of the anonymous run: its sentences hold no name of the original."""
    run = run_files.load(KV)
    machine = {**run.provenance["machine"], "hostname": "secrethost7.farm.example"}
    tasks = {"0": [{"name": "quietd", "pid": 12, "percent": 3.0}]}
    provenance: dict[str, Any] = {**run.provenance, "machine": machine, "tasks": tasks}
    samples = run.samples.assign(run_delay_ns=0.0)  # else nothing is reported of tasks
    run_id = "kv_per_core-20260102-030405-secrethost7-7aaaaaaaaa"
    named = replace(run, id=run_id, provenance=provenance, samples=samples)
    assert "quietd" in str(say(named)), "else nothing here is shown"
    path = run_files.save(named, tmp_path / "named.parquet", say(named))
    files = export([str(path)], tmp_path / "out", anonymous=True, form=form, report=say)
    for file in files:
        for secret in (b"secrethost7", b"farm.example", b"quietd"):
            assert secret not in file.read_bytes() + file.name.encode()
    if form == "run":
        with duckdb.connect() as connection:
            keys = connection.execute(f"SELECT key FROM parquet_kv_metadata('{files[0]}')")
            assert (b"perflib_findings",) in keys.fetchall()


def test_nothing_is_replaced_and_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    exported(tmp_path / "a", "csv")
    with pytest.raises(UserError, match=r"\.csv already: name another folder"):
        exported(tmp_path / "a", "csv")
    with files_no_larger_than(100), pytest.raises(MeasurementError, match="cannot be copied to"):
        exported(tmp_path / "b", "parquet")
    assert list((tmp_path / "b").iterdir()) == []


def test_a_run_that_cannot_be_analysed_says_so(tmp_path: Path) -> None:
    run = replace(run_files.load(KV), experiment="other")
    path = run_files.save(run, tmp_path / "other.parquet")
    with pytest.raises(UserError, match="unknown experiment 'other'"):
        exported(tmp_path / "out", "json", path)
    export([str(path)], tmp_path / "out", anonymous=True, report=say)
