"""What the final project asks: a mystery, named with an interval."""

from __future__ import annotations

import math
from typing import Any

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.mystery.causes import CAUSES
from perflib.course.relations import near

__all__ = ["LESSON"]

_PLAN = {
    "thief": "kv_per_core",
    "quota": "kv_per_core",
    "function": "event_profile",
    "lock": "threads",
}


def _taken(run: Any) -> Measured | str:
    """What others take from the core from which they take most."""
    taken = [one for one in run.findings.where(claim="taken") if math.isfinite(one.low)]
    if not taken:
        return "this run has no account of waiting"
    most = max(taken, key=lambda one: float(one.effect))
    return Measured(most.low, most.effect, most.high, f"taken from cpu{most.about['cpu']}")


def _plan(answer: Any) -> Judged:
    """Which run tells each of four causes."""
    if not isinstance(answer, dict):
        return Judged(0.0, "give a dictionary: cause and the name of an experiment")
    wrong = [cause for cause, run in _PLAN.items() if answer.get(cause) != run]
    if not wrong:
        return Judged(1.0, "two runs tell the machine's troubles from the job's, one each the rest")
    told = f"{wrong[0]}: {CAUSES[wrong[0]].tells}"
    return Judged(1 - len(wrong) / len(_PLAN), f"look again at {', '.join(wrong)}. {told}")


def _case(answer: Any, machine: Any) -> Judged:
    """The mystery's own verdict."""
    if not isinstance(answer, dict):
        return Judged(0.0, "give a dictionary with cause, place, low and high")
    try:
        verdict = machine.answer(**answer)
    except TypeError:
        return Judged(0.0, "an answer has cause, place, low, high and unit, and nothing else")
    return Judged(verdict.points / 100, str(verdict).partition("\n")[0])


LESSON = Lesson(
    name="mystery",
    title="Mystery machine",
    minutes=90,
    objectives=[
        "Plan which run rules out which cause, before you measure.",
        "Tell trouble of the machine from trouble of the job.",
        "Name a cause, its place and its size with an interval, or state what can still be there.",
        "Say what would have changed your mind.",
    ],
    needs=["two cores", "C compiler", "root", "perf"],
    items=[
        Relation(
            name="plan",
            points=2,
            holds=_plan,
            wrong=[
                (dict.fromkeys(_PLAN, "kv_per_core"), "lets one run answer every question"),
                (
                    {**_PLAN, "thief": "event_profile"},
                    "looks for a function before it is known whether the core is slow at all",
                ),
                ("kv_per_core", "gives no plan"),
            ],
            hints=[
                "The last columns of machine.causes say where each is examined.",
                "Which run sees time that a core does not have? Which one compares functions?",
            ],
        ),
        Prediction(
            name="time taken by others",
            unit="%",
            measured=_taken,
            hints=["A healthy, idle machine loses less than 1 %."],
        ),
        Choice(
            name="2",
            question="kv_per_core: cpu1 is as fast as cpu0 (0.1 % ± 0.4), and 12 % ± 1 of its time "
            "is taken by other tasks; of cpu0 0.2 % ± 0.2. What is wrong?",
            options={
                "a": "cpu1 is a slow core.",
                "b": "Nothing: 12 % is noise.",
                "c": "A quota limits the job.",
                "d": "Another process uses cpu1.",
            },
            right="d",
            because={
                "a": "While it has its time it is as fast as cpu0: the core is sound.",
                "b": "The interval [11, 13] is far from 0.",
                "c": "A quota holds both cores back alike.",
                "d": "The time is taken from one core, by a task; the table of tasks names it.",
            },
            wrong=[
                ("a", "takes lost time for low speed"),
                ("c", "overlooks that the other core loses nothing"),
                ("b", "takes every number on a virtual machine for noise"),
            ],
            hints=["Own speed and lost time are two findings."],
        ),
        Relation(
            name="3",
            holds=near(
                13.4,
                13.9,
                "1 / (1 − 0.12) = 1.136",
                "the job has 88 % of the core: how much longer does the same work take?",
            ),
            wrong=[
                (12, "adds the share instead of dividing by what is left"),
                (88, "gives what is left"),
            ],
            hints=["Work / (1 − share) is the time that it takes."],
        ),
        Choice(
            name="4",
            question="Our own simulation takes equally long on both cores; the job takes 16 % ± 2 "
            "longer on cpu1. Which run comes next?",
            options={
                "a": "memory_levels: cpu1 may be far from its memory.",
                "b": "event_profile with the job: which functions take more on cpu1, and how much "
                "code runs there?",
                "c": "The same again, for an hour.",
            },
            right="b",
            because={
                "a": "Then our own simulation would be slow there as well, as a rule.",
                "b": "The core is sound, so the job does something else there; a profile of the "
                "same event on both cores says what.",
                "c": "The interval is narrow enough; what is missing is a cause.",
            },
            wrong=[("a", "suspects the core again"), ("c", "measures what is known")],
            hints=["What differs between the two: the core, or what runs on it?"],
        ),
        Choice(
            name="5",
            question="All runs refute: no core slow within 0.5 %, nothing taken beyond 0.3 %, no "
            "lock above 1 %. What is the honest answer?",
            options={
                "a": "The machine is healthy.",
                "b": "I could not find it; there must be something.",
                "c": "Nothing that costs more than 1 %; these runs could not see less.",
            },
            right="c",
            because={
                "a": "That says more than was measured: smaller troubles, and other kinds, may be "
                "there.",
                "b": "Nothing obliges a machine to be ill. A refuted claim is a result.",
                "c": "An upper limit with its size is what was measured.",
            },
            wrong=[
                ("a", "takes 'refuted' for 'exactly zero'"),
                ("b", "takes a limit for a failure"),
            ],
            hints=["What does an interval that contains 0 exclude?"],
        ),
        Relation(
            name="case",
            points=6,
            holds=_case,
            wrong=[
                ({"cause": "nothing"}, "gives up, without a limit"),
                ("thief", "names a cause without place and interval"),
                ({"cause": "thief", "core": 1}, "misspells a word of the answer"),
            ],
            hints=["The truth is shown by the cell below: compare it with your runs."],
        ),
    ],
)
