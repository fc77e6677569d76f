"""What notebook 02 asks."""

from __future__ import annotations

from typing import Any

from perflib.course.items import Measured, Prediction
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated

_OF_DEVIATION = 2100.0  # samples on each core: 10 % of n grow by a tenth, error sqrt(0.21 n)


def _samples(run: Any) -> Measured:  # noqa: ARG001 counting is the same in any run
    """Samples on each core for two, three and four standard deviations of the counting error."""
    low, value, high = (_OF_DEVIATION * deviations**2 for deviations in (2, 3, 4))
    return Measured(low, value, high, "3 (2 to 4) standard deviations of the counting error")


def _costlier(costlier: Any) -> Measured | str:
    if costlier is None:
        return "this takes two cores and the simulation as the job"
    return estimated(
        costlier.findings.where(claim="longer"),
        "the event with a costlier function",
        "this run was too short for an interval of the event's time",
    )


LESSON = Lesson.of(
    "event_profile",
    items=[
        Prediction(
            name="samples needed",
            unit="samples",
            measured=_samples,
            hints=["A count of n has an error of the square root of n."],
        ),
        Prediction(
            name="costlier event",
            unit="percent",
            measured=_costlier,
            hints=["A sixth of the time becomes a tenth longer."],
        ),
        "1",
        "2",
        "3",
        "4",
        "5",
    ],
)
