"""What ``what_if`` can claim of each target."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

GAIN = _CLAIMS["gain"]
MISLEADS = _CLAIMS["misleads"]
TRUE = _CLAIMS["true"]
CONTROL = _CLAIMS["control"]

CLAIMS = (GAIN, MISLEADS, TRUE, CONTROL)
"""The claims, in the order in which they are made."""
