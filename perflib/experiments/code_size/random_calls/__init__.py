"""Random calls: what instruction caches cost, on each core.

Many generated functions are called in random order, so that their code goes from inside the
first-level instruction cache to beyond the second level. The source's first synthetic benchmark: it
ran 20 % longer on core 8 than on the others, and yet acquitted the caches in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from pydantic import model_validator

from perflib.experiments.code_size.analyse import (
    Reaches,
    broken_up,
    core_findings,
    huge_pages_finding,
    page_finding,
    step_finding,
)
from perflib.experiments.code_size.hypotheses import hypotheses
from perflib.experiments.code_size.sweep import CodeParams, CodeSweep, Sizes, synthetic_benchmarks
from perflib.framework.params import Params, parameter
from perflib.kernels import Build, build
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RandomCalls", "RandomCallsParams", "experiment"]

_MOST_BYTES = 64 << 20
_LINE_BYTES = 64


class RandomCallsParams(CodeParams):
    """How many functions, and how large."""

    sizes_kib: Sizes = parameter(
        [8, 16, 24, 32, 48, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096],
        "sizes of the code that is called: a list such as 16,64,1024",
        "KiB",
    )
    functions: int = parameter(
        8192, "how many functions are built; a size calls the first of them", ge=2, le=1 << 20
    )
    function_bytes: int = parameter(
        512, "size of one function, a multiple of 64", "B", ge=64, le=65536, multiple_of=64
    )

    @model_validator(mode="after")
    def _code_is_not_too_large(self) -> RandomCallsParams:
        size = self.functions * self.function_bytes
        if size > _MOST_BYTES:
            msg = (
                f"functions: {self.functions} of {self.function_bytes} B are {size >> 20} MiB of "
                f"code; {_MOST_BYTES >> 20} MiB is the most. Build fewer, or smaller ones"
            )
            raise ValueError(msg)
        return self


class RandomCalls(CodeSweep):
    """Functions called in random order, against the size of their code."""

    name = "random_calls"
    title = "Random calls: instruction caches"
    question = "What does a call cost when the code no longer fits into a cache, on which core?"
    notebook = "04_instruction_cache"
    Params: ClassVar[type[Params]] = RandomCallsParams
    patterns = ("random",)
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 20.0},
        "full": {"budget_s": 600.0, "cores": "all", "precision_percent": 0.2, "turn_ms": 20.0},
    }

    def code(self, params: RandomCallsParams) -> Build:
        """The kernel with as many functions."""
        return build("random_calls", define=self._define(params))

    @staticmethod
    def _define(params: RandomCallsParams) -> dict[str, int]:
        return {"FUNCTIONS": params.functions, "FUNCTION_BYTES": params.function_bytes}

    def analyse(self, run: Run) -> list[Finding]:
        """Each core; each cache; the pages; and what explains the time of large code."""
        params = RandomCallsParams.make(run.params)
        machine = run.provenance.get("machine", {})
        table, reaches = self.table_of(run), Reaches.of(machine)
        where = {place["cpu"]: place["where"] for place in machine.get("cpus", ())}
        threshold, pattern = params.threshold_percent, table.patterns[0]
        found = huge_pages_finding(run.provenance.get("plan", {}).get("page_reach", {}))
        broken = bool(table.huge) and broken_up(found, table.huge[0])
        found += core_findings(table, pattern, reaches, threshold, where)
        for cache, size in reaches.caches.items():
            found += filter(None, [step_finding(table, pattern, cache, size, threshold)])
        found += filter(None, [page_finding(table, pattern, threshold, broken=broken)])
        return found + hypotheses(table, pattern, reaches, threshold, broken=broken)

    def figures(self, run: Run) -> dict[str, Figure]:
        """Time a call against the size of the code; the cores' difference; the pages'."""
        from perflib.experiments.code_size import figures as code_figures

        reaches = Reaches.of(run.provenance.get("machine", {}))
        table = self.table_of(run)
        pattern = table.patterns[0]
        drawn = {"time_per_call": code_figures.time_per_step(table, pattern, reaches, "call")}
        if len(table.cores) > 1:
            drawn["core_difference"] = code_figures.core_difference(table, pattern, reaches)
        if table.huge and "4k" in table.backings:
            drawn["page_ratio"] = code_figures.page_ratio(table, reaches, {})
        return drawn

    def published(self) -> pd.DataFrame:
        """What the source reports of its two synthetic benchmarks."""
        return synthetic_benchmarks()


experiment = RandomCalls()
