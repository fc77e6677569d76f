"""What ``data_tlb`` can claim: a level of the data TLB has the entries that are reported."""

from __future__ import annotations

from perflib.framework.page_claims import NOT_BACKED
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__, NOT_BACKED)

FIRST = _CLAIMS["first_level"]
SECOND = _CLAIMS["second_level"]
WAYS = _CLAIMS["ways"]
