"""A student's lab: predictions that are kept, answers that are checked, solutions that open."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.worksheet import Lab
from perflib.model.errors import UserError
from tests.course.running import executed, printed
from tests.notebooks.forked import ForkServer

LESSON = Lesson(
    name="made",
    title="A lesson",
    minutes=10,
    objectives=["Do this.", "Do that."],
    items=[
        Prediction(name="reach", unit="KiB", measured=lambda run: run.measured, hints=["Count."]),
        Choice(
            name="4",
            question="Which?",
            options={"a": "<b>", "b": "that"},
            right="b",
            because={"a": "no <i>", "b": "yes"},
            hints=["first", "second"],
        ),
        Relation(
            name="half",
            points=2,
            holds=lambda answer, run: Judged(0.5, f"{answer} of {run.measured}"),
        ),
    ],
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("PERFLIB_HOME", str(path))
    monkeypatch.delenv("PERFLIB_SOLUTIONS", raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    return path


@pytest.fixture
def lab() -> Lab:
    return Lab(LESSON)


def run(**provenance: Any) -> Any:
    return SimpleNamespace(measured=Measured(90, 100, 110, "the knee"), provenance=provenance)


# --- predictions ---------------------------------------------------------------------------------


def test_a_prediction_outlives_its_lab(lab: Lab) -> None:
    assert "kept: you predict reach = 128 KiB" in str(lab.predict("reach", 128, unit="KiB"))
    later = Lab(LESSON)
    assert later.guess("reach") == 128
    assert "you predicted 128 KiB" in later.check("reach", run()).says
    later.predict("reach", 64, unit="KiB")
    assert Lab(LESSON).guess("reach") == 64


def test_a_choice_and_its_tries_outlive_their_lab(lab: Lab) -> None:
    asked = lab.ask("4")
    for key in ("a", "b"):
        asked.options.value = key
        asked.button.click()
    later = Lab(LESSON)  # after a restart of the kernel, or in a second copy of the sheet
    assert later.check("4", None).says == "yes (at try 2)"  # before its question is shown again
    again = later.ask("4")
    assert (again.chosen, again.said.value) == ("b", "kept before")
    again.button.click()
    assert later.score().set_index("name")["points"]["4"] == 0.5
    assert Lab(LESSON).check("4", "b").points == 0.5  # written, too


def test_a_copy_in_another_folder_begins_without_answers(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.predict("reach", 128, unit="KiB")
    lab.check("4", "a")
    lab.ask("4").options.value = "b"
    monkeypatch.chdir(tmp_path)
    assert lab.guess("reach") == 128  # the folder is that in which the lab was made
    other = Lab(LESSON)
    assert other.guess("reach") is None
    assert other.ask("4").chosen is None
    assert other.check("4", None).mark == "○"
    assert other.check("4", "b").right


@pytest.mark.parametrize("content", ['{"4": {"chosen": ["b"], "tried": [5]}}', '{"4": {}}'])
def test_what_is_no_option_is_not_chosen(content: str, lab: Lab, home: Path) -> None:
    lab.check("4", "a")
    (file,) = (home / "lessons").iterdir()
    file.write_text(content)
    assert Lab(LESSON).ask("4").chosen is None
    assert Lab(LESSON).check("4", "b").right


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"reach": 5}', '{"reach": {"guess": "x", "at": 1}}', '{"reach": {}}', "\x00"],
)
def test_a_damaged_file_of_predictions_is_as_none(content: str, lab: Lab, home: Path) -> None:
    lab.predict("reach", 128, unit="KiB")
    (file,) = (home / "lessons").iterdir()
    file.write_text(content)
    later = Lab(LESSON)
    assert later.guess("reach") is None
    assert lab.guess("reach") == 128  # whose kernel still knows it
    assert later.check("reach", run()).says == "not predicted yet"
    later.predict("reach", 1, unit="KiB")
    assert Lab(LESSON).guess("reach") == 1


def test_where_nothing_can_be_written_the_kernel_keeps_it(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "file"))
    said = str(lab.predict("reach", 128, unit="KiB"))
    assert said.startswith("kept until the kernel ends (")
    assert lab.check("reach", run()).points == 0.5
    lab.ask("4").options.value = "b"
    assert lab.check("4", None).right
    assert Lab(LESSON).guess("reach") is None


def test_what_nbgrader_runs_sees_no_answer_of_others(
    lab: Lab, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.predict("reach", 128, unit="KiB")
    lab.check("4", "a")
    lab.ask("4").options.value = "b"
    before = [path.read_bytes() for path in (home / "lessons").iterdir()]
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    graded = Lab(LESSON)
    assert graded.guess("reach") is None
    assert graded.check("4", None).points == 0
    assert graded.check("4", "b").right
    graded.predict("reach", 7, unit="KiB")
    assert graded.check("reach", run()).points == 0.5
    assert Lab(LESSON).guess("reach") is None
    assert [path.read_bytes() for path in (home / "lessons").iterdir()] == before


def test_a_prediction_after_the_measurement_is_said_to_be_one(lab: Lab) -> None:
    lab.predict("reach", 100, unit="KiB")
    early = run(start="2000-01-01T00:00:00+00:00")
    late = run(start=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 60)))
    recorded = run(
        start="2000-01-01T00:00:00+00:00", recording={"machine": "x", "day": "2000-01-01"}
    )
    assert "predicted after it was measured" in lab.check("reach", early).says
    for other in (late, recorded, run()):
        assert "after it was measured" not in lab.check("reach", other).says
    assert lab.check("reach", early).points == 0.5  # it is said, not punished


def test_a_cell_that_runs_again_predicts_no_later(lab: Lab, home: Path) -> None:
    lab.predict("reach", 100, unit="KiB")
    (file,) = (home / "lessons").iterdir()
    before = file.read_bytes()
    Lab(LESSON).predict("reach", 100, unit="KiB")
    assert file.read_bytes() == before
    lab.predict("reach", 101, unit="KiB")
    assert file.read_bytes() != before


def test_names_and_units_are_those_of_the_lesson(lab: Lab) -> None:
    with pytest.raises(UserError, match="did you mean 'reach'"):
        lab.predict("raech", 1, unit="KiB")
    with pytest.raises(UserError, match="is asked for in KiB, not in MiB"):
        lab.predict("reach", 1, unit="MiB")
    with pytest.raises(UserError, match="unknown prediction '4'"):
        lab.predict("4", 1, unit="KiB")
    for call in (lab.check, lab.open):
        with pytest.raises(UserError, match="unknown exercise 'five'"):
            call("five")


def test_compare_draws_the_guess_beside_the_interval(lab: Lab) -> None:
    assert type(lab.compare("reach", run())).__name__ == "Image"
    lab.predict("reach", 5000, unit="KiB")
    assert type(lab.compare("reach", run())).__name__ == "Image"
    nothing = SimpleNamespace(measured="no knee", provenance={})
    assert str(lab.compare("reach", nothing)) == "nothing to compare: no knee"


def test_what_a_recorded_run_shows_is_marked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(
        "perflib.lab.theme.show", lambda figure: titles.append(figure.get_suptitle())
    )
    lab.predict("reach", 5000, unit="KiB")
    recorded = run(recording={"machine": "x", "day": "2000-01-01"})
    mark = "recorded on x, 2000-01-01"
    lab.compare("reach", recorded)
    assert lab.check("reach", recorded).says.endswith(f"({mark})")
    lab.compare("reach", run())
    assert titles == [f"{mark}, not measured here", ""]
    assert "recorded" not in lab.check("reach", run()).says


# --- checks --------------------------------------------------------------------------------------


def test_hints_advance_and_the_last_one_stays(lab: Lab) -> None:
    assert [lab.check("4", "a").hint for _ in range(3)] == ["first", "second", "second"]
    right = lab.check("4", "b")
    assert (right.points, right.hint, right.says) == (0.5, "", "yes (at try 2)")
    unread = lab.check("4", "x")  # which is no try
    assert unread.says.startswith("unknown answer 'x'")
    assert unread.hint == ""


def test_each_wrong_answer_costs_its_share() -> None:
    answers = {key: key for key in "abcd"}
    choice = Choice(name="1", question="Which?", options=answers, right="d", because=answers)
    lab = Lab(dataclasses.replace(LESSON, items=[choice]))
    for wrong in ("a", "a", "x", "b"):
        assert lab.check("1", wrong).points == 0
    assert lab.check("1", "d").points == 0.5
    lab.check("1", "c")
    assert lab.check("1", "d").points == 0.25


def test_an_answer_given_by_a_button_counts(lab: Lab) -> None:
    asked = lab.ask("4")
    assert lab.check("4", None).says == "not answered yet"
    asked.options.value = "b"
    assert lab.check("4").right
    assert lab.check("4", None).right
    assert not lab.check("4", "a").right  # what is written counts before it
    with pytest.raises(UserError, match="has no answers to choose from"):
        lab.ask("half")


class Cells:
    """What IPython displays, by the cell's number; updates replace it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, bundle: dict[str, str], **_: object) -> Any:
        place = len(self.shown)
        self.shown.append(bundle["text/plain"])

        def update(bundle: dict[str, str], **_: object) -> None:
            assert bundle["text/html"].startswith('<div class="perflib-check"')
            self.shown[place] = bundle["text/plain"]

        return SimpleNamespace(update=update)


