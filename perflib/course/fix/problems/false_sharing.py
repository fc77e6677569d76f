"""Two counters on one cache line."""

from __future__ import annotations

import random

from perflib.course.fix.problem import MASK, Case, Problem

_CALLS = 20


def _draw(draw: random.Random, size: float) -> Case:
    most = int(1 + 60 * size)
    kinds = [[draw.randint(-2, 2) for _ in range(draw.randint(0, most))] for _ in range(2)]
    return {"kinds": kinds, "wanted": [draw.randint(-2, 2), draw.randint(-2, 2)]}


def _words(case: Case) -> list[int]:
    first, second = case["kinds"]
    one, other = case["wanted"]
    sizes = [len(first), one & MASK, len(second), other & MASK]
    return [_CALLS, *sizes, *(kind & MASK for kind in first + second)]


def _expected(case: Case) -> list[int]:
    pairs = zip(case["kinds"], case["wanted"], strict=True)
    return [_CALLS * kinds.count(wanted) for kinds, wanted in pairs]


def _place(_case: Case, place: int) -> str:
    return f"tally_found({place}) after {_CALLS} calls of each thread"


PROBLEM = Problem.of(
    "false_sharing",
    threads=2,
    always=[
        {"kinds": [[], []], "wanted": [0, 0]},
        {"kinds": [[1], []], "wanted": [1, 1]},
        {"kinds": [[], [1]], "wanted": [1, 1]},
        {"kinds": [[1, 0, 1], [0, 0, 1]], "wanted": [1, 0]},
        {"kinds": [[2**31 - 1, -(2**31), 0], [-1, -1]], "wanted": [-(2**31), -1]},
        {"kinds": [[1] * 2000, [1] * 2000], "wanted": [1, 1]},
        {"kinds": [[0] * 7, [1] * 2000], "wanted": [1, 1]},
    ],
    draw=_draw,
    words=_words,
    expected=_expected,
    place=_place,
)
