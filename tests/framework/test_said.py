"""What an analysis says is saved with its run, and never costs the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.analysing import analyse_runs
from perflib.framework.levels import levels_table
from perflib.model.errors import MeasurementError
from perflib.model.run import Run
from perflib.store import run_files
from tests.disk import files_no_larger_than
from tests.framework.tiny import Tiny, TinyParams
from tests.model.made import slower
from tests.stored import RUNS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "runs"


def measured(monkeypatch: pytest.MonkeyPatch, analyse: Callable[[Any, Run], Any]) -> Run:
    """A run of Tiny, whose analysis is another."""
    monkeypatch.setattr(Tiny, "analyse", analyse)
    return Tiny().measure(TinyParams.make({"rounds": 2, "budget_s": 5.0}))


def test_a_saved_run_carries_findings_and_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tiny, "levels", lambda *_: levels_table([(8, "n=1", 2.5, "ns")]))
    run = measured(monkeypatch, lambda *_: [slower(8, "supported", 12.0)])
    found = run_files.query("SELECT run, subject, effect FROM findings").to_numpy().tolist()
    assert found == [[run.id, "cpu8", 12.0]]
    levels = run_files.query("SELECT cpu, setting, value, unit FROM levels").to_numpy().tolist()
    assert levels == [[8, "n=1", 2.5, "ns"]]
    assert run_files.load(run.id).provenance == run.provenance


def test_an_analysis_that_fails_costs_the_findings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    run = measured(monkeypatch, fails)
    back = run_files.load(run.id)
    assert len(back.samples) == len(run.samples) > 0
    (remark,) = back.provenance["remarks"]
    assert remark == "the run is saved without findings: its analysis failed: ZeroDivisionError"
    assert run_files.query("SELECT count(analysed) AS n FROM runs")["n"].tolist() == [0]


def test_an_analysis_that_is_interrupted_costs_the_findings_alone(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(monkeypatch, interrupted)
    (file,) = folder.iterdir()  # and no journal
    assert len(run_files.load(file.stem).samples) > 0


def test_runs_without_findings_are_analysed_later() -> None:
    run = run_files.load(RUNS / "kv_per_core.parquet")
    path = run_files.save(run)
    before = path.read_bytes()
    broken = Run("other-1", "other", {}, run.samples, {})
    run_files.save(broken)
    counted: list[tuple[int, int]] = []
    failed = analyse_runs(lambda done, of: counted.append((done, of)))
    assert list(failed) == ["other-1"]
    assert "unknown experiment 'other'" in failed["other-1"]
    assert counted == [(1, 2), (2, 2)]
    assert path.read_bytes() == before
    plain = [finding.plain for finding in get("kv_per_core").analyse(run)]
    assert run_files.query("SELECT plain FROM findings")["plain"].tolist() == plain
    assert len(run_files.query("SELECT * FROM levels")) == 2
    assert len(analyse_runs()) == 1  # only what failed is tried again
    (analysed,) = run_files.query("SELECT analysed FROM runs WHERE experiment = 'kv_per_core'")[
        "analysed"
    ]
    assert isinstance(analysed, str)


def test_what_was_analysed_before_an_interruption_is_kept() -> None:
    for name in ("kv_per_core", "machine"):
        run_files.save(run_files.load(RUNS / f"{name}.parquet"))

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyse_runs(interrupt)
    assert run_files.query("SELECT count(analysed) AS n FROM runs")["n"].tolist() == [1]


def test_findings_that_cannot_be_kept_say_so() -> None:
    run_files.save(run_files.load(RUNS / "machine.parquet"))
    with files_no_larger_than(100), pytest.raises(MeasurementError, match="cannot be kept in"):
        analyse_runs()
