"""What notebook 09 asks."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from perflib.course.items import Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import found, parts, verdict

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
    size, pair = parts(answer, 2, 'give the size and the pair: (bytes, "one-other")')
    named = {word.strip().lower() for word in str(pair).replace("-", " ").split()}
    given = int(number(size))
    at_size = (given - _SIZE) % 4096 == 0 and given >= _SIZE
    says = [f"{given} bytes {'is right' if at_size else 'is not it'}"]
    says.append(f"{pair} {'is right' if named == _PAIR else 'is not it'}")
    return Judged((at_size + (named == _PAIR)) / 2, "; ".join(says))


def _null(answer: Any, held: Any) -> Judged:
    asked = "give two things: (places of inc within its page, verdict)"
    places, word = parts(answer, 2, asked)
    true = int((held.samples["inc_address"] % 4096).nunique())
    judged = verdict("environment")(word, held)
    right = int(number(places)) == true
    says = f"inc has {true} place{'' if true == 1 else 's'} within its page; {judged.says}"
    return Judged((right + judged.share) / 2, says)


def _how_rare(answer: Any, *_: Any) -> Judged:
    given = map(number, parts(answer, 2, "give two numbers, in percent of the starts"))
    right = [low <= one <= high for (low, high), one in zip((_ONE, _MANY), given, strict=True)]
    names = ("this program", "20 by 20 variables")
    wrong = [name for name, one in zip(names, right, strict=True) if not one]
    says = "a rare spike becomes what looks like noise"
    return Judged(sum(right) / 2, f"count again: {', '.join(wrong)}" if wrong else says)


LESSON = Lesson.of(
    "aliasing_environment",
    {
        "wait at 4096 B": partial(Prediction, measured=_waits),
        "slow sizes": partial(Prediction, measured=_sizes),
        "slowdown at these sizes": partial(
            Prediction, measured=found("environment", what="the program at the predicted sizes")
        ),
        "1": partial(
            Relation,
            holds=_by_hand,
            wrong=[
                ((3248, "g-i"), "forgets that the environment has 32 bytes already"),
                ((3280, "inc-i"), "overlooks that inc always ends in 8"),
                ((848, "g-i"), "shifts the stack up instead of down"),
            ],
        ),
        "2": partial(
            Relation,
            holds=_null,
            wrong=[
                ((256, "supported"), "overlooks that variables='hold' keeps the stack in place"),
                ((0, "refuted"), "counts none where there is one place"),
            ],
        ),
        "4": partial(
            Relation,
            holds=_how_rare,
            wrong=[
                ((0.4, 0.8), "takes 0.8 pairs on average for 0.8 %"),
                ((0.4, 78), "takes the mean number of pairs for the share of starts"),
            ],
        ),
    },
)
