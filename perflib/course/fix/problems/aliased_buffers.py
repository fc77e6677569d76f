"""Two arrays whose addresses agree in the low 12 bits."""

from __future__ import annotations

import random

from perflib.course.fix.problem import Case, Problem


def _draw(draw: random.Random, size: float) -> Case:
    events = draw.randint(1, int(1 + 200 * size))
    links = draw.sample(range(events), events)  # some cycles
    if draw.random() < 0.5:
        links = [draw.randrange(events) for _ in range(events)]  # chains that meet
    return {"next": links, "first": draw.randrange(events), "steps": draw.randint(0, 2 * events)}


def _words(case: Case) -> list[int]:
    return [case["first"], case["steps"], *case["next"]]


def _expected(case: Case) -> list[int]:
    links, at = case["next"], case["first"]
    ranks = [0] * len(links)
    for step in range(1, case["steps"] + 1):
        ranks[at] = step
        at = links[at]
    return [*ranks, at, *links]


def _place(case: Case, place: int) -> str:
    events = len(case["next"])
    if place < events:
        return f"rank[{place}]"
    return (
        "the event where it ends" if place == events else f"next[{place - events - 1}] afterwards"
    )


def _ring(events: int) -> list[int]:
    return [(event + 7) % events for event in range(events)]


PROBLEM = Problem.of(
    "aliased_buffers",
    threads=1,
    always=[
        {"next": [], "first": 0, "steps": 0},
        {"next": [0], "first": 0, "steps": 0},
        {"next": [0], "first": 0, "steps": 1},
        {"next": [1, 0], "first": 1, "steps": 2},
        {"next": [1, 2, 2], "first": 0, "steps": 5},
        {"next": _ring(1023), "first": 1022, "steps": 1023},
        {"next": _ring(1024), "first": 0, "steps": 1024},
        {"next": _ring(1025), "first": 5, "steps": 1024},
    ],
    draw=_draw,
    words=_words,
    expected=_expected,
    place=_place,
)
