"""What notebook 08 asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

__all__ = ["LESSON"]

_NEAR = 1.15  # two people who read one table agree as well as this
_PAIRS = (128 * 127, 2 * 127)  # trials of a full matrix: pair by pair, and 64 pairs at once


def _ratio(above: str, below: str, what: str) -> Callable[[Any], Measured | str]:
    """How many times one line of the table of latencies is another."""

    def measured(run: Any) -> Measured | str:
        table = run.table("latencies").set_index("what")
        if not {above, below} <= set(table.index):
            return f"this run did not measure {above} and {below}"
        far, near = table.loc[above], table.loc[below]
        value = far["median_ns"] / near["median_ns"]
        low, high = far["low_ns"] / near["high_ns"], far["high_ns"] / near["low_ns"]
        if not all(map(math.isfinite, (low, high))):
            low = high = value
        return Measured(low, value, high, what)

    return measured


def _null(answer: Any, null: Any) -> Judged:
    """The verdict that a control must never have, and the one that this run's has."""
    try:
        never, here = (str(one).strip().lower() for one in answer)
    except (TypeError, ValueError):
        return Judged(0.0, "give two verdicts: (never, here)")
    found = null.verdict if null is not None else "inconclusive"
    if never != "supported":
        return Judged(0.0, "a control has nothing to find: which verdict would say it found it?")
    if here != found:
        return Judged(0.5, f"the first is right; here the control's verdict is {found}")
    return Judged(1.0, f"a control may be refuted or inconclusive; here it is {found}")


def _false_sharing(answer: Any, run: Any) -> Judged:
    found = _ratio("modified write", "local write", "modified over local write")(run)
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
    starts = run.samples.groupby(["round", "position"])["start_ns"].min().sort_values()
    each_s = starts.diff().median() / 1e9
    try:
        given = [number(one) for one in answer]
    except TypeError:
        given = []
    if len(given) != len(_PAIRS):
        return Judged(0.0, "give two numbers of seconds: (pair by pair, 64 pairs at once)")
    wanted = [each_s * trials for trials in _PAIRS]
    right = [one / 1.5 <= two <= one * 1.5 for one, two in zip(wanted, given, strict=True)]
    says = f"a trial takes {1000 * each_s:.0f} ms here: {wanted[0]:.0f} s, and {wanted[1]:.1f} s"
    return Judged(sum(right) / len(right), says)


LESSON = Lesson(
    name="coherence",
    title="Cache coherence: what a line costs that another core owns",
    minutes=75,
    objectives=[
        "Predict from a line's state who answers, and what a load or a write of it takes.",
        "Name the protocol and the way of a core-to-core latency before comparing two of them.",
        "Tell from a control whether prefetching spoils a measurement.",
        "Say what false sharing costs on this machine, in multiples of a local write.",
    ],
    needs=["two cores", "no hypervisor"],
    items=[
        Prediction(
            name="memory over cache",
            unit="times",
            measured=_ratio("invalid load", "modified load", "invalid over modified load"),
            hints=["Two ways: to the other core's cache and back, or to memory and back."],
        ),
        Prediction(
            name="exclusive over modified",
            unit="times",
            measured=_ratio("exclusive load", "modified load", "exclusive over modified load"),
            hints=["In both states the other cache has the only copy."],
        ),
        Prediction(
            name="write to shared_here",
            unit="local writes",
            measured=_ratio("shared_here write", "local write", "shared_here over local write"),
            hints=["A write needs the line alone."],
        ),
        Prediction(
            name="write to owned_here",
            unit="local writes",
            measured=_ratio("owned_here write", "local write", "owned_here over local write"),
            hints=["Was the written line lent, or handed over as a whole?"],
        ),
        Relation(
            name="1",
            points=2,
            holds=_null,
            wrong=[
                (("inconclusive", "refuted"), "takes an open verdict for a false one"),
                (("refuted", "supported"), "expects the control to show the effect"),
            ],
            hints=["The control compares a protocol with itself."],
        ),
        Relation(
            name="2",
            holds=_false_sharing,
            wrong=[
                (1, "takes the two variables for independent"),
                (0.01, "divides the wrong way round"),
            ],
            hints=["Divide the median of 'modified write' by that of 'local write'."],
        ),
        Choice(
            name="padding",
            question="Padding to 64 bytes gives each variable its own line. Why do some programs "
            "pad to 128?",
            options={
                "a": "A line of the second-level cache has 128 bytes.",
                "b": "A pointer and its variable must lie in one page.",
                "c": "Some processors fetch lines in pairs: the neighbour comes along.",
            },
            right="c",
            because={
                "a": "On x86 a line has 64 bytes in every cache.",
                "b": "Pages have nothing to do with who owns a line.",
                "c": "Whether it happens here, the control shows: compare its shuffled neighbours "
                "with its shuffled spread lines.",
            },
            wrong=[("a", "takes the pair that is fetched for a line")],
            hints=["What did the control's neighbouring lines do?"],
        ),
        Relation(
            name="3",
            holds=_lines,
            wrong=[(48, "takes the reference itself"), (64, "a number that was not measured")],
            hints=["Divide each local load by the one with 48 lines; find the first above 1.5."],
        ),
        Relation(
            name="4",
            points=2,
            holds=_how_long,
            wrong=[((1.0, 1.0), "forgets that trials are one after the other")],
            hints=["Multiply the time between two trials by 16,256, and by 254."],
        ),
        Choice(
            name="pairs at once",
            question="With 64 pairs at the same time a trial may take longer. What tells whether "
            "its numbers can be trusted?",
            options={
                "a": "Pairs that are measured alone in the same round, and compared.",
                "b": "The clock: if it is the same, so are the latencies.",
                "c": "The number of samples a pair.",
            },
            right="a",
            because={
                "a": "That needs no reason for a difference: the finding `pairs at once` says "
                "whether there is one.",
                "b": "The interconnect is shared as well: a clock that stays is not enough.",
                "c": "More samples narrow an interval around a value that may be biased.",
            },
            wrong=[("b", "names one cause and trusts that it is the only one")],
            hints=["A bias does not shrink with more samples."],
        ),
        Choice(
            name="5",
            question="A line is Modified in a cache of socket 1; its memory belongs to socket 0. "
            "Why can a load from socket 0 take longer than one from socket 1's memory?",
            options={
                "a": "Caches are slower than memory across a link.",
                "b": "The request asks its home first, then crosses to the owner and back, and the "
                "home is notified.",
                "c": "The line is written to memory first, then read twice.",
            },
            right="b",
            because={
                "a": "The cache itself answers sooner; the way is longer.",
                "b": "Memory of socket 1 takes one request and one answer and no third party. With "
                "its home on socket 1 the request would find the owner there. Measure both with "
                'memory_policy="bind" and memory_node.',
                "c": "A cache can answer the requester directly; memory need not be written first.",
            },
            wrong=[
                ("a", "looks at the end of the way only"),
                ("c", "writes back before the answer"),
            ],
            hints=["Draw the messages: who has to be asked first?"],
        ),
    ],
)
