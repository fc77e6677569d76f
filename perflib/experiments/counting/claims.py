"""What ``count`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["CLAIMS", "COMPLETE", "RATE"]

RATE = Claim(
    name="rate",
    kind="description",
    subject="{event}",
    quantity="{event} a second",
    unit="per s",
    exact="{event} was counted, and its rate is known",
    plain={
        "supported": "{event}: {estimate}",
        "refuted": "{event}: none",
        "inconclusive": "{event}: {estimate}, from too few intervals to say how sure that is",
    },
    reasons={
        "scaled": "Scaled: it was on for {share:.0%} of the time.",
        "few": "There are {intervals} parts of the time only.",
    },
    counted=True,
)

COMPLETE = Claim(
    name="complete",
    kind="description",
    subject="{event} completeness",
    quantity="share of the time for which {event} was counted",
    unit="percent",
    exact="{event} was counted for more than {threshold:g} % of the time",
    plain={
        "supported": "the count of {event} is complete: {estimate} of the time",
        "refuted": "the count of {event} is incomplete: it was seen for {estimate} of the time",
    },
    counted=True,
)

CLAIMS = (RATE, COMPLETE)
