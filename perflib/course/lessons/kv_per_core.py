"""What notebook 01 asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated, sentence, word

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
    for claim in ("taken", "quota", "stolen"):
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
    none = "the run next to the neighbour was too short for an interval"
    return estimated(again.findings.where(claim="total", cpu=cpu), f"events on cpu{cpu}", none)


def _large(changes: Any) -> Measured | str:
    found = [one for one in changes if one.subject == "time per event"]
    return estimated(found, "the same events with 4 MiB of code", "the runs are too short")


def _part(answer: Any, run: Any, again: Any) -> Judged:
    claim = word(answer, _PARTS, "part")
    cpu = max(again.samples["cpu"])
    right = float(claim == "taken")
    before, after = (one.findings.where(claim="taken", cpu=cpu) for one in (run, again))
    if not before or not after:
        return Judged(right, "these runs did not measure run-queue delay: a fifth was taken anyway")
    says = f"before: {sentence(before[0])}; next to the neighbour: {sentence(after[0])}"
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


LESSON = Lesson.of(
    "kv_per_core",
    {
        "smallest slowdown": partial(Prediction, measured=_smallest),
        "own time": partial(Prediction, measured=_own_time),
        "with a busy neighbour": partial(Prediction, measured=_beside),
        "1": partial(
            Relation,
            holds=_part,
            wrong=[
                ("own speed", "takes a core that is shared for a slow one"),
                ("sibling", "takes a task on the same CPU for one on the other hardware thread"),
                ("hypervisor", "the neighbour is a process of this system: its kernel knows of it"),
            ],
        ),
        "large code": partial(Prediction, measured=_large),
        "5": partial(
            Code,
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
        ),
    },
)
