"""What notebook 00 asks."""

from __future__ import annotations

from functools import partial
from typing import Any

from perflib.course.items import Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated
from perflib.machine.activity.noise import GAP_CAUSES
from perflib.model.errors import UserError, choose

_GROWS = 1.0  # ms of each second: a change of a bin that counts


def _lost(run: Any) -> Measured | str:
    """The largest loss of a core."""
    found = sorted(run.findings.where(claim="stolen"), key=lambda one: -one.effect)
    return estimated(found, f"the loss of {found[0].subject}", "no core's loss could be estimated")


def _cause(answer: Any, run: Any, again: Any) -> Judged:
    """The cause of the gaps that grew most next to the neighbour, on the core that it was on."""
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
    more = (lost[1] - lost[0]).sort_values(ascending=False, kind="stable")
    if more.iloc[0] < _GROWS:
        says = "no bin grew by a millisecond a second here: measure again on a quieter machine"
        return Judged(float(given == "another task"), says)
    grown = more[more > more.iloc[0] / 2]  # a virtual machine may show the neighbour as two causes
    says = ", ".join(f"{name} by {ms:.0f} ms" for name, ms in grown.items())
    says = f"of each second of cpu{cpu} grew: {says}"
    if "another task" not in grown.index:
        says += "; the neighbour is another task, but this machine is too busy to see its slices"
    return Judged(float(given in {"another task", *grown.index}), says)


LESSON = Lesson.of(
    "machine",
    {
        "time lost": partial(Prediction, measured=_lost),
        "3": partial(
            Relation,
            holds=_cause,
            wrong=[
                ("interrupt", "does not look at the bins that grew"),
                ("throttling", "takes a slice of a millisecond for a quota"),
            ],
        ),
    },
)