def test_a_check_before_the_click_is_shown_again_after_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = Cells()
    monkeypatch.setattr("IPython.display.display", cells.display)
    asked, field = lab.ask("4"), lab.predict("reach", unit="KiB")
    for checked in (lab.check("4", None), lab.check("reach", run()), lab.check("reach")):
        checked._ipython_display_()  # type: ignore[attr-defined]
    assert cells.shown[0] == "○ 4: not answered yet (0 of 1)"
    assert cells.shown[1] == cells.shown[2] == "○ reach: not predicted yet (0 of 0.5)"
    asked.options.value = "a"
    asked.button.click()
    assert cells.shown[0].startswith("✘ 4: no <i> (0 of 1)\n  hint: first")
    asked.options.value = "b"
    asked.button.click()
    assert cells.shown[0] == "◐ 4: yes (at try 2) (0.5 of 1)"
    assert lab.score().set_index("name")["points"]["4"] == 0.5
    field.field.value = "100"  # type: ignore[union-attr]
    field.button.click()  # type: ignore[union-attr]
    assert "agrees with the knee" in cells.shown[1]
    field.field.value = "x"  # type: ignore[union-attr]
    field.button.click()  # type: ignore[union-attr]
    assert "is no number" in field.said.value  # type: ignore[union-attr]
    assert cells.shown[2] == "● reach: you predict 100 KiB (0.5 of 0.5)"
    assert not hasattr(lab.check("half", None), "_ipython_display_")  # no button will answer it


