"""The notebooks themselves: kept clean, true to their Params, and measuring."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

import perflib as pl
from perflib import batch as batches
from perflib import experiments
from perflib.framework.params import Params
from perflib.lab.theme import figures
from perflib.store import run_files
from perflib.store.paths import notebooks_dir
from tests.experiments.small import SMALL
from tests.notebooks.forked import ForkServer, errors
from tests.slow import mostly_slow

pytestmark = pytest.mark.xdist_group("notebooks")
NOTEBOOKS = sorted(notebooks_dir().rglob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
# Measured on the way in another's notebook, whose parameters are those of the cell.
SECOND = {"alias_map", "data_tlb", "sharing"}
FIRST = [name for name in experiments.NAMES if name not in SECOND]
# The notebooks of no experiment.
INVESTIGATION, FARM, PAIR = "investigation", "farm", "virtual_machine"
_OF_NONE: dict[str, dict[str, Any]] = {  # and what lets them take seconds
    INVESTIGATION: {"minutes": 0.1},
    FARM: {"nodes": 44, "cores": 12, "days": 6},
    PAIR: {"budget_s": 1.0},
}
_QUICK = {"machine", "kv_per_core"}  # the others measure in the slow tests
_MAX_LINES = 30
_MIN_PROSE = 0.4
_EXERCISE = {"answer", "solution", "check"}  # three cells of code for one of text


def path_of(name: str) -> Path:
    """The notebook of an experiment, or of none."""
    stem = name if name in _OF_NONE else experiments.get(name).notebook
    return notebooks_dir() / f"{stem}.ipynb"


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def tagged(notebook: Any, tag: str) -> list[Any]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


# --- as they lie in the repository ---------------------------------------------------------------


def test_every_experiment_has_its_notebook() -> None:
    assert {path_of(name) for name in experiments.NAMES} <= set(NOTEBOOKS)
    assert {path.stem for path in NOTEBOOKS} >= set(_OF_NONE)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_kept_clean(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        assert cell.outputs == [], cell.id
        assert cell.execution_count is None, cell.id
        assert not cell.source.rstrip().endswith(";"), cell.id
        if "parameters" not in cell.metadata.get("tags", []):
            assert len(cell.source.splitlines()) < _MAX_LINES, cell.id
    asked = [cell for cell in code if not _EXERCISE & {*cell.metadata.get("tags", [])}]
    prose = len(notebook.cells) - len(code)
    assert prose / (prose + len(asked)) >= _MIN_PROSE


@pytest.mark.parametrize("name", FIRST)
def test_the_parameter_cell_says_the_defaults(name: str) -> None:
    (cell,) = tagged(read(path_of(name)), "parameters")
    said: dict[str, Any] = {}
    exec(cell.source, {}, said)
    assert said.pop("preset") == "quick"
    assert said.pop("conditions") == {}
    assert said.pop("recorded") == ""
    fields = experiments.get(name).Params.model_fields
    assert set(said) == fields.keys() - Params.model_fields.keys()
    for field, value in said.items():
        assert value == fields[field].default, field
        assert type(value) is type(fields[field].default), field


def test_the_parameter_cells_of_no_experiment_say_the_defaults() -> None:
    def given(name: str) -> dict[str, Any]:
        (cell,) = tagged(read(path_of(name)), "parameters")
        found: dict[str, Any] = {}
        exec(cell.source, {}, found)
        return found

    of_investigation = given(INVESTIGATION)
    assert of_investigation.pop("preset") == "quick"
    parameters = inspect.signature(pl.investigate).parameters
    assert of_investigation == {name: one.default for name, one in parameters.items()}
    assert pl.farm_question(given(FARM)) == given(FARM)
    assert pl.pair_question(given(PAIR)) == given(PAIR)


# --- measuring -----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of runs that holds nothing else."""
    path = tmp_path / "home"
    monkeypatch.setenv("PERFLIB_HOME", str(path))
    monkeypatch.setenv("PERFLIB_TAG", "notebook test")
    monkeypatch.setenv("PERFLIB_SOLUTIONS", "1")  # solutions measure, too
    return path


def executed(server: ForkServer, name: str, parameters: dict[str, Any], folder: Path) -> Any:
    """The notebook after all its cells, or all before the first that failed."""
    return server.execute(read(path_of(name)), folder, parameters=parameters)


