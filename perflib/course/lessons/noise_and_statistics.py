"""What the lab on noise and statistics asks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
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
    {
        "time taken by others": partial(
            Prediction, measured=found("stolen", what="time in gaps, first core")
        ),
        "3": partial(
            Code,
            reference=_batch_means,
            cases=_series,
            same=_close,
            always=[([1.0, 2.0, 3.0, 4.0, 5.0], 2), ([1.0, 3.0], 1)],
            wrong=[
                (_every_other, "deals the values out: neighbours, which are alike, are separated"),
                (lambda values, _: [sum(values) / len(values)], "makes one mean of all"),
            ],
        ),
        "false alarms": partial(Prediction, measured=_share),
        "difference of cores": partial(
            Prediction, measured=found("slower", what="the first core compared with the others")
        ),
        "4": partial(
            Relation,
            holds=verdict("slower"),
            wrong=[
                ("supported", "takes a mean above zero for a slow core"),
                ("equal", "gives an answer that is no verdict"),
            ],
        ),
        "time of the thief": partial(Prediction, measured=most_taken),
    },
)
