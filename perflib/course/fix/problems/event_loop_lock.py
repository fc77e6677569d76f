"""A lock around work that needs none."""

from __future__ import annotations

import random

from perflib.course.fix.problem import MASK, Case, Problem

_MOST_TERMS = 64
_CALLS = 100  # of each thread, with the same jets: enough for two that get into each other's way


def _draw(draw: random.Random, size: float) -> Case:
    most = int(1 + 30 * size)

    def terms() -> list[tuple[int, int]]:
        count = draw.randint(0, 1 + most)
        return [(draw.randrange(1000), draw.randrange(12)) for _ in range(count)]

    def jets() -> list[int]:
        return [draw.randint(-2000, 2000) for _ in range(draw.randint(0, most))]

    return {"terms": [terms(), terms()], "x": [jets(), jets()]}


def _text(terms: list[tuple[int, int]]) -> bytes:
    """A formula as the code is given it, with its final NUL."""
    return "".join(f"+0.{factor:03d}*p{degree:02d}" for factor, degree in terms).encode() + b"\0"


def _words(case: Case) -> list[int]:
    sizes, content = [_CALLS], []
    for terms, jets in zip(case["terms"], case["x"], strict=True):
        text = _text(terms)
        padded = text + bytes(-len(text) % 8)
        sizes += [len(jets), len(text)]
        content += [
            int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)
        ]
        content += [x & MASK for x in jets]
    return [*sizes, *content]


def _over(value: int) -> int:
    """Thousandths, cut off towards zero as C does."""
    return value // 1000 if value >= 0 else -(-value // 1000)


def _evaluated(terms: list[tuple[int, int]], x: int) -> int:
    total = 0
    for factor, degree in terms[:_MOST_TERMS]:
        power = 1000
        for _ in range(degree):
            power = _over(power * x)
        total += factor * power
    return _over(total)


def _expected(case: Case) -> list[int]:
    parts = zip(case["terms"], case["x"], strict=True)
    found = [_evaluated(terms, x) & MASK for terms, jets in parts for x in jets]
    return [*found, _CALLS * len(found)]


def _place(case: Case, place: int) -> str:
    first, second = map(len, case["x"])
    if place == first + second:
        return f"jets_corrected() after {_CALLS} calls of each thread"
    thread, jet = (0, place) if place < first else (1, place - first)
    return f"the correction of jet {jet} of thread {thread}"


PROBLEM = Problem.of(
    "event_loop_lock",
    threads=2,
    always=[
        {"terms": [[], []], "x": [[], []]},
        {"terms": [[(500, 1)], []], "x": [[700], []]},
        {"terms": [[(1, 0)], [(2, 0)]], "x": [[0], [0]]},
        {"terms": [[(999, 11)] * 64, [(1, 11)]], "x": [[4000, -4000], [-1, 1]]},
        {"terms": [[(7, 3)] * 70, [(7, 3)] * 65], "x": [[10], [20, 30]]},
        {
            "terms": [[(123, 2), (45, 0)], [(9, 1), (8, 1), (7, 1)]],
            "x": [list(range(-150, 150)), list(range(300))],
        },
    ],
    draw=_draw,
    words=_words,
    expected=_expected,
    place=_place,
)
