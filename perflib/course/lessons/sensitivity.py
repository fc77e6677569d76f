"""What notebook 21 asks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from perflib.course.items import Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson

_NEAR_POINTS = 1.0


def _longer(dose: str) -> Any:
    """The job's slow-down at the largest level of a dose, in percent."""

    def measured(run: Any) -> Measured | str:
        table = run.table("doses")
        mine = table[table["dose"] == dose]
        if mine.empty or not np.isfinite(mine.iloc[-1]["longer_percent_low"]):
            return f"this run has no response to {dose}"
        row = mine.iloc[-1]
        low, value, high = (float(row[f"longer_percent{end}"]) for end in ("_low", "", "_high"))
        return Measured(low, value, high, f"longer at the largest dose of {dose}")

    return measured


def _median(answer: Any, run: Any) -> Judged:
    """The control job's median response within rounds, as the exercise asks."""
    mine = run.samples[(run.samples["program"] == "control") & run.samples["ok"]]
    times = mine.pivot_table(index="round", columns=["dose", "level"], values="cpu_s")
    if ("traffic", 100.0) not in times or ("control", 0.0) not in times:
        return Judged(1.0, "this run has no traffic")
    ratio = times["traffic", 100.0] / times["control", 0.0]
    found = 100 * float(ratio.median() - 1)
    says = f"the control job takes {found:.2f} % longer"
    given = number(answer)
    return Judged(float(abs(given - found) <= _NEAR_POINTS), says)


LESSON = Lesson.of(
    "sensitivity",
    {
        "traffic": partial(Prediction, measured=_longer("traffic")),
        "pages": partial(Prediction, measured=_longer("small_pages")),
        "1": partial(
            Relation,
            holds=_median,
            wrong=[(100.0, "forgets to subtract one"), (-50.0, "divides the wrong way round")],
        ),
    },
)
"""The lesson."""
