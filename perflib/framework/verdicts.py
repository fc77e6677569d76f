"""From an interval to a verdict: one rule for all experiments that ask the same."""

from __future__ import annotations

import math

from perflib.model.finding import Verdict
from perflib.stats.compare import CoreEffect
from perflib.stats.interval import Interval

__all__ = ["slowness_verdict", "threshold_verdict"]

_ALPHA = 0.05


def slowness_verdict(effect: CoreEffect, threshold: float) -> tuple[Verdict, str]:
    """The verdict on "more than ``threshold`` percent slower than the others", and why.

    ``supported`` takes three witnesses: the interval, a permutation test that exchanges the cores'
    names, and every third of the run.
    """
    slow = effect.slowdown
    if not math.isfinite(slow.half_width):
        return "inconclusive", (
            "There is nothing to compare: it takes two cores or more, in two blocks of time or "
            "more, in which they were not disturbed."
        )
    if slow.high < threshold:
        return "refuted", f"A slowdown of {threshold:g} % lies outside the interval."
    if slow.low <= threshold:
        return "inconclusive", (
            f"{threshold:g} % lies within the interval: more rounds would narrow it."
        )
    if effect.p_holm >= _ALPHA:
        return "inconclusive", (
            f"With the cores' names exchanged at random it comes about too often (p = "
            f"{effect.p_holm:.2g}, corrected for the number of cores): more rounds are needed."
        )
    if not all(part > threshold for part in effect.segments):
        parts = ", ".join(f"{part:+.1f}" for part in effect.segments)
        return "inconclusive", f"Not every third of the run shows it ({parts} %)."
    return "supported", f"Every third of the run shows it (p = {effect.p_holm:.2g})."


def threshold_verdict(found: Interval, limit: float) -> tuple[Verdict, str]:
    """The verdict on "more than ``limit``" by the interval alone, and why."""
    if not math.isfinite(found.half_width):
        return "inconclusive", "It takes two rounds or more."
    if found.low > limit:
        return "supported", "The whole interval lies above."
    if found.high < limit:
        return "refuted", f"{limit:g} % lies outside the interval."
    return "inconclusive", f"{limit:g} % lies within the interval: more rounds would narrow it."
