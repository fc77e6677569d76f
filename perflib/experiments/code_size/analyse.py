"""Claims about code and its pages: cores, page sizes, the knee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perflib.experiments.code_size.table import SMALL_PAGES, CodeTable
from perflib.framework.verdicts import slowness_verdict, threshold_verdict
from perflib.machine.hardware.tlbs import Tlb, reach_bytes
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import t_interval
from perflib.stats.knees import Knees

__all__ = [
    "Reaches",
    "broken_up",
    "core_findings",
    "huge_pages_finding",
    "knee_finding",
    "large_sizes",
    "page_finding",
    "small_sizes",
    "step_finding",
]

_KIB = 1024
_SEEN, _HALF = 0.2, 50.0
_BROKEN = "The 2 MiB pages are broken up here: what differs is the length of the page walk."


@dataclass(frozen=True)
class Reaches:
    """What a machine's caches and instruction TLBs hold, in bytes, by name; as CPUID says."""

    caches: dict[str, int]
    tlbs: dict[str, int]

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Reaches:
        """From the description of a machine in a run's provenance."""
        caches: dict[str, int] = {}
        for cache in machine.get("caches", ()):
            if cache["kind"] != "data":
                suffix = "i" if cache["kind"] == "instruction" else ""
                caches.setdefault(f"L{cache['level']}{suffix}", int(cache["size_bytes"]))
        known = [
            Tlb(**{**tlb, "page_bytes": tuple(tlb["page_bytes"])})
            for tlb in machine.get("tlbs") or ()
        ]
        names = {1: "iTLB", 2: "second-level TLB"}
        tlbs = {name: reach_bytes(known, "instruction", level) for level, name in names.items()}
        return cls(caches, {name: reach for name, reach in tlbs.items() if reach})


def large_sizes(table: CodeTable, pattern: str) -> list[int]:
    """Places of the sizes that count as large: from about half of the largest on."""
    sizes = table.code_bytes(pattern)
    return [int(place) for place in np.flatnonzero(sizes >= 0.49 * sizes.max())]


def small_sizes(table: CodeTable, pattern: str, reaches: Reaches) -> list[int]:
    """Places of the sizes that the first-level cache holds; at least the smallest."""
    fits = np.flatnonzero(table.code_bytes(pattern) <= reaches.caches.get("L1i", 0))
    return [int(place) for place in fits] or [0]


def kib(size_bytes: float) -> str:
    """A size for a reader."""
    return f"{size_bytes / _KIB:.0f} KiB"


# --- cores ---------------------------------------------------------------------------------------


def core_findings(
    table: CodeTable, pattern: str, reaches: Reaches, threshold: float, where: Mapping[int, str]
) -> list[Finding]:
    """Of each core: is it slow with large code, and if so also on huge pages or in small code?"""
    large = large_sizes(table, pattern)
    code = f"code of {kib(table.code_bytes(pattern)[large[0]])} and more"
    cases = [("", f"{code} on 4 KiB pages", SMALL_PAGES, large)]
    if table.huge:
        cases.append((" huge pages", f"{code} on 2 MiB pages", table.huge[0], large))
    small = small_sizes(table, pattern, reaches)
    most = kib(table.code_bytes(pattern)[small[-1]])
    cases.append((" small code", f"code of {most} at most on 4 KiB pages", SMALL_PAGES, small))
    found = []
    for subject, words, backing, sizes in cases:
        if backing not in table.backings:
            continue
        compared = table.core_difference(pattern, backing, sizes)
        for cpu, effect in zip(table.cores, compared.effects, strict=True):
            verdict, reason = slowness_verdict(effect, threshold)
            claim = (
                f"cpu{cpu} is more than {threshold:g} % slower than the median of the other cores "
                f"in {words}"
            )
            evidence = {
                "p_holm": effect.p_holm,
                "segments_percent": list(effect.segments),
                "interference_percent": list(effect.interference),
                "where": where.get(cpu),
                "backing": backing,
            }
            found.append(
                Finding(
                    claim, f"cpu{cpu}{subject}", verdict, *effect.slowdown, unit="percent",
                    reason=reason, evidence=evidence,
                )
            )  # fmt: skip
    return found


