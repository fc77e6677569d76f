"""The distance between two buffers, swept: a convolution, copies, and every BLAS's dgemv.

The experiment of Jensen and Simonsen, *"Performance bugs" and how to find them* (Storage Developer
Conference, 2017), and of L. K. Melhus and R. E. Jensen, *Measurement bias from address aliasing*
(IPDPSW 2016): large allocations begin at a page, so their low 12 bits agree, and loads of the one
are taken to depend on stores to the other. Some elements of distance cure it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perflib.experiments.aliasing.addresses import default_offsets
from perflib.experiments.aliasing.offsets.claims import ALIASES, ALIASES_SHARED, SLOWEST
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    AnyItems,
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

__all__ = ["AliasOffsets", "AliasOffsetsParams", "experiment"]

Function = Literal["convolution", "copy", "memcpy", "dgemv"]
Functions = Items[Function]
Level = Literal["O0", "O2", "O3"]
Levels = Items[Level]
Order = Literal["column", "row"]
Orders = Items[Order]
Elements = Items[Annotated[int, Field(ge=64, le=1 << 28)]]
Sizes = Items[Annotated[int, Field(ge=4, le=1 << 13)]]
Offset = Annotated[int, Field(ge=0, le=1 << 20, multiple_of=4)]
Offsets = Annotated[AnyItems[Offset], Field(min_length=2)]
FewOffsets = AnyItems[Offset]


class AliasOffsetsParams(Params):
    """Which functions, how built, of what size, at which offsets."""

    cores: Cores = parameter(
        "first",
        "which CPUs to visit: one is enough where all are alike; they are averaged",
    )
    budget_s: float = budget(60.0)
    precision_percent: float = precision(
        0.5, "the half-width of what predicted offsets cost is below this, of all functions"
    )
    functions: Functions = parameter(
        ["convolution", "copy", "memcpy", "dgemv"],
        "what is swept: the five-tap convolution, a copy by a loop, the C library's memcpy, "
        "the matrix-vector product of each BLAS",
    )
    elements: Elements = parameter(
        [2048, 1048576], "lengths of the arrays of convolution and copies", "floats"
    )
    levels: Levels = parameter(
        ["O0", "O2", "O3"], "the compiler's optimisation of convolution and copy"
    )
    restrict: Literal["both", "with", "without"] = parameter(
        "both", "whether convolution and copy say that their arrays do not overlap"
    )
    blas: Words = parameter(
        ["all"], "BLAS libraries for dgemv: names, paths of shared libraries, or 'all'"
    )
    orders: Orders = parameter(["column", "row"], "how dgemv's matrix is stored")
    sizes: Sizes = parameter([128, 256, 512], "n of dgemv's n by n matrices")
    offsets: Offsets = parameter(
        default_offsets(4),
        "distances of the two buffers modulo 4096, multiples of 4; dgemv takes those of 8. Each "
        "predicted one should have one far from it with the same place in a cache line",
        "B",
    )
    sample_ms: float = parameter(
        1.0,
        "how long each offset is timed in a round, in samples of 0.25 ms; one call at least",
        "ms",
        ge=0.05,
        le=10_000,
    )
    threshold_percent: float = limit(5.0, "an offset counts as slow from this on")
    together: bool = parameter(
        False, "the null test: both buffers shift together, by whole cache lines"
    )
    simulated_offsets: FewOffsets = parameter(
        [0, 4, 16, 64, 256, 2048], "offsets at which 4K aliases are simulated; none: not", "B"
    )


class AliasOffsets(Experiment, about=__file__):
    """Two buffers at a controlled distance, against the time of what reads one and writes one."""

    name = "alias_offsets"
    notebook = "10_aliasing_offsets"
    Params = AliasOffsetsParams
    columns = (
        key("round", "integer", "number of the round; offsets are compared within"),
        key("function", "text", "what ran, in one word"),
        key("offset_bytes", "integer", "distance of the buffers, modulo 4096", "B", most=2**20),
        Column("calls", "integer", "", "how often the function was called", True, least=1),
        Column("time_ns", "number", "ns", "wall time of all calls", True, "measured"),
        Column(
            "routine", "text", "", "convolution, copy, memcpy or dgemv; empty: another function"
        ),
        Column("build", "text", "", "optimisation of the kernel, or the name of the library"),
        Column("n", "integer", "", "floats, or rows and columns of the matrix"),
        Column("order", "text", "", "how dgemv's matrix is stored: column or row"),
        Column("cpu", "integer", "", "the core", role="key"),
        Column("position", "integer", "", "place of the function's trial in its round"),
        Column("start_ns", "integer", "ns", "when it began; without it rounds count alike"),
        Column("first_address", "integer", "", "address of the buffer that is read"),
        Column("second_address", "integer", "", "address of the buffer that is written"),
        *PROBE_COLUMNS,
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column(
            "others_ns",
            "integer",
            "ns",
            "CPU time of other threads of the process meanwhile",
            least=-(10**18),
        ),
        Column("involuntary_switches", "integer", "", "times the thread was preempted"),
        ok("its core, threads, places or result are not what they should be"),
        *RESULTS,
    )
    same_work = ("function",)
    claims = (ALIASES, ALIASES_SHARED, SLOWEST)

    def _steps(self) -> Steps[AliasOffsetsParams]:
        from perflib.experiments.aliasing.offsets import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.aliasing.offsets import figures

        return figures


experiment = AliasOffsets()
