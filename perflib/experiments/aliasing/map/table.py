"""What a store-load map says: time against the distance of store and load, within rounds."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.alone import ALONE, State, in_state
from perflib.experiments.aliasing.map.claims import CONTROL_BYTES
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.framework.schema import check_cells
from perflib.stats.interval import Interval, exp, percent, widest
from perflib.stats.intervals import Floats, batch_means, robust_mean, t_interval, time_batches

REGIONS = (0, 2048, 3072, 4096, 8192)
_CLAIMED = (4096, 8192)


class AliasMapTable:
    """The samples of one run as ``[round, region, store, load]``: ns a pair, the mean over cores.

    Rows whose ``ok`` is false are left out, and so are the times of those in another state than
    ``state``, where probes show it. Regions are compared within rounds and cores, and uncertainty
    comes from the scatter of batches.
    """

    def __init__(self, samples: pd.DataFrame, state: State = ALONE) -> None:
        samples = usable(samples)
        self.used = in_state(samples, state)
        self.samples = samples
        self.regions = sorted({int(region) for region in samples["region_bytes"]})
        self.stores = sorted({int(offset) for offset in samples["store_bytes"]})
        self.loads = sorted({int(offset) for offset in samples["load_bytes"]})
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        self.rounds = np.array(sorted(set(samples["round"])))
        axes = {"rounds": len(self.rounds), "cores": len(self.cores)}
        axes |= {"distances": len(self.regions), "offsets of stores": len(self.stores)}
        check_cells({**axes, "of loads": len(self.loads)}, len(samples))
        self.blocks = time_batches(round_starts(samples, self.rounds), len(self.rounds))

    @cached_property
    def log_ns(self) -> Floats:
        """``[round, cpu, region, store, load]``; NaN where there is none."""
        axes = [self.rounds.tolist(), self.cores, self.regions, self.stores, self.loads]
        found = np.full([len(axis) for axis in axes], np.nan)
        names = ["round", "cpu", "region_bytes", "store_bytes", "load_bytes"]
        places = [
            np.searchsorted(axis, self.samples[name])
            for axis, name in zip(axes, names, strict=True)
        ]
        found[tuple(places)] = np.log(self.samples["pair_ns"].where(self.used).astype(float))
        return found

    @cached_property
    def map_ns(self) -> Floats:
        """``[region, store, load]``: the typical time of a pair."""
        flat = self.log_ns.reshape(-1, math.prod(self.log_ns.shape[2:]))
        return np.exp(robust_mean(flat)).reshape(self.log_ns.shape[2:])

    @property
    def core_mhz(self) -> float:
        """The cores' median frequency; NaN where it was not measured."""
        known = self.samples.get("core_mhz", pd.Series(dtype=float)).dropna()
        return float(known.median()) if len(known) else math.nan

    @property
    def aligned(self) -> NDArray[np.bool_]:
        """``[store, load]``: where the two agree in their low 12 bits if their regions do."""
        return np.asarray(np.equal.outer(np.array(self.stores), np.array(self.loads)))

    def ratio(self, region: int, control: int = CONTROL_BYTES) -> Floats:
        """``[block]``: log of the time in a region over the control's, where offsets agree."""
        logs = self.log_ns[..., self.aligned]
        places = [self.regions.index(name) for name in (region, control)]
        each = logs[:, :, places[0]] - logs[:, :, places[1]]
        return self._by_block(each.reshape(len(each), -1))

    def control_ns(self, control: int = CONTROL_BYTES) -> float:
        """The typical time of a pair in a region, where offsets agree."""
        logs = np.log(self.map_ns[self.regions.index(control)])[self.aligned]
        return math.exp(float(mean_of_known(logs, axis=0)))

    def extra_ns(self, region: int, control: int = CONTROL_BYTES) -> Interval:
        """The same as a difference in ns a pair."""
        control_ns = self.control_ns(control)
        return Interval(*(control_ns * math.expm1(end) for end in t_interval(self.ratio(region))))

    def distances(self) -> list[int]:
        """Every distance of load and store without the region."""
        return sorted({load - store for store in self.stores for load in self.loads})

    def by_distance(self, region: int) -> list[Interval]:
        """Time a pair in ns at each of ``distances``, with its interval."""
        logs = self.log_ns[:, :, self.regions.index(region)]
        apart = np.subtract.outer(-np.array(self.stores), -np.array(self.loads))
        found = []
        for distance in self.distances():
            each = logs[..., apart == distance]
            found.append(exp(t_interval(self._by_block(each.reshape(len(each), -1)))))
        return found

    @property
    def half_width(self) -> float:
        """The widest half interval of what 4 and 8 KiB cost, in percentage points."""
        return widest(
            percent(t_interval(self.ratio(region))).half_width
            for region in _CLAIMED
            if {region, CONTROL_BYTES} <= set(self.regions)
        )

    def _by_block(self, values: Floats) -> Floats:
        """``[block]``: the mean over the columns of ``[round, column]``, robust over rounds."""
        means = batch_means(values, self.blocks)
        return np.array([mean[np.isfinite(mean)].mean() if np.isfinite(mean).any() else np.nan
                         for mean in means])  # fmt: skip
