"""What ``event_profile`` can claim, beside what any two profiles and any functions' entries can."""

from __future__ import annotations

from perflib.instruments.profile.claims import (
    CONTROL,
    ENTRY,
    FUNCTION,
    FUNCTION_ENTRY,
    LONGER,
    STANDS_OUT,
)
from perflib.model.claim import Claim

__all__ = ["CLAIMS", "ONE_CORE"]

ONE_CORE = Claim(
    name="one_core",
    kind="anomaly",
    subject="standing out",
    quantity="what the leading function takes beyond the common slowdown",
    unit="percent of the event time",
    exact="on some core a function takes more, or less, than the slowdown common to all other "
    "functions explains",
    plain={
        "inconclusive": "the samples are of one core: nothing is compared; most of the time is in "
        "{costliest:list} ({shares:list .1f} %)"
    },
)

CLAIMS = (LONGER, STANDS_OUT, FUNCTION, ONE_CORE, ENTRY, CONTROL, FUNCTION_ENTRY)