# --- what huge pages are worth -------------------------------------------------------------------


def huge_pages_finding(reach: Mapping[str, Sequence[Sequence[float]]]) -> list[Finding]:
    """Of each kind of huge pages: does the processor's TLB see them as huge?

    Parameters
    ----------
    reach
        By backing, pairs of ns a load: through one 4 KiB page or few, through 384 of them within
        2 MiB. The effect is how much of what that costs on 4 KiB pages is left on huge ones.
    """
    pairs = {name: np.array(values) for name, values in reach.items()}
    small = pairs.pop(SMALL_PAGES, np.zeros((0, 2)))
    cost = np.diff(small, axis=1)[:, 0]
    found: list[Finding] = []
    for name, values in pairs.items() if len(small) else ():
        count = min(len(values), len(cost))
        left = np.diff(values[:count], axis=1)[:, 0]
        seen = t_interval(np.log(small[:count, 1] / small[:count, 0]))
        worth = float(np.median(cost))
        share = Interval(math.nan, math.nan, math.nan)
        if worth > 0:
            share = Interval(*(100 * end for end in t_interval(left / worth)))
        verdict: Verdict = "inconclusive"
        reason = "The interval leaves it open."
        if not seen.low > _SEEN:
            reason = "Not even on 4 KiB pages do more pages cost time here."
        elif share.high < _HALF:
            verdict, reason = "supported", "On them, as many lines cost the same on many pages."
        elif share.low > _HALF:
            verdict = "refuted"
            reason = (
                "They are broken up, as in a virtual machine whose host has small pages behind "
                "them. What they save is a shorter page walk, not entries of the TLB."
            )
        found.append(
            Finding(
                f"a page of 2 MiB ({name}) takes one entry of the TLB, not as many as the 4 KiB "
                "pages in it",
                f"huge pages {name}", verdict, *share, unit="percent of the 4 KiB pages' cost",
                reason=reason,
                evidence={
                    "ns_few_and_many_pages": {
                        "4k": np.median(small, axis=0),
                        name: np.median(values, axis=0),
                    }
                },
            )
        )  # fmt: skip
    return found


def broken_up(found: Iterable[Finding], huge: str) -> bool:
    """Is it established that these huge pages are none for the TLB?"""
    return any(one.subject == f"huge pages {huge}" and one.verdict == "refuted" for one in found)


# --- page sizes ----------------------------------------------------------------------------------


def page_finding(
    table: CodeTable, pattern: str, threshold: float, *, broken: bool = False
) -> Finding | None:
    """Does the largest code take longer on 4 KiB pages? ``None`` where no huge pages were had."""
    if SMALL_PAGES not in table.backings or not table.huge:
        return None
    size = kib(table.code_bytes(pattern)[-1])
    effects = {
        huge: percent(t_interval(table.page_ratio(pattern, huge)[:, -1])) for huge in table.huge
    }
    effect = effects[table.huge[0]]
    verdict, reason = threshold_verdict(effect, threshold)
    return Finding(
        f"code of {size} ({pattern}) takes more than {threshold:g} % longer on 4 KiB pages than "
        f"on 2 MiB pages",
        f"pages {pattern}",
        verdict,
        *effect,
        unit="percent",
        reason=f"{reason} {_BROKEN}".strip() if broken else reason,
        evidence={"percent_by_backing": {name: list(value) for name, value in effects.items()}},
    )


def step_finding(
    table: CodeTable, pattern: str, cache: str, size_bytes: int, threshold: float
) -> Finding | None:
    """Does a step cost more in code that a cache no longer holds? On the largest pages measured.

    From the largest size within half of the cache to the smallest beyond twice of it.
    """
    sizes = table.code_bytes(pattern)
    within, beyond = (
        np.flatnonzero(sizes <= size_bytes / 2),
        np.flatnonzero(sizes >= 2 * size_bytes),
    )
    if not within.size or not beyond.size:
        return None
    backing = table.huge[0] if table.huge else table.backings[0]
    log_ns = np.log(table.values(pattern, backing)).mean(axis=1)
    change = table.by_block(log_ns[:, [beyond[0]]] - log_ns[:, [within[-1]]])[:, 0]
    effect = percent(t_interval(change))
    verdict, reason = threshold_verdict(effect, threshold)
    return Finding(
        f"a step in code of {kib(sizes[beyond[0]])} takes more than {threshold:g} % longer than in "
        f"code of {kib(sizes[within[-1]])}, which fits into {cache} ({kib(size_bytes)})",
        cache,
        verdict,
        *effect,
        unit="percent",
        reason=reason,
        evidence={"backing": backing},
    )


