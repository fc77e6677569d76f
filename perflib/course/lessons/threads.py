"""What notebook 13 asks."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

from perflib.course.items import Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import NO_VERDICT, found, parts, verdict

_NEAR = 1.1
_STATES = ("running", "ready", "waiting", "spinning")


def _speedup(run: Any) -> Measured | str:
    """That of the first version."""
    table = run.table("calibration")
    if table.empty or not math.isfinite(table.iloc[0]["speedup_low"]):
        return "this run has no interval of a speed-up"
    one = table.iloc[0]
    ends = (one["speedup_low"], one["speedup"], one["speedup_high"])
    return Measured(*ends, f"{one['version']}, {one['threads']} threads")


def _amdahl(answer: Any, *_: Any) -> Judged:
    asked = "give two numbers: (with two threads, with eight)"
    two, eight = map(number, parts(answer, 2, asked))
    right = (math.isclose(two, 2, rel_tol=0.05), math.isclose(eight, 3, rel_tol=0.05))
    says = "with two threads the threads bind, 2; with eight the lock does, 1 / (1/3) = 3"
    return Judged(sum(right) / 2, says if all(right) else "the smaller of N and 1/s is the bound")


def _longest(run: Any) -> tuple[float, str] | None:
    """Of the first version with one thread: the share of the loop under its longest lock."""
    ones = run.samples[run.samples["configuration"] == "one_thread"]
    if ones.empty:
        return None
    version = next(iter(run.params.get("versions", [])), "")
    mine = ones[ones["version"] == version]
    one = (mine if len(mine) else ones).iloc[0]
    held = {name: lock["held_s"] for name, lock in json.loads(one["self_report"] or "{}").items()}
    if not held or max(held.values()) <= 0:
        return None
    lock = max(held, key=lambda name: held[name])
    return held[lock] / one["job_time_s"], lock


def _most_possible(answer: Any, run: Any) -> Judged:
    longest = _longest(run)
    if longest is None:
        return Judged(1.0, "in this run no lock is held: there is no bound")
    share, lock = longest
    bound = 1 / share
    right = bound / _NEAR <= number(answer) <= bound * _NEAR
    return Judged(float(right), f"{lock} is held for {share:.0%} of the loop: {bound:.1f} at most")


def _shares(run: Any) -> dict[str, float]:
    profiled = run.samples[run.samples["configuration"] == "profiled"]
    profiled = profiled[profiled["version"] == "Final"] if len(profiled) else profiled
    means = profiled[[f"{state}_s" for state in _STATES]].mean()
    return {state: means[f"{state}_s"] / means.sum() for state in _STATES}


def _grows(answer: Any, run: Any, crowded: Any) -> Judged:
    """The state whose share of the threads' time grows most."""
    before, after = _shares(run), _shares(crowded)
    if any(map(math.isnan, (*before.values(), *after.values()))):
        return Judged(1.0, "nothing was profiled: there is nothing to compare")
    grown = max(_STATES, key=lambda state: after[state] - before[state])
    says = f"{grown} grows from {before[grown]:.0%} to {after[grown]:.0%} of the threads' time"
    return Judged(float(str(answer).strip().lower() == grown), says)


def _spinning(answer: Any, run: Any, spinning: Any) -> Judged:
    """Concurrency and speed-up compared with those of sleeping threads: larger, smaller, open."""
    words = parts(answer, 2, 'give two words, as ("larger", "open")')
    given = [str(one).strip().lower() for one in words]
    sleeping = run.table("calibration").set_index("version")
    spun = spinning.table("calibration").set_index("version")
    common = [version for version in spun.index if version in sleeping.index]
    if not common:
        return Judged(1.0, "the run has no version to compare with")
    before, after = sleeping.loc[common[0]], spun.loc[common[0]]
    true = []
    for name in ("concurrency", "speedup"):
        word = "larger" if after[f"{name}_low"] > before[f"{name}_high"] else "open"
        true.append("smaller" if after[f"{name}_high"] < before[f"{name}_low"] else word)
    says = (
        f"concurrency {before['concurrency']:.2f} to {after['concurrency']:.2f}: {true[0]}; "
        f"speed-up {before['speedup']:.2f} to {after['speedup']:.2f}: {true[1]}"
    )
    return Judged(sum(a == b for a, b in zip(given, true, strict=True)) / 2, says)


LESSON = Lesson.of(
    "threads",
    {
        "Amdahl": partial(
            Relation,
            holds=_amdahl,
            wrong=[
                ((3, 3), "forgets that two threads are at most twice as fast"),
                ((2, 8), "forgets the lock"),
            ],
        ),
        "speed-up": partial(Prediction, measured=_speedup),
        "gain without the formula's lock": partial(
            Prediction, measured=found("gain", what="Initial without formula", point="formula")
        ),
        "1": partial(
            Relation,
            holds=_most_possible,
            wrong=[(1.0, "takes the whole loop for locked"), (1000, "forgets the lock")],
        ),
        "2": partial(
            Relation,
            holds=verdict("limiting_lock"),
            wrong=[("supported", "expects a lock where every point is off"), NO_VERDICT],
        ),
        "3": partial(
            Relation,
            holds=_grows,
            wrong=[("waiting", "takes standing without a core for waiting for a lock")],
        ),
        "4": partial(
            Relation, holds=_spinning, wrong=[(("none", "none"), "words that are not asked for")]
        ),
    },
)
