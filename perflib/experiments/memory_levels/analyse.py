"""Claims about the levels of memory: the caches, what lies beyond, prefetching, TLBs, cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from perflib.experiments.memory_levels.table import SMALL_PAGES, MemoryTable, Statistic, tlb_reaches
from perflib.framework.verdicts import slowness_verdict, threshold_verdict
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval
from perflib.stats.plateaus import Level, Match

__all__ = [
    "cache_findings",
    "core_findings",
    "huge_pages_worth",
    "memory_finding",
    "prefetch_finding",
    "tlb_finding",
    "unclaimed_findings",
]

_KIB = 1024
_NEAR = math.sqrt(2)
_HIDDEN = 50.0  # percent of the latency that a prefetcher must hide to be called one
_NOTHING = Interval(math.nan, math.nan, math.nan)
_LEAST_STEP = 25.0  # percent: curves that are known less well than this show no levels
_BROKEN = (
    "The 2 MiB pages are broken up here (see the control): what they save is a part of the page "
    "walk, not entries of the TLB."
)


def told(size_bytes: float) -> str:
    """A size for a reader."""
    kib = size_bytes / _KIB
    return f"{kib:.4g} KiB" if kib < _KIB else f"{kib / _KIB:.4g} MiB"


def _unfit(table: MemoryTable) -> str:
    """Why levels cannot be told from this curve; empty: they can."""
    if table.primary[0] == "sequential":
        return "Only ascending loads were measured: a prefetcher hides where a level ends."
    width = table.curve_half_width
    if not math.isfinite(width):
        return "It takes two rounds or more."
    if width > _LEAST_STEP:
        return (
            f"The machine was too busy, or there were too few rounds: half of a latency's interval "
            f"is {width:.0f} % of it at the usual size."
        )
    return ""


def _evidence(table: MemoryTable, level: Level | None) -> dict[str, Any]:
    """What a load from the level takes, and where that was measured."""
    order, backing = table.primary
    known: dict[str, Any] = {"order": order, "backing": backing, "cores": table.alike}
    if level is not None:
        known |= {
            "array_kib": level.array_bytes / _KIB,
            "latency_cycles": list(table.latency(level, "latency_cycles")),
            "latency_ns": list(table.latency(level)),
        }
    return known


# --- levels --------------------------------------------------------------------------------------


def cache_findings(table: MemoryTable) -> list[Finding]:
    """Of each cache for data that the machine claims: does a level of memory end there?

    ``supported``: all of the interval, from the last size that the level holds to the first that
    is slower, lies within a factor of the square root of two of the claim. ``refuted``: none of it
    does, or one level goes on through the claimed size.
    """
    found = []
    for claim in table.matches.claims:
        level = None if claim.level is None else table.levels[claim.level]
        effect, (verdict, reason) = _NOTHING, _unseen(table, claim)
        if level is not None and level.next_bytes is not None and level.end_bytes is not None:
            ends = level.end_bytes, level.last_bytes, level.next_bytes
            effect = Interval(*(end / _KIB for end in ends))
            verdict, reason = _place_verdict(ends[1], ends[2], claim.claimed_bytes)
        if unfit := _unfit(table):
            verdict, reason = "inconclusive", unfit
        found.append(
            Finding(
                "a level of memory ends within a factor of 1.41 of the "
                f"{told(claim.claimed_bytes)} that this machine claims for {claim.name}",
                claim.name,
                verdict,
                *effect,
                unit="KiB",
                reason=reason,
                evidence={"claimed_kib": claim.claimed_bytes / _KIB} | _evidence(table, level),
            )
        )
    return found


def _place_verdict(last: float, following: float, claimed: float) -> tuple[Verdict, str]:
    if claimed / _NEAR <= last and following <= claimed * _NEAR:
        return "supported", f"It holds {told(last)}, and {told(following)} are slower."
    if following < claimed / _NEAR:
        return "refuted", (
            f"It ends earlier: {told(following)} are slower already. Others may share the cache "
            "(in a virtual machine, its neighbours), or pages fall unevenly on its sets."
        )
    if last > claimed * _NEAR:
        return "refuted", f"It ends later: {told(last)} are as fast."
    return "inconclusive", (
        f"It ends between {told(last)} and {told(following)}: more sizes a doubling would tell."
    )


def _unseen(table: MemoryTable, claim: Match) -> tuple[Verdict, str]:
    """Why no end of a level stands beside a claim."""
    low, high = claim.claimed_bytes / _NEAR, claim.claimed_bytes * _NEAR
    if table.sizes[-1] <= high:
        return "inconclusive", f"The largest array, {told(table.sizes[-1])}, is too small for it."
    if table.sizes[0] > low:
        return "inconclusive", f"The smallest array, {told(table.sizes[0])}, is too large for it."
    for level in table.levels:
        if level.first_bytes < low and level.last_bytes > high:
            return "refuted", (
                f"One level goes on through that size, from {told(level.first_bytes)} to "
                f"{told(level.last_bytes)}."
            )
    return "inconclusive", "The latency rises there without a level: more rounds may show one."


def unclaimed_findings(table: MemoryTable) -> list[Finding]:
    """Levels that end where no cache claims to; the TLB's reach is one reason for such."""
    found: list[Finding] = []
    for number in table.matches.unclaimed:
        level = table.levels[number]
        if level.end_bytes is None or level.next_bytes is None:
            continue  # the largest array is too small to see where it ends
        near = [
            name
            for name, reach in tlb_reaches(table.machine).items()
            if level.last_bytes / 2 <= reach <= level.next_bytes * 2
        ]
        reason = f"It holds {told(level.last_bytes)}, and {told(level.next_bytes)} are slower."
        if near:
            reason += f" The reach of the {near[0]} ends near there, too."
        unfit = _unfit(table)
        following = table.levels[number + 1 : number + 2]
        if not unfit and not any(one.latency.low > level.latency.high for one in following):
            unfit = f"{reason} But the intervals of its latency and the next level's overlap."
        ends = level.end_bytes, level.last_bytes, level.next_bytes
        found.append(
            Finding(
                "a level of memory ends where no cache that this machine claims does",
                "unclaimed level" + (f" {len(found) + 1}" if found else ""),
                "inconclusive" if unfit else "supported",
                *Interval(*(end / _KIB for end in ends)),
                unit="KiB",
                reason=unfit or reason,
                evidence=_evidence(table, level),
            )
        )
    return found


