"""What ``alias_map`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import Claim

__all__ = ["CONTROL_BYTES", "WAITS", "WAITS_SHARED"]

CONTROL_BYTES = 2048  # as far from an agreement in the low 12 bits as can be

WAITS = Claim(
    name="waits",
    kind="description",
    subject="{distance_bytes}",
    quantity="additional time of a pair of store and load, compared with a pair 2048 B apart",
    unit="percent",
    exact="a load {distance_bytes} B beyond a store, which agrees in {agree}, takes more than "
    "{threshold:g} % longer than one {control_bytes} B beyond",
    plain={
        "supported": "a load waits for a store {distance_bytes} B before it: {estimate}",
        "refuted": "a load does not wait for a store {distance_bytes} B before it: {estimate}",
        "inconclusive": "whether a load waits for a store {distance_bytes} B before it stays open: "
        "{estimate}",
    },
    reasons={
        "never_alone": "The core was never alone: its sibling thread was busy all the time.",
        "unproven": "True dependencies, the control that must show, did not show either.",
        "extra_ns": "A pair takes {extra_ns:.3f} ns more, {most_ns:.3f} at most.",
        "extra_cycles": "A pair takes {extra_ns:.3f} ns more, {most_ns:.3f} at most "
        "({most_cycles:.2f} cycles).",
    },
)
WAITS_SHARED = beside_sibling(WAITS)
