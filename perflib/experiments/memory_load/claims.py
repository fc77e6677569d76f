"""What ``memory_load`` can claim."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

RISES = _CLAIMS["latency_rises"]
KNEE = _CLAIMS["knee"]
TOGETHER = _CLAIMS["more_together"]
SLOWER = _CLAIMS["core_moves_less"]
PEAK = _CLAIMS["below_peak"]

CLAIMS = (RISES, KNEE, TOGETHER, SLOWER, PEAK)
"""The claims, in the order in which they are made."""
