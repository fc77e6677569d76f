"""What the lab on noise and statistics asks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from perflib.course.items import Choice, Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, near, verdict

__all__ = ["LESSON"]

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


def _taken(run: Any) -> Measured | str:
    """What other tasks take from the core from which they take most."""
    taken = [one for one in run.findings.where(claim="taken") if math.isfinite(one.low)]
    if not taken:
        return "this run has no account of waiting"
    most = max(taken, key=lambda one: float(one.effect))
    return Measured(most.low, most.effect, most.high, f"taken from cpu{most.about['cpu']}")


LESSON = Lesson(
    name="noise_and_statistics",
    title="Noise and statistics",
    minutes=75,
    objectives=[
        "Name what takes time from a program, and which part of it a tool can see.",
        "Compare two cores within rounds, and state the difference with an interval.",
        "Say why rounds are not independent, and make batch means of them.",
        "Tell a slow core from one that others use.",
        "Correct a verdict for the number of cores that were compared.",
    ],
    needs=["two cores", "no hypervisor", "C compiler"],
    items=[
        Prediction(
            name="time taken by others",
            unit="%",
            measured=found("stolen", what="time in gaps, first core"),
            hints=["A tick of 250 Hz that takes 4 µs takes 0.1 %."],
        ),
        Relation(
            name="1",
            holds=near(0.9, 1.1, "250 × 40 µs = 10 ms of each second", "multiply length and rate"),
            wrong=[
                (40, "gives microseconds"),
                (10, "gives milliseconds a second, not percent"),
            ],
            hints=["Length times rate is the lost time of a second."],
        ),
        Choice(
            name="2",
            question="First all trials of A are measured, then all of B. B is 2 % slower. What "
            "can be said?",
            options={
                "a": "Nothing: the machine may have got slower meanwhile.",
                "b": "B is slower.",
                "c": "B is slower, if there were more than 30 trials.",
            },
            right="a",
            because={
                "a": "Drift and difference cannot be told apart. Rounds that visit both in random "
                "order share the drift, and it cancels.",
                "b": "Clock, neighbours and temperature drift over minutes, by more than 2 %.",
                "c": "More trials make the interval narrower, around a wrong value.",
            },
            wrong=[("b", "takes order for cause"), ("c", "takes bias for scatter")],
            hints=["What else differs between early and late trials?"],
        ),
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
            measured=_taken,
            hints=["It has the core for a fifth of the time."],
        ),
        Choice(
            name="5",
            question="With the thief, wall time on the core is 25 % longer, CPU time as before. "
            "Is the core slow?",
            options={
                "a": "yes, by 25 %",
                "b": "no: it is shared, and as fast as the others while it works for you",
                "c": "the tools contradict each other",
            },
            right="b",
            because={
                "a": "1 / 0.8 = 1.25 is what waiting makes of a fifth. The core executes as fast.",
                "b": "The kernel counts how long the thread was ready and had no core: run-queue "
                "delay. A profiler of the program sees nothing of it.",
                "c": "They answer different questions: wall time includes waiting.",
            },
            wrong=[("a", "takes waiting for slowness")],
            hints=["What does the finding 'taken' say, and what 'slower'?"],
        ),
        Relation(
            name="6",
            holds=near(94, 98, "1 − 0.95⁶⁴ = 96 %", "compute the chance that none is false"),
            wrong=[
                (5, "takes the level of one test for that of all"),
                (320, "adds up chances beyond 100 %"),
            ],
            hints=["None of 64 is false with the chance 0.95⁶⁴."],
        ),
        Choice(
            name="7",
            question="A run says: cpu0 is 0.2 % slower, [−0.7, 1.1]; threshold 1 %. What is next?",
            options={
                "a": "Report cpu0 as slow.",
                "b": "Report that cpu0 is as fast as the others.",
                "c": "Report that it is open at 1 %, and measure longer or on another day.",
            },
            right="c",
            because={
                "a": "The interval contains zero.",
                "b": "The interval also contains 1.1 %, which is above the threshold.",
                "c": "The interval excludes neither. Four times the time halves it, as long as "
                "batches stay independent; another day is worth more than one long run.",
            },
            wrong=[("a", "reads the estimate only"), ("b", "takes open for refuted")],
            hints=["Compare both ends with the threshold."],
        ),
    ],
)