def cells_of(notebook: Any) -> dict[str, Any]:
    assert not errors(notebook), errors(notebook)
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def check_run(name: str, notebook: Any) -> None:
    """It measured with these parameters, saved and tagged the runs, and drew every figure."""
    cells = cells_of(notebook)
    runs = [run_files.load(saved.id) for saved in run_files.runs() if saved.status == "saved"]
    tagged_runs = [run for run in runs if run.provenance["tag"] == "notebook test"]
    first = next(run for run in tagged_runs if run.experiment == name)
    assert {run.experiment for run in tagged_runs} <= {name, *SECOND}
    tags = {run.provenance["tag"].partition(" ")[0] for run in runs}
    marked = any('"exercise"' in cell.source for cell in cells.values())
    assert tags == {"notebook", "exercise"} if marked else {"notebook"}
    for parameter, value in SMALL[name].items():
        assert first.params[parameter] == value
    assert experiments.get(name).analyse(first)
    shown = [part for cell in cells.values() for part in cell.outputs]
    pictures = [part for part in shown if "image/png" in part.get("data", {})]
    assert len(pictures) >= len(figures(first))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "name",
    mostly_slow(FIRST, _QUICK),
)
def test_a_notebook_measures_and_keeps_the_run(
    server: ForkServer, name: str, tmp_path: Path
) -> None:
    if why := experiments.get(name).unavailable():
        pytest.skip(why)
    check_run(name, executed(server, name, SMALL[name], tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_papermill_does_what_the_fork_does(tmp_path: Path) -> None:
    (tmp_path / "ipykernel_launcher.py").write_text("raise SystemExit")  # anybody may put it there
    (outcome,) = batches.batch([path_of("machine")], [SMALL["machine"]], tmp_path)
    assert outcome.state == "succeeded", outcome.message
    check_run("machine", read(outcome.output))


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_the_notebook_of_an_investigation_investigates(server: ForkServer, tmp_path: Path) -> None:
    cells = cells_of(executed(server, INVESTIGATION, {"minutes": 1.0}, tmp_path))
    assert {saved.experiment for saved in run_files.runs()} >= {"alias_map", "kv_per_core"}
    (first, *_) = sorted((tmp_path / "reports").iterdir())
    plan = json.loads((first / "investigation.json").read_text())
    assert plan["finished"]
    assert "my question" in {step["name"] for step in plan["steps"]}
    assert (first / "report.html").is_file()
    assert 'aria-label="Conclusion"' in cells["conclusion"].outputs[0]["data"]["text/html"]


@pytest.mark.usefixtures("home")
def test_the_notebook_of_a_farm_compares(server: ForkServer, tmp_path: Path) -> None:
    cells = cells_of(executed(server, FARM, _OF_NONE[FARM], tmp_path))
    assert "core 8 of model A is found" in cells["checked"].outputs[0]["text"]
    assert "no runs are saved" in cells["yours"].outputs[0]["text"]
    for name in ("heatmap", "node", "hours"):
        assert "image/png" in cells[name].outputs[0]["data"]


@pytest.mark.usefixtures("home")
def test_the_notebook_of_a_guest_and_its_host_compares(server: ForkServer, tmp_path: Path) -> None:
    """This machine stands for both, and the findings say that it is no pair."""
    cells = cells_of(executed(server, PAIR, _OF_NONE[PAIR], tmp_path))
    assert {saved.experiment for saved in run_files.runs()} == {"kv_per_core"}
    assert any("image/png" in part.get("data", {}) for part in cells["figure"].outputs)
    assert "nested paging" in cells["verdict"].outputs[0]["text"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("machine", {"bugdet_s": 3}, "unknown parameter 'bugdet_s': did you mean 'budget_s'?"),
        ("kv_per_core", {"events": 0}, "parameter 'events': 0: "),
        ("event_profile", {"job": "running"}, "job=running and job_pid=... go together"),
        (INVESTIGATION, {"minuets": 3}, "unknown parameter 'minuets': did you mean 'minutes'?"),
        (FARM, {"nodse": 40}, "unknown parameter 'nodse': did you mean 'nodes'?"),
        (PAIR, {"host": "node7"}, "give both host and guest, or neither"),
        (PAIR, {"budget_s": 0}, "parameter 'budget_s': 0: a number above 0"),
        (FARM, {"cores": 2}, "parameter 'cores': 2: a whole number from 10 on"),
        (INVESTIGATION, {"core": 4095}, "--core 4095: the cores that may be used here are"),
    ],
)
def test_a_wrong_parameter_measures_nothing(
    server: ForkServer, name: str, parameters: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    (error,) = errors(executed(server, name, parameters, tmp_path))
    assert error.startswith(f"UserError: {sentence}")
    assert run_files.runs() == []
