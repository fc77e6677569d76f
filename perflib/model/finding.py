"""A finding: one claim compared with the data, with its verdict and its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perflib.model import sentences
from perflib.stats.decide import Reason, Verdict

if TYPE_CHECKING:
    from perflib.model.claim import Claim, Kind


_ROUNDING = 1e-9  # of an estimate


@dataclass(frozen=True)
class Finding:
    """A claim about a subject, its verdict, the effect, and the effect's confidence interval.

    Made by ``Claim.decided`` and ``Claim.found``. All that is data stands in the fields; ``claim``,
    ``reason`` and ``plain`` are sentences made from them.

    Parameters
    ----------
    of
        The claim, as declared.
    about
        The structured subject.
    verdict
        ``supported``, ``refuted`` or ``inconclusive`` (the data decide nothing).
    effect, low, high
        The estimate and its confidence interval, in ``unit``; NaN where there is none.
    unit
        ``percent``, ``KiB``, ``ns`` ...
    threshold
        What the effect is compared with; ``None`` where the claim has none.
    reasons
        Why the verdict is what it is, as codes with numbers.
    confidence
        What share of such intervals cover the truth.
    facts
        Further values that the sentences name.
    evidence
        Whatever supports it: p values, estimates of segments of the run, the place of the core.
    recorded
        The recorded machine that it is about, and the day; empty: what was measured here.
    """

    of: Claim
    about: Mapping[str, Any]
    verdict: Verdict
    effect: float
    low: float
    high: float
    unit: str
    threshold: float | None = None
    reasons: tuple[Reason, ...] = ()
    confidence: float = 0.95
    facts: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    recorded: str = ""

    def __post_init__(self) -> None:
        """An interval contains its estimate, whatever it was made of, but for rounding."""
        slack = _ROUNDING * max(1.0, abs(self.effect))
        if self.effect < self.low - slack or self.effect > self.high + slack:  # no NaN does
            msg = f"internal error: the estimate of {self.of.name!r} ({self.effect:g}) is outside "
            msg += f"its interval ({self.low:g} to {self.high:g}); please report it"
            raise AssertionError(msg)

    @property
    def kind(self) -> Kind:
        """``anomaly`` or ``description``."""
        return self.of.kind

    @property
    def quantity(self) -> str:
        """What the effect is, in words."""
        return self.of.quantity

    @property
    def subject(self) -> str:
        """What the claim is about, short and fit for a machine: ``cpu8``."""
        return sentences.subject(self)

    @property
    def claim(self) -> str:
        """The exact sentence that is true or false, with its threshold."""
        return sentences.claim(self)

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, in words."""
        return sentences.reason(self)

    @property
    def plain(self) -> str:
        """The result, in one sentence for people."""
        return sentences.plain(self)

    def prevented(self, why: Reason) -> Finding:
        """The same without a verdict, for a reason that its interval cannot know."""
        return replace(self, verdict="inconclusive", reasons=(why,))

    def in_unit(self, unit: str) -> Finding:
        """The same in another unit than its claim's."""
        return replace(self, unit=unit)

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON can hold it: what is not a number becomes ``None``."""
        record = _plain(
            {
                "claim": self.claim,
                "subject": self.subject,
                "verdict": self.verdict,
                "effect": self.effect,
                "low": self.low,
                "high": self.high,
                "unit": self.unit,
                "confidence": self.confidence,
                "reason": self.reason,
                "evidence": self.evidence,
                "kind": self.kind,
                "about": {"claim": self.of.name, **self.about},
                "quantity": self.quantity,
                "threshold": self.threshold,
                "plain": self.plain,
            }
        )
        assert isinstance(record, dict)
        return record

    def __str__(self) -> str:
        return f"{self.verdict}: {self.claim}: {sentences.estimate(self)}. {self.reason}".rstrip()


def _plain(value: Any) -> Any:
    """``value`` with everything JSON lacks (NaN, infinity, what numpy has) made plain."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
