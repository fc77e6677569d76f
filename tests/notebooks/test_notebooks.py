"""The notebooks themselves: kept clean, true to their Params, and running in every door."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

import perflib as pl
from perflib import experiments
from perflib.batch import Outcome, batch
from perflib.framework.params import Params
from perflib.lab.theme import figures
from perflib.model import store
from perflib.model.paths import notebooks_dir

NOTEBOOKS = sorted(notebooks_dir().rglob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
# What lets a notebook take seconds, beside a budget of one.
_SMALLER: dict[str, dict[str, Any]] = {
    "machine": {"spin_ms": 20.0},
    "kv_per_core": {"events": 10},
    "event_profile": {"event_ms": 60.0},
    "random_calls": {"sizes_kib": [8, 64, 2048], "functions": 4096},
    "code_segment": {
        "patterns": ["random", "chase", "line"],
        "sizes_kib": [8, 64, 1024, 4096],
        "simulated_sizes": 2,
    },
    "memory_levels": {
        "largest_mib": 4,
        "smallest_kib": 4,
        "sizes_per_doubling": 1,
        "trial_ms": 0.2,
        "repeats": 3,
    },
    "numa": {"array_mib": 8},
    "alias_map": {"reach_bytes": 16},
    "alias_environment": {
        "starts": 2,
        "iterations": 2048,
        "step_bytes": 64,
        "periods": 1,
        "link_orders": 2,
        "aslr_starts": 2,
        "simulate": False,
    },
    "alias_offsets": {
        "elements": [2048],
        "sizes": [64],
        "sample_ms": 0.1,
        "simulated_offsets": [4, 2048],
    },
    "allocators": {"processes": 4, "timed_sizes": [8192]},
    "simulate": {"events": 1},
    "memory_load": {
        "array_mib": 2,
        "rates": [50],
        "kinds": ["read", "triad"],
        "trial_ms": 0.2,
        "repeats": 2,
    },
    "contention": {"kinds": ["one_line", "fetch_add", "pthread"], "trial_ms": 0.2, "repeats": 2},
    "layout": {"iterations": 1000, "factors": ["environment", "aslr"]},
    "threads": {"events": 20},
    "erasure_coding": {
        "block_mib": 0.0625,
        "implementations": ["ours_table", "ours_simd"],
    },
}
SMALL: dict[str, dict[str, Any]] = {
    name: {"budget_s": 1.0} | _SMALLER.get(name, {}) for name in experiments.NAMES
}
# Measured on the way in another's notebook, whose parameters are those of the cell.
SECOND = {"alias_map", "data_tlb"}
FIRST = [name for name in experiments.NAMES if name not in SECOND]
# The notebooks of no experiment.
INVESTIGATION, FARM, PAIR = "investigation", "farm", "virtual_machine"
_OF_NONE: dict[str, dict[str, Any]] = {  # and what lets them take seconds
    INVESTIGATION: {"minutes": 0.1},
    FARM: {"nodes": 44, "cores": 12, "days": 6},
    PAIR: {"budget_s": 1.0},
}
# Each runs beside the others, but those that need the machine's huge pages one by one.
_HUGE = {"code_segment", "memory_levels", "random_calls"}
RUN = [
    pytest.param(name, marks=pytest.mark.xdist_group("huge pages" if name in _HUGE else name))
    for name in FIRST
]
_MOST_LINES = 30
_LEAST_PROSE = 0.4
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
    assert set(_SMALLER) <= set(experiments.NAMES)


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
            assert len(cell.source.splitlines()) < _MOST_LINES, cell.id
    asked = [cell for cell in code if not _EXERCISE & {*cell.metadata.get("tags", [])}]
    prose = len(notebook.cells) - len(code)
    assert prose / (prose + len(asked)) >= _LEAST_PROSE


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


def test_the_parameter_cell_of_the_investigation_says_the_defaults() -> None:
    (cell,) = tagged(read(path_of(INVESTIGATION)), "parameters")
    said: dict[str, Any] = {}
    exec(cell.source, {}, said)
    assert said.pop("preset") == "quick"
    asked = inspect.signature(pl.investigate).parameters
    assert said == {name: one.default for name, one in asked.items()}


def test_the_parameter_cell_of_the_farm_says_what_may_be_asked() -> None:
    (cell,) = tagged(read(path_of(FARM)), "parameters")
    said: dict[str, Any] = {}
    exec(cell.source, {}, said)
    assert pl.farm_question(dict(said)) == said


def test_the_parameter_cell_of_the_pair_says_what_may_be_asked() -> None:
    (cell,) = tagged(read(path_of(PAIR)), "parameters")
    said: dict[str, Any] = {}
    exec(cell.source, {}, said)
    assert pl.pair_question(dict(said)) == said


# --- through papermill ---------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of runs that holds nothing else."""
    path = tmp_path / "home"
    monkeypatch.setenv("PERFLIB_HOME", str(path))
    monkeypatch.setenv("PERFLIB_TAG", "notebook test")
    monkeypatch.setenv("PERFLIB_SOLUTIONS", "1")  # solutions measure, too
    return path


