"""What notebook 20 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import percent_read

_NEAR_POINTS = 1.0


def _longer(name: str) -> Any:
    """How much longer a piece takes than the first, in percent."""

    def measured(run: Any) -> Measured | str:
        table = run.table("pieces")
        mine = table[table["name"] == name]
        if mine.empty:
            return f"this run has no piece {name}"
        value, low, high = (
            float(mine.iloc[0][f"longer_percent{end}"]) for end in ("", "_low", "_high")
        )
        if not all(map(math.isfinite, (low, high))):
            low = high = value
        return Measured(low, value, high, f"{name}, compared with first")

    return measured


def _left(share: float, pieces: int) -> float:
    return share**pieces


def _each(share: float, pieces: int) -> float:  # noqa: ARG001 a wrong answer
    """As if one piece were enough."""
    return share


def _shared_out(share: float, pieces: int) -> float:
    return share / pieces


def _cases(draw: random.Random) -> tuple[Any, ...]:
    return (draw.uniform(0.2, 0.95), draw.randint(2, 5))


def _medians(answer: Any, run: Any) -> Judged:
    """By medians of the samples, as the exercise asks."""
    medians = run.samples.groupby("name")["cpu_time_ns"].median()
    given = number(answer)
    if not {"first", "longer"} <= set(medians.index):
        return Judged(1.0, "this run has no pieces first and longer")
    found = 100 * float(medians["longer"] / medians["first"] - 1)
    says = f"by medians of cpu_time_ns: {found:.1f} %"
    return percent_read(given, found, _NEAR_POINTS, says, "is it longer over first, less 1?")


LESSON = Lesson.of(
    "bracketed",
    {
        "again": partial(Prediction, measured=_longer("again")),
        "longer": partial(Prediction, measured=_longer("longer")),
        "1": partial(
            Code,
            reference=_left,
            cases=_cases,
            wrong=[
                (_each, "forgets that each piece of a turn needs its core alone"),
                (_shared_out, "divides what is multiplied"),
            ],
        ),
        "2": partial(
            Relation,
            holds=_medians,
            wrong=[(-50.0, "divides the wrong way round"), (1000.0, "guesses")],
        ),
    },
)
"""The lesson."""
