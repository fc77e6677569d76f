"""What ``random_calls`` and ``code_segment`` can claim."""

from __future__ import annotations

from perflib.framework.page_claims import HUGE_PAGES, NOT_BACKED
from perflib.model.claim import Claim

HYPOTHESES = ("iTLB misses", "instruction cache misses", "softirq activity", "frequency")


def _slower(name: str, subject: str, code: str, short: str) -> Claim:
    """``code``: which, exactly; ``short``: in a few words."""
    return Claim(
        name=name,
        kind="anomaly",
        subject=subject,
        quantity=f"slowdown in {short}, compared with the median of the other cores",
        exact="cpu{cpu} is more than {threshold:g} % slower than the median of the other cores in "
        + code,
        plain={
            "supported": f"cpu{{cpu}} is slower than the others in {short}: {{estimate}}",
            "refuted": f"cpu{{cpu}} is as fast as the others in {short}: {{estimate}}",
            "inconclusive": f"cpu{{cpu}} compared with the others in {short}: {{estimate}}, not "
            "known well enough for a verdict at {threshold:g} %",
        },
        together={
            "refuted": f"{{count}} cores are equally fast in {short} (widest interval {{widest}})"
        },
        reasons={
            "alone": "From the samples that had the core alone ({share:.0%} of them).",
            "never_alone": "The core was never alone: its sibling thread was busy all the time.",
            "shared_level": "In code that its own caches hold (up to {within_bytes:size}) the core "
            "is as fast as the others. Larger code comes from a cache that the host shares, and "
            "what a virtual core gets of that differs from core to core for many seconds.",
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

SLOWER_L1I_MISSES = _slower(
    "slower_l1i_misses",
    "cpu{cpu} L1i misses",
    "code of {code_bytes:size} to {to_bytes:size} on 4 KiB pages, whose lines miss the first-level "
    "instruction cache ({missing_percent:.0f} of 100 or more) and whose pages stay in its TLB",
    "code that misses the L1i and not the iTLB",
)


def _step(name: str, subject: str, when: str) -> Claim:
    """``when``: in which state of the core, as the beginning of a sentence."""
    return Claim(
        name=name,
        subject=subject,
        quantity="extra time of a step in code of twice the cache's size, over code of half of it",
        exact=f"{when}a step in code of {{beyond_bytes:size}} takes more than {{threshold:g}} % "
        "longer than in code of {within_bytes:size}, which fits into {cache} ({cache_bytes:size})",
        plain={
            "supported": f"{when}beyond {{cache}} ({{cache_bytes:size}}) a step takes longer: "
            "{estimate}",
            "refuted": f"{when}beyond {{cache}} ({{cache_bytes:size}}) a step takes as long as "
            "within it: {estimate}",
            "inconclusive": f"{when}the extra time of a step beyond {{cache}} is not known well "
            "enough for a verdict at {threshold:g} %: {estimate}",
        },
    )


_SHARED = "while the sibling thread is busy, "
STEP = _step("step", "{cache}", "")
STEP_SHARED = _step("step_shared", "{cache} shared", _SHARED)

PAGES = Claim(
    name="pages",
    subject="pages {pattern}",
    quantity="extra time of the largest code on 4 KiB pages, over 2 MiB pages",
    exact="code of {code_bytes:size} ({pattern}) takes more than {threshold:g} % longer on 4 KiB "
    "pages than on 2 MiB pages",
    plain={
        "supported": "code of {code_bytes:size} ({pattern}) takes longer on 4 KiB pages: "
        "{estimate}",
        "refuted": "code of {code_bytes:size} ({pattern}) is as fast on 4 KiB as on 2 MiB pages: "
        "{estimate}",
        "inconclusive": "extra time of code of {code_bytes:size} ({pattern}) on 4 KiB pages: "
        "{estimate}, which decides nothing",
    },
    reasons=NOT_BACKED,
)


def _knee(name: str, subject: str, control: str, when: str = "") -> Claim:
    """``control``: what the code on 4 KiB pages is compared with; ``when``: as of ``_step``."""
    return Claim(
        name=name,
        subject=subject,
        quantity="extent of the code at which it begins to take longer on 4 KiB pages",
        unit="KiB",
        exact=f"{when}the knee, where {{pattern}} on 4 KiB pages leaves {control}, is the reach of "
        "the instruction TLB ({reaches:list})",
        plain={
            "supported": f"{when}code ({{pattern}}) slows down where the reach of the {{level}} "
            "ends: {estimate}",
            "refuted": f"{when}code ({{pattern}}) does not slow down where a TLB's reach ends",
            "inconclusive": f"{when}code ({{pattern}}) shows no knee that can be compared with a "
            "TLB's reach: {estimate}",
        },
        reasons={
            **NOT_BACKED,
            "at_reach": "It is within {tolerance:g} % of the reach of the {level}.",
            "elsewhere": "Its whole interval is elsewhere.",
            "published": "CPUID does not report that reach: it is {origin}.",
            "reach_unknown": "How far the instruction TLB reaches is not known.",
            "open": "The interval leaves it open: more sizes near the knee, or more rounds.",
            "second_knee": "A second knee is at {size_bytes:size}.",
            "no_knee": "There is no knee: at no size do 4 KiB pages cost {bound:.1f} % more than "
            "at the smallest.",
            "no_knee_seen": "No knee was found, but all that can be said is that at no size do "
            "4 KiB pages cost {bound:.1f} % more than at the smallest.",
            "too_few": "Too few sizes or batches to distinguish a knee from none.",
        },
    )


_RING = "a ring of as many jumps on a 64th of the pages"
KNEE = _knee("knee", "knee", "2 MiB pages")
RING_KNEE = _knee("ring_knee", "knee", _RING)
KNEE_SHARED = _knee("knee_shared", "knee shared", "2 MiB pages", _SHARED)
RING_KNEE_SHARED = _knee("ring_knee_shared", "knee shared", _RING, _SHARED)
KNEE_OF_PATTERN = _knee("knee_of_pattern", "knee {pattern}", "2 MiB pages")


def _same_knee(name: str, subject: str, what: str, reasons: dict[str, str]) -> Claim:
    """``what``: what begins at the two sizes."""
    return Claim(
        name=name,
        subject=subject,
        quantity=f"size at which {what} in the compiled switch, over that in the assembled one",
        exact=f"{what} at the same size of the code in the compiled switch as in the assembled "
        "one, within {threshold:g} %",
        direction="within",
        plain={
            "supported": f"{what} at the same size in the compiled switch as in the assembled "
            "one: they differ by {estimate}",
            "refuted": f"{what} at another size in the compiled switch than in the assembled one: "
            "they differ by {estimate}",
            "inconclusive": f"whether {what} at the same size in the compiled and in the assembled "
            "switch stays open: they differ by {estimate}",
        },
        reasons=reasons,
    )


SAME_KNEE = _same_knee(
    "same_knee",
    "compiled knee",
    "4 KiB pages begin to cost time",
    {
        **NOT_BACKED,
        "clear": "The interval of the ratio of the two knees lies within.",
        "excluded": "The interval of the ratio of the two knees lies outside.",
        "no_knee": "The {pattern} switch has no knee: at no size do 4 KiB pages cost {bound:.1f} % "
        "more than at the smallest.",
        "no_knee_seen": "No knee of the {pattern} switch is found.",
        "too_few": "Too few sizes or batches to distinguish a knee from none.",
    },
)
SAME_KNEE_SIMULATED = _same_knee(
    "same_knee_simulated",
    "compiled knee simulated",
    "simulated iTLB misses begin",
    {
        "clear": "At {size_bytes:size} {random_percent:.1f} of 100 steps miss in the assembled and "
        "{compiled_percent:.1f} in the compiled switch.",
        "excluded": "At {size_bytes:size} {random_percent:.1f} of 100 steps miss in the assembled "
        "and {compiled_percent:.1f} in the compiled switch.",
        "no_rise": "At no size that was simulated do {least:g} of 100 steps miss.",
    },
)

SPLIT = Claim(
    name="split",
    subject="iTLB split",
    quantity="share that comes at half of the reach, of what code slows down from there to beyond "
    "the reach while the sibling thread is busy",
    exact="while the sibling thread is busy, more than {threshold:.0f} % of the slowdown comes at "
    "half of the reach that a core has alone, as where two threads split the instruction TLB",
    plain={
        "supported": "active threads split the instruction TLB: while the sibling is busy "
        "{estimate} of the slowdown comes at half of the reach",
        "refuted": "active threads do not split the instruction TLB: while the sibling is busy "
        "{estimate} of the slowdown comes at half of the reach, the rest at the whole",
        "inconclusive": "share of the slowdown that comes at half of the reach while the sibling "
        "is busy: {estimate}, which leaves open whether active threads split the instruction TLB",
    },
    reasons={
        "one_knee": "A core that is alone shows no knee.",
        "no_rise": "While the sibling is busy no slowdown is seen near the reach.",
    },
)

SHARED = (
    HUGE_PAGES, SLOWER, SLOWER_HUGE_PAGES, SLOWER_SMALL_CODE, SLOWER_L1I_MISSES, PAGES,
)  # fmt: skip

OF_THE_SEGMENT = (
    *SHARED, KNEE, RING_KNEE, KNEE_OF_PATTERN, KNEE_SHARED, RING_KNEE_SHARED, SPLIT, SAME_KNEE,
    SAME_KNEE_SIMULATED,
)  # fmt: skip
"""The claims, in the order in which they are made."""
