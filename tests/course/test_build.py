"""Hand-outs: what each version keeps, and what it earns when it runs on recorded data."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perflib.course.build import CONFIG, Handout, build, handouts, made
from perflib.course.items import Prediction
from perflib.framework.recordings import machine_for
from perflib.model.errors import UserError
from tests.course.running import SCORE, executed, score
from tests.notebooks.forked import ForkServer

EVERY = {one.lesson.name: one for one in handouts()}
_OFTEN = "machine"
RUN = [
    pytest.param(one, id=name, marks=() if name == _OFTEN else pytest.mark.slow)
    for name, one in EVERY.items()
    if "recorded = " in one.notebook.read_text()
]
EACH = [pytest.param(one, id=name) for name, one in EVERY.items()]
MACHINE = "intel-guest"
_MIN_LENGTH = 10  # characters: shorter lines are a bracket, or a name


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def cells(notebook: dict[str, Any], tag: str) -> list[dict[str, Any]]:
    return [one for one in notebook["cells"] if tag in one["metadata"].get("tags", [])]


def original(one: Handout) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(one.notebook.read_text(encoding="utf-8"))
    return notebook


# --- what is in them -----------------------------------------------------------------------------


@pytest.mark.parametrize("one", EACH)
def test_nothing_of_a_solution_is_left_for_students(one: Handout) -> None:
    """Lines that stand elsewhere in the notebook, too, tell nothing."""
    student, whole = made(one, "student"), original(one)
    solutions = cells(whole, "solution")
    assert solutions
    kept = json.dumps(student, ensure_ascii=False)
    others = {line for cell in student["cells"] for line in source(cell).splitlines()}
    for solution in solutions:
        assert solution["id"] not in {cell["id"] for cell in student["cells"]}
        for line in source(solution).splitlines():
            if len(line.strip()) >= _MIN_LENGTH and line not in others:
                assert json.dumps(line, ensure_ascii=False)[1:-1] not in kept, line
    assert not cells(student, "solution")
    assert "# Solution " not in kept
    assert len(student["cells"]) == len(whole["cells"]) - len(solutions)
    nbformat.validate(student)


@pytest.mark.parametrize("one", EACH)
def test_solutions_always_run_and_are_seen(one: Handout) -> None:
    whole = made(one, "solution")
    nbformat.validate(whole)
    for cell in cells(whole, "solution"):
        if cell["cell_type"] == "code":
            assert source(cell).startswith("# The solution of ")
            assert "jupyter" not in cell["metadata"]
    assert len(whole["cells"]) == len(original(one)["cells"])


@pytest.mark.parametrize("one", EACH)
def test_nbgrader_takes_its_metadata(one: Handout) -> None:
    validator = pytest.importorskip("nbgrader.nbgraderformat.v3").MetadataValidatorV3()
    notebook = nbformat.from_dict(made(one, "nbgrader"))  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    validator.validate_nb(notebook)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    points = {item.name: item.points for item in one.lesson.items}
    assert sum(cell.metadata.nbgrader.points for cell in graded) == sum(points.values())
    for cell in graded:
        assert cell.metadata.nbgrader.locked
        assert cell.source.endswith("nbgrader makes the grade")
    for cell in notebook.cells:
        if "### BEGIN SOLUTION" in cell.source:
            assert cell.metadata.nbgrader.solution
            assert cell.source.count("### END SOLUTION") == 1
            compile(cell.source, cell.id, "exec")


@pytest.mark.parametrize("one", EACH)
def test_in_a_kernel_without_perflib_nbgraders_cells_say_what_to_install(
    one: Handout, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = made(one, "nbgrader")
    monkeypatch.setitem(sys.modules, "perflib", None)
    (first, *_) = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for cell in [first, *cells(notebook, "check")]:
        with pytest.raises(AssertionError, match="pip install 'perflib-jupyter"):
            exec(source(cell), {})


@pytest.mark.parametrize("one", EACH)
def test_links_lead_to_what_is_handed_out(one: Handout) -> None:
    alone = made(one, "student")
    for cell in alone["cells"]:
        if cell["cell_type"] == "markdown":
            assert ".ipynb)" not in source(cell), cell["id"]
            assert "](../" not in source(cell), cell["id"]


def test_links_between_notebooks_stay_where_both_are() -> None:
    there = {one.place for one in EVERY.values()}
    texts = [
        source(cell)
        for one in EVERY.values()
        for cell in made(one, "student", there=there)["cells"]
        if cell["cell_type"] == "markdown"
    ]
    assert any(".ipynb)" in text for text in texts)
    assert not any("docs/references.md" in text for text in texts)


@pytest.mark.parametrize("one", EACH)
def test_every_exercise_has_one_check(one: Handout) -> None:
    asked = "\n".join(map(source, cells(original(one), "check")))
    names = re.findall(r'lab\.check\("([^"]+)"', asked)
    assert sorted(names) == sorted(item.name for item in one.lesson.items)


# --- what they earn ------------------------------------------------------------------------------


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A student's computer: no runs, no predictions, no environment variable that opens."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    monkeypatch.delenv("PERFLIB_SOLUTIONS", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.mark.xdist_group("notebooks")  # one process executes them all
def test_solutions_earn_full_marks(server: ForkServer, closed: Path) -> None:
    """Of the other lessons tests/notebooks runs the solutions; each has tests of wrong answers."""
    done = executed(server, made(EVERY[_OFTEN], "solution", MACHINE), closed / "work", SCORE)
    for name, row in score(done.cells[-1]).items():
        assert row["points"] == row["of"], (name, row["says"])


@pytest.mark.xdist_group("notebooks")  # one process executes them all
@pytest.mark.parametrize("one", RUN)
def test_a_student_who_does_nothing_earns_nothing_and_sees_no_error(
    server: ForkServer, closed: Path, one: Handout
) -> None:
    student = made(one, "student", machine_for(one.notebook))
    done = executed(server, student, closed / "work", SCORE)
    for name, row in score(done.cells[-1]).items():
        is_prediction = isinstance(one.lesson.item(name), Prediction)
        assert row["points"] == 0, name
        assert row["says"] == f"not {'predicted' if is_prediction else 'answered'} yet", name


@pytest.mark.slow  # nbgrader starts three times, and runs two notebooks
def test_nbgrader_grades_what_it_hands_out(closed: Path) -> None:
    pytest.importorskip("nbgrader")
    name = _OFTEN
    course = closed / "course"
    build(course, [EVERY[name]], "nbgrader", MACHINE)
    _nbgrader(course, "generate_assignment", name)
    (release,) = (course / "release" / name).glob("*.ipynb")
    for student, handed_in in (("all", course / "source" / name), ("none", release.parent)):
        shutil.copytree(handed_in, course / "submitted" / student / name)
    _nbgrader(course, "autograde", name)
    _nbgrader(course, "export", "--to", "grades.csv")
    head, *rows = (line.split(",") for line in (course / "grades.csv").read_text().splitlines())
    graded = {row[head.index("student_id")]: row[head.index("score")] for row in rows}
    points = sum(item.points for item in EVERY[name].lesson.items)
    assert {student: float(score) for student, score in graded.items()} == {
        "all": points,
        "none": 0.0,
    }
    assert "NotImplementedError" not in release.read_text()


def _nbgrader(course: Path, *words: str) -> None:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # it calls others by name
    argv = [sys.executable, "-m", "nbgrader", *words]
    done = subprocess.run(
        argv,
        cwd=course,
        env=os.environ | {"PATH": programs},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


# --- where they go -------------------------------------------------------------------------------

ONE = EVERY["code_segment"]


def test_files_lie_as_the_notebooks_do(tmp_path: Path) -> None:
    paths = build(tmp_path / "new" / "folder", list(EVERY.values()), "student")
    places = [path.relative_to(tmp_path / "new" / "folder").as_posix() for path in paths]
    assert places == [str(one.place) for one in EVERY.values()]
    (graded, config) = build(tmp_path / "class", [ONE], "nbgrader")
    assert graded == tmp_path / "class" / "source" / "code_segment" / "05_code_segment.ipynb"
    compile(config.read_text(), CONFIG, "exec")


def test_an_earlier_hand_out_stays_unless_it_is_forced(tmp_path: Path) -> None:
    (path,) = build(tmp_path, [ONE], "student")
    before = path.read_bytes()
    with pytest.raises(UserError, match="exists already"):
        build(tmp_path, [ONE], "solution")
    assert path.read_bytes() == before
    assert build(tmp_path, [ONE], "solution", force=True) == [path]
    assert path.read_bytes() != before


def test_what_somebody_changed_is_never_replaced(tmp_path: Path) -> None:
    (path,) = build(tmp_path, [ONE], "student")
    notebook = json.loads(path.read_text())
    notebook["cells"][3]["outputs"] = []  # a run changes outputs alone
    path.write_text(json.dumps(notebook))
    build(tmp_path, [ONE], "student", force=True)
    notebook["cells"][3]["source"] = ["answer_2 = 17"]
    for content in (json.dumps(notebook), "no notebook", '{"cells": []}', "[]"):
        path.write_text(content)
        with pytest.raises(UserError, match="is not as 'perflib course build' made it"):
            build(tmp_path, [ONE], "student", force=True)
        assert path.read_text() == content


def test_either_all_are_written_or_none(tmp_path: Path) -> None:
    last = list(EVERY.values())[-1]
    path = tmp_path / last.place
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        build(tmp_path, list(EVERY.values()), "student")
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]


def test_a_recorded_machine_is_written_into_the_parameters(tmp_path: Path) -> None:
    (cell,) = cells(made(ONE, "student", MACHINE), "parameters")
    assert 'recorded = "intel-guest"' in source(cell).splitlines()
    (path,) = build(tmp_path, [ONE], "student", MACHINE)
    assert json.loads(path.read_text())["metadata"]["perflib"]["recorded"] == MACHINE


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        ("intel-gest", "did you mean 'intel-guest'"),
        ("numa2-guest", "asks for code_segment, of which numa2-guest has no run"),
    ],
)
def test_a_machine_that_cannot_serve_is_refused(
    machine: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        build(tmp_path / "out", [ONE], "student", machine)
    assert not (tmp_path / "out").exists()


def _with(tmp_path: Path, *texts: tuple[str, str]) -> Handout:
    """The lesson with a notebook in which some texts are others."""
    notebook = ONE.notebook.read_text()
    for before, after in texts:
        assert before in notebook
        notebook = notebook.replace(before, after)
    path = tmp_path / "changed.ipynb"
    path.write_text(notebook)
    return Handout(ONE.lesson, path, ONE.place)


def test_a_notebook_whose_checks_are_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="each of the 7 exercises needs one cell"):
        made(_with(tmp_path, ('"check"', '"chekc"')), "nbgrader")
    without = _with(tmp_path, ('lab.check(\\"2\\", answer_2', 'print(\\"2\\", answer_2'))
    with pytest.raises(UserError, match=r"the cell check-2 must end with one lab\.check"):
        made(without, "nbgrader")
    with pytest.raises(UserError, match="its parameters have no 'recorded'"):
        made(_with(tmp_path, ("recorded = ", "recorder = ")), "student", MACHINE)
