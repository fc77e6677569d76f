"""What samples of loads through many pages say, before anything is claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.data_tlb import LINES
from perflib.experiments.data_tlb.trials import page_bytes
from perflib.framework.brackets import tell
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.framework.schema import check_cells
from perflib.machine.hardware.known_tlbs import tlbs_of
from perflib.machine.hardware.tlbs import reach_bytes, serves
from perflib.measure.pages.text_backings import SMALL_PAGES
from perflib.model.errors import UserError
from perflib.stats.interval import Interval
from perflib.stats.intervals import block_means, t_interval, time_blocks
from perflib.stats.knees import Knee, Knees, find_knees, half_rises

__all__ = ["Entries", "Rise", "TlbTable"]

Floats = NDArray[np.float64]
_SMALL = 3  # numbers of pages, the smallest, at which no level of TLB misses
_LEVELS = (1, 2)
_LEAST = 0.05  # log ratio: a hit of the second level is no less, beside one of the first cache
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
    """The samples of one run as time of a load, ``[round, cpu, pages]`` of each kind of lines.

    Rows whose ``ok`` is false are left out, and so are those that did not have the core alone where
    probes tell. Of a trial's repeats the fastest counts: interference only adds time. Uncertainty
    comes from the scatter of batches of rounds.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples)
        told = tell(samples)
        self.told = told is not None and told.any_told
        if told is not None:
            samples = samples[told.usable]
        samples = samples.assign(
            backing=samples["backing"].astype(str),
            lines=samples["lines"].astype(str),
            stride=samples["stride"].fillna(1).astype(int) if "stride" in samples else 1,
        )
        self.samples = samples
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        named = [name for name in samples["backing"].unique() if self.pages(name)]
        if not named:
            msg = (
                f"lines: no number of pages has samples of both {LINES[0]!r} and {LINES[1]!r}, and "
                "what many pages cost is the one beside the other: measure both"
            )
            raise UserError(msg)
        self.backings = sorted(named, key=lambda name: (name != SMALL_PAGES, name))
        self._rounds = np.array(sorted(set(samples["round"])))
        self.blocks = time_blocks(round_starts(samples, self._rounds), len(self._rounds))
        self._kept: dict[tuple[str, str, int], Floats] = {}

    @property
    def huge(self) -> list[str]:
        """The backings of 2 MiB pages."""
        return [name for name in self.backings if name != SMALL_PAGES]

    @property
    def strides(self) -> list[int]:
        """How far apart pages of 4 KiB were, ascending, but 1; none without stride 1."""
        mine = self.samples[self.samples["backing"] == SMALL_PAGES]
        found = sorted(set(mine["stride"]) - {1}) if SMALL_PAGES in self.backings else []
        return [stride for stride in found if self.pages(SMALL_PAGES, stride)]

    def pages(self, backing: str, stride: int = 1) -> list[int]:
        """The numbers of pages, ascending: of stride 1 those that both kinds of lines have."""
        mine = self.samples
        mine = mine[(mine["backing"] == backing) & (mine["stride"] == stride)]
        kinds = LINES if stride == 1 else LINES[:1]
        both = (set(mine.loc[mine["lines"] == kind, "pages"].astype(int)) for kind in kinds)
        return sorted(set.intersection(*both))

    def values(self, backing: str, lines: str, stride: int = 1) -> Floats:
        """``[round, cpu, pages]``: ns a load, the fastest of a trial; NaN where there is none."""
        if (backing, lines, stride) not in self._kept:
            pages = self.pages(backing, stride)
            shape = len(self._rounds), len(self.cores), len(pages)
            check_cells(
                dict(zip(("rounds", "cores", "sizes"), shape, strict=True)), len(self.samples)
            )
            found = np.full(shape, np.nan)
            mine = self.samples
            mine = mine[(mine["backing"] == backing) & (mine["lines"] == lines)]
            mine = mine[(mine["stride"] == stride) & mine["pages"].isin(pages)]
            least = mine.groupby(["round", "cpu", "pages"])["load_ns"].min().reset_index()
            found[
                np.searchsorted(self._rounds, least["round"]),
                np.searchsorted(self.cores, least["cpu"]),
                np.searchsorted(pages, least["pages"]),
            ] = least["load_ns"].astype(float)
            self._kept[backing, lines, stride] = found
        return self._kept[backing, lines, stride]

    def base_ns(self, backing: str) -> float:
        """Ns of a load that misses neither a TLB nor the first-level cache."""
        return float(np.nanmedian(self.values(backing, LINES[1])[:, :, :_SMALL]))

    def extra_ns(self, backing: str) -> Floats:
        """``[batch of a core, pages]``: what it costs that each line has a page of its own.

        A difference within rounds, not a ratio: translation comes before the access to the caches,
        so its time adds to theirs, also where the lines are too many for the first level.
        """
        spread, packed = (self.values(backing, kind) for kind in LINES)
        return self._batches(spread - packed)

    def _batches(self, values: Floats) -> Floats:
        batches = block_means(values, self.blocks)
        return np.asarray(batches.swapaxes(0, 1).reshape(-1, batches.shape[2]))

    def far_apart(self, stride: int) -> Floats:
        """``[batch of a core, pages]``: ``log_rise`` of pages of 4 KiB that are ``stride`` apart.

        They are few enough for the first-level cache: so beside the same loads through the fewest
        packed lines, within rounds.
        """
        packed = self.values(SMALL_PAGES, LINES[1])[:, :, :_SMALL]
        rows, cores, _ = packed.shape
        few = mean_of_known(packed.reshape(-1, packed.shape[2])).reshape(rows, cores, 1)
        ratio = self.values(SMALL_PAGES, LINES[0], stride) / few
        return self._batches(np.log(ratio))

    def log_rise(self, backing: str) -> Floats:
        """``[batch of a core, pages]``: log of a load's time over one that misses nothing.

        What many pages cost, added to a load from the first-level cache.
        """
        rise = self.extra_ns(backing) / self.base_ns(backing)
        return np.log1p(np.where(rise > -1, rise, np.nan))

    def knees(self, backing: str) -> Knees:
        """Where loads begin to take longer; sizes are numbers of pages."""
        return find_knees(self.pages(backing), self.log_rise(backing), "cyclic", least=_LEAST)

    def rises(self, backing: str) -> list[Rise]:
        """Each knee with where half of its rise has come."""
        found = self.knees(backing)
        halves = half_rises(self.pages(backing), found)
        return [Rise(knee, half) for knee, half in zip(found.knees, halves, strict=True)]

    def rises_apart(self, stride: int) -> list[Rise]:
        """As ``rises``, of pages of 4 KiB that are ``stride`` apart."""
        pages = self.pages(SMALL_PAGES, stride)
        found = find_knees(pages, self.far_apart(stride), "cyclic", least=_LEAST)
        halves = half_rises(pages, found)
        return [Rise(knee, half) for knee, half in zip(found.knees, halves, strict=True)]

    def curve(self, backing: str, lines: str) -> Floats:
        """``[pages, 3]``: ns a load, with the ends of its interval, over all cores."""
        rows = block_means(mean_of_known(np.log(self.values(backing, lines))), self.blocks)
        return np.exp([tuple(t_interval(column)) for column in rows.T])

    @cached_property
    def half_width(self) -> float:
        """Half of the intervals of ``log_rise``, the median of all sizes, in percent.

        Of the most uncertain kind of pages.
        """
        widths = []
        for backing in self.backings:
            found = [t_interval(column).half_width for column in self.log_rise(backing).T]
            widths.append(100 * float(np.median(found)) if found else math.inf)
        return max(width if math.isfinite(width) else math.inf for width in widths)
