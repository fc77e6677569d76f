"""What ``random_calls`` and ``code_segment`` can claim."""

from __future__ import annotations

from perflib.framework.page_claims import HUGE_PAGES, NOT_BACKED
from perflib.model.claim import Claim

__all__ = [
    "HYPOTHESES",
    "KNEE",
    "KNEE_OF_PATTERN",
    "PAGES",
    "RING_KNEE",
    "SHARED",
    "SLOWER",
    "SLOWER_HUGE_PAGES",
    "SLOWER_SMALL_CODE",
    "STEP",
]

HYPOTHESES = ("iTLB misses", "instruction cache misses", "softirq activity", "frequency")


def _slower(name: str, subject: str, code: str, short: str) -> Claim:
    """``code``: which, exactly; ``short``: in a few words."""
    return Claim(
        name=name,
        kind="anomaly",
        subject=subject,
        quantity=f"slowdown in {short}, compared with the median of the other cores",
        unit="percent",
        exact="cpu{cpu} is more than {threshold:g} % slower than the median of the other cores in "
        + code,
        plain={
            "supported": f"cpu{{cpu}} is slower than the others in {short}: {{estimate}}",
            "refuted": f"cpu{{cpu}} is as fast as the others in {short}: {{estimate}}",
            "inconclusive": f"whether cpu{{cpu}} is slower than the others in {short} stays open: "
            "{estimate}",
        },
        together={
            "refuted": f"{{count}} cores are equally fast in {short} (widest interval {{widest}})"
        },
    )


SLOWER = _slower(
    "slower",
    "cpu{cpu}",
    "code of {code_bytes:size} and more on 4 KiB pages",
    "large code on 4 KiB pages",
)
SLOWER_HUGE_PAGES = _slower(
    "slower_huge_pages",
    "cpu{cpu} huge pages",
    "code of {code_bytes:size} and more on 2 MiB pages",
    "large code on 2 MiB pages",
)
SLOWER_SMALL_CODE = _slower(
    "slower_small_code",
    "cpu{cpu} small code",
    "code of {code_bytes:size} at most on 4 KiB pages",
    "code that the first-level cache holds",
)

STEP = Claim(
    name="step",
    kind="description",
    subject="{cache}",
    quantity="extra time of a step in code of twice the cache's size, over code of half of it",
    unit="percent",
    exact="a step in code of {beyond_bytes:size} takes more than {threshold:g} % longer than in "
    "code of {within_bytes:size}, which fits into {cache} ({cache_bytes:size})",
    plain={
        "supported": "beyond {cache} ({cache_bytes:size}) a step takes longer: {estimate}",
        "refuted": "beyond {cache} ({cache_bytes:size}) a step takes as long as within it: "
        "{estimate}",
        "inconclusive": "whether a step takes longer beyond {cache} stays open: {estimate}",
    },
)

PAGES = Claim(
    name="pages",
    kind="description",
    subject="pages {pattern}",
    quantity="extra time of the largest code on 4 KiB pages, over 2 MiB pages",
    unit="percent",
    exact="code of {code_bytes:size} ({pattern}) takes more than {threshold:g} % longer on 4 KiB "
    "pages than on 2 MiB pages",
    plain={
        "supported": "code of {code_bytes:size} ({pattern}) takes longer on 4 KiB pages: "
        "{estimate}",
        "refuted": "code of {code_bytes:size} ({pattern}) is as fast on 4 KiB as on 2 MiB pages: "
        "{estimate}",
        "inconclusive": "whether 4 KiB pages slow code of {code_bytes:size} ({pattern}) down stays "
        "open: {estimate}",
    },
    reasons=NOT_BACKED,
)


def _knee(name: str, subject: str, control: str) -> Claim:
    """``control``: what the code on 4 KiB pages is compared with."""
    return Claim(
        name=name,
        kind="description",
        subject=subject,
        quantity="extent of the code at which it begins to take longer on 4 KiB pages",
        unit="KiB",
        exact=f"the knee, where {{pattern}} on 4 KiB pages leaves {control}, is the reach of the "
        "instruction TLB ({reaches:list})",
        plain={
            "supported": "code ({pattern}) slows down where the reach of the {level} ends: "
            "{estimate}",
            "refuted": "code ({pattern}) does not slow down where a TLB's reach ends",
            "inconclusive": "whether code ({pattern}) slows down where a TLB's reach ends stays "
            "open: {estimate}",
        },
        reasons={
            **NOT_BACKED,
            "at_reach": "It lies within {tolerance:g} % of the reach of the {level}.",
            "elsewhere": "Its whole interval lies elsewhere.",
            "reach_unknown": "How far the instruction TLB reaches is not known.",
            "open": "The interval leaves it open: more sizes near the knee, or more rounds.",
            "second_knee": "A second knee lies at {size_bytes:size}.",
            "no_knee": "There is no knee: at no size do 4 KiB pages cost {bound:.1f} % more than "
            "at the smallest.",
            "no_knee_seen": "No knee was found, but all that can be said is that at no size do "
            "4 KiB pages cost {bound:.1f} % more than at the smallest.",
            "too_few": "Too few sizes or batches to tell a knee from none.",
        },
    )


KNEE = _knee("knee", "knee", "2 MiB pages")
RING_KNEE = _knee("ring_knee", "knee", "a ring of as many jumps on a 64th of the pages")
KNEE_OF_PATTERN = _knee("knee_of_pattern", "knee {pattern}", "2 MiB pages")

SHARED = (HUGE_PAGES, SLOWER, SLOWER_HUGE_PAGES, SLOWER_SMALL_CODE, PAGES)
