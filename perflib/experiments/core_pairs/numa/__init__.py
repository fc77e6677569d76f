"""Memory latency from each core to the memory of each: the NUMA heatmap.

Each core allocates an array by touching it first, and each core loads from it. Derumigny and Thomas
2018 did so on two servers, and saw what no data sheet says: two halves of a die 20 cycles apart,
and partners among the dies of two sockets.

What a full matrix costs is the arrays and the cells: on a virtual machine of two cores, an array of
128 MiB is placed and verified in 0.1 to 0.3 s, and a cell takes 3 ms at the default ``trial_ms``.
By that a round through the 16,384 cells of 128 threads would take 60 to 90 s and 16 GiB; its 256
cells between 16 groups, which come first, 3 to 6 s. That is an extrapolation: no such machine was
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from perflib.experiments.core_pairs.claims import GROUPS, KERNEL, PARTNERS, SLOWER
from perflib.experiments.core_pairs.numa.claims import DISTANCES, OWN
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params, budget, limit, parameter, precision
from perflib.framework.schema import Column, key

if TYPE_CHECKING:
    import pandas as pd
from perflib.framework.steps import Drawing, Steps

__all__ = ["Numa", "NumaParams", "experiment"]


class NumaParams(Params):
    """Which cells, and of what arrays."""

    budget_s: float = budget(40.0)
    precision_percent: float = precision(
        1.0, "half of the cells have an interval whose half-width is below this"
    )
    detail: Literal["groups", "cores", "pairs"] = parameter(
        "pairs",
        "'groups': one core of each group that shares a NUMA node and a last-level cache; "
        "'cores': besides, each core with those; 'pairs': all. The first rounds are coarser",
    )
    array_mib: int | None = parameter(
        None,
        "size of each core's array (none: four times the last-level cache and at least 64 MiB, "
        "but all together half of the free memory at most)",
        "MiB",
        ge=1,
        le=1 << 16,
    )
    order: Literal["random", "page", "sequential", "lmbench", "window"] = parameter(
        "window", "the order of the loads; 'window' keeps TLB misses out, 'random' has them"
    )
    backing: Literal["4k", "thp", "collapse"] = parameter(
        "4k", "the pages of the arrays: 4 KiB, or 2 MiB by the kernel's choice or demand"
    )
    trial_ms: float = parameter(
        2.0,
        "how long a cell is timed, in 3 repeats; below 10 cores in more of them, since placing "
        "the arrays takes longer",
        "ms",
        ge=0.1,
        le=10_000,
    )
    threshold_percent: float = limit(
        5.0, "a core, or a group of cores, counts as farther from this on"
    )


class Numa(Experiment, about=__file__):
    """The matrix, the groups in it, and what the kernel says of them."""

    name = "numa"
    notebook = "07_numa_heatmap"
    Params = NumaParams
    live_rounds = 0
    placed_by_line = True
    columns = (
        key("alloc_cpu", "integer", "the core that touched the memory first"),
        key("load_cpu", "integer", "the core that loads"),
        Column(
            "latency_cycles", "number", "cycles", "of one load, in core cycles", True, "measured"
        ),
        Column(
            "round",
            "integer",
            "",
            "number of the round; without it, a cell's first row is of "
            "round 0, its second of round 1 ...",
            role="key",
        ),
        Column("position", "integer", "", "place of the cell's trial in its round"),
        Column(
            "repeat",
            "integer",
            "",
            "of the same array in the same trial; the median counts",
            role="key",
        ),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        Column("latency_ns", "number", "ns", "of one load"),
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column("loads", "integer", "", "loads that were timed"),
        Column("time_ns", "number", "ns", "wall time of all loads"),
        Column("alloc_node", "integer", "", "the NUMA node of the memory: verified, if ok"),
        Column("load_node", "integer", "", "the NUMA node of the core that loads"),
        Column(
            "ok",
            "boolean",
            "",
            "false: the core was not available, or the pages were elsewhere; "
            "such a sample is not used",
        ),
    )

    claims = (GROUPS, KERNEL, DISTANCES, OWN, PARTNERS, SLOWER)
    renamed = {"turn_ms": "trial_ms"}

    def published(self) -> pd.DataFrame:
        """Latencies of memory on two servers."""
        from perflib.experiments.core_pairs.numa.analyse import published_memory

        return published_memory()

    def _steps(self) -> Steps[NumaParams]:
        from perflib.experiments.core_pairs.numa import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.core_pairs.numa import figures

        return figures


experiment = Numa()
