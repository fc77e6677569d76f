"""What notebook 15 asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

__all__ = ["LESSON"]

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
    if abs(given - found) <= _NEAR_POINTS:
        return Judged(1.0, says)
    if abs(100 * given - found) <= _NEAR_POINTS:
        return Judged(0.5, f"{says}: yours is not in percent")
    return Judged(0.0, f"{says}: were the delays subtracted?")


LESSON = Lesson(
    name="what_if",
    title="What if: what a faster function or critical section would gain",
    minutes=60,
    objectives=[
        "Say why a function's share of the CPU time is not its gain where threads wait.",
        "Explain how delays of all other threads stand for a faster target.",
        "Say which waits are credited and which are paid for.",
        "Tell a prediction from a gain, and compare the two.",
    ],
    needs=["two cores"],
    items=[
        Prediction(
            name="faster lock",
            unit="percent",
            measured=_gain("formula_lock", _HALF),
            hints=["Two threads, and the lock is taken nearly always: what limits the job?"],
        ),
        Prediction(
            name="faster output_pack",
            unit="percent",
            measured=_gain("output_pack", 75.0),
            hints=["Who has to wait for the lock longer, if this is done sooner?"],
        ),
        Code(
            name="1",
            reference=_event_time,
            cases=_cases,
            wrong=[
                (_without_lock, "forgets that the lock serves one at a time"),
                (_without_threads, "brings one event after the other"),
            ],
            hints=[
                "The lock serves one thread at a time: an event in s at best.",
                "Each thread works p + s for an event of its own.",
            ],
        ),
        Relation(
            name="2",
            holds=_half,
            wrong=[(-50.0, "divides the wrong way round"), (1000.0, "guesses")],
            hints=["job_s - delay_s, of trials with way virtual, over those with way control."],
        ),
        Choice(
            name="3",
            question="A waits for a lock that B holds. Meanwhile C is in the target, and 3 ms are "
            "added to what all owe. B pays them, gives the lock back, and A runs. Does A pay, too?",
            options={
                "a": "Yes: each thread pays every delay.",
                "b": "Yes, but only if it takes the lock again.",
                "c": "No: B stood still for 3 ms, so A waited 3 ms longer already.",
            },
            right="c",
            because={
                "a": "Then A would stand still twice: once in the lock's queue, once for itself.",
                "b": "A lock makes nobody owe anything; the delay was added while A waited.",
                "c": "Who wakes another has paid before, so the delay is in the wait already.",
            },
            wrong=[("a", "pays twice"), ("b", "takes locks for what is counted")],
            hints=["When would B have given the lock back without the delay?"],
        ),
        Choice(
            name="4",
            question="A job has one thread, and a function takes 30 % of its time. What does the "
            "method say of it at 50 %?",
            options={
                "a": "15 %: nobody is delayed, and the delays that would be are subtracted.",
                "b": "0 %: there is nobody to be delayed.",
                "c": "30 %: the share.",
            },
            right="a",
            because={
                "a": "The job takes as long as ever; what is subtracted is half of the 30 %.",
                "b": "Nobody stands still, but the time that others would have owed is counted.",
                "c": "That is what it would gain if it took no time at all.",
            },
            wrong=[("b", "forgets the subtraction"), ("c", "takes the share for the gain")],
            hints=["How long does the job take, and what is subtracted from that?"],
        ),
    ],
)
"""The lesson."""
