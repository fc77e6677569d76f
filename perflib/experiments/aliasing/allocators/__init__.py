"""Which allocators give buffers whose addresses alias, and what that costs.

Jensen and Simonsen (*"Performance bugs" and how to find them*, Storage Developer Conference, 2017)
printed the addresses of pairs of equal buffers from four allocators: large ones are mapped, begin
at a page, and so share their low 12 bits.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perflib.experiments.aliasing.allocators.claims import (
    COST,
    COST_SHARED,
    SHARES,
    SHARES_AGAIN,
)
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    Cores,
    Items,
    Params,
    Words,
    budget,
    limit,
    parameter,
    precision,
)
from perflib.framework.results import RESULTS
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps

__all__ = ["Allocators", "AllocatorsParams", "experiment"]

Function = Literal["convolution", "copy"]
Functions = Items[Function]
Sizes = Annotated[Items[Annotated[int, Field(ge=8, le=1 << 28)]], Field(max_length=64)]
TimedSizes = Items[Annotated[int, Field(ge=64, le=1 << 28, multiple_of=4)]]


class AllocatorsParams(Params):
    """Which allocators, pairs of what sizes, and what is timed on them."""

    cores: Cores = parameter(
        "first",
        "which CPUs to visit: one is enough where all are alike; they are averaged",
    )
    budget_s: float = budget(40.0)
    precision_percent: float = precision(0.5, "the half-width of every cost is below this")
    allocators: Words = parameter(
        ["all"],
        "glibc (the C library's own), tcmalloc, jemalloc, mimalloc, hoard, absolute paths of "
        "shared libraries, or 'all' that are installed",
    )
    sizes: Sizes = parameter(
        [
            64, 256, 1024, 5120, 16384, 65536, 131072, 262144,
            1048576, 4194304, 16777216,
        ],
        "of the buffers whose addresses are recorded; Jensen and Simonsen's: 5120 and 1048576",
        "B",
    )  # fmt: skip
    pairs: int = parameter(6, "pairs of each size in each process", ge=1, le=128)
    processes: int = parameter(
        16, "fresh processes in which addresses are recorded, of each allocator", ge=1, le=10_000
    )
    large_bytes: int = parameter(
        131072,
        "the claim on addresses is made of buffers of this size and more",
        "B",
        ge=1,
        le=1 << 28,
    )
    share_percent: float = parameter(
        50.0,
        "an allocator counts as aliasing if more of the large pairs share their low 12 bits",
        "percent",
        ge=0,
        le=100,
    )
    functions: Functions = parameter(
        ["convolution", "copy"], "what is timed from the first buffer of a pair to the second"
    )
    timed_sizes: TimedSizes = parameter(
        [8192, 262144, 4194304], "of the buffers on which functions are timed, multiples of 4", "B"
    )
    level: Literal["O0", "O2", "O3"] = parameter(
        "O2", "the compiler's optimisation of what is timed"
    )
    sample_ms: float = parameter(
        0.25, "how long a function is timed at once; one call at least", "ms", ge=0.01, le=1000
    )
    threshold_percent: float = limit(5.0, "aliasing counts as costly from this on")
    control: bool = parameter(
        False, "the null test: the far buffer is the one at the same distance, timed again"
    )


class Allocators(Experiment, about=__file__):
    """Pairs of equal buffers from every allocator: where they are, and what that costs."""

    name = "allocators"
    notebook = "11_aliasing_allocators"
    Params = AllocatorsParams
    columns = (
        key("round", "integer", "number of the round; each trial is a fresh process"),
        key("allocator", "text", "where malloc comes from"),
        key("state", "text", "the pair: new, again (after frees), or timed (new)"),
        key("size_bytes", "integer", "of each of the two buffers", "B", least=64),
        Column("first_address", "integer", "", "of the first buffer", True),
        Column("second_address", "integer", "", "of the second, or of the one in its place", True),
        Column("function", "text", "", "what is timed; empty where nothing is", role="key"),
        Column(
            "place",
            "text",
            "",
            "second buffer: given (malloc's), same (ours, at that distance), "
            "far (ours, far from aliasing)",
            role="key",
        ),
        Column("calls", "number", "", "how often the function was called", least=1),
        Column("time_ns", "number", "ns", "wall time of all calls", role="measured"),
        *PROBE_COLUMNS,
        Column("cpu", "integer", "", "the core", role="key"),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("start_ns", "integer", "ns", "when it began; without it rounds count alike"),
        ok("the core, the place or the result is not what it should be"),
        *RESULTS,
    )

    same_work = ("function", "size_bytes")
    claims = (SHARES, SHARES_AGAIN, COST, COST_SHARED)
    published_table = "aliasing_allocator_addresses"
    renamed = {"sham": "control"}

    def _steps(self) -> Steps[AllocatorsParams]:
        from perflib.experiments.aliasing.allocators import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.aliasing.allocators import figures

        return figures


experiment = Allocators()
