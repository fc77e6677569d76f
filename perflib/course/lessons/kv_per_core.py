"""What notebook 01 asks."""

from __future__ import annotations

import math
import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated, near, sentence, word
from perflib.model.errors import UserError, choose

__all__ = ["LESSON"]

_FIVE_ERRORS = 0.015  # of a share that 20,000 experiments simulate
_PARTS = {
    "own speed": "slower",
    "clock": "clock",
    "interrupts": "softirq",
    "sibling": "shared",
    "other tasks": "taken",
    "taken": "taken",
    "hypervisor": "stolen",
}


def _smallest(run: Any) -> Measured | str:
    """Half of the widest interval of a core's own speed."""
    widths = [(one.high - one.low) / 2 for one in run.findings.where(claim="slower")]
    if not widths or not all(map(math.isfinite, widths)):
        return "this run has no interval for each core: it takes two cores and two rounds or more"
    return Measured(
        min(widths), max(widths), max(widths), "the half-widths of the cores' intervals"
    )


def _own_time(run: Any) -> Measured | str:
    """What other tasks and the hypervisor leave of the core of which they take most."""
    cores: dict[int, list[Any]] = {}
    for claim in ("taken", "stolen"):
        for one in run.findings.where(claim=claim):
            cores.setdefault(one.about["cpu"], []).append(one)
    if not cores:
        return "this run did not measure what others take: a job of your own has no such times"
    cpu = max(cores, key=lambda core: sum(one.effect for one in cores[core]))
    low, value, high = (
        100 - sum(getattr(one, end) for one in cores[cpu]) for end in ("high", "effect", "low")
    )
    if not math.isfinite(low + value + high):
        return f"what others take of cpu{cpu} could not be estimated"
    return Measured(low, value, high, f"what is left of cpu{cpu}")


def _beside(again: Any) -> Measured | str:
    cpu = max(again.samples["cpu"])
    none = "the run beside the neighbour was too short for an interval"
    return estimated(again.findings.where(claim="total", cpu=cpu), f"events on cpu{cpu}", none)


def _large(changes: Any) -> Measured | str:
    found = [one for one in changes if one.subject == "time per event"]
    return estimated(found, "the same events with 4 MiB of code", "the runs are too short")


def _part(answer: Any, run: Any, again: Any) -> Judged:
    claim = word(answer, _PARTS)
    if claim is None:
        raise UserError(choose("part", str(answer), _PARTS))
    cpu = max(again.samples["cpu"])
    right = float(claim == "taken")
    before, after = (one.findings.where(claim="taken", cpu=cpu) for one in (run, again))
    if not before or not after:
        return Judged(right, "these runs did not measure run-queue delay: a fifth was taken anyway")
    says = f"before: {sentence(before[0])}; beside the neighbour: {sentence(after[0])}"
    return Judged(right, says)


def _covers(n: int) -> float:
    from scipy import stats

    return float(2 * stats.t.cdf(1.96, n - 1) - 1)


def _alike(found: Any, expected: Any) -> bool:
    try:
        return bool(abs(float(found) - expected) < _FIVE_ERRORS)
    except (TypeError, ValueError):
        return False


def _batches(draw: random.Random) -> tuple[Any, ...]:
    return (draw.randint(2, 40),)


