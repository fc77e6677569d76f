"""What the lab on caches and NUMA asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Choice, Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, near, verdict

__all__ = ["LESSON"]


def _set_of(address: int, sets: int, line_bytes: int) -> int:
    return address // line_bytes % sets


def _address(drawn: random.Random) -> tuple[int, int, int]:
    return drawn.randrange(1 << 40), 1 << drawn.randint(0, 12), drawn.choice([32, 64, 128])


def _level(name: str) -> Any:
    """The latency of a level in core cycles."""

    def measured(run: Any) -> Measured | str:
        table = run.table("levels")
        rows = table[(table["level"] == name) & (table["samples"] != "shared")]
        values = [
            float(rows.iloc[0][column]) if len(rows) else math.nan
            for column in ("low_cycles", "latency_cycles", "high_cycles")
        ]
        if not all(map(math.isfinite, values)):
            return f"this run has no interval of the latency of {name}"
        low, value, high = values
        return Measured(low, value, high, f"latency of {name}")

    return measured


def _classes(run: Any) -> Measured | str:
    """How many classes of distance a run found."""
    count = len(run.table("class_latencies"))
    if not count:
        return "this run found no class of distance"
    return Measured(count, count, count, "the classes of distance")


LESSON = Lesson(
    name="caches_and_numa",
    title="Caches and NUMA",
    minutes=75,
    objectives=[
        "Compute which set of a cache an address belongs to, and which stride uses few sets.",
        "Read the levels of memory off a curve of latency against size.",
        "Say where a level ends earlier than the machine claims, and why.",
        "Say on which node a page lies, and read a matrix of latencies.",
    ],
    needs=["two cores", "several NUMA nodes", "no hypervisor", "C compiler"],
    items=[
        Code(
            name="1",
            points=2,
            reference=_set_of,
            cases=_address,
            always=[(0, 64, 64), (63, 64, 64), (64, 64, 64), (4096, 64, 64)],
            wrong=[
                (lambda address, sets, _: address % sets, "forgets that a line has 64 bytes"),
                (lambda address, sets, line: address // (line * sets), "returns the tag"),
            ],
            hints=["First the number of the line, then its place among the sets."],
        ),
        Choice(
            name="2",
            question="A cache of 32 KiB has 64 sets of 8 ways. Sixteen lines are read in a ring, "
            "each 4096 bytes from the one before. How many hit?",
            options={"a": "none", "b": "all: 1 KiB fits 32 KiB", "c": "eight of sixteen"},
            right="a",
            because={
                "a": "64 sets × 64 bytes = 4096: every line falls on the same set. Sixteen lines "
                "take turns in eight ways, and each is replaced before it is read again.",
                "b": "All sixteen belong to one set, which has eight ways.",
                "c": "Half would stay if the last one were replaced; the least recently used is.",
            },
            wrong=[("b", "counts bytes, not sets"), ("c", "forgets which line is replaced")],
            hints=["Set the slider to a stride of 4096 bytes and an array of 64 KiB."],
        ),
        Prediction(
            name="end of L1d",
            unit="KiB",
            measured=found("cache", what="the end of L1d", cache="L1d"),
            hints=["The table of caches says what the machine claims."],
        ),
        Prediction(
            name="latency of L2",
            unit="cycles",
            measured=_level("L2"),
            hints=["Between 12 and 20 cycles on most cores."],
        ),
        Prediction(
            name="prefetcher",
            unit="%",
            measured=found("prefetcher", what="latency that ascending loads save"),
            hints=["A prefetcher that is always in time saves nearly all."],
        ),
        Relation(
            name="3",
            points=2,
            holds=verdict("cache", cache="L2"),
            wrong=[
                ("supported", "believes the machine's claim"),
                ("smaller", "gives an answer that is no verdict"),
            ],
            hints=["A claim is supported if a level ends within a factor of 1.41 of it."],
        ),
        Choice(
            name="4",
            question="On 4 KiB pages the second-level cache begins to miss before it is full. Why?",
            options={
                "a": "The prefetcher takes a part of it.",
                "b": "Physical pages are drawn at random, so some sets get more lines than ways.",
                "c": "Its size in the table is wrong.",
            },
            right="b",
            because={
                "a": "The chain is random; a prefetcher has little to fetch.",
                "b": "The set follows from the physical address, whose page number is chance. At "
                "80 % of the size many sets are already full. Huge pages that the host backs fix "
                "the low 21 bits, and the end gets sharper.",
                "c": "Then it would end at one place, on huge pages, too.",
            },
            wrong=[("c", "blames the table"), ("a", "blames the prefetcher")],
            hints=["Which address chooses the set of a second-level cache?"],
        ),
        Choice(
            name="5",
            question="Thread A on node 0 allocates an array; thread B on node 1 is the first to "
            "write to it. Where do its pages lie?",
            options={"a": "on node 0", "b": "half on each", "c": "on node 1"},
            right="c",
            because={
                "a": "Allocating reserves addresses, and no memory.",
                "b": "That would be the policy 'interleave', which one has to ask for.",
                "c": "A page gets its memory when it is first touched, on the node of the core "
                "that touches it: first touch. Initialise data where they will be used.",
            },
            wrong=[("a", "takes malloc for the allocation of memory")],
            hints=["When does a page of the array get memory?"],
        ),
        Prediction(
            name="classes of distance",
            unit="classes",
            measured=_classes,
            hints=["One node makes one class."],
        ),
        Relation(
            name="6",
            holds=near(1.9, 2.1, "the mean of 1 and 3 is 2", "average near and far, by share"),
            wrong=[(3, "takes all loads for far ones"), (1, "takes all loads for near ones")],
            hints=["Half of the pages are near: 0.5 × 1 + 0.5 × 3."],
        ),
        Choice(
            name="7",
            question="A guest's kernel names four nodes, and all latencies agree within 4 %. "
            "What do you conclude?",
            options={
                "a": "The guest's nodes are not those of the host.",
                "b": "NUMA never matters.",
                "c": "The measurement failed.",
            },
            right="a",
            because={
                "a": "A guest's table of nodes is a claim of its configuration. Loads show where "
                "the memory is.",
                "b": "On two sockets the published factor is 1.6 to 3.4.",
                "c": "It has an interval, which excludes a difference of more than 4 %.",
            },
            wrong=[("c", "takes a refuted claim for a failure"), ("b", "generalises")],
            hints=["Who wrote the table of nodes of a guest?"],
        ),
    ],
)
