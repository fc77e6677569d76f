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

__all__ = ["CLAIMS", "FOOTPRINT", "ONE_CORE"]

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

FOOTPRINT = Claim(
    name="footprint",
    kind="description",
    subject="{core} code size",
    quantity="how many more cache lines of code as many samples fall on",
    unit="percent",
    exact="on {second} the event runs through more than {threshold:g} % more code than on {first}",
    plain={
        "supported": "on {second} the event runs through {estimate} more code than on {first}",
        "refuted": "on {second} the event runs through about as much code as on {first}, or "
        "less: {estimate}",
        "inconclusive": "whether the event runs through more code on {second} than on {first} "
        "stays open: {estimate}",
    },
    together={
        "refuted": "on {count} other cores the event runs through no more code than on {first}"
    },
    reasons={
        "places_unknown": "Of {known:.0f} % of the samples it is known where in the code they "
        "were taken: it takes {least:.0f} % or more.",
        "too_few": "It takes {least} rounds or more with both, and there are {rounds}.",
        "too_few_samples": "It takes {least} samples or more of each, and there are {samples}.",
        "unseen": "Of the last samples on {second}, {new:.0f} % fell on code not met before: it "
        "takes more samples to tell.",
        "seen": "{samples} samples of each fell on about {sizes[0]:size} of code on {first} and "
        "{sizes[1]:size} on {second}.",
    },
)

CLAIMS = (LONGER, STANDS_OUT, FUNCTION, ONE_CORE, FOOTPRINT, ENTRY, CONTROL, FUNCTION_ENTRY)
