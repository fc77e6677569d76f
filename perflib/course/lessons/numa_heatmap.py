"""What notebook 07 asks."""

from __future__ import annotations

import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson

__all__ = ["LESSON"]

_DIES = 8


def _classes(run: Any) -> Measured | str:
    """How many classes of distance a run found."""
    groups = run.findings["groups"]
    if groups.verdict == "inconclusive":
        return str(groups.reason)
    count = len(run.table("class_latencies"))
    return Measured(count, count, count, "the classes of distance in your matrix")


def _latency(run: Any) -> Measured | str:
    """The nearest class."""
    found = run.table("class_latencies")
    if found.empty:
        return "this run found no class of distance"
    near = found.loc[found["latency"].idxmin()]
    return Measured(near["low"], near["latency"], near["high"], "the nearest memory")


def _random_order(run: Any, jumping: Any) -> Measured | str:
    """How much slower the order `random` is than `window`, in percent."""
    if jumping is None:
        return "measure the order 'random' first, as a run called jumping"
    if jumping.params["order"] != "random":
        return f"jumping has the order {jumping.params['order']!r}, not 'random'"
    tables = [one.table("class_latencies") for one in (jumping, run)]
    if any(table.empty for table in tables):
        return "one of the two runs found no class of distance"
    far, near = (table.iloc[0] for table in tables)
    ends = (far["low"] / near["high"], far["latency"] / near["latency"], far["high"] / near["low"])
    low, value, high = (100 * (ratio - 1) for ratio in ends)
    return Measured(low, value, high, "random against window")


