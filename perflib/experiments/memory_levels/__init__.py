"""Levels of memory: what does a load cost that waits for the one before, as the array grows?

The Microbench of Derumigny and Thomas 2018 (docs/references.md): the latencies of the first level,
the second, the last-level cache and memory, by a chase of dependent loads through a permutation
that is one cycle.
"""

from __future__ import annotations

from pydantic import model_validator

from perflib.experiments.memory_levels.claims import CLAIMS
from perflib.framework.brackets import CHASE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    Cores,
    Params,
    Words,
    budget,
    known_names,
    limit,
    parameter,
    precision,
)
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps

__all__ = ["ORDERS", "MemoryLevels", "MemoryLevelsParams", "experiment"]

# The first that was measured is the one in which levels are looked for: it misses no TLB and no
# prefetcher helps it.
ORDERS = ("window", "random", "page", "lmbench", "sequential")


class MemoryLevelsParams(Params):
    """Which arrays, in which order their lines are loaded, and on which pages they are."""

    cores: Cores = parameter(
        "first",
        "which CPUs to load from: 'first' (that this process may use), 'all', 'physical' (one CPU "
        "of each core), 'groups' (one of each NUMA node and last-level cache), or a list such as "
        "0-3,8",
    )
    budget_s: float = budget(60.0)
    precision_percent: float = precision(
        1.0,
        "the half-width of a latency's interval, as usual among the sizes, and of "
        "each core's difference in memory is below this",
        "percent",
    )
    orders: Words = parameter(
        ["window", "random", "sequential"],
        "in which order the lines are loaded: 'window' (all lines of 32 pages at random, then of "
        "32 others: no TLB misses), 'random', 'sequential', 'page' (within a page at random), "
        "'lmbench' (as its lat_mem_rd -t does)",
    )
    backings: Words = parameter(
        ["4k", "huge"],
        "the pages that arrays are on: 4k, thp, collapse, hugetlb, hugetlb_1g (of 1 GiB), or "
        "'huge', the first available of thp and collapse; the run says which are not",
    )
    smallest_kib: int = parameter(2, "the smallest array", "KiB", ge=1, le=1 << 20)
    largest_mib: int | None = parameter(
        None,
        "the largest array (none: four times the last-level cache, but no more than a quarter of "
        "the free memory)",
        "MiB",
        ge=1,
        le=32768,
    )
    sizes_per_doubling: int = parameter(
        3, "how many sizes there are from one to twice as much", ge=1, le=16
    )
    trial_ms: float = parameter(
        0.3,
        "how long one repeat is timed: a slice between two probes that show whether the core was "
        "alone; longer ones show it less surely",
        "ms",
        gt=0,
        le=1000,
    )
    repeats: int = parameter(
        6,
        "how often an array is timed, once it is placed and warm; arrays that the core's own "
        "caches hold up to four times as often, until so many repeats had the core alone",
        ge=1,
        le=25,
    )
    threshold_percent: float = limit(
        5.0, "a core, an order or a size of pages counts as slower from this on"
    )

    @model_validator(mode="after")
    def _orders_exist(self) -> MemoryLevelsParams:
        known_names("orders", "order", self.orders, ORDERS)
        return self


class MemoryLevels(Experiment, about=__file__):
    """Dependent loads through arrays of all sizes, in several orders, on small and huge pages."""

    name = "memory_levels"
    notebook = "06_memory_levels"
    Params = MemoryLevelsParams
    live_rounds = 1
    placed_by_line = True
    columns = (
        key("round", "integer", "number of the round; configurations are compared within"),
        key("cpu", "integer", "the core that loads, and touched the pages first"),
        key("order", "text", "the order of the lines: window, random ..."),
        key("backing", "text", "the pages that were requested: 4k, thp ..."),
        key("array_bytes", "integer", "size of the array", "B", least=1),
        Column(
            "latency_ns",
            "number",
            "ns",
            "CPU time of one load that waits for the last",
            True,
            "measured",
        ),
        Column("position", "integer", "", "place of the trial in its round"),
        Column(
            "repeat", "integer", "", "number of the repeat on one array, placed once", role="key"
        ),
        Column("loads", "integer", "", "how many loads were timed"),
        Column("time_ns", "number", "ns", "wall time of all loads"),
        Column("latency_cycles", "number", "", "the same in cycles of the core, not of its TSC"),
        *CHASE_COLUMNS,
        ok("its pages, node or core were not what they should be"),
    )
    claims = CLAIMS
    published_table = "microbench_latency"
    renamed = {"turn_ms": "trial_ms"}

    def _steps(self) -> Steps[MemoryLevelsParams]:
        from perflib.experiments.memory_levels import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.memory_levels import figures

        return figures


experiment = MemoryLevels()
