"""What can be claimed of any matrix of cores."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)


GROUPS = _CLAIMS["groups"]
KERNEL = _CLAIMS["kernel"]
SLOWER = _CLAIMS["slower"]
PARTNERS = _CLAIMS["partners"]
