"""What the final project asks: a mystery, named with an interval."""

from __future__ import annotations

from functools import partial
from typing import Any

from perflib.course.items import Judged, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.mystery.causes import CAUSES
from perflib.course.relations import most_taken

_PLAN = {
    "thief": "kv_per_core",
    "quota": "kv_per_core",
    "function": "event_profile",
    "lock": "threads",
}


def _plan(answer: Any) -> Judged:
    """Which run shows each of four causes."""
    if not isinstance(answer, dict):
        return Judged(0.0, "give a dictionary: cause and the name of an experiment")
    wrong = [cause for cause, run in _PLAN.items() if answer.get(cause) != run]
    if not wrong:
        return Judged(1.0, "two runs separate trouble of machine and job, one each the rest")
    sentence = f"{wrong[0]}: {CAUSES[wrong[0]].shown_by}"
    return Judged(1 - len(wrong) / len(_PLAN), f"look again at {', '.join(wrong)}. {sentence}")


def _case(answer: Any, machine: Any) -> Judged:
    """The mystery's own verdict."""
    if not isinstance(answer, dict):
        return Judged(0.0, "give a dictionary with cause, place, low and high")
    try:
        verdict = machine.answer(**answer)
    except TypeError:
        return Judged(0.0, "an answer has cause, place, low, high and unit, and nothing else")
    return Judged(verdict.points / 100, str(verdict).partition("\n")[0])


LESSON = Lesson.of(
    "mystery",
    {
        "plan": partial(
            Relation,
            holds=_plan,
            wrong=[
                (dict.fromkeys(_PLAN, "kv_per_core"), "lets one run answer every question"),
                (
                    {**_PLAN, "thief": "event_profile"},
                    "looks for a function before it is known whether the core is slow at all",
                ),
                ("kv_per_core", "gives no plan"),
            ],
        ),
        "time taken by others": partial(Prediction, measured=most_taken),
        "case": partial(
            Relation,
            holds=_case,
            wrong=[
                ({"cause": "nothing"}, "gives up, without a limit"),
                ("thief", "names a cause without place and interval"),
                ({"cause": "thief", "core": 1}, "misspells a word of the answer"),
            ],
        ),
    },
)
