"""What ``alias_map`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

CONTROL_BYTES = 2048  # as far from an agreement in the low 12 bits as can be

WAITS = _CLAIMS["waits"]
WAITS_SHARED = beside_sibling(WAITS)
