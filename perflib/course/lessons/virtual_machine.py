"""What the notebook on virtual machines asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from perflib.course.items import Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated


def _part(name: str) -> Callable[[Any], Measured | str]:
    """That part of a pair, as far as the probes could distinguish it from the others."""

    def measured(pair: Any) -> Measured | str:
        found = [one for one in pair.where(claim="pair_part") if name in one.about["part"]]
        return estimated(found, f"{name}, in the pair", f"the pair has no part {name!r} of its own")

    return measured


def _excluded(answer: Any, pair: Any) -> Judged:
    """How many intervals of this pair exclude zero."""
    count = sum(one.low > 0 or one.high < 0 for one in pair)
    right = number(answer) == count
    return Judged(float(right), f"{count} of {len(pair)} intervals of this pair exclude zero")


LESSON = Lesson.of(
    "virtual_machine",
    {
        "own speed": partial(Prediction, measured=_part("own speed")),
        "1": partial(Relation, holds=_excluded, wrong=[(-1, "counts what cannot be counted")]),
    },
)
