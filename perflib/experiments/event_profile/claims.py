"""What ``event_profile`` can claim, besides what two profiles and functions' entries can."""

from __future__ import annotations

from perflib.instruments.profile.claims import (
    CONTROL,
    ENTRY,
    FUNCTION,
    FUNCTION_ENTRY,
    LONGER,
    STANDS_OUT,
)
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

ONE_CORE = _CLAIMS["one_core"]
FOOTPRINT = _CLAIMS["footprint"]

CLAIMS = (LONGER, STANDS_OUT, FUNCTION, ONE_CORE, FOOTPRINT, ENTRY, CONTROL, FUNCTION_ENTRY)
