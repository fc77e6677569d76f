"""Claims about a function's offsets: those predicted to alias, and the slowest whatever it be."""

from __future__ import annotations

import math

from perflib.experiments.aliasing.offsets.table import PERIOD_BYTES, Extreme, OffsetTable
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval

__all__ = ["offset_findings"]

_ALPHA = 0.05


def offset_findings(
    name: str, table: OffsetTable, threshold: float, period: int | None = PERIOD_BYTES
) -> list[Finding]:
    """Two claims about one function, each with its verdict.

    Parameters
    ----------
    name
        The function; one word.
    table
        Its samples.
    threshold
        In percent: less does not count.
    period
        Where aliasing is predicted (see ``aliasing``); ``None``: nowhere in particular.
    """
    found = []
    if period is not None:
        effect = table.predicted(period)
        verdict, reason = _predicted_verdict(effect, threshold)
        found.append(
            Finding(
                f"{name} takes more than {threshold:g} % longer where loads are predicted to meet "
                "earlier stores in the low 12 bits of their addresses",
                f"{name} predicted", verdict, *effect, unit="percent", reason=reason,
                evidence={"period_bytes": period},
            )
        )  # fmt: skip
    slowest, fastest = table.slowest(), table.fastest()
    verdict, reason = _slowest_verdict(slowest, threshold)
    found.append(
        Finding(
            f"{name} takes more than {threshold:g} % longer at its slowest offset than at the "
            "median of the others",
            name, verdict, *slowest.difference, unit="percent", reason=reason,
            evidence={
                "slowest_offset_bytes": slowest.offset_bytes,
                "fastest_offset_bytes": fastest.offset_bytes,
                "fastest_percent": list(fastest.difference),
                "p": slowest.p,
                "segments_percent": list(slowest.segments),
            },
        )
    )  # fmt: skip
    return found


def _predicted_verdict(effect: Interval, threshold: float) -> tuple[Verdict, str]:
    if not math.isfinite(effect.half_width):
        return "inconclusive", (
            "It takes two rounds or more, with offsets just above a multiple of 4096 and offsets "
            "far from one that have the same place in a cache line."
        )
    if effect.low > threshold:
        return "supported", "The whole interval lies above."
    if effect.high < threshold:
        return "refuted", f"It is below {effect.high:.2g} %."
    return "inconclusive", f"{threshold:g} % lies within the interval: more rounds would narrow it."


def _slowest_verdict(slowest: Extreme, threshold: float) -> tuple[Verdict, str]:
    """``supported`` takes three witnesses: the interval, the permutation, every third."""
    found = slowest.difference
    where = f"{slowest.offset_bytes} B"
    if not math.isfinite(found.half_width):
        return "inconclusive", "It takes two offsets or more, in four rounds or more."
    if found.high < threshold:
        return "refuted", f"No offset's time is longer by {found.high:.2g} % or more."
    if found.low <= threshold:
        return "inconclusive", (
            f"{threshold:g} % lies within the interval: more rounds would narrow it."
        )
    if slowest.p >= _ALPHA:
        return "inconclusive", f"Chance brings it about too often (p = {slowest.p:.2g})."
    if not all(part > threshold for part in slowest.segments):
        parts = ", ".join(f"{part:+.1f}" for part in slowest.segments)
        return "inconclusive", f"Not every third of the run shows it ({parts} %)."
    return "supported", f"It is the offset of {where} (p = {slowest.p:.2g})."
