"""What notebook 15 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import percent_read

_NEAR_POINTS = 2.0
_HALF = 50.0


def _gain(target: str, percent: float) -> Any:
    """The gain of a target at a speed-up, in percent."""

    def measured(run: Any) -> Measured | str:
        table = run.table("gains")
        mine = table[(table["target"] == target) & (table["speedup_percent"] == percent)]
        if mine.empty:
            return f"this run has no {target} that is {percent:g} % faster"
        row = mine.iloc[0]
        value, low, high = (float(row[f"gain_percent{end}"]) for end in ("", "_low", "_high"))
        if not all(map(math.isfinite, (low, high))):
            low = high = value
        return Measured(low, value, high, f"gain with {target} {percent:g} % faster")

    return measured


def _event_time(p: float, s: float, threads: int) -> float:
    return max(s, (p + s) / threads)


def _without_lock(p: float, s: float, threads: int) -> float:
    """As if the lock were none."""
    return (p + s) / threads


def _without_threads(p: float, s: float, threads: int) -> float:
    """The parallel part is divided, the lock's is added: Amdahl's law, of one event at a time."""
    return s + p / threads


def _cases(draw: random.Random) -> tuple[Any, ...]:
    return (draw.uniform(0.1, 8.0), draw.uniform(0.1, 4.0), draw.randint(1, 16))


def _half(answer: Any, run: Any) -> Judged:
    """By medians of the samples, as the exercise asks."""
    mine = run.samples[run.samples["target"] == "formula_lock"]
    mine = mine.assign(time_s=mine["job_s"] - mine["delay_s"])
    virtual = mine[(mine["way"] == "virtual") & (mine["speedup_percent"] == _HALF)]
    control = mine[mine["way"] == "control"]
    given = number(answer)
    if virtual.empty or control.empty:
        return Judged(1.0, f"this run has no formula_lock that is {_HALF:g} % faster")
    found = 100 * float(1 - virtual["time_s"].median() / control["time_s"].median())
    says = f"with formula_lock {_HALF:g} % faster: {found:.1f} %"
    return percent_read(given, found, _NEAR_POINTS, says, "were the delays subtracted?")


LESSON = Lesson.of(
    "what_if",
    {
        "faster lock": partial(Prediction, measured=_gain("formula_lock", _HALF)),
        "faster output_pack": partial(Prediction, measured=_gain("output_pack", 75.0)),
        "1": partial(
            Code,
            reference=_event_time,
            cases=_cases,
            wrong=[
                (_without_lock, "forgets that the lock serves one at a time"),
                (_without_threads, "brings one event after the other"),
            ],
        ),
        "2": partial(
            Relation,
            holds=_half,
            wrong=[(-50.0, "divides the wrong way round"), (1000.0, "guesses")],
        ),
    },
)
"""The lesson."""
