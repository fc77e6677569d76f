"""What ``sensitivity`` can claim of a job."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

TRAFFIC = _CLAIMS["memory_traffic"]
CAPACITY = _CLAIMS["cache_capacity"]
TRANSLATION = _CLAIMS["translation"]
BUSY = _CLAIMS["busy_core"]
SIBLING = _CLAIMS["sibling"]

CLAIMS = (TRAFFIC, CAPACITY, TRANSLATION, BUSY, SIBLING)
"""The claims, in the order in which they are made."""
