"""The start page without a browser: its widgets are pressed as the browser would."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import perflib as pl
from perflib import experiments
from perflib.lab.home import Home, MachinePart, RunsPart, SymptomsPart
from perflib.lab.symptoms import symptoms
from perflib.store import run_files
from perflib.store.paths import notebooks_dir
from tests.stored import RUNS

_PATIENCE_S = 120


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store; reports are written next to it."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = run_files.runs_dir()
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def filled(store: Path) -> Path:
    """Two runs of one experiment, one of another, and a damaged file."""
    for name in ("machine", "kv_per_core"):
        run = run_files.load(RUNS / f"{name}.parquet")
        shutil.copy(RUNS / f"{name}.parquet", store / f"{run.id}.parquet")
    shutil.copy(
        store / f"{run.id}.parquet", store / "kv_per_core-20300101-000000-host-copy.parquet"
    )
    (store / "count-20300102-000000-host-damaged.parquet").write_bytes(b"PAR1 nothing")
    return store


def chosen(part: RunsPart, *beginnings: str) -> None:
    names = [name for _, name in part.chosen.options]
    part.chosen.value = [name for name in names if name.startswith(beginnings)]


def words(text: str) -> str:
    return re.sub(r"<[^>]*>", " ", text)


def test_it_says_what_this_machine_is_and_what_spoils_measurements() -> None:
    part = MachinePart()
    part.wait(_PATIENCE_S)
    assert "cannot be seen from here" in part.facts.value
    assert 'alt="The machine ' in part.facts.value
    assert "data:image/png;base64," in part.facts.value
    assert "perflib doctor" in part.spoilers.value or "Nothing that" in part.spoilers.value
    assert not part.again.disabled


def test_without_a_compiler_it_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_CC", "/nowhere/cc")
    monkeypatch.delenv("PERFLIB_KERNELS", raising=False)
    part = MachinePart()
    part.wait(_PATIENCE_S)
    assert "no C compiler" in part.spoilers.value
    assert "apt-get install gcc" in part.spoilers.value


def test_a_machine_that_cannot_be_examined_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        msg = "no <proc>"
        raise OSError(msg)

    monkeypatch.setattr("perflib.lab.home.examine", fails)
    part = MachinePart()
    part.wait(_PATIENCE_S)
    assert words(part.spoilers.value).strip() == "no &lt;proc&gt;"
    assert not part.again.disabled


@pytest.mark.usefixtures("store")
def test_an_empty_store_says_how_the_first_run_is_made() -> None:
    part = RunsPart()
    assert "No run is saved yet" in part.message.value
    assert part.chosen.layout.display == "none"


@pytest.mark.usefixtures("filled")
def test_runs_are_listed_newest_first_and_searched() -> None:
    part = RunsPart()
    lines = [line for line, _ in part.chosen.options]
    assert lines[0].startswith("damaged: ")
    assert len(lines) == 4
    part.search.value = "MACHINE"
    assert [name.partition("-")[0] for _, name in part.chosen.options] == ["machine"]
    part.search.value = "no such run"
    assert "None of 4 runs" in part.message.value
    part.search.value = ""
    assert len(part.chosen.options) == 4
    assert part.message.value == ""


@pytest.mark.usefixtures("filled")
def test_a_run_is_opened_with_its_sentences_and_each_of_its_figures() -> None:
    part = RunsPart()
    chosen(part, "machine")
    part.open_button.click()
    run = pl.load(part.chosen.value[0])
    assert run.summary()[0][:20] in part.result.value.replace("&#x27;", "'")
    assert "perflib-table" in part.result.value
    assert list(part.figure.options) == run.plots
    pictures = set()
    for name in run.plots:
        part.figure.value = name
        assert f'alt="{name} of {run.id}"' in part.picture.value
        pictures.add(part.picture.value)
    assert len(pictures) == len(run.plots)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("button", "names", "sentence"),
    [
        ("open_button", (), "Choose one run to open: 0 are chosen"),
        ("open_button", ("count",), "count-20300102-000000-host-damaged"),
        ("compare_button", ("machine",), "Choose two runs to compare: 1 are chosen"),
        ("compare_button", ("machine", "kv_per_core-20300101"), "not comparable"),
        ("report_button", (), "Choose the runs of the report: 0 are chosen"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    button: str, names: tuple[str, ...], sentence: str
) -> None:
    part = RunsPart()
    part.chosen.value = ()
    if names:
        chosen(part, *names)
    getattr(part, button).click()
    assert sentence in part.message.value
    assert "Traceback" not in part.message.value
    assert part.result.value == ""


@pytest.mark.usefixtures("filled")
def test_the_later_run_is_compared_with_the_earlier() -> None:
    part = RunsPart()
    chosen(part, "kv_per_core")
    part.compare_button.click()
    later, earlier = part.chosen.value
    assert later > earlier
    assert "kv_per_core" in part.result.value
    assert part.message.value == ""


@pytest.mark.usefixtures("filled")
def test_a_report_is_written_and_none_is_overwritten() -> None:
    part = RunsPart()
    chosen(part, "machine")
    part.report_button.click()
    assert Path("report.html").is_file()
    assert "Written to" in part.message.value
    part.report_button.click()
    assert "exists already" in part.message.value


def test_each_experiment_has_a_button_and_each_named_thing_is_there() -> None:
    part = SymptomsPart()
    assert set(part.buttons) == set(experiments.NAMES)
    for one in symptoms():
        assert one.see
        assert one.may_be
        assert one.notebooks or one.page


def test_symptoms_are_searched_by_symptom_cause_and_experiment() -> None:
    part = SymptomsPart()

    def shown(text: str) -> list[Any]:
        part.search.value = text
        return [one for one, row in part.rows if row.layout.display != "none"]

    assert {"contention"} <= {name for one in shown("false sharing") for name in one.experiments}
    assert [one.experiments for one in shown("code_segment")] == [("code_segment",)]
    for words, name in {"slow core": "kv_per_core", "iTLB": "code_segment"}.items():
        assert [one.experiments for one in shown(words)] == [(name,)]
    assert shown("flat tyre") == []
    assert "perflib investigate" in part.message.value
    assert len(shown("")) == len(symptoms())


def test_a_button_opens_the_form_and_one_that_measures_stays() -> None:
    part = SymptomsPart()
    part.buttons["machine"].click()
    assert part.form is not None
    assert part.place.children == (part.form,)
    part.buttons["numa"].click()
    assert part.form.experiment.name == "numa"
    part.form.stop_button.disabled = False  # as while it measures
    part.buttons["machine"].click()
    assert part.form.experiment.name == "numa"
    assert "stop it first" in part.message.value


def test_links_lead_to_notebooks_that_are_next_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def links() -> str:
        offered = [row.children[1].children[-1].value for _, row in SymptomsPart().rows]
        return " ".join(offered)

    monkeypatch.chdir(notebooks_dir())
    assert 'href="05_code_segment.ipynb"' in links()
    monkeypatch.chdir(tmp_path)
    assert "href" not in links()
    assert "notebook 05_code_segment.ipynb" in links()


def test_every_control_has_a_name() -> None:
    page = Home()
    page.machine.wait(_PATIENCE_S)

    def below(widget: Any) -> list[Any]:
        return [widget, *(one for child in getattr(widget, "children", ()) for one in below(child))]

    controls = [one for one in below(page) if hasattr(one, "disabled")]
    assert len(controls) > len(experiments.NAMES)
    assert [one for one in controls if not one.description] == []
