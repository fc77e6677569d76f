"""What ``simulate`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["CLAIMS", "MORE", "OFTEN", "SHARED"]

_ONCE = {"once": "It was simulated once: whether the program does the same again is not known."}

OFTEN = Claim(
    name="often",
    kind="description",
    subject="{geometry}: {counter}",
    quantity="simulated {counter} a thousand instructions",
    unit="per 1000 instructions",
    exact="with geometry '{geometry}' the program has more than {threshold:g} {counter} a "
    "thousand instructions",
    plain={
        "supported": "{counter} are frequent with geometry '{geometry}': {estimate}, most of "
        "them ({share:.0%}) in {function}",
        "refuted": "{counter} are rare with geometry '{geometry}': {estimate}",
        "inconclusive": "{counter} with geometry '{geometry}': {estimate}, most of them "
        "({share:.0%}) in {function}; whether they are frequent stays open",
    },
    reasons={**_ONCE, "simulated": "Simulated by {tool}: nothing is prefetched or reordered."},
    counted=True,
)

MORE = Claim(
    name="more",
    kind="description",
    subject="{geometry} against {reference}: {counter}",
    quantity="additional simulated {counter}, compared with those of {reference}",
    unit="percent",
    exact="with geometry '{geometry}' the program has over {threshold:g} % more {counter} "
    "than with '{reference}'",
    plain={
        "supported": "geometry '{geometry}' makes more {counter} than '{reference}': {estimate}",
        "refuted": "geometry '{geometry}' makes no more {counter} than '{reference}': {estimate}",
        "inconclusive": "whether geometry '{geometry}' makes more {counter} than "
        "'{reference}' stays open: {estimate}",
    },
    reasons=_ONCE,
    counted=True,
)

SHARED = Claim(
    name="shared",
    kind="description",
    subject="{counter}",
    quantity="simulated {counter} a thousand instructions",
    unit="per 1000 instructions",
    exact="the program has more than {threshold:g} {counter} a thousand instructions, if threads "
    "that want a cache line at the same time take turns at it",
    plain={
        "supported": "{counter} may be frequent: {estimate}, most of them ({share:.0%}) of "
        "{function}: {who}",
        "refuted": "{counter} are rare: {estimate}",
        "inconclusive": "{counter}: {estimate}; whether they are frequent stays open",
    },
    reasons={
        **_ONCE,
        "turns": "Simulated by {tool}: threads take turns at each access, so a processor has "
        "fewer. The table 'lines' says who uses which bytes.",
    },
    counted=True,
)

CLAIMS = (OFTEN, MORE, SHARED)
