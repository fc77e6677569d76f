"""What samples of loads through many pages say, before anything is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.data_tlb import LINES
from perflib.experiments.data_tlb.trials import page_bytes
from perflib.framework.brackets import classify
from perflib.framework.sample_array import Floats, SampleArray, median_half_width
from perflib.framework.samples import usable
from perflib.machine.hardware.known_tlbs import tlbs_of
from perflib.machine.hardware.tlbs import reach_bytes, serves
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.errors import UserError
from perflib.stats.interval import Interval, widest
from perflib.stats.knees import Knee, Knees, find_knees, half_rises

_SMALL = 3  # numbers of pages, the smallest, at which no level of TLB misses
_LEVELS = (1, 2)
_LEAST = 0.05  # log ratio: a hit of the second level is no less, next to one of the first cache
_EARLY = 1.25  # a rise that begins so much below its half begins early


@dataclass(frozen=True)
class Entries:
    """The entries of the data TLBs by level, for one size of pages; those that are known.

    ``origin``: who says so, where it is not CPUID ("published for Golden Cove"). ``ways``: of the
    first level, where it has one part and they are known.
    """

    by_level: Mapping[int, int]
    origin: str = ""
    ways: int | None = None

    @classmethod
    def of(cls, machine: Mapping[str, Any], backing: str) -> Entries:
        """From the description of a machine in a run's provenance."""
        known, size = tlbs_of(machine), page_bytes(backing)
        found = {level: reach_bytes(known.tlbs, "data", level, size) // size for level in _LEVELS}
        origin = "" if known.origin == "CPUID" else known.origin
        parts = [
            tlb
            for tlb in known.tlbs
            if tlb.level == 1 and serves(tlb, "data") and size in tlb.page_bytes
        ]
        ways = parts[0].ways if len(parts) == 1 else None
        return cls({level: entries for level, entries in found.items() if entries}, origin, ways)


@dataclass(frozen=True)
class Rise:
    """A knee, and where half of its rise has come; both in pages."""

    knee: Knee
    half: Interval

    @property
    def early(self) -> bool:
        """Does it begin long before half of it has come?"""
        return self.half.effect > _EARLY * self.knee.size.effect


class TlbTable:
    """The samples of one run as time of a load in ns, by backing, lines, stride and pages.

    Rows whose ``ok`` is false are left out, and so are those that did not have the core alone where
    probes show it. Of a trial's repeats the fastest counts: interference only adds time.
    Uncertainty comes from the scatter of batches of rounds.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples)
        core_states = classify(samples)
        if core_states is not None:
            samples = samples[core_states.usable]
        stride = samples["stride"].fillna(1).astype(int) if "stride" in samples else 1
        keys = ["backing", "lines", "stride", "pages"]
        self.array = SampleArray.of(samples.assign(stride=stride), "load_ns", keys, "min")
        named = [name for name in self.array.distinct("backing") if self.pages(name)]
        if not named:
            msg = (
                f"lines: no number of pages has samples of both {LINES[0]!r} and {LINES[1]!r}, and "
                "what many pages cost is the one compared with the other: measure both"
            )
            raise UserError(msg)
        self.backings = sorted(named, key=lambda name: (name != SMALL_PAGES, name))
        self._knees: dict[tuple[str, int], Knees] = {}

    @property
    def huge(self) -> list[str]:
        """The backings of 2 MiB pages."""
        return [name for name in self.backings if name != SMALL_PAGES]

    @property
    def strides(self) -> list[int]:
        """How far apart pages of 4 KiB were, ascending, but 1; none without stride 1."""
        mine = self.array.select(backing=SMALL_PAGES, lines=LINES[0])
        found = mine.distinct("stride") if SMALL_PAGES in self.backings else []
        return [stride for stride in found if stride != 1]

    def pages(self, backing: str, stride: int = 1) -> list[int]:
        """The numbers of pages, ascending: of stride 1 those that both kinds of lines have."""
        return self.loads(backing, LINES[0], stride).distinct("pages")

    def loads(self, backing: str, lines: str, stride: int = 1) -> SampleArray:
        """Ns a load by number of ``pages``."""
        mine, *kinds = (
            self.array.select(backing=backing, lines=kind, stride=stride)
            for kind in (lines, *LINES)
        )
        return mine if stride != 1 else mine.among(kinds[0].labels).among(kinds[1].labels)

    def base_ns(self, backing: str) -> float:
        """Ns of a load that misses neither a TLB nor the first-level cache."""
        return float(np.nanmedian(self.loads(backing, LINES[1]).first(_SMALL).values))

    def extra_ns(self, backing: str) -> Floats:
        """``[batch of a core, pages]``: what it costs that each line has a page of its own.

        A difference within rounds, not a ratio: translation comes before the access to the caches,
        so its time adds to theirs, also where the lines are too many for the first level.
        """
        spread, packed = (self.loads(backing, kind) for kind in LINES)
        return (spread - packed).by_core_and_batch()

    def log_rise(self, backing: str, stride: int = 1) -> Floats:
        """``[batch of a core, pages]``: log of a load's time over one that misses nothing.

        What many pages cost, added to a load from the first-level cache. Pages that are ``stride``
        apart are few enough for that cache: their loads are compared, within rounds, with those
        through the fewest packed lines.
        """
        if stride != 1:
            fewest = self.loads(backing, LINES[1]).first(_SMALL).mean_configuration()
            return (self.loads(backing, LINES[0], stride) / fewest).log().by_core_and_batch()
        rise = self.extra_ns(backing) / self.base_ns(backing)
        return np.log1p(np.where(rise > -1, rise, np.nan))

    def knees(self, backing: str, stride: int = 1) -> Knees:
        """Where loads begin to take longer; sizes are numbers of pages."""
        if (backing, stride) not in self._knees:
            pages, rise = self.pages(backing, stride), self.log_rise(backing, stride)
            self._knees[backing, stride] = find_knees(pages, rise, "cyclic", least=_LEAST)
        return self._knees[backing, stride]

    def rises(self, backing: str, stride: int = 1) -> list[Rise]:
        """Each knee with where half of its rise has come."""
        found = self.knees(backing, stride)
        halves = half_rises(self.pages(backing, stride), found)
        return [Rise(knee, half) for knee, half in zip(found.knees, halves, strict=True)]

    @cached_property
    def half_width(self) -> float:
        """Half of the intervals of ``log_rise``, the median of all sizes, in percent.

        Of the most uncertain kind of pages.
        """
        return widest(100 * median_half_width(self.log_rise(kind)) for kind in self.backings)
