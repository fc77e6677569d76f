"""Two arrays whose addresses agree in the low 12 bits."""

from __future__ import annotations

import random

from perflib.course.fix.problem import Case, Problem

__all__ = ["PROBLEM"]


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


PROBLEM = Problem(
    name="aliased_buffers",
    title="events of a chain get their places in it, in an array beside the links",
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
    hints=[
        "Write down where next[e] and rank[e] lie, as offsets in a page (address % 4096).",
        (
            "In each step a store goes to rank[at], and the load of next[at] follows. What do the "
            "two addresses have in common, and what waits for the load?"
        ),
        (
            "Ask for more memory than is needed, and let one of the arrays begin elsewhere in a "
            "page (pl.alias_free does so for numpy arrays). Or let the load come first."
        ),
    ],
    mechanism=(
        "A load must not overtake a store to the same address. To find out quickly, the processor "
        "compares the low 12 bits first. Both arrays begin at a page, so rank[at] and next[at] "
        "agree in those bits: each load waits for a store with which it has nothing to do (4K "
        "aliasing), and the next step waits for the load. Half a page between the arrays ends it. "
        "To load the link before the rank is stored ends it, too: the compiler may not do that by "
        "itself, since for all it knows both are one array. How much a wait costs differs from "
        "processor to processor. A loop whose loads nobody waits for hardly shows it on recent "
        "ones: here it stands in the way of every step."
    ),
    others={"order": "the link is loaded before the rank is stored"},
)
