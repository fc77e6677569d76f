"""What a sweep over the distance of two buffers can claim, of any function."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

ALIASES = _CLAIMS["aliases"]

ALIASES_SHARED = beside_sibling(ALIASES)

SLOWEST = _CLAIMS["slowest"]