# --- the knee ------------------------------------------------------------------------------------


def knee_finding(
    knees: Knees,
    reaches: Mapping[str, int],
    *,
    subject: str,
    pattern: str,
    tolerance: float,
    visible: float,
    control: str = "2 MiB pages",
    broken: bool = False,
) -> Finding:
    """Is the knee where the instruction TLB's reach ends?

    ``supported``: the first knee lies within ``tolerance`` percent of a level's reach, and its
    interval excludes half of it and twice of it (TLBs come in such steps). ``refuted``: no knee (it
    would have been seen from a height of ``visible`` percent on), or the whole interval lies
    outside of every level's tolerance. ``control``: what is compared with, in words; ``broken``: it
    is huge pages that are none for the TLB, so nothing can be refuted.
    """
    words = ", ".join(f"{name}: {kib(reach)}" for name, reach in reaches.items()) or "unknown"
    claim = (
        f"the knee, where {pattern} on 4 KiB pages leaves {control}, is the reach of the "
        f"instruction TLB ({words})"
    )
    evidence: dict[str, Any] = {
        "reach_kib": {name: reach / _KIB for name, reach in reaches.items()},
        "knees_kib": [[end / _KIB for end in knee.size] for knee in knees.knees],
        "heights_percent": [list(percent(knee.height)) for knee in knees.knees],
        "p": knees.p,
    }
    if not knees.knees:
        nothing = Interval(math.nan, math.nan, math.nan)
        verdict, reason = _no_knee(knees, visible)
        if broken:
            verdict, reason = "inconclusive", f"{reason} {_BROKEN}"
        return Finding(
            claim, subject, verdict, *nothing, unit="KiB", reason=reason, evidence=evidence
        )
    size = Interval(*(end / _KIB for end in knees.knees[0].size))
    verdict, reason = _knee_verdict(knees.knees[0].size, reaches, tolerance)
    if broken and verdict == "refuted":
        verdict, reason = "inconclusive", f"{reason} {_BROKEN}"
    if len(knees.knees) > 1:
        reason += f" A second knee lies at {kib(knees.knees[1].size.effect)}."
    return Finding(claim, subject, verdict, *size, unit="KiB", reason=reason, evidence=evidence)


def _no_knee(knees: Knees, visible: float) -> tuple[Verdict, str]:
    if not math.isfinite(knees.bound):
        return (
            "inconclusive",
            "Too few sizes or blocks of time to tell a knee from none.",
        )
    bound = 100 * math.expm1(knees.bound)
    words = f"at no size do 4 KiB pages cost {bound:.1f} % more than at the smallest."
    if bound < visible:
        return "refuted", f"There is no knee: {words}"
    return "inconclusive", f"No knee was found, but all that can be said is: {words}"


def _knee_verdict(
    size: Interval, reaches: Mapping[str, int], tolerance: float
) -> tuple[Verdict, str]:
    if not reaches:
        return "inconclusive", "How far the instruction TLB reaches is not known."
    margin = 1 + tolerance / 100
    for name, reach in reaches.items():
        near = reach / margin <= size.effect <= reach * margin
        if near and size.low > reach / 2 and size.high < reach * 2:
            return "supported", f"It lies within {tolerance:g} % of the reach of the {name}."
    if all(size.high < reach / margin or size.low > reach * margin for reach in reaches.values()):
        return "refuted", "Its whole interval lies elsewhere."
    return "inconclusive", "The interval leaves it open: more sizes near the knee, or more rounds."
