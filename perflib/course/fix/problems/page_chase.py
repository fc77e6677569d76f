"""A walk over records of a page each."""

from __future__ import annotations

import random

from perflib.course.fix.problem import MASK, Case, Problem

_RAW_BYTES = 4144


def _draw(draw: random.Random, size: float) -> Case:
    events = draw.randint(1, int(1 + 20 * size))

    def event() -> int:
        return draw.randrange(events)

    return {
        "energy": [draw.randint(-(10**6), 10**6) for _ in range(events)],
        "next": [event() for _ in range(events)],
        "raw": draw.randrange(256),
        "walks": [(event(), draw.randint(0, 3 * events)) for _ in range(draw.randint(1, 4))],
        "looks": [(event(), draw.randrange(_RAW_BYTES)) for _ in range(draw.randint(1, 4))],
    }


def _words(case: Case) -> list[int]:
    sizes = [len(case["energy"]), len(case["walks"]), len(case["looks"]), case["raw"]]
    pairs = [number for pair in [*case["walks"], *case["looks"]] for number in pair]
    return [*sizes, *(energy & MASK for energy in case["energy"]), *case["next"], *pairs]


def _expected(case: Case) -> list[int]:
    found = []
    for at, steps in case["walks"]:
        total, event = 0, at
        for _ in range(steps):
            total += case["energy"][event]
            event = case["next"][event]
        found.append(total & MASK)
    return [
        *found,
        *((case["raw"] + 131 * event + 31 * byte) % 256 for event, byte in case["looks"]),
    ]


def _place(case: Case, place: int) -> str:
    walks = case["walks"]
    if place < len(walks):
        return "store_walk(s, {}, {})".format(*walks[place])
    return "store_raw(s, {}, {})".format(*case["looks"][place - len(walks)])


_LAST = _RAW_BYTES - 1

PROBLEM = Problem.of(
    "page_chase",
    threads=1,
    always=[
        {"energy": [], "next": [], "raw": 0, "walks": [], "looks": []},
        {"energy": [5], "next": [0], "raw": 1, "walks": [(0, 0), (0, 1)], "looks": [(0, 0)]},
        {
            "energy": [1, 10, 100],
            "next": [1, 2, 0],
            "raw": 7,
            "walks": [(2, 1), (1, 7)],
            "looks": [(0, _LAST), (2, 0), (2, _LAST)],
        },
        {
            "energy": [2**61, 2**62 - 1],
            "next": [1, 1],
            "raw": 255,
            "walks": [(0, 2)],
            "looks": [(1, _LAST)],
        },
        {
            "energy": list(range(40)),
            "next": [*range(1, 40), 0],
            "raw": 3,
            "walks": [(0, 40), (39, 2), (7, 100)],
            "looks": [(39, _LAST), (20, 2000)],
        },
    ],
    draw=_draw,
    words=_words,
    expected=_expected,
    place=_place,
)
