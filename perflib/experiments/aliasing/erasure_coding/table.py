"""What samples of erasure coding say: speeds, and what a layout of the blocks costs."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.alone import ALONE, State, log_times
from perflib.experiments.aliasing.erasure_coding.layouts import IMPLEMENTATIONS, LAYOUTS, REFERENCE
from perflib.framework.samples import round_starts, usable
from perflib.model.errors import UserError
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import block_means, t_interval, time_blocks

__all__ = ["ErasureTable"]

Floats = NDArray[np.float64]


class ErasureTable:
    """The samples of one run as log time a byte, ``[round, cpu]`` of implementation and layout.

    Rows whose ``ok`` is false are left out, and so are the times of those in another state than
    ``state``, where probes tell it. Layouts are compared within a trial: one core, one memory, one
    after the other. Slices of one trial and layout count as their median. Uncertainty comes from
    the scatter of batches.

    Raises
    ------
    UserError
        No row is usable, a time or a size is not positive, or no layout is the staggered one.
    """

    def __init__(self, samples: pd.DataFrame, state: State = ALONE) -> None:
        samples = usable(samples)
        samples = samples.assign(
            implementation=samples["implementation"].astype(str),
            layout=samples["layout"].astype(str).replace("moved", "shifted"),  # as earlier runs say
            log_ns=log_times(samples, state, configuration=["implementation"])
            - np.log(samples["data_bytes"].to_numpy(np.float64)),
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
        self._values: dict[tuple[str, str], Floats] = {}

    def values(self, implementation: str, layout: str) -> Floats:
        """``[round, cpu]``: log of ns a byte; NaN where there is none."""
        if (implementation, layout) in self._values:  # asked for once a core, and there are many
            return self._values[implementation, layout]
        found = np.full((len(self.rounds), len(self.cores)), np.nan)
        mine = self.samples
        mine = mine[(mine["implementation"] == implementation) & (mine["layout"] == layout)]
        trials = mine.groupby(["round", "cpu"])["log_ns"].median().reset_index()
        places = (
            np.searchsorted(self.rounds, trials["round"]),
            np.searchsorted(self.cores, trials["cpu"]),
        )
        found[places] = trials["log_ns"]
        self._values[implementation, layout] = found
        return found

    def by_block(self, values: Floats, cpu: int | None = None) -> Floats:
        """Robust means over the rounds of each batch; of one core, or of the cores' mean.

        The cores' mean is of those batches in which all of them have a value.
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

    def costs(self, confidence: float = 0.95) -> pd.DataFrame:
        """What each layout costs each implementation, the mean of the cores, with the interval."""
        rows = [
            (name, layout, *percent(t_interval(self.effect_blocks(name, layout), confidence)))
            for name in self.implementations
            for layout in self.compared
        ]
        columns = ["implementation", "layout", "cost_percent", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    def mean_speeds(self) -> pd.DataFrame:
        """MB/s of each implementation and layout, the mean of the cores, with the interval."""
        rows = [
            (name, layout, *self.speed(name, layout))
            for name in self.implementations
            for layout in self.layouts
        ]
        columns = ["implementation", "layout", "mb_per_s", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def compared(self) -> list[str]:
        """The layouts that are compared with the staggered one."""
        return [layout for layout in self.layouts if layout != REFERENCE]

    @cached_property
    def half_width(self) -> float:
        """Percentage points: the widest half-width of what a layout costs."""
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
