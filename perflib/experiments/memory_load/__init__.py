"""Memory under load: what a load takes while others use memory, and how much cores move at once.

Idle latency is what one core sees that is alone with its memory. Programs run on all cores: then
requests queue up before the memory controllers, and latency rises with the bandwidth that is used,
slowly at first and steeply near saturation. One core runs a chase of dependent loads
(`memory_levels`), the others stream through memory at set rates; what they move is measured
in the same milliseconds. So is the bandwidth itself: McCalpin's four STREAM kernels by their
own rules, reads, writes, non-temporal writes and a mix of one to one.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perflib.experiments.memory_load.claims import CLAIMS
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    AnyItems,
    Params,
    Words,
    budget,
    known_names,
    parameter,
    precision,
)
from perflib.framework.schema import Column
from perflib.framework.steps import Drawing, Steps
from perflib.measure.stream_kinds import KINDS, Kind

__all__ = ["KINDS", "MemoryLoad", "MemoryLoadParams", "experiment"]

Rates = Annotated[AnyItems[Annotated[float, Field(gt=0, lt=100)]], Field(max_length=32)]


class MemoryLoadParams(Params):
    """Which cores load memory, how, and how fast."""

    budget_s: float = budget(45.0)
    precision_percent: float = precision(
        1.0, "the half-widths are below this: of the rise at the highest rate, and of all cores' "
        "bandwidth",
    )  # fmt: skip
    traffic: Kind = parameter(
        "read", "what the cores do that load memory while another measures its latency"
    )
    rates: Rates = parameter(
        [10, 25, 40, 55, 70, 85],
        "at which rates they do it, in addition to 0 and as fast as they can",
        "percent",
    )
    kinds: Words = parameter(
        ["all"],
        f"whose bandwidth is measured: {', '.join(KINDS)}, 'all', or 'none'; update is one read "
        "to one write, copy to triad are STREAM's",
    )
    array_mib: int | None = parameter(
        None,
        "size of each array, of four a node (none: four times the last-level caches of the node "
        "and at least 64 MiB, but all together half of the free memory at most)",
        "MiB",
        ge=1,
        le=1 << 16,
    )
    backing: Literal["4k", "thp", "collapse"] = parameter(
        "4k", "the pages of the arrays: 4 KiB, or 2 MiB by the kernel's choice or demand"
    )
    trial_ms: float = parameter(
        1.0,
        "how long loads are timed between two probes; a bandwidth is timed five times as long",
        "ms",
        ge=0.1,
        le=100,
    )
    repeats: int = parameter(6, "how often, in each trial", ge=1, le=25)
    threshold_percent: float = parameter(
        10.0, "latency has risen, and a core moves less, from this on", "percent", gt=0, le=1000
    )

    @model_validator(mode="after")
    def _kinds_exist(self) -> Self:
        known_names("kinds", "kind", self.kinds, KINDS, alone=["all", "none"])
        return self

    @property
    def measured_kinds(self) -> list[str]:
        """The kinds by name, in the kernel's order."""
        return [kind for kind in KINDS if kind in self.kinds or self.kinds == ["all"]]


class MemoryLoad(Experiment, about=__file__):
    """Latency of memory while other cores load it, and the bandwidth of cores and nodes."""

    name = "memory_load"
    notebook = "18_memory_load"
    Params = MemoryLoadParams
    live_rounds = 2
    placed_by_line = True
    claims = CLAIMS
    columns = (
        Column("round", "integer", "", "number of the round; comparisons are within", True, "key"),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("what", "text", "", "what was measured: 'latency', while others may stream, or "
               "'bandwidth'", True, "key", values=("latency", "bandwidth")),
        Column("cpu", "integer", "", "the core that loads; of a bandwidth, the first that streams",
               True, "key"),
        Column("streams", "text", "", "the cores that stream, as 0-3,8; 'none': all are idle",
               True, "key"),
        Column("memory_node", "integer", "", "the NUMA node of the memory", True, "key"),
        Column("core_node", "integer", "", "the NUMA node of the cores", True, "key"),
        Column("kind", "text", "", "what is streamed: read, write, copy ...", True, "key"),
        Column("load", "text", "", "'idle': nobody streams; 'cache': through the cores' own "
               "caches, the control; 'memory'", True, "key", values=("idle", "cache", "memory")),
        Column("rate_percent", "number", "percent", "the rate that was set, of the highest (100)",
               True, "key", least=0),
        Column("repeat", "integer", "", "number of the repeat in its trial", role="key"),
        Column("bandwidth_gb_s", "number", "GB/s", "what was moved meanwhile, by STREAM's count",
               True, least=0),
        Column("latency_ns", "number", "ns", "CPU time of one load that waits for the last; "
               "missing of a bandwidth", role="measured"),
        Column("core_share", "number", "", "of the time, what the streaming core with least of it "
               "had its core", least=0, most=2),
        Column("loads", "integer", "", "how many loads were timed"),
        Column("time_ns", "number", "ns", "wall time"),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        *PROBE_COLUMNS,
        Column("ok", "boolean", "", "false: its conditions were not in force, or what was moved "
               "was wrong; it is not used"),
    )  # fmt: skip

    def _steps(self) -> Steps[MemoryLoadParams]:
        from perflib.experiments.memory_load import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.memory_load import figures

        return figures


experiment = MemoryLoad()
