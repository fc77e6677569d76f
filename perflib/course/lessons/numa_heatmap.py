"""What notebook 07 asks."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import parts, ratio

_DIES = 8


def _classes(run: Any) -> Measured | str:
    """How many classes of distance a run found."""
    groups = run.findings["groups"]
    if groups.verdict == "inconclusive":
        return str(groups.reason)
    count = len(run.table("class_latencies"))
    return Measured(count, count, count, "the classes of distance in your matrix")


def _latency(run: Any) -> Measured | str:
    """The nearest class."""
    found = run.table("class_latencies")
    if found.empty:
        return "this run found no class of distance"
    near = found.loc[found["latency"].idxmin()]
    return Measured(
        near["latency_low"], near["latency"], near["latency_high"], "the nearest memory"
    )


def _random_order(run: Any, jumping: Any) -> Measured | str:
    """How much slower the order `random` is than `window`, in percent."""
    if jumping is None:
        return "measure the order 'random' first, as a run called jumping"
    if jumping.params["order"] != "random":
        return f"jumping has the order {jumping.params['order']!r}, not 'random'"
    tables = [one.table("class_latencies") for one in (jumping, run)]
    if any(table.empty for table in tables):
        return "one of the two runs found no class of distance"
    far, near = (table.iloc[0] for table in tables)
    times = ratio(far, near, "latency", "random against window")
    low, value, high = (100 * (end - 1) for end in times.ends)
    return Measured(low, value, high, "random against window")


def _read_off(answer: Any, amd: Any) -> Judged:
    """The published matrix: cores in the smallest group, classes, partner of die 0."""
    asked = "give three whole numbers: (cores, classes, die)"
    given = [int(number(one)) for one in parts(answer, 3, asked)]
    cores = len(amd.samples["load_cpu"].unique()) // int(amd.findings["groups"].effect)
    classes = len(amd.table("class_latencies"))
    right = [given[0] == cores, given[1] == classes, given[2] == _DIES // 2]
    names = ["cores in the smallest group", "classes of distance", "die 0's partner"]
    wrong = [name for name, one in zip(names, right, strict=True) if not one]
    says = f"look again at: {', '.join(wrong)}" if wrong else "the analysis finds the same"
    return Judged(sum(right) / 3, says)


def _visits(cells: int, rounds: int, seed: int) -> list[list[int]]:
    """Every cell once a round, in a new random order."""
    drawn = random.Random(seed)
    return [drawn.sample(range(cells), cells) for _ in range(rounds)]


def _are_rounds(found: Any, expected: list[list[int]]) -> bool:
    """Whether every round has every cell once, and the orders differ."""
    rows = [[int(cell) for cell in row] for row in found]
    complete = [sorted(row) for row in rows] == [sorted(row) for row in expected]
    cells = sorted(expected[0])
    shuffled = len({tuple(row) for row in rows}) == len(rows) and cells not in rows
    return complete and shuffled


def _one_by_one(cells: int, rounds: int, seed: int) -> list[list[int]]:  # noqa: ARG001
    every = [cell for cell in range(cells) for _ in range(rounds)]
    return [every[i : i + cells] for i in range(0, len(every), cells)]


def _same_order(cells: int, rounds: int, seed: int) -> list[list[int]]:
    return [random.Random(seed).sample(range(cells), cells)] * rounds


LESSON = Lesson.of(
    "numa_heatmap",
    {
        "classes of distance": partial(Prediction, measured=_classes),
        "memory latency": partial(Prediction, measured=_latency),
        "1": partial(
            Relation,
            holds=_read_off,
            wrong=[
                ((6, 5, 4), "takes a die (two core complexes) for the smallest group"),
                ((3, 4, 4), "overlooks that 185 and 205 cycles are two classes"),
                ((3, 5, 1), "takes the neighbouring die for the partner"),
            ],
        ),
        "3": partial(
            Code,
            reference=_visits,
            cases=lambda drawn: (drawn.randint(8, 64), drawn.randint(2, 10), drawn.randint(0, 99)),
            same=_are_rounds,
            always=[(64, 10, 1)],
            wrong=[
                (_one_by_one, "visits each cell ten times before the next: drift becomes a row"),
                (_same_order, "draws one order and repeats it: drift within a round stays"),
            ],
        ),
        "random order": partial(Prediction, measured=_random_order),
    },
)
