"""What notebook 10 asks."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import parts

_SIX = (0, 4, 64, 1028, 2052, 4100)
_LINES = 128  # bytes above a multiple of the period that are predicted
_LARGEST, _OTHER = (1.1, 1.5), (-0.2, 0.2)  # percent


def _memcpy_at_4(run: Any) -> Measured | str:
    if "time_memcpy" not in run.tables:
        return "this run did not time memcpy"
    curve = run.table("time_memcpy")
    at = curve[curve["offset_bytes"] == 4].dropna(subset=["percent_low"])
    if at.empty:
        return "this run has no interval at 4 bytes"
    one = at.iloc[0]
    ends = (one["percent_low"], one["percent"], one["percent_high"])
    return Measured(*ends, f"memcpy of {one['n']} floats at 4 B")


def _six(answer: Any, six: Any) -> Judged:
    """Which of six distances are slow: their whole interval is above zero."""
    try:
        named = {int(number(one)) for one in answer}
    except TypeError:
        named = {int(number(answer))}
    if strange := named - {*_SIX}:
        return Judged(0.0, f"{sorted(strange)}: one of {', '.join(map(str, _SIX))}")
    off = []
    for row in six.itertuples():
        slow, not_slow = row.percent_low > 0, row.percent_high < 0
        at = row.offset_bytes
        if (slow and at not in named) or (not_slow and at in named):
            off.append(
                f"{at} B: {row.percent:+.1f} [{row.percent_low:+.1f}, {row.percent_high:+.1f}]"
            )
    right = 1 - len(off) / max(len(six), 1)
    says = f"look again at {'; '.join(off)} %" if off else "no interval contradicts that"
    return Judged(right, says)


def _slow(distance: int, bits: int) -> bool:
    """Whether a distance is predicted to alias where ``bits`` low bits are compared."""
    return distance % (1 << bits) < _LINES


def _draw(drawn: random.Random) -> tuple[int, int]:
    bits = drawn.choice((12, 14, 16))
    return drawn.randrange(4) * (1 << bits) + drawn.choice((0, 4, 127, 128, 1028, 4100)), bits


def _equal_only(distance: int, bits: int) -> bool:
    return distance % (1 << bits) == 0


def _always_12(distance: int, bits: int) -> bool:  # noqa: ARG001
    return distance % 4096 < _LINES


def _curse(answer: Any, *_: Any) -> Judged:
    asked = "give two numbers, in percent: (of the slowest, chosen in one half)"
    largest, other = map(number, parts(answer, 2, asked))
    right = [low <= one <= high for (low, high), one in ((_LARGEST, largest), (_OTHER, other))]
    says = "the slowest of 48 equal ones looks slow; measured again, it is not"
    return Judged(sum(right) / 2, says if all(right) else "draw 48 x 12 values 500 times, and look")


LESSON = Lesson.of(
    "aliasing_offsets",
    {
        "memcpy 4 bytes above": partial(Prediction, measured=_memcpy_at_4),
        "six": partial(
            Relation, holds=_six, wrong=[([64, 3000], "names a distance that was not asked about")]
        ),
        "1": partial(
            Code,
            reference=_slow,
            cases=_draw,
            always=[(4, 16), (4100, 16), (8196, 16), (65540, 16), (4100, 12), (127, 12), (128, 12)],
            wrong=[
                (_equal_only, "takes only equal low bits, not the 127 bytes above"),
                (_always_12, "compares 12 bits whatever is asked"),
            ],
        ),
        "3": partial(
            Relation,
            holds=_curse,
            wrong=[
                ((0, 0), "forgets that the slowest was chosen for being slow"),
                ((1.3, 1.3), "measures again in the half that chose"),
            ],
        ),
    },
)
