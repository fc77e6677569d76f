"""What notebook 06 asks."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import found, parts, word

_RISEN = 1.1  # times the other order
_CHANGED = 0.02  # of a latency
_READ_OFF = 1.5  # times too high or too low, from a figure on logarithmic axes
_TABLES_MIB = (48, 24, 6)
_VERDICTS = {one: one for one in ("supported", "refuted", "inconclusive")}
_HIDDEN = found("prefetcher", what="what a prefetcher hides")
_LEVELS = {"l1d": "L1d", "l1": "L1d", "l2": "L2", "none": "none"}


def _tlb_rise(run: Any) -> Measured | str:
    """The first size from which on `random` costs clearly more than `window`, twice in a row."""
    none = "this run did not compare random with window on 4 KiB pages at enough sizes"
    if "ratios" not in run.tables:
        return none
    ratios = run.table("ratios")
    ours = ratios[(ratios["compared"] == "random") & (ratios["backing"] == "4k")]
    ours = ours.sort_values("array_bytes", kind="stable")
    sizes, higher = ours["array_bytes"].to_numpy() / 1024, ours["ratio"].to_numpy() > _RISEN
    for i in range(1, len(sizes) - 1):
        if higher[i] and higher[i + 1]:
            low, high = float(sizes[i - 1]), float(sizes[i])
            return Measured(low, math.sqrt(low * high), high, "random leaves window")
    return "random nowhere costs a tenth more than window here" if len(sizes) else none


def _sequential(run: Any) -> Measured | str:
    """What is left of memory's latency in ascending order, in percent."""
    hidden = _HIDDEN(run)
    if isinstance(hidden, str):
        return hidden
    low, value, high = (100 - end for end in reversed(hidden.ends))
    return Measured(low, value, high, "sequential over window")


def _cycle_lengths(successor: list[int]) -> list[int]:
    seen: set[int] = set()
    lengths = []
    for start in range(len(successor)):
        at, length = start, 0
        while at not in seen:
            seen.add(at)
            at, length = successor[at], length + 1
        if length:
            lengths.append(length)
    return lengths


def _permutation(draw: random.Random) -> tuple[Any, ...]:
    count = draw.randint(1, 12)
    return (draw.sample(range(count), count),)


def _same_lengths(found: Any, expected: Any) -> bool:
    try:
        return sorted(int(one) for one in found) == sorted(expected)
    except (TypeError, ValueError):
        return False


def _missing(entries: int, ways: int, pages: int, stride: int) -> float:
    """The share of loads round pages ``stride`` apart that miss a TLB that evicts the oldest."""
    sets = entries // ways
    in_set = Counter(page * stride % sets for page in range(pages))
    return sum(count for count in in_set.values() if count > ways) / pages


def _tlb_and_ring(draw: random.Random) -> tuple[Any, ...]:
    ways = draw.choice([1, 2, 4, 6, 8])
    return ways * 2 ** draw.randint(0, 5), ways, draw.randint(1, 160), 2 ** draw.randint(0, 6)


def _null(answer: Any, null: Any = ()) -> Judged:
    given = word(answer, _VERDICTS, "verdict")
    right = "nothing differs, so the claim must not be supported (by chance in one of twenty)"
    wrong = "that is an honest answer where nothing differs"
    says = right if given == "supported" else wrong
    seen = ", ".join(str(one.verdict) for one in null) or "no verdict, as it is too short"
    return Judged(float(given == "supported"), f"{says}; this null test gave: {seen}")


def _blind(answer: Any, run: Any, blind: Any) -> Judged:
    """Which level's latency changes when nobody knows when the core was alone."""
    given = word(answer, _LEVELS, "level")
    # A level that also shows next to a busy sibling has a second row.
    tables = [one.table("levels").drop_duplicates("level") for one in (run, blind)]
    both = [one.set_index("level")["latency_cycles"].reindex(["L1d", "L2"]) for one in tables]
    change = (both[1] / both[0] - 1).abs().fillna(0.0)
    words = ", ".join(f"{level} by {100 * part:.1f} %" for level, part in change.items())
    changed = [str(level) for level, part in change.items() if part > _CHANGED]
    return Judged(float(given in (changed or ["none"])), f"without the probes change: {words}")


