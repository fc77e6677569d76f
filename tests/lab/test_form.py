"""The form without a browser: its widgets are pressed as the browser would."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from perflib import experiments
from perflib.framework.params import Params, assignments
from perflib.lab.fields import Fields
from perflib.lab.form import Form
from perflib.lab.interface import RunView, experiment
from perflib.lab.repeated import call, command, differing, last_took
from perflib.lab.summary import summary
from perflib.measure.schedule import Status
from perflib.model.errors import MeasurementError
from perflib.model.run import new_id
from perflib.store import run_files
from tests.stored import RUNS

_PATIENCE_S = 120


def type_in(shown: Form, **values: Any) -> None:
    for name, value in values.items():
        shown.fields.widgets[name].value = value


def small() -> Form:
    shown = experiment("machine").form()
    type_in(shown, budget_s="0.4", spin_ms="20")
    return shown


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
    assert shown._shown.startswith(b"\x89PNG")
    assert not shown.run_button.disabled
    assert not shown.save_button.disabled
    own = "budget_s=0.4, spin_ms=20.0"
    assert shown.call.value == f'pl.experiment("machine").run(preset="quick", {own})'
    assert shown.command.value.startswith("perflib run machine --preset quick -p budget_s=0.4")
    assert "The last saved run took" in last_took("machine")

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


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        ("take", MeasurementError("the worker on cpu0 was <killed>"), "was &lt;killed&gt;"),
        ("figures", ValueError("singular matrix"), "singular matrix"),  # ends no measurement
    ],
)
def test_what_fails_is_text(
    what: str, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    shown = small()
    monkeypatch.setattr(shown.experiment, what, fails)
    shown.run_button.click()
    shown.wait(_PATIENCE_S)
    assert said in shown.message
    assert (shown.status == "failed") == (shown.run is None) == (what == "take")
    assert not shown.run_button.disabled


def redraws(
    patch: pytest.MonkeyPatch, rounds: int, round_s: float, drawing_s: float
) -> tuple[int, float]:
    """How often it draws while so many rounds are measured, and how long that takes."""
    shown = small()
    now = [100.0]
    patch.setattr(sys.modules["perflib.lab.form"], "monotonic", lambda: now[0])
    drawn: list[float] = []

    def draw(_: object) -> None:
        drawn.append(now[0])
        now[0] += drawing_s

    patch.setattr(shown, "_draw", draw)
    progress = shown._progress(shown.experiment.params({}))
    for round_ in range(rounds):
        progress(Status(1.0, 1.0, round_, None, lambda: None))  # type: ignore[arg-type, return-value]
        now[0] += round_s
    return len(drawn), now[0] - 100


def test_redrawing_takes_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, elapsed_s = redraws(monkeypatch, 200, 0.05, 0.3)
    assert drawn == pytest.approx(elapsed_s / 3, abs=1.5)


@pytest.mark.parametrize("live_rounds", [0, 3])
def test_it_draws_from_the_round_on_that_the_experiment_says(
    live_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(experiments.get("machine")), "live_rounds", live_rounds)
    assert redraws(monkeypatch, 5, 10.0, 0.0)[0] == 5 - live_rounds


@pytest.mark.parametrize("name", experiments.NAMES)
def test_few_fields_come_first_and_each_has_one_place(name: str) -> None:
    experiment = experiments.get(name)
    fields = Fields(
        experiment.documentation()["parameters"], set(Params.model_fields), lambda: None
    )
    assert set(fields.widgets) == set(experiment.Params.model_fields)
    assert fields.given() == {}  # each says its default
    first, more = (fields.box.children[at] for at in (0, -1))
    grids = [[one for one in grid.children if one.description] for grid in (first, *more.children)]
    assert 3 <= len(grids[0]) <= 5
    assert sorted(one.description for grid in grids for one in grid) == sorted(fields.widgets)
    assert len(more.titles) == len(more.children)


def test_what_differs_from_the_preset_is_marked_and_says_what_it_was() -> None:
    shown = Form("kv_per_core")
    fields = shown.fields
    field = fields.widgets["threshold_percent"]
    assert field.description == "threshold_percent"
    type_in(shown, threshold_percent="2", aslr=False)
    assert field.description == "• threshold_percent (changed)"
    assert "perflib-changed" in field._dom_classes
    assert "preset: 1." in fields._helps["threshold_percent"].value
    assert "limits • 1 changed" in fields._more.titles
    assert fields.widgets["aslr"].description == "• aslr (changed)"
    shown.preset.value = "full"
    assert field.description == "threshold_percent"
    assert "perflib-changed" not in field._dom_classes
    assert "limits" in fields._more.titles


def test_time_and_cost_are_foretold() -> None:
    shown = Form("machine")
    type_in(shown, cores="0", budget_s="45")
    assert "for 45 s at most, on CPU 0;" in shown._foretold.value
    type_in(shown, budget_s="600", fifo_priority="9", settings="thp=always")
    assert "for 10 min at most" in shown._foretold.value
    assert "nothing of ordinary priority" in shown._foretold.value
    assert "sets thp=always for the whole machine" in shown._foretold.value
    type_in(shown, budget_s="soon")
    assert shown._foretold.value == ""


def test_the_last_run_says_how_long_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    assert last_took("machine") == ""
    run = run_files.load(RUNS / "machine.parquet")
    run.provenance |= {"start": "2026-01-01T10:00:00.000+00:00", "stopped": "precision"}
    run.provenance["end"] = "2026-01-01T10:04:00.000+00:00"
    run_files.save(run)
    budget = f"{run.params['budget_s']:g}"
    assert last_took("machine") == f"The last saved run took 4 min in all, with budget_s={budget}."
    assert last_took("numa") == ""


@pytest.mark.parametrize("preset", [None, "quick"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cores": [0], "events": 7, "aslr": False},
        {"preload": [], "environment": {"A": "b c", "D": "'"}, "environment_bytes": 4096},
        {"job": "command", "job_command": "awk '{{print}}' \"a b\"", "threshold_percent": 1 / 3},
    ],
)
def test_the_call_and_the_command_make_the_same_run(
    given: dict[str, Any], preset: str | None
) -> None:
    kv = experiments.get("kv_per_core")
    params = kv.params(given, preset)
    differs = differing(kv, params, preset)
    assert set(differs) <= set(given)

    class Recorder:
        def experiment(self, _: str) -> Recorder:
            return self

        def run(self, preset: str | None = None, **given: Any) -> Params:
            return kv.params(given, preset)

    assert eval(call(kv.name, differs, preset), {"pl": Recorder()}) == params
    words = shlex.split(command(kv.name, differs, preset, "intel-guest"))
    assert words[:3] == ["perflib", "run", "kv_per_core"]
    assert words[-2:] == ["--recorded", "intel-guest"]
    given_words = [after for word, after in itertools.pairwise(words) if word == "-p"]
    assert kv.params(assignments(given_words), preset) == params


def test_interrupted_runs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    name = new_id("machine")
    run_files.runs_dir().mkdir()
    (run_files.runs_dir() / f"{name}.journal").write_text("{}\n")
    assert name in Form("machine").children[0].value
    assert name not in Form("kv_per_core").children[0].value
