"""The store-load map: what a load costs after a store that agrees with it in the low 12 bits.

A processor compares a load with the stores before it by the low bits of their addresses first. Two
addresses that are a multiple of 4 KiB apart look alike, and the load waits for nothing. Here a
store and a load are timed at every pair of offsets around 0, 2, 4 and 8 KiB: no program, no
allocator, nothing but the mechanism. What it costs a pair is the bound for whole programs.
"""

from __future__ import annotations

from perflib.experiments.aliasing.map.claims import WAITS, WAITS_SHARED
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params, budget, limit, parameter, precision
from perflib.framework.schema import Column, key
from perflib.framework.steps import Drawing, Steps

__all__ = ["AliasMap", "AliasMapParams", "experiment"]

_MOST_REACH_BYTES = 256


class AliasMapParams(Params):
    """Which offsets, and how long each is timed."""

    budget_s: float = budget(10.0)
    precision_percent: float = precision(
        0.5, "the half-width of what 4 KiB and 8 KiB cost over 2 KiB is below this"
    )
    step_bytes: int = parameter(
        8, "steps between offsets, and the width of the accesses: 4 or 8", "B", ge=4, le=8,
        multiple_of=4,
    )  # fmt: skip
    reach_bytes: int = parameter(
        64,
        "how far the offsets go to either side",
        "B",
        ge=8,
        le=_MOST_REACH_BYTES,
        multiple_of=8,
    )
    pairs: int = parameter(
        16384, "pairs of one store and one load in a burst", ge=1024, le=1 << 24, multiple_of=32
    )
    bursts: int = parameter(
        5, "bursts a pair of offsets and round, of which the fastest counts", ge=1, le=1000
    )
    threshold_percent: float = limit(5.0, "pairs count as slower from this on")


class AliasMap(Experiment, about=__file__):
    """A store and a load at every pair of offsets, around distances of 0, 2, 3, 4 and 8 KiB."""

    name = "alias_map"
    notebook = "09_aliasing_environment"
    Params = AliasMapParams
    columns = (
        key("round", "integer", "number of the round; cells are compared within"),
        key("cpu", "integer", "the core"),
        key("region_bytes", "integer", "distance without the offsets", "B", most=2**20),
        key(
            "store_bytes",
            "integer",
            "the store's offset",
            "B",
            least=-_MOST_REACH_BYTES,
            most=_MOST_REACH_BYTES,
        ),
        key(
            "load_bytes",
            "integer",
            "the load's offset, from the region on",
            "B",
            least=-_MOST_REACH_BYTES,
            most=_MOST_REACH_BYTES,
        ),
        Column(
            "pair_ns", "number", "ns", "time of one pair, of the fastest burst", True, "measured"
        ),
        Column("core_mhz", "number", "MHz", "the core's frequency, before and after the round"),
        Column("start_ns", "integer", "ns", "when the slice began: cells that share two probes"),
        Column("time_ns", "number", "ns", "wall time of the slice"),
        *PROBE_COLUMNS,
        Column("ok", "boolean", "", "false: the load found a wrong value, or on another core"),
    )

    claims = (WAITS, WAITS_SHARED)

    def _steps(self) -> Steps[AliasMapParams]:
        from perflib.experiments.aliasing.map import analyse, measure

        return Steps(measure, analyse)

    def _figures(self) -> Drawing:
        from perflib.experiments.aliasing.map import figures

        return figures


experiment = AliasMap()
