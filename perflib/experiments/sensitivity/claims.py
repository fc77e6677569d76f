"""What ``sensitivity`` can claim of a job."""

from __future__ import annotations

from perflib.instruments.profile.claims import FUNCTION, STANDS_OUT
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__, {**STANDS_OUT.reasons, **FUNCTION.reasons})

TRAFFIC = _CLAIMS["memory_traffic"]
CAPACITY = _CLAIMS["cache_capacity"]
TRANSLATION = _CLAIMS["translation"]
BUSY = _CLAIMS["busy_core"]
SIBLING = _CLAIMS["sibling"]
SUFFERS = _CLAIMS["suffers"]
SPARED = _CLAIMS["spared"]

CLAIMS = (TRAFFIC, CAPACITY, TRANSLATION, BUSY, SIBLING, SUFFERS, SPARED)
"""The claims, in the order in which they are made."""
