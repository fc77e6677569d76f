"""What ``machine`` can claim."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

STOLEN = _CLAIMS["stolen"]