def needs(name: str) -> None:
    """Skip where this machine lacks what the experiment cannot do without."""
    if name not in _OF_NONE and (why := experiments.get(name).unavailable()):
        pytest.skip(why)


def execute(name: str, parameters: dict[str, Any], out: Path) -> Outcome:
    (outcome,) = batch([path_of(name)], [parameters], out)
    return outcome


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", RUN)
def test_papermill_measures_and_keeps_the_run(name: str, tmp_path: Path) -> None:
    needs(name)
    outcome = execute(name, SMALL[name], tmp_path)
    assert outcome.state == "succeeded", outcome.message
    runs = [store.load(saved.id) for saved in store.runs() if saved.status == "saved"]
    tagged_runs = [run for run in runs if run.provenance["tag"] == "notebook test"]
    (first,) = (run for run in tagged_runs if run.experiment == name)
    assert {run.experiment for run in tagged_runs} <= {name, *SECOND}
    tags = {run.provenance["tag"].partition(" ")[0] for run in runs}
    assert tags == {"notebook", "exercise"}
    for parameter, value in SMALL[name].items():
        assert first.params[parameter] == value
    assert experiments.get(name).analyse(first)
    code = [cell for cell in read(outcome.output).cells if cell.cell_type == "code"]
    shown = [part for cell in code for part in cell.outputs if "image/png" in part.get("data", {})]
    assert len(shown) >= len(figures(first))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("minutes", "measured"),
    [
        pytest.param(0.1, {"alias_map"}, id="no time"),  # but for the reader's own step
        pytest.param(1.0, {"alias_map", "kv_per_core"}, id="one minute", marks=pytest.mark.slow),
    ],
)
def test_papermill_investigates(minutes: float, measured: set[str], tmp_path: Path) -> None:
    outcome = execute(INVESTIGATION, {"minutes": minutes}, tmp_path)
    assert outcome.state == "succeeded", outcome.message
    assert {saved.experiment for saved in store.runs()} >= measured
    (first, *_) = sorted((tmp_path / "reports").iterdir())
    plan = json.loads((first / "investigation.json").read_text())
    assert plan["finished"]
    assert "my question" in {step["name"] for step in plan["steps"]}
    assert (first / "report.html").is_file()
    (concluded,) = [cell for cell in read(outcome.output).cells if cell.id == "conclusion"]
    assert 'aria-label="Conclusion"' in concluded.outputs[0]["data"]["text/html"]


@pytest.mark.usefixtures("home")
def test_papermill_compares_a_farm(tmp_path: Path) -> None:
    outcome = execute(FARM, _OF_NONE[FARM], tmp_path)
    assert outcome.state == "succeeded", outcome.message
    cells = {cell.id: cell for cell in read(outcome.output).cells}
    assert "core 8 of model A is found" in cells["checked"].outputs[0]["text"]
    assert "no runs are saved" in cells["yours"].outputs[0]["text"]
    for name in ("heatmap", "node", "hours"):
        assert "image/png" in cells[name].outputs[0]["data"]


@pytest.mark.usefixtures("home")
def test_papermill_compares_a_guest_with_its_host(tmp_path: Path) -> None:
    """This machine stands for both, and the findings say that it is no pair."""
    outcome = execute(PAIR, _OF_NONE[PAIR], tmp_path)
    assert outcome.state == "succeeded", outcome.message
    assert {saved.experiment for saved in store.runs()} == {"kv_per_core"}
    cells = {cell.id: cell for cell in read(outcome.output).cells}
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
def test_papermill_with_a_wrong_parameter_measures_nothing(
    name: str, parameters: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    outcome = execute(name, parameters, tmp_path)
    assert outcome.state == "failed"
    assert outcome.message.startswith(sentence)
    assert store.runs() == []


# --- through nbval -------------------------------------------------------------------------------


@pytest.mark.slow  # papermill runs the same cells, of all notebooks
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["kv_per_core", "memory_levels", INVESTIGATION, FARM, PAIR])
def test_nbval_runs_every_cell(name: str, tmp_path: Path) -> None:
    needs(name)
    notebook = read(path_of(name))
    (cell,) = tagged(notebook, "parameters")
    smaller = SMALL.get(name) or _OF_NONE[name]
    cell.source += "\n" + "\n".join(f"{key} = {value!r}" for key, value in smaller.items())
    nbformat.write(notebook, tmp_path / f"{name}.ipynb")  # type: ignore[no-untyped-call]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax"]
    argv += ["--nbval-current-env", "--nbval-cell-timeout=300", "-c", os.devnull, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
