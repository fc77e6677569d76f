"""What notebook 02 asks."""

from __future__ import annotations

from functools import partial
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
    {
        "samples needed": partial(Prediction, measured=_samples),
        "costlier event": partial(Prediction, measured=_costlier),
    },
)
