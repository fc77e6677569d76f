"""What notebook 08 asks."""

from __future__ import annotations

from functools import partial
from typing import Any

from perflib.course.items import Judged, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import latency_ratio, parts

_NEAR = 1.15  # two people who read one table agree as well as this
_PAIRS = (128 * 127, 2 * 127)  # trials of a full matrix: pair by pair, and 64 pairs at once


def _null(answer: Any, null: Any) -> Judged:
    """The verdict that a control must never have, and the one that this run's has."""
    given = parts(answer, 2, "give two verdicts: (never, here)")
    never, here = (str(one).strip().lower() for one in given)
    found = null.verdict if null is not None else "inconclusive"
    if never != "supported":
        return Judged(0.0, "a control has nothing to find: which verdict would say it found it?")
    if here != found:
        return Judged(0.5, f"the first is right; here the control's verdict is {found}")
    return Judged(1.0, f"a control may be refuted or inconclusive; here it is {found}")


def _false_sharing(answer: Any, run: Any) -> Judged:
    found = latency_ratio("modified write", "local write", "modified over local write")(run)
    given = number(answer)
    if isinstance(found, str):
        return Judged(1.0, f"nothing to compare with: {found}")
    right = found.low / _NEAR <= given <= found.high * _NEAR
    return Judged(float(right), f"{found.what}: {found.value:.3g} times")


def _lines(answer: Any, by_lines: Any) -> Judged:
    """The first count of lines at which a local load is clearly slower than with 48."""
    local = by_lines.set_index("lines")["local load"]
    given = int(number(answer))
    if given not in local.index:
        return Judged(0.0, f"one of {', '.join(map(str, local.index))}")
    times = local / local.iloc[0]
    clear = [count for count in local.index if times[count] > 1.5]
    if not clear:
        return Judged(1.0, "in this run no count is clearly slower than 48 lines")
    if given == clear[0]:
        return Judged(1.0, f"{given} lines take {times[given]:.1f} times as long as 48")
    return Judged(0.0, f"with {given} lines a local load takes {times[given]:.1f} times as long")


def _how_long(answer: Any, run: Any) -> Judged:
    starts = run.samples.groupby(["round", "position"])["start_ns"].min().sort_values(kind="stable")
    each_s = starts.diff().median() / 1e9
    asked = "give two numbers of seconds: (pair by pair, 64 pairs at once)"
    given = map(number, parts(answer, len(_PAIRS), asked))
    wanted = [each_s * trials for trials in _PAIRS]
    right = [one / 1.5 <= two <= one * 1.5 for one, two in zip(wanted, given, strict=True)]
    says = f"a trial takes {1000 * each_s:.0f} ms here: {wanted[0]:.0f} s, and {wanted[1]:.1f} s"
    return Judged(sum(right) / len(right), says)


LESSON = Lesson.of(
    "coherence",
    {
        "memory over cache": partial(
            Prediction,
            measured=latency_ratio("invalid load", "modified load", "invalid over modified load"),
        ),
        "exclusive over modified": partial(
            Prediction,
            measured=latency_ratio(
                "exclusive load", "modified load", "exclusive over modified load"
            ),
        ),
        "write to shared_here": partial(
            Prediction,
            measured=latency_ratio(
                "shared_here write", "local write", "shared_here over local write"
            ),
        ),
        "write to owned_here": partial(
            Prediction,
            measured=latency_ratio(
                "owned_here write", "local write", "owned_here over local write"
            ),
        ),
        "1": partial(
            Relation,
            holds=_null,
            wrong=[
                (("inconclusive", "refuted"), "takes an open verdict for a false one"),
                (("refuted", "supported"), "expects the control to show the effect"),
            ],
        ),
        "2": partial(
            Relation,
            holds=_false_sharing,
            wrong=[
                (1, "takes the two variables for independent"),
                (0.01, "divides the wrong way round"),
            ],
        ),
        "3": partial(
            Relation,
            holds=_lines,
            wrong=[(48, "takes the reference itself"), (64, "a number that was not measured")],
        ),
        "4": partial(
            Relation,
            holds=_how_long,
            wrong=[((1.0, 1.0), "forgets that trials are one after the other")],
        ),
    },
)
