"""Samples of ``data_tlb`` as machines with known TLBs would give them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.data_tlb import experiment
from perflib.experiments.data_tlb.measure import numbers
from perflib.model.run import Run
from tests.experiments.judged import made_run

Floats = NDArray[np.float64]
Policy = Literal["lru", "plru", "random"]
REQUIRED = ["round", "cpu", "backing", "lines", "pages", "load_ns"]
_LAPS = 12  # of the ring, the first half to warm up
_CACHED_LINES = 768  # of a first-level cache of 48 KiB


@dataclass(frozen=True)
class Level:
    """A level of TLB: ``ways`` entries in each set, which the low bits of the page number choose.

    ``hashed``: a set as good as random for each page. ``plru``: a tree of bits, ways a power of 2.
    """

    entries: int
    ways: int
    policy: Policy = "lru"
    hashed: bool = False

    def set_of(self, pages: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
        sets = self.entries // self.ways
        if self.hashed:
            return generator.integers(0, sets, len(pages))
        return np.asarray(pages % sets, dtype=np.int64)


def _misses_in_set(count: int, level: Level, generator: np.random.Generator) -> float:
    """Of a ring through ``count`` pages of one set, the misses a lap."""
    if count <= level.ways:
        return 0.0
    if level.policy == "lru":
        return float(count)
    held: list[int] = [-1] * level.ways
    bits = [0] * level.ways  # of the tree, from 1 on
    misses = 0
    for lap in range(_LAPS):
        for page in range(count):
            if page in held:
                place = held.index(page)
            else:
                misses += lap >= _LAPS // 2
                if level.policy == "random":
                    place = int(generator.integers(level.ways))
                else:
                    node = 1
                    while node < level.ways:
                        node = 2 * node + bits[node]
                    place = node - level.ways
                held[place] = page
            node = place + level.ways
            while level.policy == "plru" and node > 1:
                bits[node // 2] = 1 - node % 2  # away from what was used last
                node //= 2
    return misses / (_LAPS - _LAPS // 2)


@functools.cache
def miss_share(level: Level, pages: int, stride: int, placement: int = 0) -> float:
    """The share of loads through a ring of pages, ``stride`` apart, that miss a level."""
    generator = np.random.default_rng([placement, pages, stride])
    numbers_ = np.arange(pages, dtype=np.float64) * stride
    counts = np.bincount(level.set_of(numbers_, generator))
    seen = {int(count) for count in counts if count}
    each = {count: _misses_in_set(count, level, generator) for count in seen}
    return sum(each[int(count)] for count in counts if count) / pages


@dataclass(frozen=True)
class Machine:
    """What the samples come from: levels of TLB with what a miss costs, and what interferes.

    ``burst_share``: the share of rounds in which a neighbour makes everything take 40 % longer.
    ``far``: the share of trials that something makes up to three times as long.
    """

    levels: tuple[tuple[Level, float], ...] = (
        (Level(64, 4), 1.75),
        (Level(1536, 12), 12.0),
    )
    load_ns: float = 1.26
    beyond_cache_ns: float = 2.8
    noise: float = 0.015
    drift: float = 0.15
    burst_share: float = 0.15
    far: float = 0.03
    placements: int = 3
    pages: dict[str, list[int]] = field(default_factory=lambda: {"4k": numbers(16, 4608, 6)})
    strides: tuple[int, ...] = ()
    few: tuple[int, ...] = (*range(2, 16), *numbers(16, 110, 6))

    def cost_ns(self, pages: int, stride: int, placement: int) -> float:
        """What misses cost a load; what the first level holds, the second is not asked for."""
        total, reached = 0.0, 1.0
        for level, cost in self.levels:
            drawn = placement if level.hashed else 0
            reached = min(reached, miss_share(level, pages, stride, drawn))
            total += cost * reached
        return total

    def samples(self, seed: int = 1, rounds: int = 24) -> pd.DataFrame:
        """Rows as the experiment makes them; a trial takes 10 ms, and has two repeats."""
        generator = np.random.default_rng(seed)
        wanted = [
            (backing, lines, 1, n)
            for backing, every in self.pages.items()
            for n in every
            for lines in ("spread", "packed")
        ]
        apart = [("4k", "spread", stride, n) for stride in self.strides for n in self.few]
        rows = []
        now_s = 0.0
        for round_ in range(rounds):
            busy = 1.4 if generator.random() < self.burst_share else 1.0
            here = wanted + (apart if round_ % 2 == 0 else [])
            for position, which in enumerate(generator.permutation(len(here))):
                backing, lines, stride, n = here[which]
                ns = self.load_ns + (self.beyond_cache_ns if n > _CACHED_LINES else 0.0)
                if lines == "spread":
                    placement = int(generator.integers(self.placements))
                    ns += self.cost_ns(n, stride, placement) * generator.gamma(400, 1 / 400)
                ns *= busy * (1 + self.drift * round_ / rounds)
                if generator.random() < self.far:
                    ns *= generator.uniform(1, 3)
                now_s += 0.01
                for repeat in range(2):
                    away = self.noise * generator.standard_t(3) / np.sqrt(3)
                    longer = 1 + generator.exponential(self.noise)
                    load_ns = ns * np.exp(np.clip(away, -0.3, 0.3)) * longer
                    rows.append(
                        (round_, position, 0, backing, lines, stride, n, repeat, load_ns,
                         int(now_s * 1e9))
                    )  # fmt: skip
        columns = ["round", "position", "cpu", "backing", "lines", "stride", "pages", "repeat"]
        return pd.DataFrame(rows, columns=[*columns, "load_ns", "start_ns"])


def tlb(level: int, entries: int, ways: int, page_bytes: int = 4096) -> dict[str, Any]:
    """A TLB as provenance has it."""
    kind = "data" if level == 1 else "unified"
    return {
        "level": level, "kind": kind, "page_bytes": [page_bytes], "entries": entries, "ways": ways,
    }  # fmt: skip


def run_of(samples: pd.DataFrame, *tlbs: dict[str, Any], **provenance: Any) -> Run:
    """A run of these samples on a machine that reports these TLBs."""
    return made_run(experiment, samples, {"machine": {"tlbs": list(tlbs)}, **provenance})
