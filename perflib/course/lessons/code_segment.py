"""What notebook 05 asks."""

from __future__ import annotations

from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, missed_lru, near, places_used, word

_VERDICTS = {"alike": "alike", "different": "different", "open": "open"}


def _false_alarms(answer: Any, null: Any = None) -> Judged:
    judged = near(1, 1, "5 % of twenty are one", "5 % of the runs may do so, of twenty")(answer)
    if null is None or not len(null.samples):
        return judged
    knees = len(null.table("knees"))
    return Judged(judged.share, f"{judged.says}; this null run found {knees} knees")


def _ways(answer: Any, ways: Any) -> Judged:
    given = word(answer, _VERDICTS)
    times = ways.table("time_chase").query("state != 'shared' and backing != '4k'")
    times = times[times["code_bytes"] == ways.table("time_chase")["code_bytes"].max()]
    if times["backing"].nunique() < 2:
        says = "only one of the two kinds of pages was available here, so the run cannot tell"
        return Judged(float(given == "open"), says)
    apart = any(
        group["step_ns_low"].max() > group["step_ns_high"].min()
        for _, group in times.groupby("cpu")
    )
    if apart:
        says = "the intervals of one core do not overlap here: look for what else differs"
        return Judged(float(given in {"open", "different"}), says)
    says = "the intervals of thp and collapse overlap on each core"
    return Judged(float(given in {"alike", "open"}), says)


LESSON = Lesson.of(
    "code_segment",
    {
        "iTLB reach": partial(
            Prediction, measured=found("knee", "ring_knee", what="the chase's knee")
        ),
        "iTLB reach with a busy sibling": partial(
            Prediction,
            measured=found(
                "knee_shared",
                "ring_knee_shared",
                what="the chase's knee next to a busy sibling",
            ),
        ),
        "1": partial(
            Code,
            reference=missed_lru,
            cases=places_used,
            always=[(list(range(65)) * 4, 64), (list(range(64)) * 4, 64), ([7], 1)],
            wrong=[
                (
                    lambda pages, entries=64: max(0.0, 1 - entries / len(set(pages))),
                    "takes the formula for random accesses in place of the trace",
                ),
                (
                    lambda pages, entries=64: missed_lru([*pages, *pages], entries),
                    "does not count the second half of the list alone",
                ),
            ],
        ),
        "2": partial(
            Relation,
            holds=_false_alarms,
            wrong=[
                (0, "believes that a test at 5 % is never wrong"),
                (5, "takes the percentage for a number of runs"),
            ],
        ),
        "3": partial(
            Relation, holds=_ways, wrong=[("faster", "answers with another word than the three")]
        ),
    },
)