def _lookups(answer: Any, run: Any) -> Judged:
    """Latencies read off a curve, at three sizes."""
    asked = "give three latencies in ns: (at 48 MiB, at 24, at 6)"
    given = [number(one) for one in parts(answer, len(_TABLES_MIB), asked)]
    if min(given) <= 0:
        return Judged(0.0, asked)
    curve = run.table("latency")
    curve = curve[(curve["order"] == "random") & (curve["backing"] == "4k")]
    curve = curve[curve["samples"] != "shared"].sort_values("array_bytes", kind="stable")
    largest = max(_TABLES_MIB) * 2**20
    if curve.empty or curve["array_bytes"].max() < largest:
        falling = given == sorted(given, reverse=True)
        return Judged(float(falling), "this run has no such large arrays; less data costs no more")
    measured = np.exp(
        np.interp(
            np.log(np.array(_TABLES_MIB) * 2.0**20),
            np.log(curve["array_bytes"].to_numpy(float)),
            np.log(curve["latency_ns"].to_numpy(float)),
        )
    )
    words = ", ".join(
        f"{ns:.0f} ns at {mib} MiB" for ns, mib in zip(measured, _TABLES_MIB, strict=True)
    )
    off = np.abs(np.log(np.array(given) / measured)) > math.log(_READ_OFF)
    return Judged(1.0 - float(off.sum()) / len(given), f"your curve has {words}")


LESSON = Lesson.of(
    "memory_levels",
    {
        "first rise": partial(
            Prediction, measured=found("cache", cache="L1d", what="the end of L1d")
        ),
        "TLB rise": partial(Prediction, measured=_tlb_rise),
        "sequential in memory": partial(Prediction, measured=_sequential),
        "1": partial(
            Code,
            reference=_cycle_lengths,
            cases=_permutation,
            same=_same_lengths,
            always=[([0],), ([1, 2, 0],), ([0, 1, 2, 3],), ([1, 0, 3, 2],)],
            wrong=[
                (lambda successor: [len(successor)], "takes any permutation for one cycle"),
                (
                    lambda successor: _cycle_lengths(successor)[:1],
                    "stops after the cycle through line 0",
                ),
            ],
        ),
        "3": partial(
            Relation,
            holds=_null,
            wrong=[
                ("refuted", "takes the verdict that is right here for a failure"),
                ("inconclusive", "takes too few data for a failure of the method"),
            ],
        ),
        "4": partial(
            Relation, holds=_blind, wrong=[("L3", "names a level that all cores share in any case")]
        ),
        "5": partial(
            Relation,
            holds=_lookups,
            wrong=[
                ((100, 50, 12.5), "believes that halving the data halves the time"),
                (50, "gives one number for three sizes"),
            ],
        ),
        "6": partial(
            Code,
            reference=_missing,
            cases=_tlb_and_ring,
            always=[(96, 6, 96, 1), (96, 6, 97, 1), (96, 6, 7, 16), (64, 64, 64, 64), (8, 8, 9, 1)],
            wrong=[
                (
                    lambda entries, _ways, pages, _stride: max(0.0, 1 - entries / pages),
                    "takes what loads at random would miss: a ring never finds what was evicted",
                ),
                (
                    lambda entries, _ways, pages, _stride: float(pages > entries),
                    "forgets the sets: those with room keep their pages",
                ),
                (
                    lambda entries, ways, pages, _stride: _missing(entries, ways, pages, 1),
                    "forgets that pages far apart use few of the sets",
                ),
            ],
        ),
    },
)
