"""What ``memory_levels`` can claim: of caches, memory, orders, pages and cores."""

from __future__ import annotations

from dataclasses import replace

from perflib.framework.page_claims import NOT_BACKED
from perflib.model.claim import Claim

__all__ = [
    "CACHE",
    "CACHE_SHARED",
    "CAPACITY",
    "MEMORY",
    "PAGES",
    "PREFETCHER",
    "SLOWER_FIRST_LEVEL",
    "SLOWER_MEMORY",
    "TLB_MISSES",
    "UNCLAIMED",
    "UNCLAIMED_NEXT",
]

# Which samples a finding was read off; nothing is said where there are no probes.
_SAMPLES = {
    "from_alone": "From the samples that had the core alone ({percent:.0f} % of all).",
    "from_shared": "From the samples beside a busy sibling ({percent:.0f} % of all).",
    "from_all": "From all samples: those that had the core alone scatter more.",
    "untold": "The probes never saw two states, so all samples count.",
}
# Why a curve shows no levels.
_UNFIT = {
    "ascending_only": "Only ascending loads were measured: a prefetcher hides where a level ends.",
    "too_wide": "The machine was too busy, or there were too few rounds: the half-width of a "
    "latency's interval is {width:.0f} % of it at the usual size.",
}
_ENDS = "It holds {last_bytes:size}, and {next_bytes:size} are slower."

CACHE = Claim(
    name="cache",
    kind="description",
    subject="{cache}",
    quantity="size of the array at which a level of memory ends",
    unit="KiB",
    exact="a level of memory ends within a factor of 1.41 of the {claimed_bytes:size} that this "
    "machine claims for {cache}",
    direction="within",
    plain={
        "supported": "{cache} ends at the {claimed_bytes:size} that the machine claims (found: "
        "{ends:list})",
        "refuted": "no level of memory ends at the {claimed_bytes:size} that the machine claims "
        "for {cache} (nearest end: {ends:list})",
        "inconclusive": "the end of {cache} is not known well enough to compare it with the "
        "{claimed_bytes:size} that the machine claims",
    },
    reasons={
        **_UNFIT,
        "ends_there": _ENDS,
        "ends_earlier": "It ends earlier: {next_bytes:size} are slower already. Others may share "
        "the cache (in a virtual machine, its neighbours), or pages fall unevenly on its sets.",
        "ends_later": "It ends later: {last_bytes:size} are as fast.",
        "ends_between": "It ends between {last_bytes:size} and {next_bytes:size}: more sizes a "
        "doubling would tell.",
        "too_small": "The largest array, {array_bytes:size}, is too small for it.",
        "too_large": "The smallest array, {array_bytes:size}, is too large for it.",
        "goes_on": "One level goes on through that size, from {first_bytes:size} to "
        "{last_bytes:size}.",
        "no_level": "The latency rises there without a level: more rounds may show one.",
        **_SAMPLES,
    },
)
CACHE_SHARED = replace(
    CACHE,
    name="cache_shared",
    subject="{cache} shared",
    exact="while the core's sibling works, a level of memory ends within a factor of 1.41 of the "
    "{claimed_bytes:size} that this machine claims for {cache}",
    plain={
        "supported": "beside a busy sibling {cache} ends at the {claimed_bytes:size} that the "
        "machine claims, too (found: {ends:list})",
        "refuted": "beside a busy sibling no level of memory ends at the {claimed_bytes:size} that "
        "the machine claims for {cache} (nearest end: {ends:list})",
        "inconclusive": "beside a busy sibling the end of {cache} is not known well enough to "
        "compare it with the {claimed_bytes:size} that the machine claims",
    },
)

CAPACITY = Claim(
    name="capacity",
    kind="description",
    subject="{cache} capacity",
    quantity="how much smaller the arrays are that {cache} answers fast beside a busy sibling",
    unit="percent",
    exact="while the core's sibling works, {cache} answers arrays as fast as small ones up to a "
    "size that is more than {threshold:g} % smaller than while the core is alone",
    plain={
        "supported": "a busy sibling takes a part of {cache}: it answers arrays fast up to "
        "{shared_bytes:size}, alone up to {alone_bytes:size}, {estimate} less",
        "refuted": "a busy sibling leaves the core its {cache}: it answers arrays fast up to "
        "{shared_bytes:size}, alone up to {alone_bytes:size}, {estimate} less",
        "inconclusive": "beside a busy sibling {cache} answers arrays fast up to "
        "{shared_bytes:size}, alone up to {alone_bytes:size}: {estimate} less, too uncertain for a "
        "verdict at {threshold:g} %",
    },
    reasons={"no_capacity": "One of the curves does not show where it ends."},
)

