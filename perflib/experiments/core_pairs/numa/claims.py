"""What ``numa`` can claim in addition to what any matrix of cores can."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

DISTANCES = _CLAIMS["distances"]
OWN = _CLAIMS["own"]
