"""What the lab on cache lines and locks asks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from perflib.course.items import Code, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import NO_VERDICT, estimated, found, latency_ratio, reads, verdict

_TAKEN_PER_S = 100_000


def _shared_lines(owners: Sequence[tuple[int, int]], line_bytes: int) -> int:
    """Lines that hold the counters of two threads or more."""
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


def _as_fast(bench: Any) -> Measured | str:
    """How many times as fast mended code is."""
    none = "the comparison has no interval"
    return estimated([bench.times_as_fast], "a line for each counter", none)


def _handovers(run: Any) -> Measured | str:
    """The share of a core's time that handovers of one line take, in percent."""
    table = run.table("latencies").set_index("what")
    if "modified write" not in table.index:
        return "this run has not measured modified write"
    low, value, high = table.loc["modified write", ["median_ns_low", "median_ns", "median_ns_high"]]
    percent = 100 * _TAKEN_PER_S / 1e9  # of a second, for each nanosecond
    return Measured(low * percent, value * percent, high * percent, "the handovers")


LESSON = Lesson.of(
    "lines_and_locks",
    {
        "modified line": partial(
            Prediction,
            measured=latency_ratio("modified load", "local load", "modified load over local load"),
        ),
        "shared write": partial(
            Prediction,
            measured=latency_ratio(
                "shared_here write", "local write", "shared_here write over local write"
            ),
        ),
        "2": partial(
            Relation,
            holds=verdict("forwarded", state="modified", access="load"),
            wrong=[("refuted", "expects that a line goes through memory"), NO_VERDICT],
        ),
        "3": partial(
            Code,
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
        ),
        "own lines": partial(Prediction, measured=_as_fast),
        "5": partial(
            Relation,
            holds=reads(_as_fast, "times"),
            wrong=[
                (0.14, "gives the part of the time that is left"),
                (86, "gives the percent that are saved"),
            ],
        ),
        "6": partial(
            Relation,
            holds=reads(_handovers, "%"),
            wrong=[
                (0.0088, "gives a share of 1, not percent"),
                (8.8e6, "gives nanoseconds in each second"),
            ],
        ),
        "time for the lock": partial(
            Prediction,
            measured=found("limiting_lock", what="the limiting lock of Initial", version="Initial"),
        ),
        "7": partial(
            Code,
            reference=_bound,
            cases=_shares,
            always=[(0.0, 4), (1.0, 4), (0.5, 1)],
            wrong=[
                (lambda share, threads: threads * (1 - share), "scales the speed-up linearly"),
                (lambda share, _: 1 / share if share else 1.0, "gives the limit of many threads"),
            ],
        ),
        "8": partial(
            Relation,
            holds=verdict("limiting_lock", version="Final"),
            wrong=[("supported", "takes any waiting for a limit"), NO_VERDICT],
        ),
    },
)