UNCLAIMED = Claim(
    name="unclaimed_level",
    kind="description",
    subject="unclaimed level",
    quantity="size of the array at which a level of memory ends",
    unit="KiB",
    exact="a level of memory ends where no cache that this machine claims does",
    plain={
        "supported": "a level of memory ends between {last_bytes:size} and {next_bytes:size}, "
        "where no claimed cache does",
        "inconclusive": "loads get slower between {last_bytes:size} and {next_bytes:size}, where "
        "no claimed cache ends, by less than is certain",
    },
    reasons={
        **_UNFIT,
        "ends_there": _ENDS,
        "near_tlb": "The reach of the {tlb} ends near there, too.",
        "overlap": "But the intervals of its latency and the next level's overlap.",
        **_SAMPLES,
    },
)
UNCLAIMED_NEXT = replace(UNCLAIMED, name="unclaimed_level_next", subject="unclaimed level {number}")

MEMORY = Claim(
    name="memory",
    kind="description",
    subject="memory",
    quantity="latency of a load from memory",
    unit="ns",
    exact="arrays that no cache holds have a level of their own, slower than every other",
    plain={
        "supported": "a load from memory takes {estimate}",
        "refuted": "no array is slower than another: all of them answer from one level, {estimate}",
        "inconclusive": "no level beyond the caches is known well enough to name the latency of "
        "memory",
    },
    reasons={
        **_UNFIT,
        "within_caches": "The largest array, {array_bytes:size}, is not beyond the caches, which "
        "claim {caches_bytes:size}.",
        "still_rises": "The latency still rises at the largest array, or scatters too much.",
        "one_level": "There is one level from {first_bytes:size} to {last_bytes:size}.",
        "to_the_largest": "It goes from {first_bytes:size} to the largest array.",
        "shared": "So it begins within the {caches_bytes:size} that a cache claims to hold: others "
        "use that cache, too.",
        **_SAMPLES,
    },
)

PREFETCHER = Claim(
    name="prefetcher",
    kind="description",
    subject="prefetcher",
    quantity="share of the latency that ascending order hides",
    unit="percent",
    exact="in arrays of {array_bytes:size} and more a prefetcher hides more than {threshold:g} % "
    "of the latency when lines are loaded in ascending order, compared with the order '{order}'",
    plain={
        "supported": "a prefetcher hides most of the latency of ascending loads: {estimate}",
        "refuted": "no prefetcher hides most of the latency of ascending loads: {estimate}",
        "inconclusive": "ascending order hides {estimate} of the latency: too uncertain for a "
        "verdict at {threshold:g} %",
    },
    reasons=_SAMPLES,
)

TLB_MISSES = Claim(
    name="tlb_misses",
    kind="description",
    subject="TLB misses",
    quantity="extra time of a load at random, over one within 32 pages",
    unit="percent",
    exact="in arrays of {array_bytes:size} and more on 4 KiB pages a load at random takes more "
    "than {threshold:g} % longer than one within a window of 32 pages, which misses no TLB",
    plain={
        "supported": "a load at random takes longer than one within 32 pages: {estimate}",
        "refuted": "a load at random takes as long as one within 32 pages: {estimate}",
        "inconclusive": "a load at random takes {estimate} longer than one within 32 pages: too "
        "uncertain for a verdict at {threshold:g} %",
    },
    reasons=_SAMPLES,
)

PAGES = Claim(
    name="pages",
    kind="description",
    subject="huge pages",
    quantity="extra time of a load on 4 KiB pages, over huge pages",
    unit="percent",
    exact="in arrays of {array_bytes:size} and more a load in the order '{order}' takes more than "
    "{threshold:g} % longer on 4 KiB pages than on {page} pages",
    plain={
        "supported": "a load takes longer on 4 KiB pages than on {page} pages: {estimate}",
        "refuted": "a load takes as long on 4 KiB pages as on {page} pages: {estimate}",
        "inconclusive": "a load on 4 KiB pages takes {estimate} longer than on {page} pages, from "
        "which nothing follows",
    },
    reasons={**NOT_BACKED, **_SAMPLES},
)


def _slower(name: str, level: str, arrays: str) -> Claim:
    """``arrays``: of which sizes, exactly."""
    return Claim(
        name=name,
        kind="anomaly",
        subject=f"cpu{{cpu}} {level}",
        quantity=f"slowdown of loads from {level}, compared with the median of the other cores",
        unit="percent",
        exact="a load of cpu{cpu} takes more than {threshold:g} % longer than the median of the "
        f"other cores', in arrays of {arrays}",
        plain={
            "supported": f"loads of cpu{{cpu}} from {level} are slower than the others': "
            "{estimate}",
            "refuted": f"loads of cpu{{cpu}} from {level} are as fast as the others': {{estimate}}",
            "inconclusive": f"loads of cpu{{cpu}} from {level} take {{estimate}} longer than the "
            "others': too uncertain for a verdict at {threshold:g} %",
        },
        reasons=_SAMPLES,
        together={
            "refuted": f"{{count}} cores are equally fast at loads from {level} (widest interval "
            "{widest})"
        },
    )


SLOWER_MEMORY = _slower("slower_memory", "memory", "{array_bytes:size} and more")
SLOWER_FIRST_LEVEL = _slower("slower_first_level", "first level", "{array_bytes:size} at most")
