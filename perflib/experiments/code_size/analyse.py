"""Findings about code and its pages: cores, page sizes, the knee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.code_size import claims
from perflib.experiments.code_size import tables as frames
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.framework.knees import at_level, no_knee
from perflib.framework.page_control import PageControl
from perflib.framework.samples import mean_of_known
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.sentences import size
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import Floats, t_interval
from perflib.stats.knees import Knees

_KIB = 1024
_HALF_PERCENT = 50.0  # percent


# --- cores ---------------------------------------------------------------------------------------


def core_findings(
    table: CodeTable, pattern: str, reaches: Reaches, threshold: float, machine: Mapping[str, Any]
) -> list[Finding]:
    """Of each core: is it slow with large code, and if so also on huge pages or in small code?

    And, as the counter-test of Guerri et al. 2015, in code that misses the first-level instruction
    cache with most of its lines, and the TLB with none of its pages.
    """
    sizes = table.code_bytes(pattern)
    large, small = table.large(pattern), table.small(pattern, reaches)
    facts = {"code_bytes": sizes[large[0]]}
    cases = [(claims.SLOWER, SMALL_PAGES, large, facts)]
    cases += [(claims.SLOWER_HUGE_PAGES, huge, large, facts) for huge in table.huge[:1]]
    cases.append((claims.SLOWER_SMALL_CODE, SMALL_PAGES, small, {"code_bytes": sizes[small[-1]]}))
    if missing := table.misses_only(pattern, reaches) if pattern == "random" else []:
        least, most = sizes[missing[0]], sizes[missing[-1]]
        share = 100 * (1 - reaches.caches["L1i"] / least)
        facts = {"code_bytes": least, "to_bytes": most, "missing_percent": share}
        cases.append((claims.SLOWER_L1I_MISSES, SMALL_PAGES, missing, facts))
    found = []
    for claim, backing, places, facts in cases:
        if backing not in table.backings:
            continue
        compared = table.core_difference(pattern, backing, places).effects
        inside = table.within(pattern, reaches) if places is large else []
        in_own = table.core_difference(pattern, backing, inside).effects if inside else None
        for which, effect in enumerate(compared):
            cpu = table.cores[which]
            decision = effect.decide(threshold, *_company(table, cpu))
            own = in_own[which].slowdown if in_own is not None else None
            if (
                own is not None
                and decision.verdict == "supported"
                and _shared_level(own, threshold, machine)
            ):
                decision = Decision(
                    "inconclusive",
                    (Reason("shared_level", {"within_bytes": sizes[inside[-1]]}),),
                )
            found.append(
                claim.found(
                    decision,
                    effect.slowdown,
                    about={"cpu": cpu, "pattern": pattern},
                    threshold=threshold,
                    facts=facts,
                    evidence={
                        "p_holm": effect.p_holm,
                        "segments_percent": list(effect.segments),
                        "interference_percent": list(effect.interference),
                        "where": _where(machine).get(cpu),
                        "backing": backing,
                        **({} if own is None else {"own_caches_percent": list(own)}),
                    },
                )
            )
    return found


def _company(table: CodeTable, cpu: int) -> tuple[list[Reason], Reason | None]:
    """What is remarked of a core's samples, and why they compare nothing."""
    if table.core_states is None:
        return [], None
    share = table.share_alone(cpu)
    return [Reason("alone", {"share": share})], None if share else Reason("never_alone")


def _where(machine: Mapping[str, Any]) -> dict[int, str]:
    return {place["cpu"]: place["where"] for place in machine.get("cpus", ())}


def _shared_level(own: Interval, threshold: float, machine: Mapping[str, Any]) -> bool:
    """Is a core slow in code beyond its own caches only, on a virtual machine?

    ``own``: how slow it is in code that they hold. A core that is slow itself is slow there, too.
    """
    return bool(machine.get("hypervisor")) and not own.low > threshold / 2


# --- sizes of pages, sizes of caches -------------------------------------------------------------


def page_finding(
    table: CodeTable, pattern: str, threshold: float, control: PageControl
) -> Finding | None:
    """Does the largest code take longer on 4 KiB pages? ``None``: only one kind was measured."""
    if SMALL_PAGES not in table.backings or not table.huge:
        return None
    effects = {
        huge: percent(t_interval(table.page_ratio(pattern, huge)[:, -1])) for huge in table.huge
    }
    return claims.PAGES.decided(
        effects[table.huge[0]],
        threshold,
        about={"pattern": pattern},
        facts={"code_bytes": table.code_bytes(pattern)[-1]},
        evidence={"percent_by_backing": {name: list(value) for name, value in effects.items()}},
        prevented=control.prevents(table.huge[0]),
    )


