"""What notebook 10 asks."""

from __future__ import annotations

import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import near

__all__ = ["LESSON"]

_SIX = (0, 4, 64, 1028, 2052, 4100)
_LINES = 128  # bytes above a multiple of the period that are predicted
_LARGEST, _OTHER = (1.1, 1.5), (-0.2, 0.2)  # percent


def _memcpy_at_4(run: Any) -> Measured | str:
    if "time_memcpy" not in run.tables:
        return "this run did not time memcpy"
    curve = run.table("time_memcpy")
    at = curve[curve["offset_bytes"] == 4].dropna(subset=["low_percent"])
    if at.empty:
        return "this run has no interval at 4 bytes"
    one = at.iloc[0]
    ends = (one["low_percent"], one["percent"], one["high_percent"])
    return Measured(*ends, f"memcpy of {one['n']} floats at 4 B")


def _six(answer: Any, six: Any) -> Judged:
    """Which of six distances are slow: their whole interval lies above zero."""
    try:
        named = {int(number(one)) for one in answer}
    except TypeError:
        named = {int(number(answer))}
    if strange := named - {*_SIX}:
        return Judged(0.0, f"{sorted(strange)}: one of {', '.join(map(str, _SIX))}")
    off = []
    for row in six.itertuples():
        slow, not_slow = row.low_percent > 0, row.high_percent < 0
        at = row.offset_bytes
        if (slow and at not in named) or (not_slow and at in named):
            off.append(
                f"{at} B: {row.percent:+.1f} [{row.low_percent:+.1f}, {row.high_percent:+.1f}]"
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
    try:
        largest, other = (number(one) for one in answer)
    except (TypeError, ValueError):
        return Judged(0.0, "give two numbers, in percent: (of the slowest, chosen in one half)")
    right = [low <= one <= high for (low, high), one in ((_LARGEST, largest), (_OTHER, other))]
    says = "the slowest of 48 equal ones looks slow; measured again, it is not"
    return Judged(sum(right) / 2, says if all(right) else "draw 48 x 12 values 500 times, and look")


LESSON = Lesson(
    name="aliasing_offsets",
    title="4K aliasing: the distance between two buffers",
    minutes=75,
    objectives=[
        "Predict at which distances of two arrays a loop is slow, and why.",
        "Choose a control with the same place in a cache line, so alignment is no aliasing.",
        "Name the slowest of many without falling for the winner's curse.",
        "Sweep a function of your own, and decide whether it is worth shifting an array.",
    ],
    needs=["C compiler"],
    items=[
        Prediction(
            name="memcpy 4 bytes above",
            unit="percent",
            measured=_memcpy_at_4,
            hints=["A copy that stores and loads a vector a cycle may lose a cycle in ten."],
        ),
        Relation(
            name="six",
            points=2,
            holds=_six,
            wrong=[([64, 3000], "names a distance that was not asked about")],
            hints=["Slow means: the whole interval lies above zero. Look at low_percent."],
        ),
        Code(
            name="1",
            points=2,
            reference=_slow,
            cases=_draw,
            always=[(4, 16), (4100, 16), (8196, 16), (65540, 16), (4100, 12), (127, 12), (128, 12)],
            wrong=[
                (_equal_only, "takes only equal low bits, not the 127 bytes above"),
                (_always_12, "compares 12 bits whatever is asked"),
            ],
            hints=["The period is 2**bits bytes.", "0 to 127 bytes above a multiple of it."],
        ),
        Relation(
            name="2",
            holds=near(
                1,
                1,
                "one in twenty: the interval of the slowest holds in 95 % of the runs",
                "an interval of 95 % is wrong in how many runs of twenty?",
            ),
            wrong=[(0, "takes 95 % for certainty"), (10, "counts by chance alone, as of a coin")],
            hints=["5 % of twenty runs."],
        ),
        Relation(
            name="3",
            points=2,
            holds=_curse,
            wrong=[
                ((0, 0), "forgets that the slowest was chosen for being slow"),
                ((1.3, 1.3), "measures again in the half that chose"),
            ],
            hints=["rng.normal(0, 2, (12, 48)), the mean over rounds, then the largest."],
        ),
        Choice(
            name="4",
            question="Twelve arrays of 8 MiB from np.empty, and stencils over all of them. What "
            "do you do?",
            options={
                "a": "Stagger them at once: all distances are 0 modulo 4096.",
                "b": "Make the arrays 4096 bytes longer.",
                "c": "Nothing: np.empty places them at random.",
                "d": "Sweep the stencil first; stagger them where a distance is faster within its "
                "interval.",
            },
            right="d",
            because={
                "a": "The distances are indeed 0; but whether this stencil minds is not known yet.",
                "b": "A mapping begins at a page whatever its size: the distance stays 0.",
                "c": "Large arrays are mapped: all begin 16 bytes above a page, behind the header.",
                "d": "Each array is mapped by itself, so all begin at the same place of a page. "
                "Staggering costs less than a page an array: pl.alias_free does it. Where no "
                "distance is faster, leave the program as it is.",
            },
            wrong=[("a", "cures before it measures"), ("b", "changes the size, not the beginning")],
            hints=["What does it cost to measure first?"],
        ),
    ],
)
