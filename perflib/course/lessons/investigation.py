"""What the notebook of the investigation asks."""

from __future__ import annotations

from functools import partial
from typing import Any

from perflib.course.items import Judged, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import parts
from perflib.investigation.rules import RULES
from perflib.model.errors import choose

_VERDICTS = ("healthy", "cause", "undecided")


def _headline(answer: Any, found: Any) -> Judged:
    """A prediction in a word: any of the three earns the points."""
    given = str(answer).strip().lower()
    if given not in _VERDICTS:
        return Judged(0.0, f"one of {', '.join(_VERDICTS)}")
    headline = found.headline
    agrees = "as you predicted" if given == headline.verdict else f"you predicted {given}"
    return Judged(1.0, f"{headline.verdict}, {agrees}: {headline.plain}")


def _second(answer: Any, steps: Any) -> Judged:
    """A prediction of a step by its name: any of the table's earns the points."""
    found = steps[1] if len(steps) > 1 else "none"
    given = str(answer).strip()
    known = {rule.name for rule in RULES}
    if given not in known:
        return Judged(0.0, choose("step", given, known))
    agrees = "as you predicted" if given == found else f"you predicted {given!r}"
    return Judged(1.0, f"the second step was {found!r}, {agrees}")


def _same(answer: Any, found: Any) -> Judged:
    asked = "give two truth values: (same steps, same headline)"
    steps, headline = map(bool, parts(answer, 2, asked))
    right = [steps == found[0], headline == found[1]]
    says = f"the steps are {'' if found[0] else 'not '}the same, and so is the headline"
    if found[0] != found[1]:
        says = f"same steps: {found[0]}; same headline: {found[1]}"
    elif not found[1]:
        says = "neither the steps nor the headline are the same"
    return Judged(sum(right) / 2, says)


LESSON = Lesson.of(
    "investigation",
    {
        "headline": partial(
            Relation, holds=_headline, wrong=[("broken", "no verdict: one of the three words")]
        ),
        "second step": partial(
            Relation,
            holds=_second,
            wrong=[("measure again", "says what is done in words, and names no step of the table")],
        ),
        "3": partial(
            Relation,
            holds=_same,
            wrong=[((False, False), "takes a conclusion for something that is stored")],
        ),
    },
)
