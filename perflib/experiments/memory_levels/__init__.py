"""Levels of memory: what does a load cost that waits for the one before, as the array grows?

The source's Microbench: the latencies of the first level, the second, the last-level cache and
memory, by a chase of dependent loads through a permutation that is one cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import model_validator

from perflib.experiments.memory_levels.analyse import (
    cache_findings,
    core_findings,
    huge_pages_worth,
    memory_finding,
    prefetch_finding,
    tlb_finding,
    unclaimed_findings,
)
from perflib.experiments.memory_levels.measure import Arm, Turns, calibrate, page_reach
from perflib.experiments.memory_levels.table import MemoryTable, primary
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.page_control import PageControl
from perflib.framework.params import Cores, Params, Words, parameter
from perflib.framework.published import published
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.settings.changes import settings
from perflib.measure.arrays import LINE_BYTES, ORDERS, Arrays
from perflib.measure.pages.backings import resolve, with_pool
from perflib.measure.pages.text_backings import BACKINGS, HUGE_PAGE_BYTES
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MemoryLevels", "MemoryLevelsParams", "experiment", "sizes", "warm_loads"]

_KIB, _MIB = 1 << 10, 1 << 20
_KNOWN = tuple(name for name in BACKINGS if name != "loaded")
_LAPS = 10  # the source's warm-up
_BEYOND = 4  # the largest array, in last-level caches
_UNKNOWN_MIB = 256  # the same, where no cache is known
_SHARE = 4  # by itself it takes at most this part of the free memory
_BESIDE = 1.1  # the order of the visits is made beside the array: 4 bytes of 64, and a bit
_ARRAY = "array"


class MemoryLevelsParams(Params):
    """Which arrays, in which order their lines are loaded, and on which pages they lie."""

    cores: Cores = parameter(
        "first",
        "which CPUs to load from: 'first' (that this process may use), 'all', 'physical' (one CPU "
        "of each core), 'groups' (one of each NUMA node and last-level cache), or a list such as "
        "0-3,8",
    )
    budget_s: float = parameter(
        60.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        1.0,
        "measure until the half-width of a latency's interval, as usual among the sizes, and of "
        "each core's difference in memory is below this",
        "percent",
        gt=0,
        le=100,
    )
    orders: Words = parameter(
        ["window", "random", "sequential"],
        "in which order the lines are loaded: 'window' (all lines of 32 pages at random, then of "
        "32 others: no TLB misses), 'random', 'sequential', 'page' (within a page at random), "
        "'lmbench' (as its lat_mem_rd -t does)",
    )
    backings: Words = parameter(
        ["4k", "huge"],
        "the pages that arrays lie on: 4k, thp, collapse, hugetlb, or 'huge', the first of thp and "
        "collapse that can be had; what cannot is said, and the rest goes on",
    )
    smallest_kib: int = parameter(2, "the smallest array", "KiB", ge=1, le=_MIB)
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
    turn_ms: float = parameter(
        1.0,
        "how long one repeat is timed; shorter than the time between two ticks of the system's "
        "clock (1 to 10 ms), so that most repeats have none in them",
        "ms",
        gt=0,
        le=1000,
    )
    repeats: int = parameter(
        5, "how often an array is timed, once it is laid and warm", ge=1, le=25
    )
    threshold_percent: float = parameter(
        5.0, "a core, an order or a size of pages counts as slower from this on", "percent",
        gt=0, le=1000,
    )  # fmt: skip

    @model_validator(mode="after")
    def _orders_exist(self) -> MemoryLevelsParams:
        for name in self.orders:
            if name not in ORDERS:
                msg = f"orders: {choose('order', name, ORDERS)}"
                raise ValueError(msg)
        return self


# --- what is planned -----------------------------------------------------------------------------


def _held_bytes(cpus: Sequence[int]) -> int:
    """The size of the largest cache that one of the CPUs uses, as sysfs says; 0: it does not."""
    mine = [cache for cache in caches() if set(cpus) & set(cache.shared_cpus)]
    return max((cache.size_bytes for cache in mine if cache.kind != "instruction"), default=0)


def _largest_bytes(params: MemoryLevelsParams, held_bytes: int) -> tuple[int, list[str]]:
    """The size of the largest array, and what must be said of it.

    Raises
    ------
    UserError
        It was asked for, and does not fit into memory.
    """
    free = free_bytes()
    if params.largest_mib is not None:
        wanted = params.largest_mib * _MIB
        if free is not None and wanted * _BESIDE > free:
            msg = (
                f"largest_mib: an array of {params.largest_mib} MiB needs "
                f"{wanted * _BESIDE / _MIB:.0f} MiB with the order of its lines, and "
                f"{free / _MIB:.0f} MiB are free: give {free / _BESIDE / _MIB:.0f} at most"
            )
            raise UserError(msg)
        return wanted, []
    wanted = _BEYOND * held_bytes if held_bytes else _UNKNOWN_MIB * _MIB
    if free is None or wanted <= free / _SHARE:
        return wanted, []
    said = (
        f"the largest array has {free / _SHARE / _MIB:.0f} MiB, a quarter of the free memory, and "
        f"not {wanted / _MIB:.0f} MiB: memory may not be told from the last-level cache. "
        "'largest_mib' sets another size"
    )
    return int(free / _SHARE), [said]


def sizes(smallest: int, largest: int, per_doubling: int) -> list[int]:
    """Sizes in bytes that grow by equal factors, in whole lines of 64 bytes.

    >>> sizes(2048, 8192, 2)
    [2048, 2880, 4096, 5824, 8192]

    Raises
    ------
    UserError
        The smallest is larger than the largest.
    """
    if smallest > largest:
        msg = (
            f"smallest_kib: {smallest // _KIB} KiB is more than the largest array, "
            f"{largest / _KIB:.0f} KiB (largest_mib)"
        )
        raise UserError(msg)
    steps = int(per_doubling * math.log2(largest / smallest) + 1e-9)
    exact = smallest * 2 ** (np.arange(steps + 1) / per_doubling)
    return sorted({round(size / LINE_BYTES) * LINE_BYTES for size in exact})


def warm_loads(array_bytes: int, loads: int, held_bytes: int) -> int:
    """How many loads warm an array up.

    What the caches hold: ten laps, as in the source, but in no more time than a repeat takes, and
    one lap in any case. What they do not hold: one lap, but in no more time than ten repeats. That
    suffices, because the chase begins with the lines that were written first when the array was
    laid, which have left the caches since.
    """
    lines = array_bytes // LINE_BYTES
    if array_bytes <= held_bytes:
        return max(lines, min(_LAPS * lines, loads))
    return min(lines, _LAPS * loads)


# --- the experiment ----------------------------------------------------------------------------


class MemoryLevels(Experiment):
    """Dependent loads through arrays of all sizes, in several orders, on small and huge pages."""

    name = "memory_levels"
    title = "Memory: its levels"
    question = "What does a load cost at each level of memory, and do the levels end as claimed?"
    notebook = "06_memory_levels"
    Params: ClassVar[type[Params]] = MemoryLevelsParams
    live_rounds: ClassVar[int] = 1
    x86_only = True
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 28.0},
        "full": {
            "budget_s": 900.0,
            "cores": "groups",
            "orders": list(ORDERS),
            "sizes_per_doubling": 4,
            "precision_percent": 0.2,
        },
    }
    columns = (
        Column("round", "integer", "", "number of the round; arms are compared within", True),
        Column("cpu", "integer", "", "the core that loads, and touched the pages first", True),
        Column("order", "text", "", "the order of the lines: window, random ...", True),
        Column("backing", "text", "", "the pages that were asked for: 4k, thp ...", True),
        Column("array_bytes", "integer", "B", "size of the array", True),
        Column("latency_ns", "number", "ns", "time of one load that waits for the last", True),
        Column("position", "integer", "", "place of the arm's turn in its round"),
        Column("repeat", "integer", "", "number of the repeat on one laid array"),
        Column("loads", "integer", "", "how many loads were timed"),
        Column("time_ns", "number", "ns", "wall time of all loads"),
        Column("latency_cycles", "number", "", "the same in cycles of the core, not of its TSC"),
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column(
            "start_ns",
            "integer",
            "ns",
            "when it began, on one clock for the whole run; without it rounds count alike",
        ),
        Column("involuntary_switches", "integer", "", "times the thread was pushed aside"),
        Column(
            "ok",
            "boolean",
            "",
            "false: its pages, node or core were not what they should be; it is not used",
        ),
    )

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: Any) -> dict[str, Any]:
        """Cores, sizes, the backings that can be had, and how many loads take a repeat's time."""
        if reason := self.unavailable():
            raise UserError(reason)
        cores = params.resolved_cores()
        held = _held_bytes(cores)
        largest, said = _largest_bytes(params, held)
        found = sizes(params.smallest_kib * _KIB, largest, params.sizes_per_doubling)
        # One array at a time, and the two small ones of the control.
        plan: dict[str, Any] = {
            "cores": cores,
            "sizes": found,
            "held_bytes": held,
            "said": said,
            "hugetlb_pages": -(-found[-1] // HUGE_PAGE_BYTES) + 2,
        }
        plan |= resolve(params.backings, _KNOWN, plan["hugetlb_pages"], params.settings)
        orders = list(dict.fromkeys(params.orders))
        with (
            settings(self.system_settings(params, plan)),
            Arrays(params.conditions(None)) as arrays,
        ):
            for name in plan["backings"]:
                why = arrays.lay(
                    _ARRAY, order=orders[0], bytes_=found[-1], backing=name, cpu=cores[0]
                )
                if why:
                    plan["absent"][name] = why
            plan["backings"] = [name for name in plan["backings"] if name not in plan["absent"]]
            if not plan["backings"]:
                reasons = "; ".join(f"{name}: {why}" for name, why in plan["absent"].items())
                msg = f"none of the backings can be had here: {reasons}"
                raise MeasurementError(msg)
            main = primary(orders, plan["backings"])
            curves = {
                (order, backing): found
                if (order, backing) == main
                else _fewer(found, held, params.sizes_per_doubling)
                for order in orders
                for backing in plan["backings"]
            }
            wanted = dict.fromkeys(
                (order, size) for (order, _), own in curves.items() for size in own
            )
            loads = calibrate(arrays, cores[0], plan["backings"][0], wanted, params.turn_ms)
            plan["page_reach"] = page_reach(arrays, plan["backings"])
        plan["arms"] = [
            Arm(cpu, order, backing, size, count, warm_loads(size, count, held))
            for cpu in cores
            for (order, backing), own in curves.items()
            for size in own
            for count in [loads[order, size]]
        ]
        return plan

    def system_settings(self, params: Any, plan: Mapping[str, Any]) -> dict[str, str]:
        """Those that were asked for, and the huge pages of a backing that reserves them."""
        return with_pool(params.settings, plan["backings"], plan["hugetlb_pages"])

    def take(self, params: Any, session: Session) -> str:
        """Every core, order, backing and size once a round."""
        plan = session.plan
        arms = [Arm(*arm) for arm in plan["arms"]]
        machine = session.journal.header["machine"]
        with Arrays(params.conditions(None)) as arrays:
            turns = Turns(arrays, arms, params, params.repeats)
            stopped = session.rounds(
                params,
                len(arms),
                turns.take,
                lambda samples: half_width(samples, machine),
            )
            session.note(turns)
        session.problems += plan["said"]
        session.problems += [f"{name}: {why}" for name, why in plan["absent"].items()]
        return stopped

    # --- what it says ----------------------------------------------------------------------------

    def table_of(self, run: Run) -> MemoryTable:
        """A run's samples, with all that is computed from them."""
        return MemoryTable(run.samples, run.provenance.get("machine"))

    def levels_table(self, run: Run) -> pd.DataFrame:
        """The source's table for this machine; see ``MemoryTable.levels_table``."""
        return self.table_of(run).levels_table()

    def analyse(self, run: Run) -> list[Finding]:
        """The caches, memory, prefetching, TLBs, huge pages; each core of several."""
        params = MemoryLevelsParams.make(run.params)
        table = self.table_of(run)
        where = {place["cpu"]: place["where"] for place in table.machine.get("cpus", ())}
        threshold = params.threshold_percent
        control = PageControl.of(run)
        broken = bool(table.huge) and control.prevents(table.huge[0]) is not None
        some = [
            *cache_findings(table),
            *unclaimed_findings(table),
            memory_finding(table),
            prefetch_finding(table),
            tlb_finding(table, threshold),
            *control.findings,
            huge_pages_worth(table, threshold, broken=broken),
            *core_findings(table, threshold, where),
        ]
        return [finding for finding in some if finding is not None]

    def figures(self, run: Run) -> dict[str, Figure]:
        """Latency against size; orders and pages compared; cores compared."""
        from perflib.experiments.memory_levels import figures as drawn

        table = self.table_of(run)
        found = {"latency": drawn.latency(table)}
        if pairs := drawn.pairs(table):
            found["ratios"] = drawn.ratios(table, pairs)
        if len(table.cores) > 1:
            found["core_difference"] = drawn.core_difference(table)
        return found

    def published(self) -> pd.DataFrame:
        """What the source measured on its two servers."""
        return published("microbench_latency")


def half_width(samples: pd.DataFrame, machine: Mapping[str, Any]) -> float:
    """How precise the run is so far, in percent: see ``MemoryTable.half_width``."""
    return MemoryTable(samples, machine).half_width if samples["ok"].any() else math.inf


def _fewer(found: Sequence[int], held_bytes: int, per_doubling: int) -> list[int]:
    """Beyond the caches one size a doubling: enough for curves in which no level is looked for.

    Laying large arrays is what takes most of a round's time.
    """
    return [size for i, size in enumerate(found) if size <= held_bytes or i % per_doubling == 0]


experiment = MemoryLevels()
