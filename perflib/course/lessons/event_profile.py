"""What notebook 02 asks."""

from __future__ import annotations

from typing import Any

from perflib.course.items import Choice, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated, near

__all__ = ["LESSON"]

_OF_DEVIATION = 2100.0  # samples on each core: 10 % of n grow by a tenth, error sqrt(0.21 n)


def _samples(run: Any) -> Measured:  # noqa: ARG001 counting is the same in any run
    """Samples on each core for two, three and four standard deviations of the counting error."""
    low, value, high = (_OF_DEVIATION * deviations**2 for deviations in (2, 3, 4))
    return Measured(low, value, high, "3 (2 to 4) standard deviations of the counting error")


def _costlier(costlier: Any) -> Measured | str:
    if costlier is None:
        return "this takes two cores and the simulation as the job"
    return estimated(
        costlier.findings.where(claim="longer"),
        "the event with a costlier function",
        "this run was too short for an interval of the event's time",
    )


LESSON = Lesson(
    name="event_profile",
    title="One event under the microscope",
    minutes=60,
    objectives=[
        "Profile one event of a job that is running, without missing its beginning.",
        "Tell a function's share of additional time from its excess beyond the common slowdown.",
        "Work out how many samples a change of a given size takes.",
        "Say what a sampled instruction pointer does and does not tell.",
        "Record the slowest events of a job without knowing beforehand which they are.",
    ],
    needs=["perf", "two cores"],
    items=[
        Prediction(
            name="samples needed",
            unit="samples",
            measured=_samples,
            hints=["A count of n has an error of the square root of n."],
        ),
        Prediction(
            name="costlier event",
            unit="percent",
            measured=_costlier,
            hints=["A sixth of the time becomes a tenth longer."],
        ),
        Choice(
            name="1",
            question="One function of a sixth of the time is a tenth costlier: what tells first?",
            options={
                "a": "The event's time: it is measured directly, the functions are only sampled.",
                "b": "The flat profile of that core alone, without another core beside it.",
                "c": "Neither: a tenth of one function cannot be seen by sampling.",
                "d": "The function's excess: its 10 % stand against its own scatter alone.",
            },
            right="d",
            because={
                "a": "The event takes 1.7 % longer, less than its time scatters on a busy machine.",
                "b": ("A function that leads a profile may simply do most of the work."),
                "c": "Enough samples see it: exercise 3 works out how many.",
                "d": "The excess compares a function with all others of the same event, so what "
                "slows the whole event cancels. 60,000 samples taken alone gave 10.0 % "
                "[5.2, 14.9]; the event's time then was 2.2 % ± 1.2.",
            },
        ),
        Relation(
            name="2",
            holds=near(
                35,
                45,
                "a third to a half of the short event; attached beforehand, some 0.3 ms",
                "0.2 s of how many seconds?",
            ),
            wrong=[
                (0.4, "gives a share, not percent"),
                (0.7, "takes the event of 30 s"),
            ],
            hints=["0.2 s of 0.5 s, in percent."],
        ),
        Relation(
            name="3",
            holds=near(
                18,
                20,
                "10 T = 3 √(210 T) gives 18.9 s, without any scatter of the event itself",
                "compare the difference of the two counts with the error of that difference",
            ),
            wrong=[
                (9, "takes the error of one count for that of the difference"),
                (2.1, "looks for one standard deviation"),
                (18900, "gives samples, not seconds"),
            ],
            hints=[
                "In T seconds: 100 T and 110 T samples. What is the error of their difference?",
                "Errors add in squares: the root of 210 T. Set 10 T to three of these.",
            ],
        ),
        Choice(
            name="4",
            question="Stacks end in [unknown] after one or two frames. What do you try?",
            options={
                "a": "A higher frequency: too few samples were taken.",
                "b": "Root: the kernel hides the names of functions.",
                "c": 'call_graph="dwarf", since the program keeps no frame pointers.',
                "d": "A longer event, so that the stacks become complete.",
            },
            right="c",
            because={
                "a": "More samples have the same short stacks.",
                "b": "It hides the kernel's own symbols, not those of your program.",
                "c": (
                    "Without frame pointers perf cannot follow the callers; DWARF can, at a cost. "
                    "A program that writes its own code (Java, Python with -X perf) must leave a "
                    "map of it in /tmp/perf-PID.map."
                ),
                "d": "Each stack is taken at one instant; the event's length does not matter.",
            },
        ),
        Relation(
            name="5",
            holds=near(
                1990,
                2010,
                "100 events of 10 ms are one second of samples",
                "how many events are kept, and how long do they take together?",
            ),
            wrong=[
                (1000, "takes the events of 5 ms"),
                (200000, "keeps every event"),
                (20, "takes one event only"),
            ],
            hints=["One percent of 10,000 events, 10 ms each: how many seconds?"],
        ),
    ],
)
