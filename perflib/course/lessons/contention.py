"""What notebook 19 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

_LINE = 64
_NEAR = 0.1


def _false_sharing(run: Any) -> Measured | str:
    """How much longer counting takes on one line, by the most cores, in percent."""
    found = run.findings.where(claim="false_sharing")
    if not len(found) or not math.isfinite(found[-1].high):
        return str(found[-1].reason) if len(found) else "this run has no counters on one line"
    last = found[-1]
    return Measured(last.low, last.effect, last.high, f"CPUs {last.about['cpus']}")


def _alone_and_together(run: Any) -> tuple[Any, Any] | None:
    """The rows of fetch_add: one core alone, and the most cores."""
    cost = run.table("cost")
    mine = (
        cost[cost["kind"] == "fetch_add"]
        .dropna(subset=["operation_ns"])
        .sort_values("count", kind="stable")
    )
    return None if len(mine) < 2 else (mine.iloc[0], mine.iloc[-1])


def _times(answer: Any, run: Any) -> Judged:
    """How many times as long an atomic addition takes a core while all make it."""
    rows = _alone_and_together(run)
    if rows is None:
        return Judged(1.0, "this run has no two numbers of cores that share a counter")
    alone, together = rows
    expected = together["operation_ns"] / alone["operation_ns"]
    right = abs(number(answer) / expected - 1) <= _NEAR
    says = f"{together['operation_ns']:.3g} ns instead of {alone['operation_ns']:.3g} ns"
    return Judged(float(right), says if right else "operation_ns, together by alone")


def _share(a: int, a_bytes: int, b: int, b_bytes: int) -> bool:
    """Whether two objects have a line of 64 bytes in common."""
    return a // _LINE <= (b + b_bytes - 1) // _LINE and b // _LINE <= (a + a_bytes - 1) // _LINE


def _share_begin(a: int, a_bytes: int, b: int, b_bytes: int) -> bool:  # noqa: ARG001 forgotten
    return a // _LINE == b // _LINE


def _share_near(a: int, a_bytes: int, b: int, b_bytes: int) -> bool:  # noqa: ARG001 forgotten
    return abs(a - b) < _LINE


def _cases(draw: random.Random) -> tuple[Any, ...]:
    a = draw.randint(0, 10**6)
    return a, draw.randint(1, 200), a + draw.randint(-300, 300), draw.randint(1, 200)


LESSON = Lesson.of(
    "contention",
    {
        "false sharing": partial(Prediction, measured=_false_sharing),
        "1": partial(
            Relation,
            holds=_times,
            wrong=[(0, "nothing takes no time"), (1e6, "is no factor, but a rate")],
        ),
        "2": partial(
            Code,
            reference=_share,
            cases=_cases,
            always=[(0, 8, 56, 8), (0, 8, 64, 8), (60, 8, 64, 8), (64, 8, 60, 8), (0, 200, 128, 1)],
            wrong=[
                (_share_begin, "forgets that an object may reach into the next line"),
                (_share_near, "asks how near they are; what counts is on which lines they are"),
            ],
        ),
    },
)
