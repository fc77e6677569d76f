"""What the notebook of the investigation asks."""

from __future__ import annotations

from typing import Any

from perflib.course.items import Choice, Judged, Relation
from perflib.course.lesson import Lesson
from perflib.investigation.rules import RULES
from perflib.model.errors import choose

__all__ = ["LESSON"]

_VERDICTS = ("healthy", "cause", "undecided")


def _headline(answer: Any, found: Any) -> Judged:
    """A prediction in a word: any of the three earns the points."""
    given = str(answer).strip().lower()
    if given not in _VERDICTS:
        return Judged(0.0, f"one of {', '.join(_VERDICTS)}")
    headline = found.headline
    agrees = "as you predicted" if given == headline.verdict else f"you predicted {given}"
    return Judged(1.0, f"{headline.verdict}, {agrees}: {headline.plain}")


def _second(answer: Any, steps: Any) -> Judged:
    """A prediction of a step by its name: any of the table's earns the points."""
    found = steps[1] if len(steps) > 1 else "none"
    given = str(answer).strip()
    known = {rule.name for rule in RULES}
    if given not in known:
        return Judged(0.0, choose("step", given, known))
    agrees = "as you predicted" if given == found else f"you predicted {given!r}"
    return Judged(1.0, f"the second step was {found!r}, {agrees}")


def _same(answer: Any, found: Any) -> Judged:
    try:
        steps, headline = (bool(one) for one in answer)
    except (TypeError, ValueError):
        return Judged(0.0, "give two truth values: (same steps, same headline)")
    right = [steps == found[0], headline == found[1]]
    says = f"the steps are {'' if found[0] else 'not '}the same, and so is the headline"
    if found[0] != found[1]:
        says = f"same steps: {found[0]}; same headline: {found[1]}"
    elif not found[1]:
        says = "neither the steps nor the headline are the same"
    return Judged(sum(right) / 2, says)


LESSON = Lesson(
    name="investigation",
    title="Investigation: what is wrong with this machine, if anything?",
    minutes=60,
    objectives=[
        "Go from a symptom to a verdict by runs that are each chosen by the last one's findings.",
        "Tell a slow core from time that somebody else takes.",
        "Leave out, change or add a step, and keep the reason.",
        "Say which evidence carries a conclusion, and what it could not decide.",
    ],
    needs=["two cores", "no hypervisor", "root"],
    items=[
        Relation(
            name="headline",
            points=0.5,
            holds=_headline,
            wrong=[("broken", "no verdict: one of the three words")],
            hints=["One of healthy, cause, undecided."],
        ),
        Relation(
            name="second step",
            points=0.5,
            holds=_second,
            hints=["A name of the table of rules."],
            wrong=[("measure again", "says what is done in words, and names no step of the table")],
        ),
        Choice(
            name="1",
            question="A real-time task takes 7 % of one core while a short investigation runs. "
            "What will the headline accuse?",
            options={
                "a": "The core: it is slower by 7 %.",
                "b": "The hypervisor.",
                "c": "Nothing: 7 % is lost in the noise.",
                "d": "Other tasks, which take the time of that core; the core itself is healthy.",
            },
            right="d",
            because={
                "a": "Own speed is compared over CPU time, and while the thief runs our thread has "
                "none: the core itself is as fast as it was.",
                "b": "The thief is a task of this kernel; what a hypervisor takes is in no account "
                "of a task.",
                "c": "The time ready to run and not running is counted, not estimated: 7 % is far "
                "above its noise.",
                "d": "The part 'other tasks' of the product grows by about 7 %, and the kernel's "
                "accounts name the process.",
            },
            wrong=[("a", "blames the core for what a task takes"), ("b", "mixes up two owners")],
            hints=["Which part of the product does a task with priority change?"],
        ),
        Choice(
            name="2",
            question="The same within a quota of nine tenths of one core. What would a profiler of "
            "the job see?",
            options={
                "a": "A function that waits for the quota.",
                "b": "Every function 10 % slower in CPU time.",
                "c": "Nothing: a stopped thread has no samples.",
            },
            right="c",
            because={
                "a": "The kernel stops the thread wherever it is; no function of the job waits.",
                "b": "CPU time is not spent while it is stopped: the profile keeps its shape.",
                "c": "Only wall time grows, on all cores alike, so no core is accused. The "
                "kernel's count of throttled time, and 'Fit to measure?', name the quota. On a "
                "busy machine the quota may never be used up: then it stops nothing.",
            },
            wrong=[("b", "takes wall time for CPU time"), ("a", "expects a wait in the program")],
            hints=["Is a thread that the quota stops on a core?"],
        ),
        Relation(
            name="3",
            holds=_same,
            wrong=[((False, False), "takes a conclusion for something that is stored")],
            hints=["Runs are kept, conclusions are derived from them: compare both."],
        ),
        Choice(
            name="4",
            question="The folder is replayed without the symptom. What remains of the headline?",
            options={
                "a": "Nothing can be said, and no further step is proposed.",
                "b": "The same: the other steps confirm it.",
                "c": "Healthy: nothing was found.",
            },
            right="a",
            because={
                "a": "Without a symptom there is nothing to explain, and no machine to call "
                "healthy. A verdict that survives the loss of its only witness is a prejudice.",
                "b": "The other steps were chosen because of the symptom; they do not replace it.",
                "c": "Nothing found because nothing was looked at is not healthy.",
            },
            wrong=[("c", "takes no evidence for evidence of health")],
            hints=["Which rule has 'always' as its condition?"],
        ),
        Choice(
            name="5",
            question="Which steps would have led from the symptom to the cause of core 8?",
            options={
                "a": "symptom, levels, lines: the map shows it.",
                "b": "symptom, profile, calls, code pages, with memory acquitting the data.",
                "c": "symptom, aliasing, addresses.",
                "d": "symptom, nodes.",
            },
            right="b",
            because={
                "a": "The map is drawn where nothing is slow; here a core is slow in KV.",
                "b": "No function stands out in the profile; code that does not fit is slower "
                "there, on 4 KiB pages and not on 2 MiB pages. The most specific cause gives the "
                "headline: misses in the instruction TLB.",
                "c": "Those steps come where starts of a job differ; core 8 was slow in every "
                "event.",
                "d": "Where there are several nodes that step comes too, but it explains no "
                "effect of page size.",
            },
            wrong=[("a", "takes the map for the search"), ("c", "takes a core for a start")],
            hints=["Which condition holds: 'a core is slow in KV', or 'nothing is slow'?"],
        ),
    ],
)