LESSON = Lesson(
    name="kv_per_core",
    title="KV per core: is any core slower than the others?",
    minutes=75,
    objectives=[
        "Compare cores in randomised rounds, and say why cores measured one after another mislead.",
        "Split the time of the same work into own speed, clock, sibling, other tasks, hypervisor.",
        "Tell a slow core from a shared one.",
        "Say from an interval's half-width which effects a run can see.",
        "Show by simulation why the textbook interval raises false alarms on a shared machine.",
    ],
    needs=["two cores"],
    items=[
        Prediction(
            name="smallest slowdown",
            unit="percent",
            measured=_smallest,
            hints=["A run sees effects that are larger than half of its interval."],
        ),
        Prediction(
            name="own time",
            unit="percent",
            measured=_own_time,
            hints=["100 % less what other tasks and the hypervisor take."],
        ),
        Prediction(
            name="beside a neighbour",
            unit="percent",
            measured=_beside,
            hints=["Four fifths of the time are left: by which factor does the wall time grow?"],
        ),
        Relation(
            name="1",
            holds=_part,
            wrong=[
                ("own speed", "takes a core that is shared for a slow one"),
                ("sibling", "takes a task on the same CPU for one on the other hardware thread"),
                ("hypervisor", "the neighbour is a process of this system: its kernel knows of it"),
            ],
            hints=[
                "The neighbour runs on the same CPU: while it runs, the event waits in the queue.",
                "Which part compares CPU time and run delay?",
            ],
        ),
        Choice(
            name="2",
            question="A thief under SCHED_FIFO, and a quota: which part is it, and who sees it?",
            options={
                "a": "Own speed: the program runs more slowly, and a profiler shows where.",
                "b": "Other tasks, both: the kernel counts the waits; a profiler sees nothing.",
                "c": "The hypervisor for the quota, other tasks for the thief.",
                "d": "Interrupts: a real-time task is one, and a quota works by a timer.",
            },
            right="b",
            because={
                "a": "While it does not run, it has no samples. Its profile stays what it was.",
                "b": (
                    "The thread is ready and does not run: its run delay grows. "
                    "For a quota the finding says so by name."
                ),
                "c": "The quota is this kernel's own: it stops the control group, and counts that.",
                "d": "A FIFO task is scheduled like any other, only before them.",
            },
        ),
        Choice(
            name="3",
            question="One core 3 % slower in itself, the other loses as much to tasks: who is it?",
            options={
                "a": "By wall time the first core; the findings agree.",
                "b": "By wall time the second core; the findings blame the first.",
                "c": "Wall time and findings agree that nothing is wrong.",
                "d": "By wall time neither; the findings name the first slower, the second taken.",
            },
            right="d",
            because={
                "a": "Both take 3 % more wall time: no core differs from the other.",
                "b": "Both take 3 % more wall time: no core differs from the other.",
                "c": "The samples hold CPU time and run delay, too, and these differ.",
                "d": (
                    "Both totals rise alike, so wall time blames nobody. Only CPU time and run "
                    "delay tell a slow core from a robbed one."
                ),
            },
        ),
        Prediction(
            name="large code",
            unit="percent",
            measured=_large,
            hints=["A few percent to some tens, by the sizes of the caches and TLBs."],
        ),
        Choice(
            name="4",
            question="All cores take longer with 4 MiB of code. What did the Haswell server add?",
            options={
                "a": "A difference between cores from 512 KiB on; a healthy machine has none.",
                "b": "Nothing: every core is slower with large code there, too.",
                "c": "Core 8 was slower at every size of the code, so its clock was at fault.",
                "d": "Large code made only core 8 slower; the others stayed as fast as before.",
            },
            right="a",
            because={
                "a": (
                    "Extra time on all cores is the price of large code. A difference that begins "
                    "at a TLB's reach names one core's TLB: 9.4 % at 3 MiB, none below 512 KiB."
                ),
                "b": "That is true, and no clue: core 8 fell behind the others, which counts.",
                "c": "Below 512 KiB core 8 was as fast as the others.",
                "d": "All became slower; core 8 more than the others.",
            },
        ),
        Code(
            name="5",
            points=2.0,
            reference=_covers,
            cases=_batches,
            same=_alike,
            always=[(3,), (5,), (30,)],
            wrong=[
                (lambda n: 0.95 + 0 * n, "believes the formula at any n"),
                (
                    lambda n: math.erf(1.96 / math.sqrt(2) * math.sqrt((n - 1) / n)),
                    "corrects for n - 1, but takes the scatter s for known",
                ),
            ],
            hints=[
                "Draw n normal numbers, many times: is |mean| below 1.96 s/√n, with s from them?",
                "The ratio of mean and s/√n follows Student's t with n - 1 degrees of freedom.",
            ],
        ),
        Relation(
            name="6",
            holds=near(
                24.5,
                25.5,
                "five times as narrow takes 25 times as long, if batches stay independent",
                "the half-width falls with the square root of the time",
            ),
            wrong=[
                (5, "takes the half-width for proportional to the time"),
                (1500, "gives seconds, not minutes"),
            ],
            hints=["By which factor does the time grow if the half-width falls to a fifth?"],
        ),
    ],
)
