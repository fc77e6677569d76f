"""What the lab on caches and NUMA asks."""

from __future__ import annotations

import math
import random
from functools import partial
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
    {
        "1": partial(
            Code,
            reference=_set_of,
            cases=_address,
            always=[(0, 64, 64), (63, 64, 64), (64, 64, 64), (4096, 64, 64)],
            wrong=[
                (lambda address, sets, _: address % sets, "forgets that a line has 64 bytes"),
                (lambda address, sets, line: address // (line * sets), "returns the tag"),
            ],
        ),
        "end of L1d": partial(
            Prediction, measured=found("cache", what="the end of L1d", cache="L1d")
        ),
        "latency of L2": partial(Prediction, measured=_level("L2")),
        "prefetcher": partial(
            Prediction, measured=found("prefetcher", what="latency that ascending loads save")
        ),
        "3": partial(
            Relation,
            holds=verdict("cache", cache="L2"),
            wrong=[
                ("supported", "believes the machine's claim"),
                ("smaller", "gives an answer that is no verdict"),
            ],
        ),
        "classes of distance": partial(Prediction, measured=_classes),
    },
)
