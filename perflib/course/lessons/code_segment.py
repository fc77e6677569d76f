"""What notebook 05 asks."""

from __future__ import annotations

import random
from typing import Any

from perflib.course.items import Choice, Code, Judged, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, missed_lru, near, word

__all__ = ["LESSON"]

_VERDICTS = {"alike": "alike", "different": "different", "open": "open"}


def _trace(draw: random.Random) -> tuple[Any, ...]:
    pages = draw.randint(2, 24)
    trace = [draw.randrange(pages) for _ in range(draw.randint(20, 80))]
    return (trace, draw.randint(1, 20))


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
    apart = any(group["low_ns"].max() > group["high_ns"].min() for _, group in times.groupby("cpu"))
    if apart:
        says = "the intervals of one core do not overlap here: look for what else differs"
        return Judged(float(given in {"open", "different"}), says)
    says = "the intervals of thp and collapse overlap on each core"
    return Judged(float(given in {"alike", "open"}), says)


LESSON = Lesson(
    name="code_segment",
    title="The code segment: the instruction TLB's reach, and huge pages for code",
    minutes=60,
    objectives=[
        "Predict from a TLB's entries and page size where code gets slow, and measure it.",
        "Say why a ring of jumps shows the reach as a step, and random jumps as a bend.",
        "Tell costs of pages from costs of cache lines by a control.",
        "Decide what a run with an open verdict does and does not say.",
    ],
    needs=["TLB sizes", "backed huge pages"],
    items=[
        Prediction(
            name="iTLB reach",
            unit="KiB",
            measured=found("knee", "ring_knee", what="the chase's knee"),
            hints=["Multiply the entries of the first level by 4 KiB."],
        ),
        Prediction(
            name="iTLB reach beside a sibling",
            unit="KiB",
            measured=found(
                "knee_shared",
                "ring_knee_shared",
                what="the chase's knee beside a busy sibling",
            ),
            hints=["Split: half of the reach. Competed for: the whole of it."],
        ),
        Code(
            name="1",
            points=2.0,
            reference=missed_lru,
            cases=_trace,
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
            hints=[
                "Keep the pages in the order of their last use; a hit moves a page to the end.",
                "Count misses only from the middle of the list on; divide by what is left there.",
            ],
        ),
        Relation(
            name="2",
            holds=_false_alarms,
            wrong=[
                (0, "believes that a test at 5 % is never wrong"),
                (5, "takes the percentage for a number of runs"),
            ],
            hints=["5 % of twenty."],
        ),
        Relation(
            name="3",
            holds=_ways,
            wrong=[("faster", "answers with another word than the three")],
            hints=['Compare low_ns and high_ns of thp and collapse: "alike", "different", "open".'],
        ),
        Choice(
            name="4",
            question=(
                "Hot code of 300 KiB in 40 libraries, an iTLB of 64 entries: "
                "how many pages are hot, and what comes first?"
            ),
            options={
                "a": "75 pages, hardly more than 64: nothing needs to be done.",
                "b": "At least 75: huge pages for the text at once, they can only help.",
                "c": "40 pages, one a library: they fit.",
                "d": "At least 75, more likely 150 to 225: first measure misses, then time.",
            },
            right="d",
            because={
                "a": (
                    "75 is the least, if every page were hot throughout. "
                    "Each library has its own hot spots, so there are more."
                ),
                "b": (
                    "A miss of the first level that hits the second costs a few cycles, partly "
                    "hidden. Huge pages cost memory and a setting: measure what they save."
                ),
                "c": "300 KiB in 40 libraries are 7.5 KiB each, which is two pages or more.",
                "d": (
                    "Misses first (notebook 03: itlb-walks, or simulated), then the time on huge "
                    "pages. A ratio below 1.01 is not worth a kernel setting; with 30 MB of hot "
                    "code the answer is another."
                ),
            },
        ),
        Choice(
            name="5",
            question="Where does the knee lie for the median of all samples, where for the mean?",
            options={
                "a": "Median: about 800 KiB at 40 % and about 700 KiB at 60 %. Mean: 1 MiB.",
                "b": "Median and mean: 512 KiB, since the smaller reach always limits.",
                "c": "Median: 1 MiB at 40 %, 512 KiB at 60 %. Mean: 512 KiB, and a second step.",
                "d": "Median: 512 KiB at 40 %, 1 MiB at 60 %. Mean: 768 KiB.",
            },
            right="c",
            because={
                "a": "A median does not interpolate between two states: it shows the majority's.",
                "b": "Below a half of busy samples the median never sees the smaller reach.",
                "c": (
                    "The median shows the majority's state. The mean rises as soon as some samples "
                    "had company; its height says how busy the neighbours were."
                ),
                "d": "The other way round: at 40 % most samples were taken alone.",
            },
        ),
    ],
)
