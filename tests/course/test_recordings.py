"""Recorded runs: which is given, what it is marked with, and what those that travel are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import perflib as pl
from perflib import experiments
from perflib.framework import recordings
from perflib.lab.form import Form
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run, recording_of
from perflib.store.paths import notebooks_dir
from perflib.store.reading import read_run
from tests.slow import mostly_slow

FOLDER = Path(recordings.__file__).parent
EVERY = [one for machine in recordings.machines() for one in recordings.recordings(machine)]
_MOST_MIB = 6.25
KV = experiments.get("kv_per_core")


def given(machine: str = "intel-guest", tag: str = "", **params: Any) -> Run:
    return recordings.recorded(KV, machine, KV.params(params), tag)


# --- which is given ------------------------------------------------------------------------------


def test_the_run_with_the_same_parameters_and_tag_is_given() -> None:
    assert given().params["code_kib"] == KV.params({}).model_dump()["code_kib"]
    exercise = given(code_kib=128, tag="exercise")
    assert exercise.params["code_kib"] == 128
    assert given(code_kib=128).id == exercise.id  # there is no other
    assert given(tag="exercise").provenance["tag"] == "exercise"
    assert given().provenance.get("tag") != "exercise"


@pytest.mark.parametrize("path", sorted(notebooks_dir().rglob("*.ipynb")), ids=lambda p: p.stem)
def test_each_notebook_has_a_machine_with_runs_of_all_that_it_asks_for(path: Path) -> None:
    machine = recordings.machine_for(path)
    has = {one.experiment for one in EVERY if one.machine == machine}
    assert recordings.experiments_in(path) <= has
    if not recordings.experiments_in(path):  # any would do: that with the most runs
        assert machine == "intel-guest"


def test_conditions_need_not_be_those_recorded() -> None:
    assert given(budget_s=1.0, seed=77, cores=[0, 1]).id in {
        one.path.stem for one in EVERY if one.experiment == "kv_per_core"
    }


@pytest.mark.parametrize(
    ("machine", "params", "sentence"),
    [
        ("intel-gest", {}, r"unknown recorded machine 'intel-gest': did you mean 'intel-guest'"),
        ("numa2-guest", {}, r"no run of kv_per_core was recorded on numa2-guest \(there are: numa"),
        ("intel-guest", {"code_kib": 200}, r"differs .*in code_kib = 200 \("),
        (
            "intel-guest",
            {"code_kib": 200, "events": 11},
            r"(events = 11|code_kib = 200) \(.*, \w+ =",
        ),
        ("/nowhere/at/all", {}, r"unknown recorded machine '/nowhere/at/all'"),
        ("", {}, r"unknown recorded machine ''"),
    ],
)
def test_what_was_not_recorded_is_a_sentence(
    machine: str, params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        given(machine, **params)


@pytest.mark.parametrize("name", sorted({one.experiment for one in EVERY}))
def test_without_a_parameter_the_recorded_ones_count(name: str) -> None:
    view = pl.experiment(name)
    machine = next(one.machine for one in EVERY if one.experiment == name)
    run = view.run(recorded=machine)
    assert run.provenance["recording"]["machine"] == machine


def test_a_parameter_that_is_named_must_be_the_recorded_one() -> None:
    view = pl.experiment("code_segment")
    sizes = view.run(recorded="intel-guest").params["simulated_sizes"]
    assert sizes != view.params().model_dump()["simulated_sizes"]
    with pytest.raises(UserError, match=r"differs .*in simulated_sizes = 8 \("):
        view.run(recorded="intel-guest", simulated_sizes=8)


def test_nothing_is_measured_or_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    run = pl.experiment("machine").run(recorded="intel-guest")
    assert run.id.startswith("machine-")
    assert not (tmp_path / "home").exists()
    assert "not this machine" in repr(pl.describe("intel-guest"))
    with pytest.raises(UserError, match="did you mean 'intel-guest'"):
        pl.describe("intel-guset")


# --- folders of one's own ------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of one run, without a title."""
    folder = tmp_path / "node7"
    folder.mkdir()
    shutil.copy(next(one.path for one in EVERY if one.experiment == "machine"), folder)
    recordings.recordings.cache_clear()
    return folder


def _machine(folder: Path) -> Run:
    experiment = experiments.get("machine")
    return recordings.recorded(experiment, str(folder), experiment.params({}))


def test_a_folder_of_runs_serves_as_a_machine(own: Path) -> None:
    run = _machine(own)
    assert run.provenance["recording"]["title"] == "runs of your own"
    assert recording_of(run).startswith(str(own))
    (own / "about.toml").write_text('title = "node 7 <b>"\n')
    recordings.recordings.cache_clear()
    assert _machine(own).provenance["recording"]["title"] == "node 7 <b>"


@pytest.mark.parametrize(
    "about", ["", "title", 'name = "x"', "title = [", "\x00", "title = 'x'\ntitle = 'y'"]
)
def test_an_about_without_a_title_is_said(about: str, own: Path) -> None:
    (own / "about.toml").write_text(about)
    with pytest.raises(MeasurementError, match=r"about\.toml has no title"):
        _machine(own)


