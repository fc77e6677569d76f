"""What notebook 18 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

_LINE_BYTES, _DOUBLE_BYTES = 64, 8
_READS = {"copy": 1, "scale": 1, "add": 2, "triad": 2}
_NEAR = 0.1


def _rise(run: Any) -> Measured | str:
    """How much longer a load takes at the highest rate, in percent."""
    (found,) = run.findings.where(claim="latency_rises")[:1]
    if not math.isfinite(found.high):
        return str(found.reason)
    return Measured(found.low, found.effect, found.high, "at the highest rate")


def _top(run: Any) -> Any:
    """The row of the curve at the highest rate."""
    curve = run.table("curve")
    loaded = curve[curve["load"] == "memory"].dropna(subset=["gb_s", "latency_ns"])
    return None if loaded.empty else loaded.sort_values("rate_percent", kind="stable").iloc[-1]


def _lines(answer: Any, run: Any) -> Judged:
    """Little's law at the highest rate."""
    top = _top(run)
    if top is None:
        return Judged(1.0, "this run has no rate at which memory was loaded")
    expected = top["gb_s"] * top["latency_ns"] / _LINE_BYTES
    right = abs(number(answer) / expected - 1) <= _NEAR
    says = f"{top['gb_s']:.3g} GB/s times {top['latency_ns']:.3g} ns are {expected:.3g} lines"
    return Judged(float(right), says if right else "bytes a ns, times ns, by 64 bytes a line")


def _moved(kind: str, elements: int) -> int:
    """What memory moves: what STREAM counts, and the line that a store fetches first."""
    return (_READS[kind] + 2) * _DOUBLE_BYTES * elements


def _counted(kind: str, elements: int) -> int:
    return (_READS[kind] + 1) * _DOUBLE_BYTES * elements


def _elements(kind: str, elements: int) -> int:
    return (_READS[kind] + 2) * elements


def _cases(draw: random.Random) -> tuple[Any, ...]:
    return draw.choice(sorted(_READS)), draw.randint(1, 10**7)


LESSON = Lesson.of(
    "memory_load",
    {
        "rise under load": partial(Prediction, measured=_rise),
        "1": partial(
            Relation,
            holds=_lines,
            wrong=[(0, "no line is on its way"), (1.0, "takes one line for all")],
        ),
        "2": partial(
            Code,
            reference=_moved,
            cases=_cases,
            always=[("copy", 1000), ("triad", 1000)],
            wrong=[
                (_counted, "is STREAM's count: the line that a store fetches first is missing"),
                (_elements, "counts doubles, not bytes"),
            ],
        ),
    },
)
