"""What notebook 16 asks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

_OTHERS = "(other functions)"


def _ratio(counter: str, what: str) -> Any:
    """How many times as many misses the second geometry of a run has as the first."""

    def measured(run: Any) -> Measured | str:
        table = run.table("misses")
        mine = table[table["counter"] == counter].set_index("geometry")
        names = list(run.params["geometries"])[:2]
        if len(names) < 2 or not set(names) <= set(mine.index):
            return f"this run has {counter} of one geometry only"
        first, second = mine.loc[names[0]], mine.loc[names[1]]
        if not first["per_1000_low"] > 0:
            return f"this run has no {counter} with the first geometry"
        low = second["per_1000_low"] / first["per_1000_high"]
        high = second["per_1000_high"] / first["per_1000_low"]
        return Measured(low, second["per_1000"] / first["per_1000"], high, what)

    return measured


def _misses(lines: Sequence[int], sets: int, ways: int) -> int:
    held: list[list[int]] = [[] for _ in range(sets)]
    missed = 0
    for line in lines:
        mine = held[line % sets]
        if line in mine:
            mine.remove(line)
        else:
            missed += 1
            del mine[: max(0, len(mine) - ways + 1)]
        mine.append(line)
    return missed


def _without_order(lines: Sequence[int], sets: int, ways: int) -> int:
    """The first that came leaves first: a use does not make a line younger."""
    held: list[list[int]] = [[] for _ in range(sets)]
    missed = 0
    for line in lines:
        mine = held[line % sets]
        if line not in mine:
            missed += 1
            del mine[: max(0, len(mine) - ways + 1)]
            mine.append(line)
    return missed


def _without_sets(lines: Sequence[int], sets: int, ways: int) -> int:
    """Any line in any place."""
    return _misses(lines, 1, sets * ways)


def _cases(draw: random.Random) -> tuple[Any, ...]:
    sets, ways = 2 ** draw.randint(0, 4), draw.randint(1, 4)
    return ([draw.randrange(3 * sets * ways) for _ in range(draw.randint(10, 200))], sets, ways)


def _function(answer: Any, run: Any) -> Judged:
    table = run.table("functions")
    mine = table[(table["counter"] == "L1d misses of stores") & (table["symbol"] != _OTHERS)]
    mine = mine[mine["geometry"] == run.params["geometries"][0]]
    if mine.empty:
        return Judged(1.0, "this run has none of these misses")
    most = str(mine.iloc[0]["symbol"])
    says = f"{most} has {mine.iloc[0]['share_percent']:.0f} % of them"
    return Judged(float(str(answer).strip() == most), says)


def _per_1000(answer: Any, run: Any) -> Judged:
    table = run.table("misses").set_index(["geometry", "counter"])["per_1000"]
    first = run.params["geometries"][0]
    wanted, given = float(table[first, "L1i misses"]), number(answer)
    right = abs(given - wanted) <= 0.02 * max(wanted, 1e-9)
    says = f"{wanted:.3g} L1i misses a thousand instructions"
    if not right and abs(given - 1000 * wanted) <= 20 * wanted:
        return Judged(0.5, f"{says}: yours are a million instructions'")
    return Judged(float(right), says)


LESSON = Lesson.of(
    "simulate",
    {
        "iTLB misses": partial(
            Prediction, measured=_ratio("iTLB misses", "32 entries over 128 entries")
        ),
        "L1i misses": partial(Prediction, measured=_ratio("L1i misses", "16 KiB over 32 KiB")),
        "1": partial(
            Code,
            reference=_misses,
            cases=_cases,
            always=[
                ([0, 1, 2, 0], 1, 2),
                ([0, 4, 0, 4], 4, 1),
                ([7], 1, 1),
                ([1, 2, 1, 3, 1], 1, 2),
            ],
            wrong=[
                (_without_order, "a line that is used stays old"),
                (_without_sets, "any line may take any place"),
            ],
        ),
        "2": partial(
            Relation,
            holds=_function,
            wrong=[(_OTHERS, "takes the rest for a function"), ("main", "guesses")],
        ),
        "3": partial(
            Relation,
            holds=_per_1000,
            wrong=[(0.0, "rounds to nothing"), (1e6, "gives the count itself")],
        ),
    },
)
