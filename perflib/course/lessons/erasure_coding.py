"""What notebook 12 asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import found, parts

_LINE, _PAGE = 64, 4096
_FIELD = 256


def _cause(answer: Any, run: Any) -> Judged:
    """Which mechanism `ours_table` speaks for: intervals that are apart decide."""
    given = str(answer).strip().lower()
    if given not in ("sets", "aliases", "open"):
        return Judged(0.0, 'one of "sets", "aliases" or "open"')
    costs = run.table("layout_cost").set_index(["implementation", "layout"])
    names = [("ours_table", "aligned"), ("ours_table", "chasing")]
    if not set(names) <= set(costs.index):
        return Judged(1.0, "this run did not measure ours_table in both layouts")
    aligned, chasing = (costs.loc[name] for name in names)
    right = "open"
    if aligned["cost_percent_low"] > max(chasing["cost_percent_high"], 0):
        right = "sets"
    elif chasing["cost_percent_low"] > max(aligned["cost_percent_high"], 0):
        right = "aliases"
    says = f"aligned costs {_words(aligned)}, chasing {_words(chasing)}: {right}"
    return Judged(float(given == right), says)


def _words(cost: Any) -> str:
    low, high = cost["cost_percent_low"], cost["cost_percent_high"]
    return f"{cost['cost_percent']:.1f} % [{low:.1f}, {high:.1f}]"


def _blocks(answer: Any, by_blocks: Any) -> Judged:
    """The first number of blocks that costs the first implementation more than the fewest do."""
    first = by_blocks[by_blocks["implementation"] == by_blocks["implementation"].iloc[0]]
    few, more = first.iloc[0], first.iloc[1:]
    given = int(number(answer))
    if given not in set(more["blocks"]):
        return Judged(0.0, f"one of {', '.join(map(str, more['blocks']))}")
    apart = more.loc[more["cost_percent_low"] > few["cost_percent_high"], "blocks"]
    if apart.empty:
        return Judged(1.0, "in this run no number of blocks costs more than the fewest do")
    right = int(apart.iloc[0])
    return Judged(float(given == right), f"with {right} blocks the intervals are apart first")


def _small(answer: Any, run: Any, little: Any) -> Judged:
    """Faster or slower; the cost larger, smaller or open: for the first implementation."""
    given = parts(answer, 2, 'give two words, as ("slower", "larger")')
    speed, effect = (str(one).strip().lower() for one in given)
    name = run.table("speed")["implementation"].iloc[0]
    speeds, costs = [], []
    for one in (run, little):
        by_layout = one.table("speed").query("layout == 'staggered' and state == 'alone'")
        speeds.append(by_layout.set_index("implementation")["mb_per_s"].get(name, math.nan))
        aligned = one.table("layout_cost").query("layout == 'aligned'")
        costs.append(aligned.set_index("implementation").loc[name])
    true_speed = "faster" if speeds[1] > speeds[0] else "slower"
    true_effect = "open"
    if costs[1]["cost_percent_low"] > costs[0]["cost_percent_high"]:
        true_effect = "larger"
    elif costs[1]["cost_percent_high"] < costs[0]["cost_percent_low"]:
        true_effect = "smaller"
    says = f"{name}: {true_speed}; aligned costs {_words(costs[0])} and {_words(costs[1])}: "
    right = (speed == true_speed) + (effect == true_effect)
    return Judged(right / 2, says + true_effect)


def _spread(blocks: int) -> list[int]:
    """Where the blocks begin, in bytes after a page."""
    step = _PAGE // blocks // _LINE * _LINE
    return [step * block for block in range(blocks)]


def _in_own_sets(places: Any, expected: Sequence[int]) -> bool:
    """Whether as many blocks as expected begin within a page, each in a set of its own."""
    given = [int(place) for place in places]
    sets = {place // _LINE for place in given}
    return len(given) == len(expected) == len(sets) and all(0 <= one < _PAGE for one in given)


def _all_at_a_page(blocks: int) -> list[int]:
    return [_PAGE * block for block in range(blocks)]


def _by_words(blocks: int) -> list[int]:
    return [8 * block for block in range(blocks)]


def _singular(answer: Any, *_: Any) -> Judged:
    """Three different numbers of GF(2^8) that add to zero."""
    asked = "give three different numbers"
    given = [int(number(one)) for one in parts(answer, 3, asked)]
    if len(set(given)) != len(given):
        return Judged(0.0, asked)
    if not all(0 < one < _FIELD for one in given):
        return Judged(0.0, "numbers of the field but 0: 1 to 255")
    total = given[0] ^ given[1] ^ given[2]
    if total:
        return Judged(0.0, f"their sum, an exclusive or, is {total}, not 0")
    return Judged(1.0, "the determinant has their sum as a factor, and it is 0")


LESSON = Lesson.of(
    "erasure_coding",
    {
        "ours_table, aligned": partial(
            Prediction,
            measured=found("aligned", what="aligned, ours_table", implementation="ours_table"),
        ),
        "ours_simd, aligned": partial(
            Prediction,
            measured=found("aligned", what="aligned, ours_simd", implementation="ours_simd"),
        ),
        "cause": partial(
            Relation,
            holds=_cause,
            wrong=[("both", "no interval says both: one layout stands for each")],
        ),
        "1": partial(
            Relation,
            holds=_blocks,
            wrong=[(7, "the fewest blocks are the reference"), (12, "counts ways, not blocks")],
        ),
        "2": partial(
            Relation,
            holds=_small,
            wrong=[(("slower", "none"), "one word is none of those asked for")],
        ),
        "3": partial(
            Code,
            reference=_spread,
            cases=lambda drawn: (drawn.randint(2, 32),),
            same=_in_own_sets,
            always=[(14,)],
            wrong=[
                (_all_at_a_page, "begins each block at a page: one set for all"),
                (_by_words, "eight blocks share a line, and so a set"),
            ],
        ),
        "4": partial(
            Relation,
            holds=_singular,
            wrong=[((1, 2, 4), "adds with carries: in this field a sum is an exclusive or")],
        ),
    },
)
