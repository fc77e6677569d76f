"""A finding: one claim, held against the data, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "Verdict", "changes"]

Verdict = Literal["supported", "refuted", "inconclusive"]


@dataclass(frozen=True)
class Finding:
    """A claim with a verdict, an effect, and the effect's confidence interval.

    Parameters
    ----------
    claim
        A sentence that can be true or false, with its threshold ("core 8 is more than 1 %
        slower than the median of the other cores").
    subject
        What the claim is about, short and fit for a machine: ``cpu8``, ``cpu8 disturbed``.
    verdict
        ``supported``, ``refuted`` or ``inconclusive`` (the data cannot tell).
    effect, low, high
        The estimate and its confidence interval, in ``unit``; NaN where there is none.
    unit
        ``percent``, ``KiB``, ``ns`` ...
    confidence
        What share of such intervals cover the truth.
    reason
        Why the verdict is what it is, in one sentence.
    evidence
        Whatever supports it: p values, estimates of separate stretches, where the core lies.
    """

    claim: str
    subject: str
    verdict: Verdict
    effect: float
    low: float
    high: float
    unit: str
    confidence: float = 0.95
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON can hold it: what is not a number becomes ``None``."""
        record = _plain(asdict(self))
        assert isinstance(record, dict)
        return record

    def __str__(self) -> str:
        said = ""
        if math.isfinite(self.effect):
            said = f": {self.effect:+.2f} {self.unit}"
            if math.isfinite(self.low) or math.isfinite(self.high):
                said += f" [{self.low:+.2f}, {self.high:+.2f}]"
        return f"{self.verdict}: {self.claim}{said}. {self.reason}".rstrip()


def changes(
    first: Sequence[Finding], second: Sequence[Finding], threshold: float = 0.0
) -> list[Finding]:
    """How the effects of two independent runs differ, subject by subject, second minus first.

    ``supported``: the change is larger than ``threshold`` (in the findings' unit) either way;
    ``refuted``: the whole interval lies within it.
    """

    def same(finding: Finding) -> tuple[str, str, object]:
        """Subject, unit and, of a hypothesis, what it is to explain."""
        return finding.subject, finding.unit, finding.evidence.get("explains")

    before = {same(finding): finding for finding in first}
    result = []
    for after in second:
        if same(after) not in before:
            continue
        old = before[same(after)]
        centre = after.effect - old.effect
        reach = math.hypot(after.high - after.low, old.high - old.low) / 2
        low, high = centre - reach, centre + reach
        verdict: Verdict = "inconclusive"
        if low > threshold or high < -threshold:
            verdict = "supported"
        elif -threshold < low and high < threshold:
            verdict = "refuted"
        claim = f"{after.subject} changed"
        if threshold:
            claim += f" by more than {threshold:g} {after.unit}"
        result.append(Finding(claim, after.subject, verdict, centre, low, high, after.unit))
    return result


def _plain(value: Any) -> Any:
    """``value`` with everything JSON lacks (NaN, infinity, what numpy has) made plain."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
