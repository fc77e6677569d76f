"""Random calls: what instruction caches cost, on each core.

Many generated functions are called in random order, so that their code goes from inside the
first-level instruction cache to beyond the second level. The first synthetic benchmark of Guerri et
al. 2015: it ran 20 % longer on core 8 than on the others, and yet the caches were not the cause.
"""

from __future__ import annotations

from pydantic import model_validator

from perflib.experiments.code_size import CodeParams, CodeSweep, Sizes
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


class RandomCalls(CodeSweep, about=__file__):
    """Functions called in random order, against the size of their code."""

    name = "random_calls"
    notebook = "04_instruction_cache"
    Params = RandomCallsParams
    claims = (*SHARED, STEP, STEP_SHARED)

    def _steps(self) -> Steps[RandomCallsParams]:
        from perflib.experiments.code_size.random_calls import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.code_size.random_calls import figures

        return figures


experiment = RandomCalls()
