"""The code segment: does the instruction TLB's reach show, and do huge pages for code help?

The second synthetic benchmark of Guerri et al. 2015, in which a large switch dispatches random
opcodes: core 8 of a Haswell server fell behind from 512 KiB of code on, by 9.4 % at 3 MiB, and not
at all with pages of 2 MiB.
"""

from __future__ import annotations

from pydantic import model_validator

from perflib.experiments.code_size import CodeParams, CodeSweep, Sizes
from perflib.experiments.code_size.claims import OF_THE_SEGMENT
from perflib.framework.params import Words, known_names, limit, parameter
from perflib.framework.steps import Drawing, Steps

__all__ = ["CodeSegment", "CodeSegmentParams", "experiment"]

_PATTERNS = ("random", "page", "chase", "line")  # by default
_ALL = (*_PATTERNS, "compiled")


class CodeSegmentParams(CodeParams):
    """Which patterns, and what counts as the TLB's knee."""

    patterns: Words = parameter(
        list(_PATTERNS),
        "'random': cases of the switch drawn at random; 'page': one case a page, at random; "
        "'chase': a ring of jumps, one a page; 'line': its control, as many jumps on a 64th of the "
        "pages; 'compiled': the control of 'random', a switch that the C compiler made (several "
        "seconds, once)",
    )
    sizes_kib: Sizes = parameter(
        [
            8, 32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792,
            2048, 2560, 3072, 4096,
        ],
        "extents of the code: a list such as 64,512,4096; to 4096, to 16384 for 'chase'; "
        "'compiled' leaves those above 2048 out. Between them the rings have more, near the reach "
        "of the instruction TLB and half of it",
        "KiB",
    )  # fmt: skip
    knee_percent: float = limit(
        20.0, "a knee so near to the reach that CPUID reports counts as the TLB's", le=100
    )
    visible_percent: float = limit(
        5.0,
        "there is said to be no knee only where 4 KiB pages cost less than this at every size",
        le=100,
    )
    simulated_sizes: int = parameter(
        8, "at how many sizes iTLB misses are simulated afterwards (0: none)", ge=0, le=100
    )
    perf_map: bool = parameter(
        False,
        "write /tmp/perf-PID.map meanwhile, so that a profiler that attaches to a worker can name "
        "the cases",
    )

    @model_validator(mode="after")
    def _patterns_exist(self) -> CodeSegmentParams:
        known_names("patterns", "pattern", self.patterns, _ALL)
        return self


class CodeSegment(CodeSweep, about=__file__):
    """A switch of 32,768 cases, of which n are in use, on small and on huge pages."""

    name = "code_segment"
    notebook = "05_code_segment"
    Params = CodeSegmentParams
    claims = OF_THE_SEGMENT

    def _steps(self) -> Steps[CodeSegmentParams]:
        from perflib.experiments.code_size.code_segment import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.code_size.code_segment import figures

        return figures


experiment = CodeSegment()
