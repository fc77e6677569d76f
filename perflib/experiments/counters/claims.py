"""What ``counters`` can claim of each way to count, with each number of jobs."""

from __future__ import annotations

from perflib.experiments.counters.modes import KERNEL, ONE_SET, ROTATED, SAMPLED
from perflib.model.claim import Claim

__all__ = ["COSTS", "MISCOUNTS", "MISSES", "words"]

_WAYS = {
    ONE_SET: "counting one set at a time",
    ROTATED: "multiplexing by perflib",
    KERNEL: "multiplexing by the kernel",
    SAMPLED: "sampling by perf",
}


def words(mode: str, jobs: int) -> dict[str, str]:
    """How the sentences name a way of counting and the load."""
    return {
        "way": _WAYS.get(mode, f"mode {mode!r}"),
        "load": "one job" if jobs == 1 else f"{jobs} jobs at once",
    }


_CHANCE = {
    "chance": "Of {claims} claims about counting one may say so by chance: the p value, corrected "
    "for their number, is {p:.2g}.",
}

MISCOUNTS = Claim(
    name="miscounts",
    kind="anomaly",
    subject="{mode:word}×{jobs}",
    quantity="average error of the counts compared with counting one set at a time",
    unit="percent",
    exact="{mode:word}×{jobs} gives counts that are off by more than {threshold:g} % on average",
    plain={
        "supported": "{way} miscounts with {load}: off by {estimate} on average",
        "refuted": "{way} counts right with {load}: off by {estimate} on average",
        "inconclusive": "whether {way} counts right with {load} stays open: off by {estimate} on "
        "average",
    },
    together={
        "refuted": "Counts are right to within {threshold:g} % in {named} (widest interval: "
        "{widest})",
        "inconclusive": "Whether counts are right stays open in {named} (widest interval: "
        "{widest})",
    },
    reasons={
        **_CHANCE,
        "nothing_repeatable": "No event is counted in both ways and repeatable.",
        "within_scatter": "It is not clearly larger than what two runs of one set at a time differ "
        "by ({scatter:.2g} %).",
        "only_clocks": "Only clocks are off, and they tell how fast the machine was, too, which "
        "differs from run to run.",
        "beyond_scatter": "Two runs of one set at a time differ by {scatter:.2g} %.",
        "never_scaled": "Nothing had to be scaled: there was a counter for every event all the "
        "time.",
        "left_out": "Left out, as no two runs agree on them: {events:list}.",
        "worst": "Farthest off: {event}, by {error:.3g} % on average; the reference scatters by "
        "{scatter:.2g} %.",
    },
)

COSTS = Claim(
    name="costs",
    kind="anomaly",
    subject="{mode:word}×{jobs} cost",
    quantity="time that the job takes longer than the same job uncounted",
    unit="percent",
    exact="{mode:word}×{jobs} costs the job more than {threshold:g} % of {time}",
    plain={
        "supported": "{way} costs the job {estimate} of {time} with {load}",
        "refuted": "{way} costs the job hardly anything with {load}: {estimate} of {time}",
        "inconclusive": "what {way} costs the job with {load} stays open: {estimate} of {time}",
    },
    together={
        "refuted": "Counting costs the job hardly anything in {count} combinations of mode and "
        "load (widest interval: {widest})",
        "inconclusive": "What counting costs the job stays open in {count} combinations of mode "
        "and load (widest interval: {widest})",
    },
    reasons=_CHANCE,
)

MISSES = Claim(
    name="misses",
    kind="anomaly",
    subject="{mode:word}×{jobs} missed",
    quantity="share of the readings or samples that were due and not taken",
    unit="percent",
    exact="{mode:word}×{jobs} misses more than {threshold:g} % of its {what}",
    plain={
        "supported": "{way} misses {estimate} of its {what} with {load}",
        "refuted": "{way} misses hardly any of its {what} with {load}: {estimate}",
        "inconclusive": "how many of its {what} {way} misses with {load} stays open: {estimate}",
    },
    together={
        "inconclusive": "How many readings or samples are missed stays open in {count} "
        "combinations of mode and load (widest interval: {widest})",
        "refuted": "Hardly any reading or sample is missed in {count} combinations of mode and "
        "load (widest interval: {widest})",
    },
    counted=True,
    reasons=_CHANCE,
)
