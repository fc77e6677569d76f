"""What notebook 04 asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import missed_lru

__all__ = ["LESSON"]

_CLEARLY = 1.2  # times as much as the next
_SIZES = (64, 512, 4096)


def _cost(run: Any, *levels: str) -> Measured | str:
    """What a call costs more that misses these caches, by the model of random accesses."""
    costs = run.table("miss_costs").set_index("level")["cost_ns"].reindex(list(levels))
    if costs.isna().any():
        return f"the curve of this run does not tell what a miss of {levels[-1]} costs"
    total = float(costs.sum())
    return Measured(total, total, total, f"a call that misses {' and '.join(levels)}")


def _from_l2(run: Any) -> Measured | str:
    return _cost(run, "L1i")


def _from_l3(run: Any) -> Measured | str:
    return _cost(run, "L1i", "L2")


def _lengths(answer: Any, extra: Any = None) -> Judged:
    """Which functions cost most per byte; ``extra`` are ns for 64 bytes, by their size."""
    size = number(answer)
    if size not in _SIZES:
        return Judged(0.0, "one of 64, 512 and 4096")
    why = "each call requests a line that nobody could foresee, and waits for it"
    known = [] if extra is None else [float(extra.get(one, math.nan)) for one in _SIZES]
    if not known or not all(map(math.isfinite, known)):
        return Judged(float(size == _SIZES[0]), f"these runs cannot tell; the short ones: {why}")
    costs = dict(zip(_SIZES, known, strict=True))
    most, second = sorted(costs, key=lambda one: -costs[one])[:2]
    if costs[most] < _CLEARLY * max(costs[second], 0):
        says = f"in these runs {most} and {second} bytes cost about the same"
        return Judged(
            float(size in {_SIZES[0], most}), f"{says}; the short ones should lead: {why}"
        )
    says = f"per 64 bytes these runs have {costs[most]:.2f} ns for functions of {most} bytes"
    return Judged(float(size == most), f"{says}, {costs[second]:.2f} for those of {second}")


def _order(draw: random.Random) -> tuple[Any, ...]:
    total = draw.randint(2, 24)
    order = [draw.randrange(total) for _ in range(draw.randint(20, 80))]
    return (order, draw.randint(1, 20))


LESSON = Lesson(
    name="instruction_cache",
    title="Instruction cache: what does it cost to call code that is not there?",
    minutes=50,
    objectives=[
        "Predict where calls to more and more code get costlier, and measure it.",
        "Say why half of all random calls miss at twice the cache's size.",
        "Name what else grows with the code, and a control for it.",
        "Say which extra time of a core speaks for its caches, and which does not.",
    ],
    needs=["backed huge pages"],
    items=[
        Prediction(
            name="call from L2",
            unit="ns",
            measured=_from_l2,
            hints=["Eight lines, some 4 ns each; a part of them is fetched ahead."],
        ),
        Prediction(
            name="call from L3",
            unit="ns",
            measured=_from_l3,
            hints=["Eight lines, 10 to 20 ns each; a part of them is fetched ahead."],
        ),
        Relation(
            name="1",
            holds=_lengths,
            wrong=[
                (4096, "takes the cost of a call for the cost of a byte"),
                (512, "believes that a middle size is worst"),
            ],
            hints=["Which part of a function can be fetched while another part of it runs?"],
        ),
        Code(
            name="2",
            points=2.0,
            reference=missed_lru,
            cases=_order,
            always=[(list(range(513)) * 4, 512), (list(range(512)) * 4, 512), ([7], 1)],
            wrong=[
                (
                    lambda order, lines=512: max(0.0, 1 - lines / len(set(order))),
                    "takes the formula for random accesses in place of the trace",
                ),
            ],
            hints=[
                "Keep the lines in the order of their last use; a hit moves a line to the end.",
                "Count misses only from the middle of the list on; divide by what is left there.",
            ],
        ),
        Choice(
            name="3",
            question="A core is slower by 10 % at every size: does that speak for its caches?",
            options={
                "a": "Yes: 10 % more time for calls is what a bad cache makes.",
                "b": "Yes, if the other cores are equally fast.",
                "c": "No: what speaks for them comes with the size, and stays on 2 MiB pages.",
                "d": "No: what speaks for them comes with the size, and goes on 2 MiB pages.",
            },
            right="c",
            because={
                "a": "8 KiB of code lie in every first-level cache: nothing misses there.",
                "b": "That says that the core is slow, not why.",
                "c": (
                    "So the ledger's extra time of a core is what large code costs it beyond "
                    "small code, and the caches' share is what is left of that on huge pages."
                ),
                "d": "What goes on 2 MiB pages was the TLB's: no cache line differs there.",
            },
        ),
    ],
)
