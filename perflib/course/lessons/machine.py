"""What notebook 00 asks."""

from __future__ import annotations

from typing import Any

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated, near
from perflib.machine.activity.noise import GAP_CAUSES
from perflib.model.errors import UserError, choose

__all__ = ["LESSON"]

_GROWS = 1.0  # ms of each second: a change of a bin that counts


def _lost(run: Any) -> Measured | str:
    """The largest loss of a core."""
    found = sorted(run.findings.where(claim="stolen"), key=lambda one: -one.effect)
    return estimated(found, f"the loss of {found[0].subject}", "no core's loss could be estimated")


def _cause(answer: Any, run: Any, again: Any) -> Judged:
    """The cause of the gaps that grew most beside the neighbour, on the core that it was on."""
    names = {cause.name for cause in GAP_CAUSES}
    given = " ".join(str(answer).lower().split())
    if given not in names:
        raise UserError(choose("cause", given, names))
    cpu = max(again.samples["cpu"])
    lost = []
    for one in (run, again):
        worst = one.table("worst_gaps")
        mine = worst[worst["cpu"] == cpu].groupby("likely_cause")["lost_ms_per_s"].sum()
        lost.append(mine.reindex(sorted(names), fill_value=0.0))
    more = (lost[1] - lost[0]).sort_values(ascending=False)
    if more.iloc[0] < _GROWS:
        says = "no bin grew by a millisecond a second here: measure again on a quieter machine"
        return Judged(float(given == "another task"), says)
    grown = more[more > more.iloc[0] / 2]  # a virtual machine may show the neighbour as two causes
    says = ", ".join(f"{name} by {ms:.0f} ms" for name, ms in grown.items())
    says = f"of each second of cpu{cpu} grew: {says}"
    if "another task" not in grown.index:
        says += "; the neighbour is another task, but this machine is too busy to see its slices"
    return Judged(float(given in {"another task", *grown.index}), says)


LESSON = Lesson(
    name="machine",
    title="What is this machine, and who else uses it?",
    minutes=40,
    objectives=[
        "Read what a machine reports of itself, and say what of it is not verified.",
        "Measure what share of a core's time others take, and name the likely cause by the gaps.",
        "Tell noise, which more samples average out, from bias, which they do not.",
        "Predict what a rare interruption costs a job that synchronises many cores.",
    ],
    items=[
        Prediction(
            name="time lost",
            unit="percent",
            measured=_lost,
            hints=["The timer tick alone takes 0.01 to 0.5 %."],
        ),
        Relation(
            name="1",
            holds=near(
                36,
                41,
                "nearly every step meets a gap on some core, and lasts 14 ms in place of 10",
                "a step ends when the last of 1000 cores arrives",
            ),
            wrong=[
                (0.4, "takes the mean loss of a core for the loss of the job"),
                (400, "adds the losses of all cores, though they wait at the same time"),
                (14, "gives the step's time in ms, not how much longer it is"),
            ],
            hints=[
                "What is the chance that none of 1000 cores is hit during 10 ms?",
                "A step that meets one gap lasts 14 ms. By how many percent is that longer?",
            ],
        ),
        Choice(
            name="2",
            question="Why does a step count as a gap from 1 µs on, and not from 100 ns on?",
            options={
                "a": "The clock cannot resolve 100 ns.",
                "b": "Interrupts shorter than 1 µs cost nothing.",
                "c": "Ordinary steps reach 100 ns; the valley of the histogram lies higher.",
                "d": "With a lower threshold the histogram has too many bins.",
            },
            right="c",
            because={
                "a": "Reading it takes some tens of ns, and it resolves single ones.",
                "b": "They cost what they take; there are hardly any so short.",
                "c": (
                    "A step sometimes waits for a cache line or, in a guest, for the clock's page. "
                    "Below the valley such steps count as gaps though nobody took the core."
                ),
                "d": "Three bins more, which changes nothing of the stolen share.",
            },
        ),
        Relation(
            name="3",
            points=1.0,
            holds=_cause,
            wrong=[
                ("interrupt", "does not look at the bins that grew"),
                ("throttling", "takes a slice of a millisecond for a quota"),
            ],
            hints=[
                "The neighbour takes slices of a millisecond: which bins hold gaps so long?",
                "Was the thread switched out in those gaps? A program of this system does that.",
            ],
        ),
    ],
)
