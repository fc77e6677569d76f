"""What ``bracketed`` can claim of the pieces of a program."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

SLOWER = _CLAIMS["slower"]
ALONE = _CLAIMS["alone"]

CLAIMS = (SLOWER, ALONE)
"""The claims, in the order in which they are made."""