def memory_finding(table: MemoryTable) -> Finding:
    """Beyond all caches: is there a level of its own, and what does a load from it take?"""
    number = table.matches.memory
    level = None if number is None else table.levels[number]
    effect = _NOTHING if level is None else table.latency(level)
    claim = "arrays that no cache holds have a level of their own, slower than every other"
    if table.claims:
        claim = claim.replace("no cache holds", f"exceed every cache ({told(table.held_bytes)})")
    verdict: Verdict = "inconclusive"
    if level is None and table.sizes[-1] <= table.held_bytes:
        reason = f"The largest array, {told(table.sizes[-1])}, is not beyond the caches."
    elif level is None:
        reason = "The latency still rises at the largest array, or scatters too much."
    elif unfit := _unfit(table):
        reason = unfit
    elif number == 0 and level.first_bytes == table.sizes[0]:
        verdict = "refuted"
        reason = (
            f"There is one level from {told(level.first_bytes)} to {told(level.last_bytes)}: no "
            "array is slower than another."
        )
    else:
        verdict = "supported"
        reason = f"It goes from {told(level.first_bytes)} to the largest array."
        if level.first_bytes < table.held_bytes:
            reason += (
                " So it begins within what a cache claims to hold: others use that cache, too."
            )
    return Finding(
        claim, "memory", verdict, *effect, unit="ns", reason=reason,
        evidence=_evidence(table, level),
    )  # fmt: skip


# --- orders and pages ----------------------------------------------------------------------------


def prefetch_finding(table: MemoryTable) -> Finding | None:
    """Do ascending loads hide the latency of large arrays? ``None``: nothing to compare."""
    other = next((name for name in table.orders if name != "sequential"), None)
    for backing in table.backings:
        if other and table.measured("sequential", backing) and table.measured(other, backing):
            break
    else:
        return None
    places = table.beyond(table.held_bytes)
    longer = table.difference(("sequential", backing), (other, backing), places)
    effect = Interval(-longer.effect, -longer.high, -longer.low)
    verdict, reason = threshold_verdict(effect, _HIDDEN)
    return Finding(
        f"in arrays of {told(table.sizes[places[0]])} and more a prefetcher hides more than "
        f"{_HIDDEN:g} % of the latency when lines are loaded in ascending order, beside the order "
        f"{other!r}",
        "prefetcher", verdict, *effect, unit="percent", reason=reason,
        evidence={"backing": backing, "order": other},
    )  # fmt: skip


