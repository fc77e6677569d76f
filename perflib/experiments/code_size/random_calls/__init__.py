"""Random calls: what instruction caches cost, on each core.

Many generated functions are called in random order, so that their code goes from inside the
first-level instruction cache to beyond the second level. The first synthetic benchmark of Guerri et
al. 2015: it ran 20 % longer on core 8 than on the others, and yet the caches were not the cause.
"""

from __future__ import annotations

from pydantic import model_validator

from perflib.experiments.code_size import TABLES, CodeParams, CodeSweep, Sizes
from perflib.experiments.code_size.claims import SHARED, STEP, STEP_SHARED
from perflib.framework.params import parameter
from perflib.framework.steps import Drawing, Steps

__all__ = ["RandomCalls", "RandomCallsParams", "experiment"]

_MOST_BYTES = 64 << 20


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
    Params = RandomCallsParams
    presets = {
        "quick": {"budget_s": 20.0},
        "full": {"budget_s": 600.0, "cores": "all", "precision_percent": 0.2, "trial_ms": 20.0},
    }
    claims = (*SHARED, STEP, STEP_SHARED)
    tables = {
        "time_per_call": "time of a call against the size of the code, on each core and backing",
        "miss_costs": "what a call costs that misses a cache, by a model of random accesses",
        **TABLES,
    }
    plots = {
        "time_per_call": "time of a call against the size of the code",
        "core_difference": "how much slower each core is than the others, at each size",
        "page_ratio": "how much longer the same code takes on 4 KiB than on 2 MiB pages",
    }

    def _steps(self) -> Steps[RandomCallsParams]:
        from perflib.experiments.code_size.random_calls import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.code_size.random_calls import figures

        return figures


experiment = RandomCalls()
