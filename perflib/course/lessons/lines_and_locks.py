"""What the lab on cache lines and locks asks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from perflib.course.items import Choice, Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, reads, verdict

__all__ = ["LESSON"]

_TAKEN_PER_S = 100_000


def _shared_lines(owners: Sequence[tuple[int, int]], line_bytes: int) -> int:
    """Lines on which the counters of two threads or more lie."""
    threads: dict[int, set[int]] = {}
    for address, thread in owners:
        threads.setdefault(address // line_bytes, set()).add(thread)
    return sum(len(one) > 1 for one in threads.values())


def _crowded_lines(owners: Sequence[tuple[int, int]], line_bytes: int) -> int:
    counted = Counter(address // line_bytes for address, _ in owners)
    return sum(count > 1 for count in counted.values())


def _counters(drawn: random.Random) -> tuple[list[tuple[int, int]], int]:
    places = drawn.sample(range(0, 1024, 8), drawn.randint(0, 20))
    return [(place, drawn.randrange(4)) for place in places], drawn.choice([64, 128])


def _bound(share: float, threads: int) -> float:
    """Amdahl's bound of the speed-up."""
    return 1 / (share + (1 - share) / threads)


def _shares(drawn: random.Random) -> tuple[float, int]:
    return drawn.uniform(0, 1), drawn.randint(1, 64)


def _ratio(one: str, other: str) -> Any:
    """How many times as long one kind of access takes as another."""

    def measured(run: Any) -> Measured | str:
        table = run.table("latencies").set_index("what")
        if not {one, other} <= set(table.index):
            return f"this run has not measured {one} and {other}"
        slow, fast = table.loc[one], table.loc[other]
        return Measured(
            float(slow["low_ns"] / fast["high_ns"]),
            float(slow["median_ns"] / fast["median_ns"]),
            float(slow["high_ns"] / fast["low_ns"]),
            f"{one} over {other}",
        )

    return measured


def _as_fast(bench: Any) -> Measured | str:
    """How many times as fast mended code is."""
    fast = bench.times_as_fast
    if not (math.isfinite(fast.low) and math.isfinite(fast.high)):
        return "the comparison has no interval"
    return Measured(fast.low, fast.effect, fast.high, "a line for each counter")


def _handovers(run: Any) -> Measured | str:
    """The share of a core's time that handovers of one line take, in percent."""
    table = run.table("latencies").set_index("what")
    if "modified write" not in table.index:
        return "this run has not measured modified write"
    low, value, high = table.loc["modified write", ["low_ns", "median_ns", "high_ns"]]
    percent = 100 * _TAKEN_PER_S / 1e9  # of a second, for each nanosecond
    return Measured(low * percent, value * percent, high * percent, "the handovers")


