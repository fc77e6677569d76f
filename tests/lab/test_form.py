"""The form without a browser: its widgets are pressed as the browser would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from perflib import experiments
from perflib.lab.form import Form
from perflib.lab.interface import RunView, experiment
from perflib.lab.summary import summary
from perflib.measure.schedule import Status
from perflib.model.errors import MeasurementError
from perflib.model.run import new_id
from perflib.store import run_files

_PATIENCE_S = 120


def type_in(shown: Form, **values: Any) -> None:
    for name, value in values.items():
        shown.fields.widgets[name].value = value


def small() -> Form:
    shown = experiment("machine").form()
    type_in(shown, budget_s="0.4", spin_ms="20")
    return shown


def test_every_parameter_has_a_field_that_says_its_default() -> None:
    for name in ("event_profile", "kv_per_core", "layout", "numa", "threads"):
        shown = Form(name)
        shown.preset.value = "(defaults)"
        assert set(shown.fields.widgets) == set(experiments.get(name).Params.model_fields)
        assert shown.fields.given() == {}
        assert not shown.run_button.disabled


def test_a_preset_fills_the_fields() -> None:
    shown = Form("machine")
    shown.preset.value = "full"
    experiment = experiments.get("machine")
    assert experiment.params(shown.fields.given()) == experiment.params({}, "full")


@pytest.mark.parametrize(
    ("name", "text"),
    [("budget_s", "-1"), ("budget_s", "soon"), ("cores", "99999"), ("seed", ""), ("cores", "x-")],
)
def test_a_wrong_value_is_a_sentence_and_nothing_runs(name: str, text: str) -> None:
    shown = small()
    type_in(shown, **{name: text})
    assert name in shown.message
    assert "Traceback" not in shown.message
    assert shown.run_button.disabled
    shown.run_button.click()
    shown.wait(_PATIENCE_S)
    assert shown.run is None
    assert shown.status == "not started"
    type_in(shown, **{name: "1" if name == "seed" else "0" if name == "cores" else "5"})
    assert shown.message == ""
    assert not shown.run_button.disabled


def test_none_can_be_typed_where_it_is_allowed() -> None:
    shown = Form("machine")
    type_in(shown, fifo_priority="5")
    assert shown.fields.given()["fifo_priority"] == "5"
    type_in(shown, fifo_priority=" None ")
    assert shown.fields.given().get("fifo_priority") is None
    assert shown.message == ""


def test_choices_are_a_list_and_switches_a_box() -> None:
    fields = Form("kv_per_core").fields
    assert fields.widgets["job"].options == ("kernel", "program", "pythia", "command")
    fields.widgets["aslr"].value = False
    assert fields.given()["aslr"] is False


def test_run_measures_draws_and_keeps(tmp_path: Path) -> None:
    shown = small()
    shown.run_button.click()
    assert shown.run_button.disabled
    shown.wait(_PATIENCE_S)
    assert shown.message == ""
    assert shown.run is not None
    assert f"kept as run {shown.run.id}" in shown.status
    assert run_files.load(shown.run.id).params["spin_ms"] == 20
    assert {finding.subject for finding in shown.findings} >= {"cpu0"}
    assert isinstance(shown.run, RunView)
    assert list(shown.run.summary()) == summary(shown.findings)
    assert shown.figure_png.startswith(b"\x89PNG")
    assert not shown.run_button.disabled
    assert not shown.save_button.disabled

    for name in ("samples.csv", "samples.parquet"):
        shown.file.value = str(tmp_path / name)
        shown.save_button.click()
        assert name in shown.message
        assert len(run_files.read_table(tmp_path / name)) == len(shown.run.samples)
    shown.save_button.click()
    assert "exists already" in shown.message
    shown.file.value = "samples.xls"
    shown.save_button.click()
    assert "ends in .csv or .parquet" in shown.message


def test_stop_keeps_what_there_is() -> None:
    shown = small()
    type_in(shown, budget_s="600", precision_percent="0.0000001")
    shown.run_button.click()
    while shown.status == "starting…" and shown.run_button.disabled:
        shown.wait(0.05)
    shown.stop_button.click()
    shown.wait(_PATIENCE_S)
    assert shown.run is not None
    assert shown.status.startswith("interrupted: ")
    assert shown.run.provenance["stopped"] == "interrupted"


def test_a_failed_measurement_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        msg = "the worker on cpu0 was <killed>"
        raise MeasurementError(msg)

    shown = small()
    monkeypatch.setattr(shown.experiment, "take", fails)
    shown.run_button.click()
    shown.wait(_PATIENCE_S)
    assert "was &lt;killed&gt;" in shown.message
    assert shown.status == "failed"
    assert not shown.run_button.disabled


def test_a_figure_that_fails_ends_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        msg = "singular matrix"
        raise ValueError(msg)

    shown = small()
    monkeypatch.setattr(shown.experiment, "figures", fails)
    shown.run_button.click()
    shown.wait(_PATIENCE_S)
    assert shown.run is not None
    assert "singular matrix" in shown.message


def test_redrawing_takes_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = small()
    now = [100.0]
    monkeypatch.setattr(sys.modules["perflib.lab.form"], "monotonic", lambda: now[0])
    drawn: list[float] = []

    def draw(_: object) -> None:
        drawn.append(now[0])
        now[0] += 0.3

    monkeypatch.setattr(shown, "_draw", draw)
    progress = shown._progress(shown.experiment.params({}))
    for round_ in range(200):
        progress(Status(1.0, 1.0, round_, None, lambda: None))  # type: ignore[arg-type, return-value]
        now[0] += 0.05
    assert len(drawn) == pytest.approx((now[0] - 100) / 3, abs=1.5)


@pytest.mark.parametrize("live_rounds", [0, 3])
def test_it_draws_from_the_round_on_that_the_experiment_says(
    live_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = small()
    monkeypatch.setattr(type(shown.experiment), "live_rounds", live_rounds)
    now = [100.0]
    monkeypatch.setattr(sys.modules["perflib.lab.form"], "monotonic", lambda: now[0])
    drawn: list[float] = []
    monkeypatch.setattr(shown, "_draw", lambda _: drawn.append(now[0]))
    progress = shown._progress(shown.experiment.params({}))
    for round_ in range(5):
        progress(Status(1.0, 1.0, round_, None, lambda: None))  # type: ignore[arg-type, return-value]
        now[0] += 10.0
    assert len(drawn) == 5 - live_rounds


def test_interrupted_runs_are_told_of() -> None:
    name = new_id("machine")
    journal = run_files.runs_dir() / f"{name}.journal"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("{}\n")
    try:
        assert name in Form("machine").children[0].value
        assert name not in Form("kv_per_core").children[0].value
    finally:
        journal.unlink()
