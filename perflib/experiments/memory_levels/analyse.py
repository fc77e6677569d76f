"""What samples of dependent loads say: the caches, memory, prefetching, TLBs, pages, cores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.memory_levels import claims
from perflib.experiments.memory_levels import tables as frames
from perflib.experiments.memory_levels.table import MemoryTable, State, Statistic, tlb_reaches
from perflib.framework.page_control import PageControl
from perflib.measure.pages.kinds import SMALL_PAGES, page_words
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.sentences import size
from perflib.stats.capacity import capacity, shrinkage
from perflib.stats.decide import Decision, Reason, decide
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import robust_mean
from perflib.stats.plateaus import Match, Plateau

_KIB = 1024
_MAX_LOG2_APART = 0.5  # of a factor of two: a level ends at a claim within the square root of two
_MIN_HIDDEN_PERCENT = 50.0  # percent of the latency that a prefetcher must hide to be called one
_MAX_SIZE_FACTOR = 1.42  # times a cache's size: so far a level that it holds may seem to reach
_MIN_SMALLER_PERCENT = 10.0  # percent, about what sizes so far apart show
_MAX_HALF_WIDTH_PERCENT = 25.0  # percent: curves that are known less well than this show no levels


def findings(run: Run) -> list[Finding]:
    """The caches, memory, prefetching, TLBs, huge pages; each core of several.

    From samples that had the core alone, where probes classify them; see ``MemoryTable``.
    """
    table = MemoryTable.of(run).alone
    threshold = run.params["threshold_percent"]
    control = PageControl.of(run)
    some = [
        *(_cache(claims.CACHE, table, claim) for claim in table.matches.claims),
        *_with_busy_sibling(table),
        *_unclaimed(table),
        _memory(table),
        _prefetcher(table),
        _tlb_misses(table, threshold),
        *control.findings,
        _pages(table, threshold, control),
        *_cores(table, threshold),
    ]
    return [finding for finding in some if finding is not None]


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``MemoryLevels.tables``."""
    table = MemoryTable.of(run).alone
    made: dict[str, Callable[[], pd.DataFrame]] = {
        "levels": lambda: frames.levels(table),
        "latency": lambda: frames.latency(table),
        "repeats": lambda: frames.repeats(table),
        "page_control": PageControl.of(run).table,
    }
    if frames.pairs(table):
        made["ratios"] = lambda: frames.ratios(table)
    if len(table.cores) > 1:
        made["core_difference"] = lambda: frames.core_difference(table)
    return made


# --- levels --------------------------------------------------------------------------------------


def _unfit(table: MemoryTable, size_bytes: float) -> Reason | None:
    """Why this curve shows no level that ends near a size; ``None``: it may.

    Where there are probes, arrays that the core's own caches hold are visited more often than
    others, so each part of the curve is judged by itself.
    """
    if table.primary[0] == "sequential":
        return Reason("ascending_only")
    width, own = table.curve_half_width, _MAX_SIZE_FACTOR * table.own_bytes
    if table.probed:
        width = table.half_width_at(*((0.0, own) if size_bytes <= own else (own, math.inf)))
    if not math.isfinite(width):
        return Reason("no_interval")
    return Reason("too_wide", {"width": width}) if width > _MAX_HALF_WIDTH_PERCENT else None


def _evidence(table: MemoryTable, level: Plateau | None) -> dict[str, Any]:
    """What a load from the level takes, and where that was measured."""
    order, backing = table.primary
    known: dict[str, Any] = {"order": order, "backing": backing, "cores": table.alike}
    if level is not None:
        known |= {
            "array_kib": level.array_bytes / _KIB,
            "latency_cycles": list(table.sampled(level).latency(level, "latency_cycles")),
            "latency_ns": list(table.sampled(level).latency(level)),
        }
        if table.state != "all":
            known["samples"] = table.sampled(level).state
            known["half_width_ns"] = {
                part.state: part.latency(level).half_width for part in (table, table.part("all"))
            }
    return known


def _read_off(table: MemoryTable, state: State) -> tuple[Reason, ...]:
    """Which samples a finding was read off; nothing where there are no probes."""
    if table.state == "all":
        return (Reason("unclassified"),) if table.probed else ()
    return (Reason(f"from_{state}", {"percent": table.samples_percent}),)


def _with(decision: Decision, *more: Reason) -> Decision:
    return Decision(decision.verdict, (*decision.reasons, *more))


