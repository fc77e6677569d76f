"""What notebook 04 asks."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import missed_lru, places_used

_CLEARLY = 1.2  # times as much as the next
_SIZES = (64, 512, 4096)


def _cost(run: Any, *levels: str) -> Measured | str:
    """What a call costs more that misses these caches, by the model of random accesses."""
    costs = run.table("miss_costs").set_index("level")["cost_ns"].reindex(list(levels))
    if costs.isna().any():
        return f"the curve of this run does not show what a miss of {levels[-1]} costs"
    total = float(costs.sum())
    return Measured(total, total, total, f"a call that misses {' and '.join(levels)}")


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


LESSON = Lesson.of(
    "instruction_cache",
    {
        "call from L2": partial(Prediction, measured=lambda run: _cost(run, "L1i")),
        "call from L3": partial(Prediction, measured=lambda run: _cost(run, "L1i", "L2")),
        "1": partial(
            Relation,
            holds=_lengths,
            wrong=[
                (4096, "takes the cost of a call for the cost of a byte"),
                (512, "believes that a middle size is worst"),
            ],
        ),
        "2": partial(
            Code,
            reference=missed_lru,
            cases=places_used,
            always=[(list(range(513)) * 4, 512), (list(range(512)) * 4, 512), ([7], 1)],
            wrong=[
                (
                    lambda order, lines=512: max(0.0, 1 - lines / len(set(order))),
                    "takes the formula for random accesses in place of the trace",
                ),
            ],
        ),
    },
)
