"""What the notebook of farms asks."""

from __future__ import annotations

from functools import partial
from typing import Any

from perflib.course.items import Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import parts


def _named(how: str, what: str) -> Any:
    def measured(named: Any) -> Measured | str:
        return Measured(named[how], named[how], named[how], f"{what} of {named['cores']} cores")

    return measured


def _single_nodes(farm: Any) -> Measured | str:
    count = len(farm.found.where(claim="node_slower"))
    return Measured(count, count, count, "single nodes named")


def _three(answer: Any, few: Any) -> Judged:
    """The verdict on the position, and how many single cores are named."""
    asked = "give two things: (verdict on the position, single cores named)"
    word, cores = parts(answer, 2, asked)
    (position,) = few.findings.where(claim="position_slower", cpu=8)
    single = len(few.found.where(claim="core_slower"))
    right = [str(word).strip().lower() == position.verdict, int(number(cores)) == single]
    says = f"the position is {position.verdict}; single cores named: {single}"
    return Judged(sum(right) / 2, says)


def _smallest(answer: Any, by_part: Any) -> Judged:
    """The smallest slowdown that is named."""
    named = by_part.loc[by_part["verdict"] == "supported", "slower_percent"]
    if named.empty:
        return Judged(1.0, "none of these is named here")
    given, right = number(answer), float(named.min())
    return Judged(float(abs(given - right) < 1e-6), f"from {right:g} % on")


LESSON = Lesson.of(
    "farm",
    {
        "named one by one": partial(
            Prediction, measured=_named("each by itself", "named one by one")
        ),
        "named together": partial(
            Prediction, measured=_named("together", "named by a test of all")
        ),
        "single nodes named": partial(Prediction, measured=_single_nodes),
        "1": partial(
            Relation, holds=_three, wrong=[(("supported", 0), "takes three nodes for thirty")]
        ),
        "4": partial(Relation, holds=_smallest, wrong=[(0.5, "forgets the threshold of 1 %")]),
    },
)