def _end(table: MemoryTable, level: Plateau | None) -> Interval | None:
    """Where a level ends, in bytes: between the last size that it holds and the first slower.

    From few rounds, which the probes of a busy machine allow, a level may seem to reach up a slope:
    then it ends from where loads take 1.41 times what they take in its small arrays.
    """
    if level is None or level.next_bytes is None or level.end_bytes is None:
        return None
    if table.probed:
        curve = robust_mean(table.level_curve(table.unit))
        fast = capacity(table.sizes, curve, level.first_bytes, level.last_bytes)
        if fast < level.last_bytes:
            return Interval(math.sqrt(fast * level.next_bytes), fast, level.next_bytes)
    return Interval(level.end_bytes, level.last_bytes, level.next_bytes)


def _in_kib(end: Interval | None) -> Interval:
    return NO_INTERVAL if end is None else Interval(*(value / _KIB for value in end))


def _cache(made: Claim, table: MemoryTable, claim: Match) -> Finding:
    """Does a level of memory end where a cache for data claims to?

    ``supported``: all of the interval, from the last size that the level holds to the first that
    is slower, is within a factor of the square root of two of the claim. ``refuted``: none of it
    does, or one level continues through the claimed size.
    """
    level = None if claim.level is None else table.levels[claim.level]
    end, unfit = _end(table, level), _unfit(table, claim.claimed_bytes)
    if unfit is not None:
        decision = Decision("inconclusive", (unfit,))
    else:
        decision = _unseen(table, claim) if end is None else _at_claim(end, claim.claimed_bytes)
    return made.found(
        _with(decision, *_read_off(table, table.state)),
        _in_kib(end),
        about={"cache": claim.name},
        threshold=claim.claimed_bytes / _KIB,
        facts={
            "claimed_bytes": claim.claimed_bytes,
            "ends": [] if end is None else [size(end.effect)],
        },
        evidence={"claimed_kib": claim.claimed_bytes / _KIB} | _evidence(table, level),
    )


def _with_busy_sibling(table: MemoryTable) -> list[Finding]:
    """The core's own caches while its sibling works; nothing where that was not seen well enough.

    Each again: does a level end where it claims to? And how much smaller is it than alone?
    """
    shared = table.shared
    if shared is None or _unfit(table, table.own_bytes) or _unfit(shared, table.own_bytes):
        return []
    own = [claim for claim in table.matches.claims if claim.claimed_bytes <= table.own_bytes]
    names = {claim.name for claim in own}
    ends = [claim for claim in shared.matches.claims if claim.name in names]
    smaller = [_capacity(table, shared, claim) for claim in own]
    return [_cache(claims.CACHE_SHARED, shared, claim) for claim in ends] + [
        finding for finding in smaller if finding is not None
    ]


def _capacity(table: MemoryTable, shared: MemoryTable, claim: Match) -> Finding | None:
    """How much smaller a cache is next to a busy sibling; ``None``: a curve does not show its end.

    In cycles where they are known: a clock that is lower with two threads makes no cache smaller.
    """
    if claim.level is None:
        return None
    level = table.levels[claim.level]
    cycles = [part.level_curve("latency_cycles") for part in (table, shared)]
    known = all(np.isfinite(curve).any() for curve in cycles)
    alone, while_shared = (
        cycles if known else [part.level_curve("latency_ns") for part in (table, shared)]
    )
    found, alone_bytes, shared_bytes = shrinkage(
        table.sizes, alone, while_shared, level.first_bytes, level.last_bytes
    )
    if not (math.isfinite(alone_bytes) and math.isfinite(shared_bytes)):
        return None
    return claims.CAPACITY.decided(
        found,
        _MIN_SMALLER_PERCENT,
        about={"cache": claim.name},
        facts={"alone_bytes": alone_bytes, "shared_bytes": shared_bytes},
        evidence={
            "alone_kib": alone_bytes / _KIB,
            "shared_kib": shared_bytes / _KIB,
            "samples_percent": {part.state: part.samples_percent for part in (table, shared)},
        },
    )


def _at_claim(end: Interval, claimed: float) -> Decision:
    factor = Interval(*(math.log2(value / claimed) for value in end))
    verdict = decide(factor, _MAX_LOG2_APART, "within").verdict
    if verdict == "refuted":
        code = "ends_earlier" if factor.effect < 0 else "ends_later"
    else:
        code = "ends_there" if verdict == "supported" else "ends_between"
    return Decision(verdict, (_ends(code, end),))


def _ends(code: str, end: Interval) -> Reason:
    return Reason(code, {"last_bytes": end.low, "next_bytes": end.high})


