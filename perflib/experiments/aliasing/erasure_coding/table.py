"""What samples of erasure coding say: speeds, and what a layout of the blocks costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.erasure_coding.measure import IMPLEMENTATIONS, LAYOUTS, REFERENCE
from perflib.framework.samples import round_starts, usable
from perflib.framework.verdicts import threshold_verdict
from perflib.model.errors import UserError
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import block_means, t_interval, time_blocks

__all__ = ["ErasureTable", "findings_of"]

Floats = NDArray[np.float64]
_ALPHA = 0.05  # of a false claim in a run
_STRETCHES = 3
_CLAIMS = {
    "aligned": "{name} takes more than {limit:g} % longer when all blocks begin at a page than "
    "when no two agree in the low 12 bits of their addresses",
    "chasing": "{name} takes more than {limit:g} % longer when loads agree in their low 12 bits "
    "with stores just made than when they do not",
    "moved": "{name} takes more than {limit:g} % longer, or shorter, when all blocks are moved "
    "together by half a page",
}


class ErasureTable:
    """The samples of one run as log time a byte, ``[round, cpu]`` of implementation and layout.

    Rows whose ``ok`` is false are left out. Layouts are compared within a turn: one core, one
    memory, one after the other. Uncertainty comes from the scatter of blocks of time.

    Raises
    ------
    UserError
        No row is usable, a time or a size is not positive, or no layout is the staggered one.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples, ["time_ns", "data_bytes"])
        samples = samples.assign(
            implementation=samples["implementation"].astype(str),
            layout=samples["layout"].astype(str),
            log_ns=np.log(samples["time_ns"] / samples["data_bytes"]),
        )
        self.samples = samples
        self.implementations = _in_order(samples["implementation"], tuple(IMPLEMENTATIONS))
        self.layouts = _in_order(samples["layout"], LAYOUTS)
        if REFERENCE not in self.layouts:
            msg = f"no sample has the layout {REFERENCE!r}, with which the others are compared"
            raise UserError(msg)
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_blocks(self.start_s, len(self.rounds))

    def values(self, implementation: str, layout: str) -> Floats:
        """``[round, cpu]``: log of ns a byte; NaN where there is none."""
        found = np.full((len(self.rounds), len(self.cores)), np.nan)
        mine = self.samples
        mine = mine[(mine["implementation"] == implementation) & (mine["layout"] == layout)]
        places = (
            np.searchsorted(self.rounds, mine["round"]),
            np.searchsorted(self.cores, mine["cpu"]),
        )
        found[places] = mine["log_ns"]
        return found

    def by_block(self, values: Floats, cpu: int | None = None) -> Floats:
        """Robust means over the rounds of each block of time; of one core, or of the cores' mean.

        The cores' mean is of those blocks in which all of them have a value.
        """
        chosen = values if cpu is None else values[:, [self.cores.index(cpu)]]
        return np.asarray(block_means(chosen, self.blocks).mean(axis=1))

    def effect_blocks(self, implementation: str, layout: str, cpu: int | None = None) -> Floats:
        """``[block]``: log of the time in that layout over the time in the staggered one."""
        ratio = self.values(implementation, layout) - self.values(implementation, REFERENCE)
        return self.by_block(ratio, cpu)

    def effect(self, implementation: str, layout: str, cpu: int | None = None) -> Interval:
        """By how many percent that layout takes longer than the staggered one."""
        return percent(t_interval(self.effect_blocks(implementation, layout, cpu)))

    def speed(self, implementation: str, layout: str, cpu: int | None = None) -> Interval:
        """MB/s (10^6 bytes a second) of data, parity not counted, with the interval."""
        log_ns = t_interval(self.by_block(self.values(implementation, layout), cpu))
        ends = [1e3 * math.exp(-value) for value in log_ns]
        return Interval(ends[0], ends[2], ends[1])

    def speeds(self) -> pd.DataFrame:
        """MB/s of each implementation, layout and core, with the ends of the interval."""
        rows = [
            (name, layout, cpu, *self.speed(name, layout, cpu))
            for name in self.implementations
            for layout in self.layouts
            for cpu in self.cores
        ]
        columns = ["implementation", "layout", "cpu", "mb_per_s", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def compared(self) -> list[str]:
        """The layouts that are held against the staggered one."""
        return [layout for layout in self.layouts if layout != REFERENCE]

    @cached_property
    def half_width(self) -> float:
        """Percentage points: the widest half interval of what a layout costs."""
        widths = [
            self.effect(name, layout).half_width
            for name in self.implementations
            for layout in self.compared
        ]
        return max(width if math.isfinite(width) else math.inf for width in widths)


def _in_order(found: pd.Series[str], known: tuple[str, ...]) -> list[str]:
    """Names in the order in which they are known; others, of a user's table, after them."""
    names = set(found)
    return [name for name in known if name in names] + sorted(names - set(known))


# --- findings ------------------------------------------------------------------------------------


def findings_of(
    table: ErasureTable, threshold: float, blocks: int, l1d_ways: int | None
) -> list[Finding]:
    """Of each implementation: what aligned blocks cost, what aliases cost, and the null test.

    Parameters
    ----------
    threshold
        In percent: what counts as slower.
    blocks
        How many there are, of data and of parity.
    l1d_ways
        How many lines a set of the first-level data cache holds; ``None``: not known.

    The intervals hold for all of them together (Bonferroni): among eighteen claims one in twenty
    would be false.
    """
    claims = [
        (name, layout)
        for name in table.implementations
        for layout in table.compared
        if layout in _CLAIMS
    ]
    confidence = 1 - _ALPHA / max(len(claims), 1)
    return [
        _finding(table, name, layout, threshold, (blocks, l1d_ways), confidence)
        for name, layout in claims
    ]


def _finding(
    table: ErasureTable,
    name: str,
    layout: str,
    threshold: float,
    sets: tuple[int, int | None],
    confidence: float,
) -> Finding:
    by_block = table.effect_blocks(name, layout)
    effect = percent(t_interval(by_block, confidence))
    parts = _stretches(by_block)
    verdict, reason = _verdict(effect, parts, threshold, either_way=layout == "moved")
    evidence: dict[str, Any] = {
        "segments_percent": parts,
        "percent_by_core": {
            f"cpu{cpu}": list(table.effect(name, layout, cpu)) for cpu in table.cores
        },
        "mb_per_s": {kind: table.speed(name, kind).effect for kind in (layout, REFERENCE)},
    }
    if layout == "aligned":
        blocks, ways = sets
        evidence |= {"blocks": blocks, "l1d_ways": ways}
        if verdict == "supported" and ways is not None and blocks > ways:
            reason += (
                f" {blocks} blocks at one place in their pages ask for one set of the L1 data "
                f"cache, which holds {ways} lines."
            )
    return Finding(
        _CLAIMS[layout].format(name=name, limit=threshold),
        name if layout == "aligned" else f"{name} {layout}",
        verdict,
        *effect,
        unit="percent",
        confidence=confidence,
        reason=reason,
        evidence=evidence,
    )


def _stretches(blocks: Floats) -> list[float]:
    """Percent, in each third of the run; none if it is too short for thirds."""
    seen = blocks[np.isfinite(blocks)]
    if len(seen) < _STRETCHES:
        return []
    return [100 * math.expm1(float(part.mean())) for part in np.array_split(seen, _STRETCHES)]


def _verdict(
    effect: Interval, parts: list[float], threshold: float, *, either_way: bool
) -> tuple[Verdict, str]:
    """By the interval; ``supported`` takes every third of the run, too."""
    if either_way and effect.effect < 0:
        mirrored = Interval(-effect.effect, -effect.high, -effect.low)
        return _verdict(mirrored, [-part for part in parts], threshold, either_way=True)
    verdict, reason = threshold_verdict(effect, threshold)
    if either_way and verdict == "refuted" and effect.low <= -threshold:
        return "inconclusive", f"-{threshold:g} % lies within the interval."
    if verdict == "supported" and not all(part > threshold for part in parts):
        words = ", ".join(f"{part:+.1f}" for part in parts)
        return "inconclusive", f"Not every third of the run shows it ({words} %)."
    if verdict == "supported" and not parts:
        return "inconclusive", "The run is too short to be looked at in thirds."
    return verdict, reason


def l1d_ways_of(machine: Mapping[str, Any]) -> int | None:
    """How many lines a set of the first-level data cache holds, by a run's provenance."""
    for cache in machine.get("caches", ()):
        if cache["level"] == 1 and cache["kind"] == "data":
            ways: int | None = cache["ways"]
            return ways
    return None