def test_a_written_answer_is_kept_by_a_click(lab: Lab) -> None:
    asked = lab.ask("4")
    assert lab.check("4", "b").right
    asked.options.value = "a"
    asked.button.click()
    assert "no &lt;i&gt;" in asked.said.value
    assert lab.score().set_index("name")["points"]["4"] == 1.0


def test_the_score_counts_the_last_answer(lab: Lab) -> None:
    assert list(lab.score()["says"]) == ["not checked yet"] * 3 + [""]
    lab.check("4", "a")
    lab.check("4", "b")
    lab.check("half", 3, run())
    table = lab.score().set_index("name")
    assert dict(table["points"]) == {"reach": 0.0, "4": 0.5, "half": 1.0, "total": 1.5}
    assert dict(table["of"]) == {"reach": 0.5, "4": 1.0, "half": 2, "total": 3.5}
    assert list(table["kind"]) == ["prediction", "choice", "relation", ""]


# --- solutions -----------------------------------------------------------------------------------

GATED = """\
# Solution 4
answer = "b"
print("ran")
"""


@pytest.mark.parametrize(
    ("first", "closed"),
    [
        ("# Solution 4", "4"),
        ("# Solution 4   ", "4"),
        ("# Solution of 4", "of 4"),  # of an exercise that there is not, but no name is checked
        ("#Solution 4", ""),
        ("# The solution of 4:", ""),
        ("x = 1", ""),
    ],
)
def test_which_cells_are_closed(first: str, closed: str, lab: Lab) -> None:
    source = [f"{first}\n", "print(1)\n"]
    said = f"print(\"the solution stays closed: lab.open('{closed}') opens it\")\n"
    assert lab._gate(source) == ([said] if closed else source)
    assert lab._gate([]) == []


def test_open_and_the_environment_open(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ["# Solution 4\n", "print(1)\n"]
    assert lab._gate(source) != source
    assert "runs now" in str(lab.open("4"))
    assert lab._gate(source) == source
    other = ["# Solution reach\n"]
    assert lab._gate(other) != other
    monkeypatch.setenv("PERFLIB_SOLUTIONS", "0")
    assert lab._gate(other) != other
    monkeypatch.setenv("PERFLIB_SOLUTIONS", "1")
    assert lab._gate(other) == other


@pytest.mark.xdist_group("notebooks")  # one process executes them all
def test_in_a_kernel(server: ForkServer, tmp_path: Path) -> None:
    begin = 'import perflib as pl\nlab = pl.lesson("05_code_segment")'
    cells = (begin, GATED, 'lab.open("4");', GATED, begin, GATED)
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    done = executed(server, notebook, tmp_path, *cells)
    said = [printed(done.cells[place]) for place in (1, 3, 5)]
    closed = "the solution stays closed: lab.open('4') opens it\n"
    # A new lab is closed again, and the shell asks no earlier one.
    assert said == [closed, "ran\n", closed]


def test_the_file_holds_answers_and_times_alone(lab: Lab, home: Path) -> None:
    lab.predict("reach", 128, unit="KiB")
    lab.check("4", "a")
    (file,) = (home / "lessons").iterdir()
    kept = json.loads(file.read_text())
    assert set(kept["reach"]) == {"guess", "at"}
    assert kept["reach"]["at"] <= time.time()
    assert kept["4"] == {"chosen": None, "tried": ["a"]}
