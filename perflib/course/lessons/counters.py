"""What notebook 03 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Measured, Prediction
from perflib.course.lesson import Lesson

_ENDS = ("error_percent_low", "average_error_percent", "error_percent_high")


def _error(run: Any) -> Measured | str:
    """The error of the page faults, multiplexed by perflib, with the fewest jobs."""
    errors = run.table("errors")
    ours = errors[(errors["mode"] == "rotated") & (errors["jobs"] == errors["jobs"].min())]
    faults = ours[ours["event"].str.startswith("page-faults")].dropna()
    if faults.empty:
        return "this run has no interval for the page faults: it takes two rounds or more"
    first = faults.iloc[0]
    low, value, high = (float(first[end]) for end in _ENDS)
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


LESSON = Lesson.of(
    "counters",
    {
        "error of page faults": partial(Prediction, measured=_error),
        "2": partial(
            Code,
            reference=_growth,
            cases=_sets,
            always=[(2,), (30,)],
            wrong=[
                (lambda k: k / 2, "lets the error grow with the number of sets"),
                (lambda k: math.sqrt(k / 2), "forgets what the set has seen itself"),
            ],
        ),
        "5": partial(
            Code,
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
        ),
    },
)
