"""What notebook 03 asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Choice, Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import near

__all__ = ["LESSON"]

_ENDS = ("error_low", "average_error", "error_high")


def _error(run: Any) -> Measured | str:
    """The error of the page faults, multiplexed by perflib, with the fewest jobs."""
    errors = run.table("errors")
    ours = errors[(errors["mode"] == "rotated") & (errors["jobs"] == errors["jobs"].min())]
    faults = ours[ours["event"].str.startswith("page-faults")].dropna()
    if faults.empty:
        return "this run has no interval for the page faults: it takes two rounds or more"
    first = faults.iloc[0]
    low, value, high = (float(first[f"{end}_percent"]) for end in _ENDS)
    return Measured(low, value, high, "the page faults, multiplexed")


def _growth(k: int) -> float:
    return math.sqrt(k - 1)


def _sets(draw: random.Random) -> tuple[Any, ...]:
    return (draw.randint(2, 60),)


def _memory_bound(stalled: float, cycles: float, waiting: float, waiting_for_load: float) -> float:
    return stalled / (_ZEN4_SLOTS * cycles) * waiting_for_load / waiting


def _waits(draw: random.Random) -> tuple[Any, ...]:
    cycles = draw.randint(10**6, 10**10)
    stalled = round(draw.uniform(0.1, 0.9) * _ZEN4_SLOTS * cycles)
    waiting = round(draw.uniform(0.2, 0.9) * cycles)
    return stalled, cycles, waiting, round(draw.uniform(0.02, 0.95) * waiting)


_ZEN4_SLOTS = 6  # a cycle
_RECORDED = (763_314_291_096, 228_799_322_771, 115_004_469_145, 5_146_579_719)


LESSON = Lesson(
    name="counters",
    title="Counters: how far can they be trusted, and what do they cost?",
    minutes=75,
    objectives=[
        "Say when a multiplexed count can be scaled, and when its interval does not know.",
        "Compare counts with those of one set at a time, and judge errors by their scatter.",
        "Measure the cost of counting so that 1 % can be seen on a busy machine.",
        "Find by plausibility which published counts cannot be measurements.",
        "Say from counts which share of a pipeline's slots goes where, and what that cannot tell.",
    ],
    needs=["hardware counters", "perf"],
    items=[
        Prediction(
            name="error of page faults",
            unit="percent",
            measured=_error,
            hints=["Of two sets one sees the start, the other does not. Both are scaled by two."],
        ),
        Choice(
            name="1",
            question="The job is twice as long: what happens to the error of the page faults?",
            options={
                "a": "It stays as large as it was.",
                "b": "It falls by the square root of two, as there are twice as many slices.",
                "c": "It halves, because the start is half as large a part of the job.",
                "d": "It vanishes: multiplexing is right in the long run.",
            },
            right="a",
            because={
                "a": (
                    "All faults of a start fall into the first slices. The set that is on scales "
                    "them up by the number of sets, the other sees few. The share of the time that "
                    "a set is on does not depend on the length. Shorter slices would help."
                ),
                "b": "More slices help against a rate that scatters, not against a single event.",
                "c": "The total holds little but the start, however long the job is.",
                "d": "It is right if the rate is the same in the slices that were not seen.",
            },
        ),
        Code(
            name="2",
            reference=_growth,
            cases=_sets,
            always=[(2,), (30,)],
            wrong=[
                (lambda k: k / 2, "lets the error grow with the number of sets"),
                (lambda k: math.sqrt(k / 2), "forgets what the set has seen itself"),
            ],
            hints=[
                "A mean of n slices has an error that falls with the square root of n = 120/k.",
                "A set that sees all slices has no error: with k = 1 the law must give 0.",
            ],
        ),
        Choice(
            name="3",
            question="Which line of make -j1 and -j2 cannot be two measurements, and why?",
            options={
                "a": "The loads: they differ by 0.8 %, and one program has one count of loads.",
                "b": "The cycles: a second job cannot halve them.",
                "c": "None: the instructions per cycle rose because two jobs share the caches.",
                "d": "The instructions: they agree to twelve digits, which no two runs do.",
            },
            right="d",
            because={
                "a": "Two runs of make differ by so much: that is what measurements look like.",
                "b": "It halves those of one processor, and the table has the cycles of one.",
                "c": "The instructions of both processors stand over the cycles of one.",
                "d": (
                    "One was copied, or the ratio computed with the other's count. With -j2 the "
                    "table has the cycles of one of two processors: 0.87 instructions per cycle "
                    "say nothing of the program."
                ),
            },
        ),
        Relation(
            name="4",
            holds=near(
                60,
                70,
                "a hundred times as many rounds: 4000 s, more than an hour",
                "the half-width falls with the square root of the number of rounds",
            ),
            wrong=[
                (6.7, "takes the half-width for proportional to the time"),
                (4000, "gives seconds, not minutes"),
            ],
            hints=["Ten times as narrow takes how many times as many rounds?"],
        ),
        Code(
            name="5",
            reference=_memory_bound,
            cases=_waits,
            always=[_RECORDED],
            wrong=[
                (
                    lambda stalled, cycles, waiting, load: stalled / cycles * load / waiting,
                    "divides slots by cycles: there are six slots in each",
                ),
                (
                    lambda stalled, cycles, waiting, load: load / cycles,  # noqa: ARG005
                    "takes cycles of waiting for slots that are lost",
                ),
                (
                    lambda stalled, cycles, waiting, load: stalled / (6 * cycles) * load / cycles,  # noqa: ARG005
                    "divides the waiting for loads by all cycles, not by those of waiting",
                ),
            ],
            hints=[
                "First the back end's share of all slots: how many slots have the cycles?",
                "Then the part of it that is memory's: loads' part of the cycles of waiting.",
            ],
        ),
    ],
)
