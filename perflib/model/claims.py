"""Claims that several experiments make: what explains extra time, and what changed between runs."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

EXPLAINS = _CLAIMS["explains"]
CHANGED = _CLAIMS["changed"]