def step_finding(
    claim: Claim, table: CodeTable, pattern: str, cache: str, cache_bytes: int, threshold: float
) -> Finding | None:
    """Does a step cost more in code that a cache no longer holds? On the largest pages measured.

    From the largest size within half of the cache to the smallest beyond twice of it.
    """
    sizes = table.code_bytes(pattern)
    within = np.flatnonzero(sizes <= cache_bytes / 2)
    beyond = np.flatnonzero(sizes >= 2 * cache_bytes)
    if not within.size or not beyond.size:
        return None
    backing = table.huge[0] if table.huge else table.backings[0]
    log_ns = np.log(table.values(pattern, backing))
    longer = mean_of_known(log_ns[:, :, [beyond[0]]] - log_ns[:, :, [within[-1]]])
    change = table.by_block(longer)[:, 0]
    return claim.decided(
        percent(t_interval(change)),
        threshold,
        about={"cache": cache},
        facts={
            "cache_bytes": cache_bytes,
            "within_bytes": sizes[within[-1]],
            "beyond_bytes": sizes[beyond[0]],
        },
        evidence={"backing": backing},
    )


# --- the knee ------------------------------------------------------------------------------------


def knee_finding(
    claim: Claim,
    knees: Knees,
    reaches: Reaches,
    *,
    pattern: str,
    tolerance: float,
    visible: float,
    prevented: Reason | None = None,
) -> Finding:
    """Is the knee where the instruction TLB's reach ends?

    ``supported``: the first knee is within ``tolerance`` percent of a level's reach, and its
    interval excludes half of it and twice of it (TLBs come in such steps). ``refuted``: no knee (it
    would have been seen from a height of ``visible`` percent on), or the whole interval is
    outside of every level's tolerance. ``prevented``: why this comparison decides nothing.
    """
    tlbs = reaches.tlbs
    if knees.knees:
        decision, level = at_level(knees.knees[0].size, tlbs, tolerance)
    else:
        decision, level = no_knee(knees, visible), ""
    if prevented is not None:
        decision = Decision("inconclusive", (prevented,))
    seconds = tuple(
        Reason("second_knee", {"size_bytes": knee.size.effect}) for knee in knees.knees[1:]
    )
    extent = Interval(*(end / _KIB for end in knees.knees[0].size)) if knees.knees else NO_INTERVAL
    said = (Reason("published", {"origin": reaches.origin}),) if tlbs and reaches.origin else ()
    named = [f"{name}: {size(reach)}" for name, reach in tlbs.items()]
    return claim.found(
        Decision(decision.verdict, (*decision.reasons, *said, *seconds)),
        extent,
        about={"pattern": pattern},
        facts={"reaches": named or ["unknown"], "level": level, "tolerance": tolerance},
        evidence={
            "reach_kib": {name: reach / _KIB for name, reach in tlbs.items()},
            "knees_kib": [[end / _KIB for end in knee.size] for knee in knees.knees],
            "heights_percent": [list(percent(knee.height)) for knee in knees.knees],
            "p": knees.p,
        },
    )


def split_finding(alone: Knees, sizes: Floats, shared: Floats) -> Finding:
    """Does a busy sibling take half of the instruction TLB?

    Of what the curve of a busy sibling rises from half of the reach to beyond it, how much does it
    rise at the half? The reach is where the knee of a core that is alone is. Other rises, of
    other buffers that threads share, are far from both.

    Parameters
    ----------
    alone
        The knees of a core that is alone.
    sizes, shared
        Of the code in bytes; and the log ratio of a busy sibling's curve, ``[batch, n]``.
    """
    ratio = rises = NO_INTERVAL
    prevented: Reason | None = Reason("one_knee")
    if alone.knees:
        knee = alone.knees[0].size
        below = (sizes >= knee.low / 4) & (sizes <= knee.low / 2)
        between = (sizes >= knee.high / 2) & (sizes <= knee.low)
        above = (sizes >= knee.high) & (sizes <= 2 * knee.high)
        low, middle, high = (mean_of_known(shared[:, part]) for part in (below, between, above))
        rises = t_interval(high - low)
        prevented = None if rises.low > 0 else Reason("no_rise")
        if prevented is None:
            early = t_interval((middle - low) - (high - middle))
            ratio = Interval(*(50 + 50 * end / rises.effect for end in early))
    return claims.SPLIT.decided(
        ratio,
        _HALF_PERCENT,
        evidence={"rise_percent": list(percent(rises))},
        prevented=prevented,
    )


# --- tables --------------------------------------------------------------------------------------


def shared_tables(
    run: Run, table: CodeTable, pattern: str
) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables that both experiments have."""
    made: dict[str, Callable[[], pd.DataFrame]] = {
        "page_control": PageControl.of(run).table,
        "backings": lambda: frames.backings(run),
    }
    if len(table.cores) > 1:
        made["core_difference"] = lambda: frames.core_difference(table, pattern)
    if table.huge and SMALL_PAGES in table.backings:
        made["page_ratio"] = lambda: frames.page_ratio(table)
    return made
