"""What ``simulate`` can claim."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

OFTEN = _CLAIMS["often"]
MORE = _CLAIMS["more"]
SHARED = _CLAIMS["shared"]

CLAIMS = (OFTEN, MORE, SHARED)
