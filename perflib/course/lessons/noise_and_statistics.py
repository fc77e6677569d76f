"""What the lab on noise and statistics asks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from perflib.course.items import Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, most_taken, verdict

_SIMULATED = 400


def _batch_means(values: Sequence[float], batches: int) -> list[float]:
    """Means of successive batches of equal length; what is left over at the end is dropped."""
    size = len(values) // batches
    return [math.fsum(values[i * size : (i + 1) * size]) / size for i in range(batches)]


def _every_other(values: Sequence[float], batches: int) -> list[float]:
    size = len(values) // batches
    return [math.fsum(values[i : batches * size : batches]) / size for i in range(batches)]


def _series(drawn: random.Random) -> tuple[list[float], int]:
    batches = drawn.randint(1, 6)
    return [drawn.gauss(10, 2) for _ in range(batches * drawn.randint(1, 7))], batches


def _close(given: Any, expected: list[float]) -> bool:
    values = [float(one) for one in given]
    return len(values) == len(expected) and all(map(math.isclose, values, expected))


def _share(percent: Any) -> Measured:
    """A simulated share with its interval."""
    half = 196 * math.sqrt(max(percent, 1) / 100 * (1 - min(percent, 99) / 100) / _SIMULATED)
    return Measured(percent - half, percent, percent + half, "the simulated share")


LESSON = Lesson.of(
    "noise_and_statistics",
    items=[
        Prediction(
            name="time taken by others",
            unit="%",
            measured=found("stolen", what="time in gaps, first core"),
            hints=["A tick of 250 Hz that takes 4 µs takes 0.1 %."],
        ),
        "1",
        "2",
        Code(
            name="3",
            points=2,
            reference=_batch_means,
            cases=_series,
            same=_close,
            always=[([1.0, 2.0, 3.0, 4.0, 5.0], 2), ([1.0, 3.0], 1)],
            wrong=[
                (_every_other, "deals the values out: neighbours, which are alike, are separated"),
                (lambda values, _: [sum(values) / len(values)], "makes one mean of all"),
            ],
            hints=[
                "Successive values stand in one batch.",
                "With 5 values and 2 batches the last value is dropped.",
            ],
        ),
        Prediction(
            name="false alarms",
            unit="%",
            measured=_share,
            hints=["An honest interval of 95 % excludes the truth in 5 % of cases."],
        ),
        Prediction(
            name="difference of cores",
            unit="%",
            measured=found("slower", what="the first core beside the others"),
            hints=["Two equal cores differ by 0; which interval do you expect?"],
        ),
        Relation(
            name="4",
            points=2,
            holds=verdict("slower"),
            wrong=[
                ("supported", "takes a mean above zero for a slow core"),
                ("equal", "gives an answer that is no verdict"),
            ],
            hints=["The threshold is 1 %: compare both ends of the interval with it."],
        ),
        Prediction(
            name="time of the thief",
            unit="%",
            measured=most_taken,
            hints=["It has the core for a fifth of the time."],
        ),
        "5",
        "6",
        "7",
    ],
)
