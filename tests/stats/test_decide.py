"""One rule from intervals to verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflib.stats.decide import Direction, Reason, Verdict, Witness, decide
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import t_interval
from tests.stats.simulated import at_most

NO = Witness(False, Reason("control_failed"))
YES = Witness(True, Reason("control_failed"), Reason("control_agrees"))


@pytest.mark.parametrize(
    ("direction", "low", "high", "verdict"),
    [
        ("above", 1.1, 2.0, "supported"),
        ("above", 0.5, 2.0, "inconclusive"),
        ("above", -9.0, 0.9, "refuted"),
        ("above", 1.0, 2.0, "inconclusive"),
        ("below", -9.0, 0.9, "supported"),
        ("below", 1.1, 2.0, "refuted"),
        ("within", -0.9, 0.9, "supported"),
        ("within", -1.5, 0.9, "inconclusive"),
        ("within", -2.0, -1.1, "refuted"),
        ("within", 1.1, 2.0, "refuted"),
        ("within", -2.0, 2.0, "inconclusive"),
        ("beyond", -2.0, -1.1, "supported"),
        ("beyond", 1.1, 2.0, "supported"),
        ("beyond", -0.9, 0.9, "refuted"),
        ("beyond", -0.9, 1.1, "inconclusive"),
    ],
)
def test_the_side_of_the_threshold(
    direction: Direction, low: float, high: float, verdict: Verdict
) -> None:
    made = decide(Interval((low + high) / 2, low, high), 1.0, direction)
    assert made.verdict == verdict
    codes = {"supported": "clear", "refuted": "excluded", "inconclusive": "open"}
    assert [one.code for one in made.reasons] == [codes[verdict]]


@pytest.mark.parametrize("found", [NO_INTERVAL, Interval(5.0, math.nan, math.nan)])
def test_without_an_interval_nothing_is_decided(found: Interval) -> None:
    made = decide(found, 1.0, to_support=[YES])
    assert (made.verdict, made.reasons) == ("inconclusive", (Reason("no_interval"),))


def test_witnesses_can_prevent_a_verdict_and_never_give_one() -> None:
    above, below, across = Interval(5, 4, 6), Interval(0, -1, 0.5), Interval(1, 0, 2)
    assert decide(above, 1.0, to_support=[YES, NO]).reasons == (Reason("control_failed"),)
    assert decide(above, 1.0, to_support=[YES, NO]).verdict == "inconclusive"
    assert decide(above, 1.0, to_support=[YES]).reasons == (Reason("control_agrees"),)
    assert decide(above, 1.0, to_refute=[NO]).verdict == "supported"
    assert decide(below, 1.0, to_refute=[NO]).verdict == "inconclusive"
    assert decide(below, 1.0, to_support=[NO]).verdict == "refuted"
    assert decide(across, 1.0, to_support=[YES], to_refute=[YES]).verdict == "inconclusive"


def test_what_is_prevented_stays_open_whatever_the_interval_is() -> None:
    why = Reason("huge_pages_not_backed", {"share": 0.1})
    made = decide(Interval(5, 4, 6), 1.0, prevented=why, remarks=[Reason("note")])
    assert (made.verdict, made.reasons) == ("inconclusive", (why, Reason("note")))


@pytest.mark.parametrize("direction", ["above", "below", "within", "beyond"])
def test_false_verdicts_are_as_rare_as_the_interval_says(direction: Direction) -> None:
    """At the threshold itself, with skewed noise: either verdict is wrong there."""
    generator = np.random.default_rng(3)
    runs, wrong = 2000, 0
    for _ in range(runs):
        noise = generator.gamma(4.0, 0.25, 12) - 1.0
        wrong += decide(t_interval(1.0 + noise), 1.0, direction).verdict != "inconclusive"
    assert wrong <= at_most(runs, 0.07)