def _beyond_tlb(table: MemoryTable) -> list[int]:
    """Sizes from twice the reach of the largest data TLB on."""
    return table.beyond(max(tlb_reaches(table.machine).values(), default=table.held_bytes))


def tlb_finding(table: MemoryTable, threshold: float) -> Finding | None:
    """What loads all over an array cost beyond loads within 32 pages; on 4 KiB pages.

    An upper bound of what the TLB's misses cost: neighbouring lines are also likelier to be in a
    row that the memory has open. Whole huge pages are the control: where random order costs as much
    on them, it is not the TLB.
    """
    pair = ("random", SMALL_PAGES), ("window", SMALL_PAGES)
    if not all(table.measured(*one) for one in pair):
        return None
    places = _beyond_tlb(table)
    effect = table.difference(*pair, places)
    verdict, reason = threshold_verdict(effect, threshold)
    on_huge = {
        huge: list(table.difference(("random", huge), ("window", huge), places))
        for huge in table.huge
        if table.measured("random", huge) and table.measured("window", huge)
    }
    return Finding(
        f"in arrays of {told(table.sizes[places[0]])} and more on 4 KiB pages a load at random "
        f"takes more than {threshold:g} % longer than one within a window of 32 pages, which "
        "misses no TLB",
        "TLB misses", verdict, *effect, unit="percent", reason=reason,
        evidence={"percent_on_huge_pages": on_huge},
    )  # fmt: skip


def huge_pages_worth(table: MemoryTable, threshold: float, *, broken: bool) -> Finding | None:
    """Does a load at random take longer on 4 KiB pages? ``None`` where no huge pages were had.

    ``broken``: by the control the huge pages are none for the TLB; then nothing is refuted.
    """
    order = "random" if "random" in table.orders else table.orders[0]
    pairs = [
        ((order, SMALL_PAGES), (order, huge)) for huge in table.huge if table.measured(order, huge)
    ]
    if not pairs or not table.measured(order, SMALL_PAGES):
        return None
    places = _beyond_tlb(table)
    effects = {below[1]: table.difference(above, below, places) for above, below in pairs}
    effect = next(iter(effects.values()))
    verdict, reason = threshold_verdict(effect, threshold)
    if broken:
        verdict = "inconclusive" if verdict == "refuted" else verdict
        reason = f"{reason} {_BROKEN}"
    return Finding(
        f"in arrays of {told(table.sizes[places[0]])} and more a load in the order {order!r} takes "
        f"more than {threshold:g} % longer on 4 KiB pages than on 2 MiB pages",
        "huge pages", verdict, *effect, unit="percent", reason=reason,
        evidence={"percent_by_backing": {name: list(value) for name, value in effects.items()}},
    )  # fmt: skip


# --- cores ---------------------------------------------------------------------------------------


def core_findings(table: MemoryTable, threshold: float, where: Mapping[int, str]) -> list[Finding]:
    """Of each core: are its loads slow, from memory, or from its own first level?"""
    if len(table.cores) < 2:
        return []
    first = min(table.claims.values(), default=float(table.sizes[0]))
    return [
        *_of_cores(table, "memory", table.beyond(table.held_bytes), threshold, where),
        *_of_cores(table, "first level", table.within(first), threshold, where),
    ]


def _of_cores(
    table: MemoryTable, what: str, places: Sequence[int], threshold: float, where: Mapping[int, str]
) -> list[Finding]:
    sizes = table.sizes[list(places)]
    arrays = f"{told(sizes[-1])} at most"
    if what == "memory":
        arrays = f"{told(sizes[0])} and more"
    statistic: Statistic = "median" if what == "memory" else "min"
    compared = table.core_difference(places, statistic=statistic)
    cycles = table.core_difference(places, "latency_cycles", statistic)
    clocks = table.clocks()
    found = []
    for cpu, effect, own in zip(table.cores, compared.effects, cycles.effects, strict=True):
        verdict, reason = slowness_verdict(effect, threshold)
        found.append(
            Finding(
                f"a load of cpu{cpu} takes more than {threshold:g} % longer than the median of the "
                f"other cores', in arrays of {arrays}",
                f"cpu{cpu} {what}", verdict, *effect.slowdown, unit="percent", reason=reason,
                evidence={
                    "p_holm": effect.p_holm,
                    "segments_percent": list(effect.segments),
                    "interference_percent": list(effect.interference),
                    "in_core_cycles_percent": list(own.slowdown),
                    "core_mhz": clocks.get(cpu),
                    "where": where.get(cpu),
                },
            )
        )  # fmt: skip
    return found
