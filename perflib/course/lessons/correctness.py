"""What notebook 22 asks."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from perflib.course.items import Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

_NEAR = 0.02


def _wrong(run: Any) -> Measured:
    """Wrong results in 10⁹, on the core of which least is known."""
    sums = run.table("states").groupby("cpu")[["operations", "wrong"]].sum()
    row = sums.loc[sums["operations"].idxmin()]
    per = 1e9 / float(row["operations"])
    wrong = float(row["wrong"])
    return Measured(
        max(0.0, wrong - 2 * math.sqrt(wrong)) * per,
        wrong * per,
        (wrong + 3 + 2 * math.sqrt(wrong)) * per,
        f"wrong results in 10⁹ on cpu{sums['operations'].idxmin()}",
    )


def _limit(answer: Any, run: Any) -> Judged:
    """The rule of three, from the samples, on the core with the fewest results."""
    fewest = float(run.samples[run.samples["ok"]].groupby("cpu")["operations"].sum().min())
    found = 3 / fewest
    says = f"3 of {fewest:.2g} results are {found:.2g}"
    return Judged(float(abs(number(answer) / found - 1) <= _NEAR), says)


def _wider(answer: Any, few: Any, many: Any) -> Judged:
    """By which factor the interval of few nodes is wider."""
    usual = [float(one.table["usual_percent"].iloc[0]) for one in (few, many)]
    says = f"± {usual[0]:.2f} % with {few.nodes} nodes, ± {usual[1]:.2f} % with {many.nodes}"
    return Judged(float(abs(number(answer) * usual[1] / usual[0] - 1) <= _NEAR), says)


LESSON = Lesson.of(
    "correctness",
    {
        "wrong": partial(Prediction, measured=_wrong),
        "1": partial(
            Relation,
            holds=_limit,
            wrong=[(0.0, "takes what was seen for what is so"), (1.0, "forgets to divide")],
        ),
        "4": partial(
            Relation,
            holds=_wider,
            wrong=[(1.0, "takes what is known of few nodes for what is known of many")],
        ),
    },
)
"""The lesson."""
