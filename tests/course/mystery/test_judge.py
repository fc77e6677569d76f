"""Judging: right, wrong cause, wrong place, too narrow, too wide, and nothing both ways."""

from __future__ import annotations

from typing import Any

import pytest

from perflib.course.mystery.causes import CAUSES, NOTHING
from perflib.course.mystery.judge import Answer, Verdict, judge
from perflib.course.mystery.truth import Truth
from perflib.model.errors import UserError
from perflib.stats.interval import Interval

THIEF = Truth("thief", "cpu1", 1, Interval(12.0, 11.4, 12.6), "its own clock")
SLOW = Truth("function", "shape_pulse", 1, Interval(14.0, 13.0, 15.0), "turns")
LOCK = Truth("lock", "output_lock", None, Interval(30.0, 24.0, 36.0), "waits")
QUOTA = Truth("quota", "", None, Interval(20.0, 16.0, 24.0), "the group")
SOUND = Truth(NOTHING, "", None, Interval(0.0, 0.0, 0.0), "nothing was done")
HARMLESS = Truth("buffer", "", None, Interval(0.1, -0.5, 0.7), "turns")


def answer(truth: Truth, cause: str, place: str | int = "", *interval: float) -> Verdict:
    low, high = interval or (None, None)
    return judge(Answer.checked(cause, place, low, high, "percent", (0, 1)), truth)


@pytest.mark.parametrize(
    ("truth", "place", "interval"),
    [
        (THIEF, "cpu1", (11, 13)),
        (THIEF, 1, (12.5, 14)),
        (THIEF, "core 1", (6, 18)),
        (SLOW, "shape_pulse", (12, 16)),
        (SLOW, "Shape_Pulse", (9, 14)),
        (LOCK, "output_lock", (20, 30)),
        (QUOTA, "", (18, 22)),
        (SOUND, "", (-1, 1)),
        (SOUND, "", (0, 0)),
    ],
)
def test_right(truth: Truth, place: str | int, interval: tuple[float, float]) -> None:
    verdict = answer(truth, truth.cause, place, *interval)
    assert verdict.right
    assert verdict.points == 100
    assert verdict.explanation == CAUSES[truth.cause].shown_by


def test_wrong_cause_says_how_that_one_would_have_shown() -> None:
    verdict = answer(THIEF, "quota", "", 11, 13)
    parts = [(part.what, part.points, part.of) for part in verdict.parts]
    assert parts == [("cause", 0, 50), ("place", 0, 20), ("size", 0, 30)]
    assert CAUSES["quota"].shown_by in verdict.parts[0].why
    assert "something else" in verdict.parts[2].why
    assert "It was thief at cpu1: 12.0 [11.4, 12.6] %" in repr(verdict)


@pytest.mark.parametrize(
    ("given", "earned", "why"),
    [
        ((THIEF, "hog", "cpu1", 11, 13), [0, 20, 30], ""),  # which a thief is easily taken for
        ((THIEF, "thief", "cpu0", 11, 13), [50, 0, 30], ""),
        ((THIEF, "thief", "", 11, 13), [50, 0, 30], ""),
        ((SLOW, "function", "cpu1", 12, 16), [50, 0, 30], "That core is right, but"),
        ((SLOW, "function", "fit_line"), [50, 0, 0], "Another function than that"),
        ((THIEF, "thief", "cpu1", 5, 10), [50, 20, 0], "is below the true size by 1.4 points"),
        ((THIEF, "thief", "cpu1", 15, 20), [50, 20, 0], "is above the true size by 2.4 points"),
        ((THIEF, "thief", "cpu1", 2, 30), [50, 20, 10], "wider than 12.0 points: it says too"),
        ((SOUND, NOTHING, "", -2, 2), [60, 40], ""),
        ((SOUND, NOTHING, "", 0, 30), [60, 40 / 3], ""),
        ((SOUND, NOTHING, "", 1, 3), [60, 0], ""),
        ((THIEF, NOTHING, "", 0, 3), [0, 0, 0], ""),
        ((SOUND, "thief", "cpu1", 1, 3), [0, 0], ""),
    ],
)
def test_each_part_of_an_answer_earns_what_it_is_worth(
    given: tuple[Any, ...], earned: list[float], why: str
) -> None:
    verdict = answer(*given)
    assert [part.points for part in verdict.parts] == pytest.approx(earned)
    assert why in " ".join(part.why for part in verdict.parts)
    assert verdict.right == (verdict.points == 100)


def test_what_costs_nothing_on_this_processor_may_be_called_nothing() -> None:
    nothing = answer(HARMLESS, NOTHING, "", -1, 1)
    assert nothing.right
    assert "costs nothing on this processor" in nothing.parts[0].why
    assert answer(HARMLESS, "buffer", "", -1, 1).right
    assert not answer(HARMLESS, "thief", "cpu0", -1, 1).right


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cause": "theif"}, "unknown cause 'theif': did you mean 'thief'"),
        ({"place": "cpu9"}, "unknown core 'cpu9': did you mean"),
        ({"unit": "per cent"}, "unknown unit 'per cent': did you mean 'percent'"),
        ({"low": 13, "high": 11}, "reversed: low=13 is above high=11"),
        ({"low": 13}, "one end only"),
        ({"high": 13}, "one end only"),
        ({"low": float("nan"), "high": 1}, "low=nan: a finite number"),
        ({"low": 1, "high": float("inf")}, "high=inf: a finite number"),
        ({"low": "1", "high": 2}, "low='1': a finite number"),
        ({"low": True, "high": 2}, "low=True: a finite number"),
    ],
)
def test_answers_that_cannot_be_read(given: dict[str, Any], sentence: str) -> None:
    whole = {"cause": "thief", "place": "", "low": None, "high": None, "unit": "percent"} | given
    with pytest.raises(UserError, match=sentence):
        Answer.checked(**whole, cpus=(0, 1))


def test_it_is_shown_as_text_and_as_a_table_with_what_came_from_outside_escaped() -> None:
    verdict = answer(SLOW, "function", "<script>\x1b[1m", 12, 16)
    assert "\x1b" not in repr(verdict)
    page = verdict._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    for part in verdict.parts:
        assert part.why in repr(verdict)
    assert "(on cpu1)" in repr(verdict)
    assert str(SOUND) == "nothing"
