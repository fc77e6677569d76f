"""What ``allocators`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import Claim

__all__ = ["AGAIN", "BY_STATE", "COST", "COST_SHARED", "NEW", "SHARES", "SHARES_AGAIN"]

NEW, AGAIN = "new", "again"  # the state of the heap: untouched, or after others were freed


def _shares(name: str, ending: str, when: str) -> Claim:
    count = "{equal} of {pairs} pairs in {processes} processes do."
    return Claim(
        name=name,
        kind="description",
        subject="{allocator} aliasing" + ending,
        quantity=f"share of large pairs whose addresses agree in their low 12 bits{when}",
        unit="percent",
        exact="{allocator} gives, of pairs of {large_bytes} B and more" + when + ", more than "
        "{threshold:g} % that share their low 12 bits",
        plain={
            "supported": "of large pairs that {allocator} gives" + when + ", {effect:.0f} % alias: "
            "their low 12 bits agree",
            "refuted": "of large pairs that {allocator} gives" + when + ", {effect:.0f} % share "
            "their low 12 bits, and {above_percent:.0f} % lie just above",
            "inconclusive": "whether large pairs that {allocator} gives" + when + " alias stays "
            "open: {estimate}",
        },
        reasons={
            "clear": count,
            "excluded": count,
            "open": count + " More processes would narrow the interval.",
            "above": "{above} more lie up to 127 B above, which is as bad.",
        },
    )


SHARES = _shares("shares", "", "")
SHARES_AGAIN = _shares("shares_again", " again", " after others were freed")
BY_STATE = {NEW: SHARES, AGAIN: SHARES_AGAIN}

COST = Claim(
    name="cost",
    kind="anomaly",
    subject="{allocator} cost {function} {size_bytes}",
    quantity="additional time at the distance that the allocator chose, compared with a distance "
    "far from aliasing",
    unit="percent",
    exact="{allocator} makes a {function} between two buffers of {size_bytes} B take more than "
    "{threshold:g} % longer than it does far from aliasing",
    plain={
        "supported": "a {function} of {size_bytes:size} loses time to where {allocator} places its "
        "buffers: {estimate}",
        "refuted": "a {function} of {size_bytes:size} loses nothing to where {allocator} places "
        "its buffers: {estimate}",
        "inconclusive": "whether a {function} of {size_bytes:size} loses time to where {allocator} "
        "places its buffers stays open: {estimate}",
    },
    together={
        "refuted": "In {count} cases nothing is lost to where the allocator places buffers "
        "(widest interval {widest})",
    },
    reasons={
        "excluded": "It is {high:.2g} % at most.",
        "segments_disagree": "Not every third of the run shows it ({segments:list +.1f} %).",
    },
)
COST_SHARED = beside_sibling(COST)
