"""What ``import perflib as pl`` gives: experiments that run, runs that know what they found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import perflib as pl
from perflib import experiments
from perflib.lab.interface import RunView
from perflib.store import run_files
from tests.stored import RUNS


@pytest.fixture(scope="module")
def kv() -> RunView:
    return pl.load(RUNS / "kv_per_core.parquet")


def test_an_experiment_shows_its_question_parameters_and_presets() -> None:
    for name in experiments.NAMES:
        shown = repr(pl.experiment(name))
        assert experiments.get(name).question in shown
        assert "presets: quick, full" in shown
        assert "conditions: cores, budget_s" in shown


def test_a_misspelt_experiment_names_the_nearest() -> None:
    with pytest.raises(pl.UserError, match="did you mean 'kv_per_core'"):
        pl.experiment("kv_per_coer")


def test_a_run_measures_is_saved_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_TAG", "from a test")
    machine = pl.experiment("machine")
    run = machine.run(budget_s=0.3, spin_ms=20, preset="quick")
    assert f"saved as run {run.id}" in capsys.readouterr().out
    assert run_files.load(run.id).provenance["tag"] == "from a test"
    assert run.findings
    assert set(pl.runs()["id"]) >= {run.id}
    again = machine.run(machine.params(spin_ms=20, budget_s=9), budget_s=0.3, tag="exercise")
    assert again.params["spin_ms"] == 20
    assert again.params["budget_s"] == 0.3
    assert again.provenance["tag"] == "exercise"
    assert [change.of.name for change in pl.compare(run, again)] == ["changed"] * len(run.findings)


def test_wrong_parameters_measure_nothing() -> None:
    before = len(pl.runs())
    mistakes: list[dict[str, Any]]
    mistakes = [{"spin_sm": 20}, {"budget_s": -1}, {"preset": "quik"}, {"conditions": {"x": 1}}]
    for wrong in mistakes:
        with pytest.raises(pl.UserError):
            pl.experiment("machine").run(**wrong)
    assert len(pl.runs()) == before


def test_findings_are_a_table_and_are_found_by_subject(kv: RunView) -> None:
    assert kv.findings["cpu0"].about == {"cpu": 0}
    assert {found.about["cpu"] for found in kv.findings.where(claim="slower")} == {0, 1}
    assert len(kv.findings.where(cpu=1)) == 2
    assert "cpu0" in repr(kv.findings)
    assert "<table" in kv.findings._repr_html_()
    assert list(kv.findings.frame()["subject"]) == [found.subject for found in kv.findings]
    assert repr(kv.summary()).splitlines() == kv.summary()
    with pytest.raises(pl.UserError, match="unknown subject 'cpu9'"):
        _ = kv.findings["cpu9"]


def test_tables_and_plots_are_reached_by_name(kv: RunView) -> None:
    assert isinstance(kv.table("drift"), pd.DataFrame)
    assert isinstance(kv.plot("drift"), Figure)
    assert set(kv.plots) <= set(kv.tables)
    with pytest.raises(pl.UserError, match="unknown table 'dirft': did you mean 'drift'"):
        kv.table("dirft")
    with pytest.raises(pl.UserError, match="unknown plot 'dirft': did you mean 'drift'"):
        kv.plot("dirft")


def test_a_table_of_samples_is_analysed_like_a_run(kv: RunView) -> None:
    brought = pl.experiment("kv_per_core").analyse(kv.samples, threshold_percent=2.0)
    assert {found.of for found in brought.findings} == {found.of for found in kv.findings}
    assert brought.findings["cpu0"].threshold == 2.0
    assert brought.plots == kv.plots
    with pytest.raises(pl.UserError, match="lack the column 'cpu'"):
        pl.experiment("kv_per_core").analyse(kv.samples.drop(columns="cpu"))


def test_a_report_and_a_ledger(kv: RunView, tmp_path: Path) -> None:
    assert pl.report([kv], tmp_path / "r.html").read_text().count("<table") > 1
    assert pl.ledger([pl.load(RUNS / "random_calls.parquet")]).rows


def test_this_machine_is_described_in_tables() -> None:
    this = pl.describe()
    for name in ("facts", "cores", "caches", "tlbs", "tlb_reach", "features"):
        assert "<table" in this.table(name)._repr_html_()
    with pytest.raises(pl.UserError, match="did you mean 'cores'"):
        this.table("corse")
    assert pl.doctor().rows


def test_pandas_opens_a_run_file_by_itself() -> None:
    path = RUNS / "alias_map.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(path), pl.load(path).samples)
