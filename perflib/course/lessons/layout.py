"""What notebook 17 asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson

__all__ = ["LESSON"]


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


LESSON = Lesson(
    name="layout",
    title="Layout: what should not matter",
    minutes=40,
    objectives=[
        "Name five things that change a program's layout and nothing else.",
        "Say why two builds must be compared in many layouts, and how many runs that takes.",
        "Tell scatter between layouts from scatter between starts.",
    ],
    needs=[],
    items=[
        Prediction(
            name="layout alone",
            unit="percent",
            measured=_alone,
            hints=["It is a standard deviation: compare it with speed-ups that you once found."],
        ),
        Relation(
            name="1",
            holds=_largest,
            wrong=[("position", "takes a column for a factor"), ("link order", "was not varied")],
            hints=["run.table('factors') is sorted: the largest difference first."],
        ),
        Code(
            name="2",
            points=2.0,
            reference=_pairs,
            cases=_cases,
            always=[(5.0, 0.5), (0.1, 1.0), (3.0, 0.2)],
            wrong=[
                (_not_squared, "half the width takes four times the pairs, not twice"),
                (_one_deviation, "covers 68 %, not 95 %"),
            ],
            hints=["The half-width of a mean of n pairs is 1.96 times the scatter over sqrt(n)."],
        ),
        Choice(
            name="3",
            question="Layout alone moves a program by 1.5 % (standard deviation). A new build, "
            "started a thousand times in one layout, is 2 % faster than the old one in its own; "
            "the interval is 2.0 % ± 0.1. What follows?",
            options={
                "a": "The new code is faster: the interval excludes 0.",
                "b": "Nothing about the code: two layouts differ by so much by themselves.",
                "c": "The measurement was too short.",
            },
            right="b",
            because={
                "a": "The interval speaks of these two layouts, which another build, directory or "
                "user would not have.",
                "b": "Two random layouts differ by up to 1.96 x sqrt(2) x 1.5 % = 4 %. More starts "
                "in the same layouts do not help; more layouts do.",
                "c": "A thousand starts more would say the same of the same two layouts.",
            },
            wrong=[("a", "takes a layout for the code"), ("c", "adds starts, not layouts")],
            hints=["What was the same in all of the thousand starts?"],
        ),
    ],
)
