"""What each kind of question makes of answers that are right, wrong, none, and of another type."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from perflib.course.items import (
    Choice,
    Code,
    Judged,
    Measured,
    Prediction,
    Relation,
)
from perflib.course.lesson import declared, names
from perflib.model.errors import UserError

REACH = Prediction(name="reach", unit="KiB", measured=lambda run: run)
CHOICE = Choice(
    name="4",
    question="Which?",
    options={"a": "this", "b": "that"},
    right="b",
    because={"a": "it overlooks x", "b": "it is so"},
)
DOUBLED = Code(
    name="2",
    reference=lambda x: 2.0 * x,
    cases=lambda drawn: (drawn.random(),),
    always=[(0.0,), (3.0,)],
)


@pytest.mark.parametrize(
    ("guess", "words"),
    [
        (256, "agrees"),
        (230, "agrees"),
        (340, "that is near"),
        (20, "too small"),
        (9999, "too large"),
    ],
)
def test_a_prediction_earns_its_points_whatever_it_is(guess: float, words: str) -> None:
    judged = REACH.judge(guess, Measured(250, 256, 262, "the knee"))
    assert judged.share == 1.0
    assert words in judged.says
    assert "256 KiB [250, 262]" in judged.says


def test_a_prediction_where_the_run_cannot_tell() -> None:
    assert "nothing to compare: no knee" in REACH.judge("12", "no knee").says
    assert REACH.judge("12,5").says == "you predict 12.5 KiB"


@pytest.mark.parametrize("answer", [math.nan, math.inf, "many", None, [1, 2], {}, np.zeros(3)])
def test_what_is_no_number_is_no_prediction(answer: Any) -> None:
    with pytest.raises(UserError, match="is no number: give one like"):
        REACH.judge(answer, Measured(1, 2, 3))


@pytest.mark.parametrize("answer", ["c", 2, math.nan, ["b"], "that", np.array(["a", "b"])])
def test_what_is_no_option_is_answered_with_those_there_are(answer: Any) -> None:
    with pytest.raises(UserError, match=r"unknown answer .*\(all: a, b\)"):
        CHOICE.judge(answer)


def test_every_option_must_explain_itself() -> None:
    with pytest.raises(AssertionError):
        Choice(name="4", question="?", options={"a": "x"}, right="a", because={})
    with pytest.raises(AssertionError):
        Choice(name="4", question="?", options={"a": "x"}, right="b", because={"a": ""})


def _raises(_: float) -> float:
    msg = "not yet"
    raise NotImplementedError(msg)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: 3 * x, "your function(3.0) returns 9.0, not 6.0"),
        (lambda _: None, "returns None, not 0.0"),
        (lambda _: "6.0", "returns '6.0', not 0.0"),
        (lambda _: math.nan, "returns nan, not 0.0"),
        (lambda x: np.array([2 * x, 0]), "returns array"),
        (lambda _: False, "returns False, not 6.0"),
        (lambda: 0.0, "raises TypeError"),
        (_raises, "raises NotImplementedError: not yet"),
        (lambda x: x if x in (0.0, 3.0) else 2 * x, "not 6.0"),
        (lambda x: {0.0: 0.0, 3.0: 6.0}.get(x, 0.0), "returns 0.0, not"),  # the known cases alone
    ],
)
def test_a_wrong_function_is_shown_the_first_case_that_fails(function: Any, words: str) -> None:
    judged = DOUBLED.judge(function)
    assert judged.share == 0.0
    assert words in judged.says


def test_a_right_function_and_its_rounding() -> None:
    assert DOUBLED.judge(lambda x: x + x * (1 + 1e-12)).share == 1.0
    assert DOUBLED.judge(lambda x: np.float64(2 * x)).share == 1.0
    assert "42 cases that you did not see" in DOUBLED.judge(lambda x: 2 * x).says


@pytest.mark.parametrize("answer", [3.0, "2 * x", [1], np.zeros(2)])
def test_what_cannot_be_called_is_no_function(answer: Any) -> None:
    with pytest.raises(UserError, match="exercise 2 asks for a function"):
        DOUBLED.judge(answer)


def test_results_that_are_arrays_have_a_comparison_of_their_own() -> None:
    item = Code(
        name="3",
        reference=np.arange,
        cases=lambda drawn: (drawn.randint(1, 9),),
        same=np.array_equal,
    )
    assert item.judge(np.arange).share == 1.0
    assert item.judge(lambda n: np.arange(n + 1)).share == 0.0
    assert item.judge(lambda n: [*range(n)]).share == 1.0


@pytest.mark.parametrize("name", names())
def test_every_lesson_is_whole(name: str) -> None:
    """Times, objectives, points; where an answer can be wrong, one that is, and why."""
    lesson = declared(name)
    assert lesson.name == name
    assert 10 <= lesson.minutes <= 120
    assert len(lesson.objectives) >= 2
    assert all(one[0].isupper() and one.endswith(".") for one in lesson.objectives)
    assert lesson.items
    for item in lesson.items:
        assert item.points > 0, item.name
        if isinstance(item, (Relation, Code)):
            assert item.wrong, item.name
            assert item.hints, item.name
        if isinstance(item, Choice):  # its wrong options are typical wrong answers, and explained
            assert all(item.because.values()), item.name
            assert item.judge(item.right).share == 1.0, item.name
            for answer, why in item.wrong:
                judged = item.judge(answer)
                assert judged.share < 1, item.name
                assert judged.says, item.name
                assert why, item.name
        if isinstance(item, Code):
            assert item.judge(item.reference).share == 1.0, item.name
            for answer, why in item.wrong:
                judged = item.judge(answer)
                assert judged.share < 1.0, (item.name, why)
                assert judged.says, item.name
            random.seed(0)
            assert item.judge(item.reference).share == 1.0, item.name


def test_no_letter_is_a_safe_guess() -> None:
    """Who always chooses the same letter earns little, in the course and in a lesson."""
    right: dict[str, list[str]] = {}
    for name in names():
        choices = [one for one in declared(name).items if isinstance(one, Choice)]
        right[name] = [one.right for one in choices]
    letters = [letter for lesson in right.values() for letter in lesson]
    assert max(Counter(letters).values()) < 0.4 * len(letters)
    assert [name for name, of in right.items() if len(of) > 2 and len(set(of)) == 1] == []


def test_a_lesson_is_named_as_its_notebook() -> None:
    assert declared("05_code_segment") is declared("code_segment")
    with pytest.raises(UserError, match="did you mean 'code_segment'"):
        declared("05_code_segmnt")
    with pytest.raises(UserError, match="unknown exercise '99'"):
        declared("code_segment").item("99")


def test_an_answer_without_what_it_is_about_says_what_to_give() -> None:
    def same(answer: Any, run: Any, again: Any) -> Judged:
        return Judged(float(answer == run == again), "")

    asked = Relation(name="3", holds=same)
    assert asked.judge(1, 1, 1).share == 1.0
    for given in ((), (1,), (1, 1, 1)):
        with pytest.raises(UserError, match=r"lab\.check\('3', answer, run, again\)"):
            asked.judge(1, *given)
