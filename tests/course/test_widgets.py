"""The field for a guess and the question with answers, pressed as a browser would."""

from __future__ import annotations

from perflib.course.items import Choice
from perflib.course.widgets import Guess, Question
from perflib.course.worksheet import Checked
from perflib.model.errors import UserError

ITEM = Choice(
    name="4",
    question="Is <b> shown?",
    options={"a": "<i>", "b": "that"},
    right="b",
    because={"a": "no", "b": "yes"},
)


def test_a_guess_is_kept_when_the_button_is_pressed() -> None:
    kept: list[str] = []

    def keep(value: str) -> str:
        kept.append(value)
        return f"kept {value}"

    field = Guess("reach", "KiB", None, keep)
    assert field.said.value == "not predicted yet"
    assert repr(field) == "prediction of reach: none yet"
    field.field.value = " 12,5 "
    assert kept == []
    field.button.click()
    assert kept == ["12,5"]
    assert field.said.value == "kept 12,5"


def test_what_is_no_number_is_said_in_the_field() -> None:
    def refuse(value: str) -> str:
        msg = f"<{value}> is no number"
        raise UserError(msg)

    field = Guess("reach", "KiB", None, refuse)
    field.field.value = "many"
    field.button.click()
    assert field.said.value == "&lt;many&gt; is no number"


def test_names_and_units_are_escaped() -> None:
    field = Guess("<script>", "<b>", None, str)
    label, _, unit, _ = field.children[0].children
    assert "<script>" not in label.value
    assert unit.value == "&lt;b&gt;"


def test_a_question_answers_when_something_is_chosen() -> None:
    kept: list[str] = []
    chosen: list[str] = []

    def check(key: str) -> Checked:
        chosen.append(key)
        return Checked("4", 0.0, 1.0, "<no>", "try <b>")

    asked = Question(ITEM, None, kept.append, check)
    asked.button.click()
    assert asked.said.value == "choose an answer first"  # none is chosen yet
    asked.options.value = "a"
    assert asked.chosen == "a"
    assert kept == ["a"]
    assert chosen == []
    asked.button.click()
    assert chosen == ["a"]
    assert "&lt;no&gt;" in asked.said.value
    assert "try &lt;b&gt;" in asked.said.value
    assert "&lt;b&gt;" in asked.children[0].value
