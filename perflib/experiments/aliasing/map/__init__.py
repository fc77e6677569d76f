"""The store-load map: what a load costs after a store that agrees with it in the low 12 bits.

A processor compares a load with the stores before it by the low bits of their addresses first. Two
addresses that lie a multiple of 4 KiB apart look alike, and the load waits for nothing. Here a
store and a load are timed at every pair of offsets around 0, 2, 4 and 8 KiB: no program, no
allocator, nothing but the mechanism. What it costs a pair is the bound for whole programs.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from perflib.experiments.aliasing.map.analyse import (
    CONTROL,
    REGIONS,
    AliasMapTable,
    region_findings,
)
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Params, parameter
from perflib.kernels import Build, build
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AliasMap", "AliasMapParams", "experiment"]

SAMPLE = np.dtype([("pair_ns", "f8"), ("loaded", "u8")])
CALL = np.dtype([("begin_ns", "i8"), ("cpu", "i8"), ("core_mhz", "f8")])
_LEAST_S = 4.0
_TIMEOUT_S = 120.0


class AliasMapParams(Params):
    """Which offsets, and how long each is timed."""

    budget_s: float = parameter(
        10.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        0.5,
        "measure until the half-width of what 4 KiB and 8 KiB cost over 2 KiB is below this",
        "percentage points",
        gt=0,
        le=100,
    )
    step_bytes: int = parameter(
        8, "steps between offsets, and the width of the accesses: 4 or 8", "B", ge=4, le=8,
        multiple_of=4,
    )  # fmt: skip
    reach_bytes: int = parameter(
        64, "how far the offsets go to either side", "B", ge=8, le=256, multiple_of=8
    )
    pairs: int = parameter(
        16384, "pairs of one store and one load in a burst", ge=1024, le=1 << 24, multiple_of=32
    )
    bursts: int = parameter(
        5, "bursts a pair of offsets and round, of which the fastest counts", ge=1, le=1000
    )
    threshold_percent: float = parameter(
        5.0, "pairs count as slower from this on", "percent", gt=0, le=1000
    )


class AliasMap(Experiment):
    """A store and a load at every pair of offsets, around distances of 0, 2, 3, 4 and 8 KiB."""

    name = "alias_map"
    title = "4K aliasing: the store-load map"
    question = "Does a load wait for a store whose address agrees with its own in the low 12 bits?"
    notebook = "09_aliasing_environment"
    Params: ClassVar[type[Params]] = AliasMapParams
    columns = (
        Column("round", "integer", "", "number of the round; cells are compared within", True),
        Column("cpu", "integer", "", "the core", True),
        Column("region_bytes", "integer", "B", "distance without the offsets", True),
        Column("store_bytes", "integer", "B", "the store's offset", True),
        Column("load_bytes", "integer", "B", "the load's offset, from the region on", True),
        Column("pair_ns", "number", "ns", "time of one pair, of the fastest burst", True),
        Column("core_mhz", "number", "MHz", "the core's frequency, before and after the round"),
        Column("start_ns", "integer", "ns", "when the round began on this core"),
        Column("ok", "boolean", "", "false: the load found a wrong value, or on another core"),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 6.0},
        "full": {"budget_s": 120.0, "cores": "all", "precision_percent": 0.1, "step_bytes": 4},
    }

    def unavailable(self) -> str:
        """The pairs are written in the assembler of two processors."""
        here = platform.machine()
        known = here in ("x86_64", "aarch64")
        return "" if known else f"alias_map runs on x86-64 and aarch64 only, and this is {here}"

    def plan(self, params: AliasMapParams) -> dict[str, Any]:
        """The cores."""
        if reason := self.unavailable():
            raise UserError(reason)
        return {"cores": params.resolved_cores()}

    def code(self) -> Build:
        """The kernel."""
        return build("alias_map")

    def take(self, params: AliasMapParams, session: Session) -> str:
        """The whole map once a round on each core, in an order of its own each time."""
        cores = session.plan["cores"]
        with Workers(self.code(), [params.conditions(cpu) for cpu in cores]) as workers:

            def turn(round_: int, arm: int) -> Columns:
                return take_map(workers[arm], params, cores[arm], round_)

            stopped = session.rounds(
                params, len(cores), turn, lambda samples: self.table(samples).half_width, _LEAST_S
            )
            session.note(workers)
        return stopped

    def table(self, samples: Any) -> AliasMapTable:
        """Samples, with all that is computed from them."""
        return AliasMapTable(samples)

    def analyse(self, run: Run) -> list[Finding]:
        """What 4 and 8 KiB cost over 2 KiB; true dependencies and 3 KiB as controls."""
        params = AliasMapParams.make(run.params)
        return region_findings(self.table(run.samples), params.threshold_percent)

    def figures(self, run: Run) -> dict[str, Figure]:
        """The maps, and time against distance."""
        from perflib.experiments.aliasing.map import figures as alias_map_figures

        table = self.table(run.samples)
        return {
            "map": alias_map_figures.maps(table),
            "distance": alias_map_figures.by_distance(table, CONTROL),
        }


def cells_of(params: AliasMapParams) -> list[tuple[int, int, int]]:
    """Region, store's and load's offset of every cell, in bytes."""
    offsets = range(-params.reach_bytes, params.reach_bytes + 1, params.step_bytes)
    return [(region, store, load) for region in REGIONS for store in offsets for load in offsets]


def take_map(worker: Worker, params: AliasMapParams, cpu: int, round_: int) -> Columns:
    """Time every cell once on one core, in a random order; the samples as columns."""
    cells = cells_of(params)
    random.Random(f"{params.seed}/{round_}/{cpu}").shuffle(cells)
    region, store, load = np.array(cells, dtype=np.int64).T
    width = params.step_bytes
    answer, (found, call) = worker.call(
        "alias_map_run", np.ascontiguousarray(store), region + load, len(cells), width,
        params.pairs, params.bursts, Out(SAMPLE, len(cells)), Out(CALL, 1), timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    if answer:
        msg = f"alias_map_run() refuses its arguments (error {answer})"
        raise WorkerError(msg)
    ok = (found["loaded"] == expected_loads(store, region + load, width)) & (call["cpu"][0] == cpu)
    count = len(cells)
    return {
        "cpu": [cpu] * count,
        "region_bytes": region.tolist(),
        "store_bytes": store.tolist(),
        "load_bytes": load.tolist(),
        "pair_ns": found["pair_ns"].round(5).tolist(),
        "core_mhz": [round(float(call["core_mhz"][0]), 1)] * count,
        "start_ns": [int(call["begin_ns"][0])] * count,
        "ok": ok.tolist(),
    }


def expected_loads(store: Sequence[int] | Any, load: Sequence[int] | Any, width: int) -> Any:
    """What each load must find: what was stored where the two agree, the buffer's word elsewhere.

    The reference of ``kernels_c/alias_map.c``: byte ``p`` of its buffer, counted from 1 KiB before
    the place of offset 0, holds ``((p // 8 % 251) ^ (p % 8 * 16)) & 0x7f``.
    """
    place = np.asarray(load, dtype=np.int64)[:, None] + 1024 + np.arange(width)
    held = ((place // 8 % 251) ^ (place % 8 * 16)) & 0x7F
    words = (held.astype(np.uint64) << (8 * np.arange(width, dtype=np.uint64))).sum(
        axis=1, dtype=np.uint64
    )
    stored = np.uint64(2 ** (8 * width) - 1)
    return np.where(np.asarray(store) == np.asarray(load), stored, words)


experiment = AliasMap()
