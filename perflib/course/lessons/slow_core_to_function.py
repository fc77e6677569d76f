"""What the lab from a slow core to a slow function asks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import NO_VERDICT, found, verdict

_NAMES = ("main", "step", "cos", "log", "table")


def _self_shares(stacks: Sequence[Sequence[str]]) -> dict[str, float]:
    """Share of the samples in each function itself: the last of a stack."""
    counts = Counter(stack[-1] for stack in stacks)
    return {name: count / len(stacks) for name, count in counts.items()}


def _total_shares(stacks: Sequence[Sequence[str]]) -> dict[str, float]:
    counts = Counter(name for stack in stacks for name in set(stack))
    return {name: count / len(stacks) for name, count in counts.items()}


def _stacks(drawn: random.Random) -> tuple[list[list[str]]]:
    def stack() -> list[str]:
        return ["main", *drawn.choices(_NAMES[1:], k=drawn.randint(0, 3))]

    return ([stack() for _ in range(drawn.randint(1, 30))],)


def _same_shares(given: Any, expected: dict[str, float]) -> bool:
    kept = {str(name): float(share) for name, share in dict(given).items() if share}
    return kept.keys() == expected.keys() and all(
        math.isclose(kept[name], share, abs_tol=1e-9) for name, share in expected.items()
    )


def _top(answer: Any, run: Any) -> Judged:
    """The function with the most samples of its own."""
    flat = run.table("flat").sort_values("self_samples", ascending=False, kind="stable")
    given = str(answer).strip()
    row = flat[flat["function"] == given]
    if row.empty:
        return Judged(0.0, f"{given!r} has no samples in the table 'flat'")
    share = row.iloc[0]["self_percent"]
    right = given == flat.iloc[0]["function"]
    return Judged(float(right), f"{given} has {share:.1f} % of the samples itself")


def _differences(run: Any) -> Any:
    """The table of additional time between two cores, the costliest first, or None."""
    names = [name for name in run.tables if name.startswith("additional_time")]
    return run.table(names[0]).sort_values("of_event_percent", kind="stable") if names else None


def _culprit(answer: Any, run: Any) -> Judged:
    """The function that adds the most time, where the run can name one."""
    table, given = _differences(run), str(answer).strip()
    if table is None or not bool(table["stands_out"].any()):
        return Judged(float(given == "none"), "no function stands out in this run")
    most = table[table["stands_out"]].iloc[-1]
    words = f"{most['function']} adds {most['of_event_percent']:.1f} % of the event"
    ends = f"[{most['of_event_percent_low']:.1f}, {most['of_event_percent_high']:.1f}]"
    return Judged(float(given == most["function"]), f"{words} {ends}")


def _excess(run: Any) -> Measured | str:
    """How much longer the function takes that stands out most."""
    table = _differences(run)
    if table is None or not bool(table["stands_out"].any()):
        return "no function stands out in this run"
    most = table[table["stands_out"]].iloc[-1]
    low, value, high = (float(most[f"excess_percent{end}"]) for end in ("_low", "", "_high"))
    return Measured(low, value, high, f"excess of {most['function']}")


LESSON = Lesson.of(
    "slow_core_to_function",
    {
        "difference of cores": partial(
            Prediction, measured=found("slower", what="the first core compared with the others")
        ),
        "1": partial(
            Relation,
            holds=verdict("slower"),
            wrong=[("supported", "reads the sign of the estimate"), NO_VERDICT],
        ),
        "2": partial(
            Code,
            reference=_self_shares,
            cases=_stacks,
            same=_same_shares,
            always=[([["main"], ["main", "cos"], ["main", "cos"], ["main", "step", "cos"]],)],
            wrong=[
                (_total_shares, "counts callers, too: that is total time"),
                (
                    lambda stacks: {stack[0]: 1.0 for stack in stacks},
                    "takes the outermost function",
                ),
            ],
        ),
        "4": partial(
            Relation,
            holds=_top,
            wrong=[
                ("main", "takes total time for own time"),
                ("kv_step", "takes total time for own time"),
            ],
        ),
        "excess of the function": partial(Prediction, measured=_excess),
        "6": partial(
            Relation,
            holds=_culprit,
            wrong=[
                ("__cos_fma", "takes the costliest library function for the one that changed"),
                ("main", "takes total time for own time"),
            ],
        ),
    },
)
