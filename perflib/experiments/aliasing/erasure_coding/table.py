"""What samples of erasure coding say: speeds, and what a layout of the blocks costs."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.alone import ALONE, State, log_times
from perflib.experiments.aliasing.erasure_coding.layouts import IMPLEMENTATIONS, LAYOUTS, REFERENCE
from perflib.framework.sample_array import Floats, SampleArray
from perflib.framework.samples import in_order, usable
from perflib.model.errors import UserError
from perflib.stats.interval import NO_INTERVAL, Interval, columns, percent, widest
from perflib.stats.intervals import t_interval


class ErasureTable:
    """The samples of one run as log time a byte, by implementation and layout.

    Rows whose ``ok`` is false are left out, and so are the times of those in another state than
    ``state``, where probes show it. Layouts are compared within a trial: one core, one memory, one
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
        self.log_ns = SampleArray.of(samples, "log_ns", ["implementation", "layout"])
        self.cores = self.log_ns.cores
        self.implementations = in_order(samples["implementation"], tuple(IMPLEMENTATIONS))
        self.layouts = in_order(samples["layout"], LAYOUTS)
        self.compared = [layout for layout in self.layouts if layout != REFERENCE]
        if self.compared == self.layouts:
            msg = f"no sample has the layout {REFERENCE!r}, with which the others are compared"
            raise UserError(msg)

    def batches(self, implementation: str, layout: str, cpu: int | None = None) -> Floats:
        """``[batch]``: log of ns a byte, of one core or the mean of all.

        The cores' mean is of those batches in which all of them have a value.
        """
        return self._trials(implementation, layout, cpu).over_all_cores()[:, 0]

    def effect_batches(self, implementation: str, layout: str, cpu: int | None = None) -> Floats:
        """``[batch]``: log of the time in that layout over the time in the staggered one."""
        mine, staggered = (self._trials(implementation, one, cpu) for one in (layout, REFERENCE))
        return (mine - staggered).over_all_cores()[:, 0]

    def _trials(self, implementation: str, layout: str, cpu: int | None) -> SampleArray:
        return self.log_ns.select(implementation=implementation, layout=layout).on(cpu)

    def effect(self, implementation: str, layout: str, cpu: int | None = None) -> Interval:
        """By how many percent that layout takes longer than the staggered one."""
        return percent(t_interval(self.effect_batches(implementation, layout, cpu)))

    def speed(self, implementation: str, layout: str, cpu: int | None = None) -> Interval:
        """MB/s (10^6 bytes a second) of data, parity not counted, with the interval."""
        log_ns = t_interval(self.batches(implementation, layout, cpu))
        ends = [1e3 * math.exp(-value) for value in log_ns]
        return Interval(ends[0], ends[2], ends[1])

    def speeds(self, *, by_core: bool = False) -> pd.DataFrame:
        """MB/s of each implementation and layout, of each core or the mean of the cores."""
        rows = [
            {"implementation": name, "layout": layout}
            | ({} if cpu is None else {"cpu": cpu})
            | columns("mb_per_s", self.speed(name, layout, cpu))
            for name in self.implementations
            for layout in self.layouts
            for cpu in (self.cores if by_core else [None])
        ]
        return pd.DataFrame(rows)

    def costs(self) -> pd.DataFrame:
        """What each layout costs each implementation, the mean of the cores, with the interval."""
        rows = [
            {"implementation": name, "layout": layout}
            | columns("cost_percent", self.effect(name, layout))
            for name in self.implementations
            for layout in self.compared
        ]
        names = ["implementation", "layout", *columns("cost_percent", NO_INTERVAL)]
        return pd.DataFrame(rows, columns=names)

    @cached_property
    def half_width(self) -> float:
        """Percentage points: the widest half-width of what a layout costs."""
        return widest(
            self.effect(name, layout).half_width
            for name in self.implementations
            for layout in self.compared
        )
