"""What ``sharing`` can claim of CPUs."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

SHARED = _CLAIMS["shared"]
ALONE = _CLAIMS["alone"]
MOVED = _CLAIMS["moved"]
NAMED = _CLAIMS["named"]

CLAIMS = (SHARED, ALONE, MOVED, NAMED)
"""The claims, in the order in which they are made."""
