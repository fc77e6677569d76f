"""What ``contention`` can claim."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

OWN_LINES = _CLAIMS["own_lines_slower"]
FALSE_SHARING = _CLAIMS["false_sharing"]
NEIGHBOURS = _CLAIMS["neighbour_lines"]
TOGETHER = _CLAIMS["slower_together"]
LOCK = _CLAIMS["lock_slower"]
UNFAIR = _CLAIMS["unfair"]

CLAIMS = (OWN_LINES, FALSE_SHARING, NEIGHBOURS, TOGETHER, LOCK, UNFAIR)
"""The claims, in the order in which they are made."""
