"""What notebook 09 asks."""

from __future__ import annotations

import math
from typing import Any

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import found, verdict

__all__ = ["LESSON"]

_SIZE, _PAIR = 3280, {"g", "i"}
_ONE, _MANY = (0.3, 0.9), (50.0, 58.0)  # percent of starts


def _waits(run: Any) -> Measured | str:
    """What a load waits for a store 4096 bytes away."""
    for finding in run.findings.where(claim="waits", distance_bytes=4096):
        value, low, high = finding.evidence["extra_ns"]
        if all(map(math.isfinite, (low, value, high))):
            return Measured(low, value, high, "the map at 4096 B")
    return "this run has no interval of pairs that are 4096 B apart"


def _sizes(run: Any) -> Measured | str:
    count = len(run.table("predicted"))
    return Measured(count, count, count, "sizes at which the printed addresses agree")


def _by_hand(answer: Any, *_: Any) -> Judged:
    try:
        size, pair = answer
        named = {word.strip().lower() for word in str(pair).replace("-", " ").split()}
        given = int(number(size))
    except (TypeError, ValueError):
        return Judged(0.0, 'give the size and the pair: (bytes, "one-other")')
    at_size = (given - _SIZE) % 4096 == 0 and given >= _SIZE
    says = [f"{given} bytes {'is right' if at_size else 'is not it'}"]
    says.append(f"{pair} {'is right' if named == _PAIR else 'is not it'}")
    return Judged((at_size + (named == _PAIR)) / 2, "; ".join(says))


def _null(answer: Any, held: Any) -> Judged:
    try:
        places, word = answer
    except (TypeError, ValueError):
        return Judged(0.0, "give two things: (places of inc within its page, verdict)")
    true = int((held.samples["inc_address"] % 4096).nunique())
    judged = verdict("environment")(word, held)
    right = int(number(places)) == true
    says = f"inc has {true} place{'' if true == 1 else 's'} within its page; {judged.says}"
    return Judged((right + judged.share) / 2, says)


def _how_rare(answer: Any, *_: Any) -> Judged:
    try:
        given = [number(one) for one in answer]
    except TypeError:
        given = []
    if len(given) != len((_ONE, _MANY)):
        return Judged(0.0, "give two numbers, in percent of the starts")
    right = [low <= one <= high for (low, high), one in zip((_ONE, _MANY), given, strict=True)]
    names = ("this program", "20 by 20 variables")
    wrong = [name for name, one in zip(names, right, strict=True) if not one]
    says = "a rare spike becomes what looks like noise"
    return Judged(sum(right) / 2, f"count again: {', '.join(wrong)}" if wrong else says)


LESSON = Lesson(
    name="aliasing_environment",
    title="4K aliasing: the store-load map, and the size of the environment",
    minutes=75,
    objectives=[
        "Explain why a load waits for a store to another address with the same low 12 bits.",
        "Predict from printed addresses at which sizes of the environment two variables agree.",
        "Bound what the mechanism can cost any program, before looking at one.",
        "Say why repeating a benchmark does not remove the bias of its environment.",
    ],
    needs=["C compiler"],
    items=[
        Prediction(
            name="wait at 4096 B",
            unit="ns",
            measured=_waits,
            hints=["A wait of one cycle is 1 / clock in GHz, in ns; much of it may be hidden."],
        ),
        Prediction(
            name="slow sizes",
            unit="of 512 sizes",
            measured=_sizes,
            hints=["The stack moves by 16 bytes a step; 4096 / 16 steps come back to one place."],
        ),
        Prediction(
            name="slowdown at these sizes",
            unit="percent",
            measured=found("environment", what="the program at the predicted sizes"),
            hints=["A cycle more in a loop of 4 to 5 cycles is 20 to 25 %, if nothing hides it."],
        ),
        Relation(
            name="1",
            points=2,
            holds=_by_hand,
            wrong=[
                ((3248, "g-i"), "forgets that the environment has 32 bytes already"),
                ((3280, "inc-i"), "overlooks that inc always ends in 8"),
                ((848, "g-i"), "shifts the stack up instead of down"),
            ],
            hints=[
                "The stack moves down in steps of 16: the last hexadecimal digit of g stays.",
                "0xd7c - 0x0cc bytes more than the 32 that there are.",
            ],
        ),
        Relation(
            name="2",
            points=2,
            holds=_null,
            wrong=[
                ((256, "supported"), "overlooks that variables='hold' keeps the stack in place"),
                ((0, "refuted"), "counts none where there is one place"),
            ],
            hints=["Count the different values of inc_address % 4096, and read the finding."],
        ),
        Choice(
            name="3",
            question="Two versions of a program, each built once, are timed a hundred times with "
            "ASLR off. Do a hundred repetitions help against this bias?",
            options={
                "a": "Yes: its effect averages out over a hundred starts.",
                "b": "No: environment and link order are the same in all of them; vary them.",
                "c": "No: only more iterations of the loop would help.",
                "d": "Yes, if the median is taken in place of the mean.",
            },
            right="b",
            because={
                "a": "What is the same in all starts is part of each of them: it averages out of "
                "none.",
                "b": "Random environment sizes, several link orders, ASLR on; then compare the "
                "distributions. It costs nothing but starts.",
                "c": "A longer loop at one place measures the same place for longer.",
                "d": "A median removes outliers. A bias is no outlier: every start has it.",
            },
            wrong=[("a", "takes a bias for noise"), ("d", "takes a bias for an outlier")],
            hints=["Which of the addresses differ between two of the hundred starts?"],
        ),
        Relation(
            name="4",
            points=2,
            holds=_how_rare,
            wrong=[
                ((0.4, 0.8), "takes 0.8 pairs on average for 0.8 %"),
                ((0.4, 78), "takes the mean number of pairs for the share of starts"),
            ],
            hints=[
                "One place of the stack in 256 agrees, or two.",
                "With 0.8 pairs on average, the chance of none is about exp(-0.8).",
            ],
        ),
    ],
)