LESSON = Lesson(
    name="lines_and_locks",
    title="Lines and locks",
    minutes=75,
    objectives=[
        "Say which core owns a cache line, and what a load or a write of it costs.",
        "Find false sharing in the addresses of counters.",
        "Compare protocols by which cores hand a line to each other.",
        "State what a line for each counter saves, with its interval.",
        "Say how much of the threads' time a lock costs, and bound what removing it gains.",
    ],
    needs=["two cores", "C compiler", "no hypervisor"],
    items=[
        Prediction(
            name="modified line",
            unit="times",
            measured=_ratio("modified load", "local load"),
            hints=["A local line takes about 5 cycles, one from another core 150 to 400."],
        ),
        Prediction(
            name="shared write",
            unit="times",
            measured=_ratio("shared_here write", "local write"),
            hints=["The other core's copy must be invalidated first."],
        ),
        Choice(
            name="1",
            question="A line is in this core's cache, and another core shares it. Loading it is "
            "as fast as a local one, writing it is not. Why?",
            options={
                "a": "Stores are always slow.",
                "b": "A core may write only a line that it owns alone: it must ask the others.",
                "c": "The line has to be written to memory first.",
            },
            right="b",
            because={
                "a": "Writing a local line is fast: see the table.",
                "b": "The write invalidates all other copies, and waits for the answer. Reading "
                "needs no permission.",
                "c": "Caches hand lines to each other; memory may stay old.",
            },
            wrong=[("a", "blames stores"), ("c", "takes memory for the owner")],
            hints=["Which of the four states allows to write?"],
        ),
        Relation(
            name="2",
            points=2,
            holds=verdict("forwarded", state="modified", access="load"),
            wrong=[
                ("refuted", "expects that a line goes through memory"),
                ("yes", "gives an answer that is no verdict"),
            ],
            hints=["Is the whole interval of the latency that is saved above the threshold?"],
        ),
        Code(
            name="3",
            points=2,
            reference=_shared_lines,
            cases=_counters,
            always=[
                ([], 64),
                ([(0, 0), (8, 1)], 64),
                ([(0, 0), (8, 0)], 64),
                ([(0, 0), (64, 1)], 64),
            ],
            wrong=[
                (_crowded_lines, "counts lines with two counters of one thread, too"),
                (lambda owners, _: len(owners), "counts counters"),
            ],
            hints=["Collect the threads of each line; a line counts if it has two or more."],
        ),
        Choice(
            name="4",
            question="Two threads count in two neighbouring long integers and share nothing else. "
            "The loop gets slower with the second thread. What is it?",
            options={
                "a": "a data race",
                "b": "the memory bandwidth",
                "c": "4K aliasing",
                "d": "false sharing: one line, two writers",
            },
            right="d",
            because={
                "a": "Each thread writes its own variable: the result is right.",
                "b": "Two counters need no bandwidth at all.",
                "c": "That is between a store and a load of one core.",
                "d": "Both lie on one line, which moves at every write. Put 64 bytes between them.",
            },
            wrong=[("a", "takes slow for wrong"), ("c", "mixes up the two false dependences")],
            hints=["What moves between the cores, and in which units?"],
        ),
        Prediction(
            name="own lines",
            unit="times",
            measured=_as_fast,
            hints=["At most as many times as a handover takes of a local write."],
        ),
        Relation(
            name="5",
            holds=reads(_as_fast, "times"),
            wrong=[
                (0.14, "gives the part of the time that is left"),
                (86, "gives the percent that are saved"),
            ],
            hints=["If 75 % are saved, 25 % are left: four times as fast."],
        ),
        Relation(
            name="6",
            points=2,
            holds=reads(_handovers, "%"),
            wrong=[
                (0.0088, "gives a share of 1, not percent"),
                (8.8e6, "gives nanoseconds in each second"),
            ],
            hints=["Nanoseconds of a handover, times 100,000, are nanoseconds in each second."],
        ),
        Prediction(
            name="time for the lock",
            unit="%",
            measured=found("limiting_lock", what="the limiting lock of Initial", version="Initial"),
            hints=["A thread waits while another one holds it."],
        ),
        Code(
            name="7",
            points=2,
            reference=_bound,
            cases=_shares,
            always=[(0.0, 4), (1.0, 4), (0.5, 1)],
            wrong=[
                (lambda share, threads: threads * (1 - share), "scales the speed-up linearly"),
                (lambda share, _: 1 / share if share else 1.0, "gives the limit of many threads"),
            ],
            hints=["The serial share stays; the rest is divided among the threads."],
        ),
        Relation(
            name="8",
            points=2,
            holds=verdict("limiting_lock", version="Final"),
            wrong=[
                ("supported", "takes any waiting for a limit"),
                ("none", "gives an answer that is no verdict"),
            ],
            hints=["The threshold is 2 % of the threads' time."],
        ),
        Choice(
            name="9",
            question="A profile says that a lock costs 13.7 % of the threads' time. What does "
            "removing it gain at most?",
            options={
                "a": "13.7 % of the time, as a bound",
                "b": "exactly 13.7 %",
                "c": "more, since others wait for those who wait",
            },
            right="a",
            because={
                "a": "The waits may move to the next lock, and what ran meanwhile stays. The "
                "measured gain without the point is at or below the bound.",
                "b": "Only if nothing else limits the threads then.",
                "c": "All threads' waits are in the sum already.",
            },
            wrong=[("b", "takes a bound for a forecast"), ("c", "counts waits twice")],
            hints=["Compare measured and expected gain in the table 'gains'."],
        ),
    ],
)