def _read_off(answer: Any, amd: Any) -> Judged:
    """The published matrix: cores in the smallest group, classes, partner of die 0."""
    try:
        given = [int(one) for one in answer]
    except (TypeError, ValueError):
        given = []
    if len(given) != 3:
        return Judged(0.0, "give three whole numbers: (cores, classes, die)")
    cores = len(amd.samples["load_cpu"].unique()) // int(amd.findings["groups"].effect)
    classes = len(amd.table("class_latencies"))
    right = [given[0] == cores, given[1] == classes, given[2] == _DIES // 2]
    names = ["cores in the smallest group", "classes of distance", "die 0's partner"]
    wrong = [name for name, one in zip(names, right, strict=True) if not one]
    says = f"look again at: {', '.join(wrong)}" if wrong else "the analysis finds the same"
    return Judged(sum(right) / 3, says)


def _visits(cells: int, rounds: int, seed: int) -> list[list[int]]:
    """Every cell once a round, in a new random order."""
    drawn = random.Random(seed)
    return [drawn.sample(range(cells), cells) for _ in range(rounds)]


def _are_rounds(found: Any, expected: list[list[int]]) -> bool:
    """Whether every round has every cell once, and the orders differ."""
    rows = [[int(cell) for cell in row] for row in found]
    complete = [sorted(row) for row in rows] == [sorted(row) for row in expected]
    cells = sorted(expected[0])
    shuffled = len({tuple(row) for row in rows}) == len(rows) and cells not in rows
    return complete and shuffled


def _one_by_one(cells: int, rounds: int, seed: int) -> list[list[int]]:  # noqa: ARG001
    every = [cell for cell in range(cells) for _ in range(rounds)]
    return [every[i : i + cells] for i in range(0, len(every), cells)]


def _same_order(cells: int, rounds: int, seed: int) -> list[list[int]]:
    return [random.Random(seed).sample(range(cells), cells)] * rounds


LESSON = Lesson(
    name="numa_heatmap",
    title="The NUMA heatmap: which core is near which memory",
    minutes=60,
    objectives=[
        "Read a matrix of latencies: rows, columns, blocks, and classes of distance.",
        "Say on which node a page lies, and why.",
        "Tell a pattern from noise, and state what the noise could still hide.",
        "Compare what the firmware claims with what the loads show.",
    ],
    needs=["several NUMA nodes"],
    items=[
        Prediction(
            name="classes of distance",
            unit="classes",
            measured=_classes,
            hints=["Count the nodes in the kernel's table; one node makes one class."],
        ),
        Prediction(
            name="memory latency",
            unit="cycles",
            measured=_latency,
            hints=["A load from memory takes about 100 ns; multiply by the clock in GHz."],
        ),
        Choice(
            name="firmware",
            question="A simulated guest has four nodes by its firmware, and its loads show one "
            "class of distance. Which is right?",
            options={
                "a": "The loads: here all four nodes are one memory of the host.",
                "b": "The table: the measurement is too noisy.",
                "c": "Both: the classes differ by less than a cycle.",
            },
            right="a",
            because={
                "a": "The table is a claim that somebody wrote down. The loads show what it costs.",
                "b": "The finding has a bound: it excludes differences of more than a few percent, "
                "and the table claims up to 2.8 times.",
                "c": "A table that says 10 and 28 claims 2.8 times the latency. A run whose bound "
                "is a few percent excludes that.",
            },
            wrong=[("b", "a refuted claim is taken for an inconclusive one")],
            hints=["Compare the bound of the finding 'groups' with the ratio of the distances."],
        ),
        Relation(
            name="1",
            points=3,
            holds=_read_off,
            wrong=[
                ((6, 5, 4), "takes a die (two core complexes) for the smallest group"),
                ((3, 4, 4), "overlooks that 185 and 205 cycles are two classes"),
                ((3, 5, 1), "takes the neighbouring die for the partner"),
            ],
            hints=[
                "The smallest block on the diagonal is the smallest group: count its cores.",
                "A die has six cores. Its partner, on the other socket, has another colour.",
            ],
        ),
        Choice(
            name="2",
            question="Eight equal cores with 10 % of noise: what does the analysis say after 1, 8 "
            "and 32 rounds?",
            options={
                "a": "Two groups each time: sorting shows a dark and a bright corner.",
                "b": "One group each time, and a bound that shrinks about as 1/√rounds.",
                "c": "One group each time, always with the same bound.",
                "d": "Two groups after one round, one group after 32.",
            },
            right="b",
            because={
                "a": "Sorting makes a gradient out of any noise, and eyes make two groups of it. "
                "The analysis compares with the best partition that noise alone gives.",
                "b": "A single matrix excludes only that two halves differ by some ten percent; "
                "32 rounds exclude much less than that.",
                "c": "More rounds average the noise: what could be overlooked gets smaller.",
                "d": "The best of all partitions of pure noise is what one round is compared "
                "with, so one round names no groups either.",
            },
            wrong=[("a", "trusts the sorted picture"), ("c", "forgets that rounds average noise")],
            hints=["Run the cell of the solution's table yourself, with 1 and with 8 rounds."],
        ),
        Code(
            name="3",
            points=2,
            reference=_visits,
            cases=lambda drawn: (drawn.randint(8, 64), drawn.randint(2, 10), drawn.randint(0, 99)),
            same=_are_rounds,
            always=[(64, 10, 1)],
            wrong=[
                (_one_by_one, "visits each cell ten times before the next: drift becomes a row"),
                (_same_order, "draws one order and repeats it: drift within a round stays"),
            ],
            hints=[
                "Return one list a round; each has every cell once.",
                "One generator for all rounds: drawn.sample(range(cells), cells) is one round.",
            ],
        ),
        Prediction(
            name="random order",
            unit="percent",
            measured=_random_order,
            hints=["A walk takes one to several further loads from memory or a cache."],
        ),
        Choice(
            name="4",
            question="On two nodes, a remote load that misses the TLB is slower too. What happens "
            "to the ratio of far to near?",
            options={
                "a": "It doubles: there are two accesses now.",
                "b": "It falls to 1: the walk hides the way.",
                "c": "It hardly changes: the walk's loads go to some node as well.",
            },
            right="c",
            because={
                "a": "Near loads pay for their walk, too: both sides of the ratio grow.",
                "b": "A walk comes before the load and adds to it; it hides nothing.",
                "c": "Page tables lie mostly on the node that touched the array first. So a remote "
                "load that misses the TLB goes the long way twice, a near one the short way twice.",
            },
            wrong=[("a", "adds the walk to the far side only")],
            hints=["On which node are the page tables of an array that core 0 touched first?"],
        ),
        Choice(
            name="5",
            question="A thread on node 0 reads a file into an array; then 64 threads on two nodes "
            "work on it. What mends it?",
            options={
                "a": "Pin the 64 threads to their cores.",
                "b": "Nothing: pages migrate to whoever uses them.",
                "c": "Allocate the array with malloc on node 1.",
                "d": "Let each thread touch its own part first, or interleave the pages.",
            },
            right="d",
            because={
                "a": "Pinning keeps threads in place; the pages stay on node 0, where they were "
                "first written.",
                "b": "By default a page stays where it was first written (automatic NUMA balancing "
                "may move it later, at a cost).",
                "c": "malloc gives addresses; the first write places a page. And then node 0 would "
                "pay.",
                "d": "Either every thread has its part near, or everybody pays half of the way and "
                "both controllers work (numactl --interleave=all). perflib sets the latter by "
                "memory_policy for other experiments.",
            },
            wrong=[
                ("a", "mends the threads' places, not the pages'"),
                ("c", "takes malloc for placement"),
            ],
            hints=["Who wrote the pages first?"],
        ),
    ],
)
