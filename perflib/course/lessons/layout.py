"""What notebook 17 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson


def _alone(run: Any) -> Measured | str:
    """What layout alone does, in percent."""
    (found,) = run.findings.where(claim="layout_alone")
    if not math.isfinite(found.high):
        return "this run is too short: no layout was started in two rounds"
    return Measured(found.low, found.effect, found.high, "standard deviation over layouts")


def _pairs(scatter_percent: float, half_width_percent: float) -> int:
    return max(2, math.ceil((1.96 * scatter_percent / half_width_percent) ** 2))


def _not_squared(scatter_percent: float, half_width_percent: float) -> int:
    return max(2, math.ceil(1.96 * scatter_percent / half_width_percent))


def _one_deviation(scatter_percent: float, half_width_percent: float) -> int:
    return max(2, math.ceil((scatter_percent / half_width_percent) ** 2))


def _cases(draw: random.Random) -> tuple[Any, ...]:
    return draw.uniform(2.0, 8.0), draw.uniform(0.1, 0.9)


def _largest(answer: Any, run: Any) -> Judged:
    table = run.table("factors")
    if table.empty:
        return Judged(1.0, "this run varies no factor")
    first = table.iloc[0]
    says = f"{first['factor']}: {first['largest_percent']:.2g} %, p = {first['p']:.2g}"
    return Judged(float(str(answer).strip() == first["factor"]), says)


LESSON = Lesson.of(
    "layout",
    {
        "layout alone": partial(Prediction, measured=_alone),
        "1": partial(
            Relation,
            holds=_largest,
            wrong=[("position", "takes a column for a factor"), ("link order", "was not varied")],
        ),
        "2": partial(
            Code,
            reference=_pairs,
            cases=_cases,
            always=[(5.0, 0.5), (0.1, 1.0), (3.0, 0.2)],
            wrong=[
                (_not_squared, "half the width takes four times the pairs, not twice"),
                (_one_deviation, "covers 68 %, not 95 %"),
            ],
        ),
    },
)
