"""What ``erasure_coding`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

ALIGNED = _CLAIMS["aligned"]
CHASING = _CLAIMS["chasing"]
SHIFTED = _CLAIMS["shifted"]

BY_LAYOUT = {"aligned": ALIGNED, "chasing": CHASING, "shifted": SHIFTED}
SHARED_BY_LAYOUT = {"aligned": beside_sibling(ALIGNED), "chasing": beside_sibling(CHASING)}

SLOWED = _CLAIMS["slowed"]

CLAIMS = (ALIGNED, CHASING, SHIFTED, *SHARED_BY_LAYOUT.values(), SLOWED)
"""The claims, in the order in which they are made."""
