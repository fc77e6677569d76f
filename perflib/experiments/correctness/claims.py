"""What ``correctness`` can claim of cores."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

WRONG = _CLAIMS["core_wrong"]
COVERAGE = _CLAIMS["coverage"]
OPINION = _CLAIMS["second_opinion"]

CLAIMS = (WRONG, COVERAGE, OPINION)
"""The claims, in the order in which they are made."""
