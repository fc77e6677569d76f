"""What the lab on caches and NUMA asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, verdict


def _set_of(address: int, sets: int, line_bytes: int) -> int:
    return address // line_bytes % sets


def _address(drawn: random.Random) -> tuple[int, int, int]:
    return drawn.randrange(1 << 40), 1 << drawn.randint(0, 12), drawn.choice([32, 64, 128])


def _level(name: str) -> Any:
    """The latency of a level in core cycles."""

    def measured(run: Any) -> Measured | str:
        table = run.table("levels")
        rows = table[(table["level"] == name) & (table["samples"] != "shared")]
        values = [
            float(rows.iloc[0][column]) if len(rows) else math.nan
            for column in ("latency_cycles_low", "latency_cycles", "latency_cycles_high")
        ]
        if not all(map(math.isfinite, values)):
            return f"this run has no interval of the latency of {name}"
        low, value, high = values
        return Measured(low, value, high, f"latency of {name}")

    return measured


def _classes(run: Any) -> Measured | str:
    """How many classes of distance a run found."""
    count = len(run.table("class_latencies"))
    if not count:
        return "this run found no class of distance"
    return Measured(count, count, count, "the classes of distance")


LESSON = Lesson.of(
    "caches_and_numa",
    items=[
        Code(
            name="1",
            points=2,
            reference=_set_of,
            cases=_address,
            always=[(0, 64, 64), (63, 64, 64), (64, 64, 64), (4096, 64, 64)],
            wrong=[
                (lambda address, sets, _: address % sets, "forgets that a line has 64 bytes"),
                (lambda address, sets, line: address // (line * sets), "returns the tag"),
            ],
            hints=["First the number of the line, then its place among the sets."],
        ),
        "2",
        Prediction(
            name="end of L1d",
            unit="KiB",
            measured=found("cache", what="the end of L1d", cache="L1d"),
            hints=["The table of caches says what the machine claims."],
        ),
        Prediction(
            name="latency of L2",
            unit="cycles",
            measured=_level("L2"),
            hints=["Between 12 and 20 cycles on most cores."],
        ),
        Prediction(
            name="prefetcher",
            unit="%",
            measured=found("prefetcher", what="latency that ascending loads save"),
            hints=["A prefetcher that is always in time saves nearly all."],
        ),
        Relation(
            name="3",
            points=2,
            holds=verdict("cache", cache="L2"),
            wrong=[
                ("supported", "believes the machine's claim"),
                ("smaller", "gives an answer that is no verdict"),
            ],
            hints=["A claim is supported if a level ends within a factor of 1.41 of it."],
        ),
        "4",
        "5",
        Prediction(
            name="classes of distance",
            unit="classes",
            measured=_classes,
            hints=["One node makes one class."],
        ),
        "6",
        "7",
    ],
)
