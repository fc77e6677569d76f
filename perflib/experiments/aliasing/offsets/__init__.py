"""The distance between two buffers, swept: a convolution, copies, and every BLAS's dgemv.

The source's experiment (R. E. Jensen, P. Simonsen, *"Performance bugs" and how to find them*, 2017,
and L. K. Melhus, R. E. Jensen, *Measurement bias from address aliasing*, IPDPSW 2016): large
allocations begin at a page, so their low 12 bits agree, and loads of the one are taken to depend on
stores to the other. Some elements of distance cure it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import BeforeValidator, Field

from perflib.experiments.aliasing.offsets.analyse import offset_findings
from perflib.experiments.aliasing.offsets.arguments import default_offsets
from perflib.experiments.aliasing.offsets.measure import (
    DGEMV,
    FUNCTIONS,
    Configuration,
    OffsetTrials,
    with_calls,
)
from perflib.experiments.aliasing.offsets.simulated import simulated_aliases
from perflib.experiments.aliasing.offsets.table import PERIOD_BYTES, OffsetTable
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Cores, Params, Words, parameter, split_items
from perflib.framework.samples import usable
from perflib.machine.libraries.blas import Blas, chosen
from perflib.model.errors import PerflibError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AliasOffsets", "AliasOffsetsParams", "experiment", "period_of"]

_LEAST_S = 8.0
_ITEM_BYTES = 8
_LEAST_PERIOD = 2048  # below, every offset is near a predicted one
# By build; -O3 with restrict is what a careful author would ship.
_SIMULATED: Mapping[str, list[str]] = {
    "convolution": ["O0", "O2", "O3", "O3-restrict"],
    "copy": ["O2"],
}


Function = Literal["convolution", "copy", "memcpy", "dgemv"]
Functions = Annotated[list[Function], BeforeValidator(split_items), Field(min_length=1)]
Level = Literal["O0", "O2", "O3"]
Levels = Annotated[list[Level], BeforeValidator(split_items), Field(min_length=1)]
Elements = Annotated[
    list[Annotated[int, Field(ge=64, le=1 << 28)]],
    BeforeValidator(split_items),
    Field(min_length=1),
]
Sizes = Annotated[
    list[Annotated[int, Field(ge=4, le=1 << 13)]], BeforeValidator(split_items), Field(min_length=1)
]
Offset = Annotated[int, Field(ge=0, le=1 << 20, multiple_of=4)]
Offsets = Annotated[list[Offset], BeforeValidator(split_items), Field(min_length=2)]
FewOffsets = Annotated[list[Offset], BeforeValidator(split_items)]


class AliasOffsetsParams(Params):
    """Which functions, how built, of what size, at which offsets."""

    cores: Cores = parameter(
        "first",
        "which CPUs to visit: one is enough where all are alike; they are averaged",
    )
    budget_s: float = parameter(
        60.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        0.5,
        "measure until the half-width of what predicted offsets cost is below this, of all "
        "functions",
        "percentage points",
        gt=0,
        le=100,
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
    orders: Annotated[
        list[Literal["column", "row"]], BeforeValidator(split_items), Field(min_length=1)
    ] = parameter(["column", "row"], "how dgemv's matrix is stored")
    sizes: Sizes = parameter([128, 256, 512], "n of dgemv's n by n matrices")
    offsets: Offsets = parameter(
        default_offsets(4),
        "distances of the two buffers modulo 4096, multiples of 4; dgemv takes those of 8. Each "
        "predicted one should have one far from it with the same place in a cache line",
        "B",
    )
    sample_ms: float = parameter(
        1.0,
        "how long each offset is timed in a round, in five samples; one call at least",
        "ms",
        ge=0.05,
        le=10_000,
    )
    threshold_percent: float = parameter(
        5.0, "an offset counts as slow from this on", "percent", gt=0, le=1000
    )
    together: bool = parameter(
        False, "the null test: both buffers move together, by whole cache lines"
    )
    simulated_offsets: FewOffsets = parameter(
        [0, 4, 16, 64, 256, 2048], "offsets at which 4K aliases are simulated; none: not", "B"
    )


def period_of(function: str, order: str, n: int) -> int | None:
    """Where a function is predicted to alias: just above multiples of so many bytes.

    The columns of a matrix begin at several places of a page; all that are loaded from together
    count. By rows dgemv stores one element a row: wherever y lies, one row or another meets it.
    """
    if function != DGEMV:
        return PERIOD_BYTES
    period = math.gcd(_ITEM_BYTES * n, PERIOD_BYTES)
    return period if order == "column" and period >= _LEAST_PERIOD else None


class AliasOffsets(Experiment):
    """Two buffers at a controlled distance, against the time of what reads one and writes one."""

    name = "alias_offsets"
    title = "4K aliasing: the distance between two buffers"
    question = "Is a loop slow because of where its arrays lie, and at which distances?"
    notebook = "10_aliasing_offsets"
    Params: ClassVar[type[Params]] = AliasOffsetsParams
    x86_only = True
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 18.0, "elements": [2048], "sizes": [128, 256], "sample_ms": 0.4},
        "full": {"budget_s": 900.0, "precision_percent": 0.2, "sizes": [64, 128, 256, 512, 1024]},
    }
    columns = (
        Column("round", "integer", "", "number of the round; offsets are compared within", True),
        Column("function", "text", "", "what ran: name, build or library, order, size", True),
        Column("offset_bytes", "integer", "B", "distance of the buffers, modulo 4096", True),
        Column("calls", "integer", "", "how often the function was called", True),
        Column("time_ns", "number", "ns", "wall time of all calls", True),
        Column("cpu", "integer", "", "the core"),
        Column("position", "integer", "", "place of the function's trial in its round"),
        Column("start_ns", "integer", "ns", "when it began; without it rounds count alike"),
        Column("first_address", "integer", "", "where the buffer that is read lies"),
        Column("second_address", "integer", "", "where the buffer that is written lies"),
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column("others_ns", "integer", "ns", "CPU time of other threads of the process meanwhile"),
        Column("involuntary_switches", "integer", "", "times the thread was pushed aside"),
        Column(
            "ok", "boolean", "", "false: its core, threads, places or result are not what they "
            "should be; it is not used",
        ),
    )  # fmt: skip

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: Any) -> dict[str, Any]:
        """The cores, the libraries that are found, and how often each function is called."""
        if reason := self.unavailable():
            raise UserError(reason)
        cores = params.resolved_cores()
        libraries, absent = self._libraries(params)
        configurations = [
            Configuration(core, *what)
            for core in range(len(cores))
            for what in self._wanted(params, libraries)
        ]
        plan: dict[str, Any] = {
            "cores": cores,
            "libraries": [vars(library) for library in libraries],
            "absent": absent,
            "openblas_coretype": {**os.environ, **params.environment}.get("OPENBLAS_CORETYPE"),
            "arms": configurations,
        }
        with self._trials(params, plan) as trials:
            plan["arms"] = with_calls(trials, configurations, params.sample_ms)
        return plan

    @staticmethod
    def _libraries(params: AliasOffsetsParams) -> tuple[list[Blas], str]:
        """The libraries, and why there are none; without a BLAS the other functions go on."""
        if DGEMV not in params.functions:
            return [], ""
        try:
            return chosen(params.blas, params.environment), ""
        except UserError as error:
            if params.blas != ["all"] or params.functions == [DGEMV]:
                raise
            return [], str(error)

    @staticmethod
    def _wanted(
        params: AliasOffsetsParams, libraries: list[Blas]
    ) -> list[tuple[str, str, int, str]]:
        """Function, build, size and order of all that is measured."""
        endings = {"both": ["", "-restrict"], "with": ["-restrict"], "without": [""]}
        builds = [
            level + ending
            for level in dict.fromkeys(params.levels)
            for ending in endings[params.restrict]
        ]
        found: list[tuple[str, str, int, str]] = [
            (function, name, n, "")
            for function in dict.fromkeys(params.functions)
            if function != DGEMV
            for name in (builds if function != "memcpy" else builds[-1:])
            for n in dict.fromkeys(params.elements)
        ]
        found += [
            (DGEMV, library.name, n, order)
            for library in libraries
            for order in dict.fromkeys(params.orders)
            for n in dict.fromkeys(params.sizes)
        ]
        return found

    @staticmethod
    def _trials(params: AliasOffsetsParams, plan: Mapping[str, Any]) -> OffsetTrials:
        return OffsetTrials(
            [Configuration(*configuration) for configuration in plan["arms"]],
            [params.conditions(cpu) for cpu in plan["cores"]],
            [Blas(**library) for library in plan["libraries"]],
            sorted(set(params.offsets)),
            seed=params.seed,
            together=params.together,
        )

    def take(self, params: AliasOffsetsParams, session: Session) -> str:
        """Every function at every offset once a round; then the simulated aliases."""
        plan = session.plan
        with self._trials(params, plan) as trials:
            stopped = session.rounds(
                params, len(plan["arms"]), trials.take, self._half_width, least_s=_LEAST_S
            )
            session.note(trials)
        session.provenance["blas"] = plan["libraries"]
        session.provenance["openblas_coretype"] = plan["openblas_coretype"]
        if plan["absent"]:
            session.problems.append(plan["absent"])
        if stopped != "interrupted":
            self._simulate(params, session)
        return stopped

    def _half_width(self, samples: pd.DataFrame) -> float:
        """The widest, of all functions for which aliasing is predicted somewhere."""
        tables, periods = self.tables(samples), self._periods(samples)
        widths = [
            table.predicted(period).half_width
            for name, table in tables.items()
            if (period := periods.get(name, PERIOD_BYTES)) is not None
        ]
        known = [width if math.isfinite(width) else math.inf for width in widths]
        return max(known, default=math.inf)

    def _simulate(self, params: AliasOffsetsParams, session: Session) -> None:
        builds: dict[str, list[str]] = {
            function: [name for name in names if name[:2] in params.levels]
            for function, names in _SIMULATED.items()
            if function in params.functions
        }
        if not params.simulated_offsets or not any(builds.values()):
            return
        try:
            session.provenance["simulated"] = simulated_aliases(
                builds, sorted(set(params.simulated_offsets))
            )
        except PerflibError as error:
            session.problems.append(f"4K aliases are not simulated: {error}")

    # --- what it says ----------------------------------------------------------------------------

    def tables(self, samples: pd.DataFrame) -> dict[str, OffsetTable]:
        """Samples by function; one of which no sample is usable is left out.

        Raises
        ------
        UserError
            No sample is usable.
        """
        kept = usable(samples, ["time_ns", "calls"])
        found = {str(name): OffsetTable(mine) for name, mine in kept.groupby("function")}
        return dict(sorted(found.items(), key=lambda item: _order(item[0])))

    @staticmethod
    def _periods(samples: pd.DataFrame) -> dict[str, int | None]:
        """Where each function is predicted to alias; a name that is not ours says nothing."""
        found: dict[str, int | None] = {}
        for name in map(str, samples["function"].unique()):
            function, *rest = name.split("-")
            if function == DGEMV and len(rest) > 2 and rest[-1].isdigit():
                found[name] = period_of(function, rest[-2], int(rest[-1]))
            elif function in FUNCTIONS and rest and rest[-1].isdigit():
                found[name] = PERIOD_BYTES
        return found

    def analyse(self, run: Run) -> list[Finding]:
        """Of each function: do the predicted offsets cost time, and does any?"""
        params = AliasOffsetsParams.make(run.params)
        periods = self._periods(run.samples)
        tables = self.tables(run.samples)
        return [
            finding
            for name, table in tables.items()
            for finding in offset_findings(
                name, table, params.threshold_percent, periods.get(name, PERIOD_BYTES)
            )
        ]

    def figures(self, run: Run) -> dict[str, Figure]:
        """Time against offset, a figure for each kind of function; and what offsets cost in all."""
        from perflib.experiments.aliasing.offsets import figures as alias_offsets_figures

        return alias_offsets_figures.figures(
            self.tables(run.samples), self._periods(run.samples), self.analyse(run),
            run.provenance.get("simulated"),
        )  # fmt: skip


def _order(name: str) -> tuple[int, str]:
    """Functions in their order, and within it sizes by their numbers."""
    function, *rest = name.split("-")
    known = [*FUNCTIONS, DGEMV]
    place = known.index(function) if function in known else len(known)
    return place, "-".join([*rest[:-1], *(word.rjust(12) for word in rest[-1:])])


experiment = AliasOffsets()
