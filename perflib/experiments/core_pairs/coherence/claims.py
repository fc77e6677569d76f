"""What ``coherence`` can claim in addition to what any matrix of cores can."""

from __future__ import annotations

from collections.abc import Mapping

from perflib.experiments.core_pairs.claims import GROUPS, KERNEL, PARTNERS, SLOWER
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)


# What the other core does with the line, by its state.
COPIES: Mapping[str, str] = {
    "modified": "has modified",
    "exclusive": "owns alone and unchanged (Exclusive)",
    "shared": "shares with a third",
    "forward": "shares with a third and has loaded last (Forward, where there is such a state)",
    "owned": "has modified and then shared with a third (Owned, where there is such a state)",
    "shared_here": "shares with this one",
    "owned_here": "modified before this one loaded it",
    "last_level": "modified and has given up to the last-level cache",
}

CONTROL = _CLAIMS["control"]
AHEAD = _CLAIMS["fetched_ahead"]
PREPARED = _CLAIMS["prepared"]
FORWARDED = _CLAIMS["forwarded"]
AT_HAND = _CLAIMS["at_hand"]
PROTOCOL = _CLAIMS["protocols"]
MIGRATED = _CLAIMS["migrated"]
AT_ONCE = _CLAIMS["at_once"]

CLAIMS = (
    CONTROL, AHEAD, PREPARED, FORWARDED, AT_HAND, PROTOCOL, MIGRATED, AT_ONCE, GROUPS, KERNEL,
    PARTNERS, SLOWER,
)  # fmt: skip
"""The claims, in the order in which they are made."""
