"""What ``allocators`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

NEW, AGAIN = "new", "again"  # the state of the heap: untouched, or after others were freed

SHARES = _CLAIMS["shares"]
SHARES_AGAIN = _CLAIMS["shares_again"]
BY_STATE = {NEW: SHARES, AGAIN: SHARES_AGAIN}

COST = _CLAIMS["cost"]
COST_SHARED = beside_sibling(COST)