def test_a_folder_without_runs_or_with_a_damaged_one(own: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no runs: 'perflib export"):
        _machine(tmp_path / "empty")
    (file,) = own.glob("*.parquet")
    file.write_bytes(b"PAR1 but no run")
    with pytest.raises((UserError, MeasurementError), match=re.escape(file.name)):
        _machine(own)


# --- what travels --------------------------------------------------------------------------------


def test_all_of_it_is_small() -> None:
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    assert size <= _MOST_MIB * 2**20


def test_every_machine_says_what_it_is() -> None:
    titles = recordings.machines()
    assert titles["intel-guest"].startswith("a virtual machine")
    readme = (FOLDER / "README.md").read_text()
    for name, title in titles.items():
        assert f"`{name}`" in readme
        virtual = {one.provenance["machine"]["hypervisor"] for one in recordings.recordings(name)}
        if any(virtual):
            assert re.search("virtual|simulated|emulated", title), name
        if "numa" in name:
            assert "simulated under qemu" in title
            assert "mean nothing" in title


@pytest.mark.parametrize(
    "one", mostly_slow({f"{one.machine}/{one.path.stem}": one for one in EVERY}, 12)
)
def test_each_loads_is_analysed_and_says_what_it_is(one: recordings.Recording) -> None:
    experiment = experiments.get(one.experiment)
    tag = str(one.provenance.get("tag", ""))
    params = experiment.current_params(one.params)
    run = recordings.recorded(experiment, one.machine, params, tag)
    assert run.experiment == one.experiment
    assert len(run.samples)
    findings = experiment.analyse(run)
    assert findings
    for finding in findings:
        assert finding.recorded.startswith(f"{one.machine}, 20")
        assert finding.plain.startswith(f"Recorded on {one.machine}, ")


@pytest.mark.parametrize("name", mostly_slow(experiments.NAMES, 5))
def test_every_figure_is_marked(name: str) -> None:
    one = next(one for one in EVERY if one.experiment == name)
    experiment = experiments.get(name)
    run = recordings.recorded(experiment, one.machine, experiment.current_params(one.params))
    figures = experiment.figures(run)
    assert figures
    for drawn, figure in figures.items():
        words = {text.get_text() for text in figure.findobj() if hasattr(text, "get_text")}
        assert any(f"recorded on {one.machine}, " in word for word in words), drawn


def _texts() -> list[tuple[str, str]]:
    """All that a stranger can read in them: records, columns of text, files next to them."""
    found = []
    for one in EVERY:
        found.append((one.path.name, json.dumps([one.params, one.provenance], default=str)))
        words = read_run(one.path).samples.select_dtypes(exclude="number").to_numpy().ravel()
        found.append((one.path.name, " ".join(map(str, words))))
    texts = [*FOLDER.rglob("*.json"), *FOLDER.rglob("*.txt"), *FOLDER.rglob("*.toml")]
    return found + [(file.name, file.read_text(errors="replace")) for file in texts]


def test_no_names_of_users_hosts_or_homes_are_in_them() -> None:
    hosts = {one.provenance["machine"]["hostname"] for one in EVERY}
    assert all(re.fullmatch(r"recorded|host-\d+", host) for host in hosts)
    for name, text in _texts():
        assert not re.search(r"/(home|root|Users|work)/|\w@[a-z]+\.[a-z]+|password", text), name


# --- in a form -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow(experiments.NAMES, 3))
def test_the_form_offers_where_there_is_a_recording(name: str) -> None:
    form = Form(name)
    machines = {one.machine for one in EVERY if one.experiment == name}
    assert set(form.source.options) == {"this machine", *machines}
    assert form.source.value == "this machine"


def test_the_form_shows_a_recorded_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    form = Form("machine")
    form.source.value = "intel-guest"
    form.fields.widgets["cores"].value = "0-63"  # of this machine it would be wrong
    assert not form.run_button.disabled
    form.run_button.click()
    form.wait(120)
    assert form.status.startswith("nothing was measured: recorded on intel-guest, ")
    assert form.run is not None
    assert form._shown
    assert not (tmp_path / "home" / "runs").exists()
    form.fields.widgets["spin_ms"].value = "3"
    form.run_button.click()
    form.wait(120)
    assert "differs (its own in brackets) in spin_ms = 3" in form.message
    form.source.value = "this machine"
    assert form.run_button.disabled  # there are no 64 cores


# --- in a report ---------------------------------------------------------------------------------


def test_a_report_says_which_runs_are_recorded(tmp_path: Path) -> None:
    run = pl.experiment("machine").run(recorded="intel-guest")
    path = tmp_path / "report.html"
    pl.report([run], path)
    text = path.read_text()
    assert "<h1>intel-guest: what slows it down</h1>" in text
    assert "<strong>Recorded on intel-guest, 20" in text
    assert "Not looked at: the runs are from another machine" in text