def _unseen(table: MemoryTable, claim: Match) -> Decision:
    """Why no level ends near a claim."""
    low, high = claim.claimed_bytes * 2**-_MAX_LOG2_APART, claim.claimed_bytes * 2**_MAX_LOG2_APART
    smallest, largest = table.sizes[0], table.sizes[-1]
    if largest <= high:
        return Decision("inconclusive", (Reason("too_small", {"array_bytes": largest}),))
    if smallest > low:
        return Decision("inconclusive", (Reason("too_large", {"array_bytes": smallest}),))
    for level in table.levels:
        if level.first_bytes < low and level.last_bytes > high:
            return Decision("refuted", (_from_to("goes_on", level),))
    return Decision("inconclusive", (Reason("no_level"),))


def _from_to(code: str, level: Plateau) -> Reason:
    return Reason(code, {"first_bytes": level.first_bytes, "last_bytes": level.last_bytes})


def _unclaimed(table: MemoryTable) -> list[Finding]:
    """Levels that end where no cache claims to; the TLB's reach is one reason for such."""
    found: list[Finding] = []
    for number in table.matches.unclaimed:
        level = table.levels[number]
        end = _end(table, level)
        if end is None:
            continue  # the largest array is too small to see where it ends
        ends = _ends("ends_there", end)
        reasons = [ends]
        reasons += [
            Reason("near_tlb", {"tlb": name})
            for name, reach in tlb_reaches(table.machine).items()
            if end.low / 2 <= reach <= end.high * 2
        ][:1]
        following = table.levels[number + 1 : number + 2]
        slower = any(one.latency.low > level.latency.high for one in following)
        unfit = _unfit(table, end.effect)
        if unfit is not None:
            decision = Decision("inconclusive", (unfit,))
        elif slower:
            decision = Decision("supported", tuple(reasons))
        else:
            decision = Decision("inconclusive", (*reasons, Reason("overlap")))
        decision = _with(decision, *_read_off(table, table.state))
        claim = claims.UNCLAIMED_NEXT if found else claims.UNCLAIMED
        found.append(
            claim.found(
                decision,
                _in_kib(end),
                about={"number": len(found) + 1},
                facts=ends.numbers,
                evidence=_evidence(table, level),
            )
        )
    return found


def _memory(table: MemoryTable) -> Finding:
    """Beyond all caches: is there a level of its own, and what does a load from it take?"""
    number = table.matches.memory
    level = None if number is None else table.levels[number]
    sampled = table if level is None else table.sampled(level)
    found = NO_INTERVAL if level is None else sampled.latency(level)
    unfit = _unfit(table, float(table.sizes[-1]))
    if table.probed and unfit is not None and unfit.code in ("too_wide", "no_interval"):
        # Its sizes are visited rarely, but all of them are one level: its own array counts.
        known = 100 * found.half_width < _MAX_HALF_WIDTH_PERCENT * found.effect
        unfit = None if known else unfit
    decision = _beyond_caches(table, level, first=number == 0, unfit=unfit)
    return claims.MEMORY.found(
        _with(decision, *_read_off(table, sampled.state)),
        found,
        evidence=_evidence(table, level),
    )


def _beyond_caches(
    table: MemoryTable, level: Plateau | None, *, first: bool, unfit: Reason | None
) -> Decision:
    caches = {"caches_bytes": table.caches_bytes}
    if level is None:
        largest = table.sizes[-1]
        within = Reason("within_caches", {"array_bytes": largest, **caches})
        reason = within if largest <= table.caches_bytes else Reason("still_rises")
        return Decision("inconclusive", (reason,))
    if unfit is not None:
        return Decision("inconclusive", (unfit,))
    if first and level.first_bytes == table.sizes[0]:
        return Decision("refuted", (_from_to("one_level", level),))
    reasons = [_from_to("to_the_largest", level)]
    if level.first_bytes < table.caches_bytes:
        reasons.append(Reason("shared", caches))
    return Decision("supported", tuple(reasons))


# --- orders and pages ----------------------------------------------------------------------------


def _prefetcher(table: MemoryTable) -> Finding | None:
    """Do ascending loads hide the latency of large arrays? ``None``: nothing to compare."""
    other = next((name for name in table.orders if name != "sequential"), None)
    for backing in table.backings:
        if other and table.measured("sequential", backing) and table.measured(other, backing):
            break
    else:
        return None
    places = table.beyond(table.caches_bytes)
    pair = ("sequential", backing), (other, backing)
    longer, state = table.steadier(lambda part: part.difference(*pair, places))
    return claims.PREFETCHER.decided(
        Interval(-longer.effect, -longer.high, -longer.low),
        _MIN_HIDDEN_PERCENT,
        facts={"array_bytes": table.sizes[places[0]], "order": other},
        evidence={"backing": backing, "order": other},
        remarks=_read_off(table, state),
    )


