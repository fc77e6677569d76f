"""What ``machine`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["STOLEN"]

STOLEN = Claim(
    name="stolen",
    kind="anomaly",
    subject="cpu{cpu}",
    quantity="share of the time that others take from a spinning thread",
    unit="percent",
    exact="cpu{cpu} loses more than {threshold:g} % of its time to others",
    plain={
        "supported": "others take time from cpu{cpu}: {estimate}",
        "refuted": "cpu{cpu} is left alone: others take {estimate} of its time",
        "inconclusive": "whether others take time from cpu{cpu} stays open: {estimate}",
    },
    together={"refuted": "All {count} cores are left alone (widest interval {widest})"},
    reasons={
        "no_gap": "No gap was seen.",
        "gaps": "{share:.0%} of it in gaps of {low_us:.3g} to {high_us:.3g} µs, as "
        "'{cause}' makes.",
    },
)