def _beyond_tlb(table: MemoryTable) -> list[int]:
    """Sizes from twice the reach of the largest data TLB on."""
    return table.beyond(max(tlb_reaches(table.machine).values(), default=table.caches_bytes))


def _tlb_misses(table: MemoryTable, threshold: float) -> Finding | None:
    """What loads all over an array cost beyond loads within 32 pages; on 4 KiB pages.

    An upper bound of what the TLB's misses cost: neighbouring lines are also likelier to be in a
    row that the memory has open. Whole huge pages are the control: where random order costs as much
    on them, it is not the TLB.
    """
    pair = ("random", SMALL_PAGES), ("window", SMALL_PAGES)
    if not all(table.measured(*one) for one in pair):
        return None
    places = _beyond_tlb(table)
    longer, state = table.steadier(lambda part: part.difference(*pair, places))
    part = table.part(state)
    on_huge = {
        huge: list(part.difference(("random", huge), ("window", huge), places))
        for huge in table.huge
        if table.measured("random", huge) and table.measured("window", huge)
    }
    return claims.TLB_MISSES.decided(
        longer,
        threshold,
        facts={"array_bytes": table.sizes[places[0]]},
        evidence={"percent_on_huge_pages": on_huge},
        remarks=_read_off(table, state),
    )


def _pages(table: MemoryTable, threshold: float, control: PageControl) -> Finding | None:
    """Does a load at random take longer on 4 KiB pages? ``None``: no huge pages were measured."""
    order = "random" if "random" in table.orders else table.orders[0]
    huge = [name for name in table.huge if table.measured(order, name)]
    if not huge or not table.measured(order, SMALL_PAGES):
        return None
    places = _beyond_tlb(table)
    first, state = table.steadier(
        lambda part: part.difference((order, SMALL_PAGES), (order, huge[0]), places)
    )
    part = table.part(state)
    effects = {name: part.difference((order, SMALL_PAGES), (order, name), places) for name in huge}
    return claims.PAGES.decided(
        first,
        threshold,
        facts={
            "array_bytes": table.sizes[places[0]],
            "order": order,
            "page": page_words(huge[0]),
        },
        evidence={"percent_by_backing": {name: list(value) for name, value in effects.items()}},
        prevented=control.prevents(huge[0]),
        remarks=_read_off(table, state),
    )


# --- cores ---------------------------------------------------------------------------------------


def _cores(table: MemoryTable, threshold: float) -> list[Finding]:
    """Of each core: are its loads slow, from memory, or from its own first level?

    From samples that had the core alone, whatever the others scatter: a core whose sibling works
    more than other cores' would look slow.
    """
    if len(table.cores) < 2:
        return []
    beyond = table.beyond(table.caches_bytes)
    within = table.within(min(table.claims.values(), default=float(table.sizes[0])))
    return [
        *_slower(claims.SLOWER_MEMORY, table, beyond, beyond[0], threshold),
        *_slower(claims.SLOWER_FIRST_LEVEL, table, within, within[-1], threshold),
    ]


def _slower(
    claim: Claim,
    table: MemoryTable,
    places: list[int],
    nearest: int,
    threshold: float,
) -> list[Finding]:
    """``nearest``: the place of the size that the claim names."""
    statistic: Statistic = "median" if claim is claims.SLOWER_MEMORY else table.least
    where = {place["cpu"]: place["where"] for place in table.machine.get("cpus", ())}
    compared = table.core_difference(places, statistic=statistic)
    cycles = table.core_difference(places, "latency_cycles", statistic)
    clocks = table.clocks()
    return [
        claim.found(
            _with(effect.decide(threshold), *_read_off(table, table.state)),
            effect.slowdown,
            about={"cpu": cpu},
            threshold=threshold,
            facts={"array_bytes": table.sizes[nearest]},
            evidence={
                "p_holm": effect.p_holm,
                "segments_percent": list(effect.segments),
                "interference_percent": list(effect.interference),
                "in_core_cycles_percent": list(own.slowdown),
                "core_mhz": clocks.get(cpu),
                "where": where.get(cpu),
                "samples": table.state,
            },
        )
        for cpu, effect, own in zip(table.cores, compared.effects, cycles.effects, strict=True)
    ]
