"""The code segment: does the instruction TLB's reach show, and do huge pages for code help?

The source's second synthetic benchmark, in which a large switch dispatches random opcodes: core 8
of a Haswell server fell behind from 512 KiB of code on, by 9.4 % at 3 MiB, and not at all with
pages of 2 MiB.
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
    knee_finding,
    page_finding,
)
from perflib.experiments.code_size.code_segment.simulated import simulated_misses, spread
from perflib.experiments.code_size.hypotheses import hypotheses
from perflib.experiments.code_size.sweep import CodeParams, CodeSweep, Sizes, synthetic_benchmarks
from perflib.experiments.code_size.table import SMALL_PAGES, CodeTable
from perflib.framework.experiment import Session
from perflib.framework.params import Params, Words, parameter
from perflib.kernels import Build, build
from perflib.model.errors import PerflibError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CodeSegment", "CodeSegmentParams", "experiment"]

_PATTERNS = ("random", "page", "chase", "line")


class CodeSegmentParams(CodeParams):
    """Which patterns, and what counts as the TLB's knee."""

    patterns: Words = parameter(
        list(_PATTERNS),
        "'random': cases of the switch drawn at random; 'page': one case a page, at random; "
        "'chase': a ring of jumps, one a page; 'line': its control, as many jumps on a 64th of the "
        "pages",
    )
    sizes_kib: Sizes = parameter(
        [
            8, 32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792,
            2048, 2560, 3072, 4096,
        ],
        "extents of the code: a list such as 64,512,4096; to 4096, and to 16384 for 'chase'",
        "KiB",
    )  # fmt: skip
    knee_percent: float = parameter(
        20.0,
        "a knee so near to the reach that CPUID reports counts as the TLB's",
        "percent",
        gt=0,
        le=100,
    )
    visible_percent: float = parameter(
        5.0,
        "there is said to be no knee only where 4 KiB pages cost less than this at every size",
        "percent",
        gt=0,
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
        for name in self.patterns:
            if name not in _PATTERNS:
                msg = f"patterns: {choose('pattern', name, _PATTERNS)}"
                raise ValueError(msg)
        return self


class CodeSegment(CodeSweep):
    """A switch of 32,768 cases, of which n are in use, on small and on huge pages."""

    name = "code_segment"
    title = "The code segment: iTLB reach and huge pages"
    question = "Is large code slow because of its pages, is the knee the iTLB's, on which core?"
    notebook = "05_code_segment"
    Params: ClassVar[type[Params]] = CodeSegmentParams
    patterns = _PATTERNS
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 25.0, "simulated_sizes": 5},
        "full": {"budget_s": 900.0, "cores": "all", "precision_percent": 0.2, "turn_ms": 20.0},
    }

    def code(self, _params: CodeSegmentParams) -> Build:
        """The kernel: one build serves every n."""
        return build("code_segment")

    def program(self) -> Build:
        """Linked as libhugetlbfs wants it."""
        return build("code_segment", variant="hugectl", executable=True)

    def wanted(self, params: CodeSegmentParams) -> tuple[str, ...]:
        """As the parameters say."""
        return tuple(dict.fromkeys(params.patterns))

    def _simulated(self, params: CodeSegmentParams) -> list[str]:
        """Not the chase's control, of which a page holds 64 jumps, nor what misses as others do."""
        wanted = self.wanted(params)
        alike = {"line", "page"} if "random" in wanted else {"line"}
        return [name for name in wanted if name not in alike]

    def take(self, params: CodeSegmentParams, session: Session) -> str:
        """Measure, then simulate the misses at some of the sizes."""
        stopped = super().take(params, session)
        if params.simulated_sizes and stopped != "interrupted":
            arms = session.plan["arms"]
            numbers = {
                pattern: sorted({n for _, name, n, *_ in arms if name == pattern})
                for pattern in self._simulated(params)
            }
            chosen = {
                name: spread(found, params.simulated_sizes) for name, found in numbers.items()
            }
            try:
                program = build("code_segment", executable=True).library
                session.provenance["simulated"] = simulated_misses(program, chosen)
            except PerflibError as error:
                session.problems.append(f"iTLB misses are not simulated: {error}")
        return stopped

    def analyse(self, run: Run) -> list[Finding]:
        """The knee of each pattern; each core; the pages; what explains the time of large code."""
        params = CodeSegmentParams.make(run.params)
        machine = run.provenance.get("machine", {})
        table, reaches = self.table_of(run), Reaches.of(machine)
        where = {place["cpu"]: place["where"] for place in machine.get("cpus", ())}
        threshold = params.threshold_percent
        found = huge_pages_finding(run.provenance.get("plan", {}).get("page_reach", {}))
        broken = bool(table.huge) and broken_up(found, table.huge[0])
        found += self._knees(table, reaches, params, broken=broken)
        for pattern in table.sweeps:
            found += filter(None, [page_finding(table, pattern, threshold, broken=broken)])
        main = table.sweeps[0]  # the source's own, where it was measured
        found += core_findings(table, main, reaches, threshold, where)
        return found + hypotheses(table, main, reaches, threshold, broken=broken)

    @staticmethod
    def _knees(
        table: CodeTable, reaches: Reaches, params: CodeSegmentParams, *, broken: bool
    ) -> list[Finding]:
        """The chase's knee, against the best control there is; those of the other patterns."""
        near, visible = params.knee_percent, params.visible_percent
        found: list[Finding] = []
        on_huge = bool(table.huge) and SMALL_PAGES in table.backings
        ring = table.has_ring_control and (broken or not on_huge)
        if ring:
            control = "a ring of as many jumps on a 64th of the pages"
            found.append(
                knee_finding(
                    table.ring_knees(), reaches.tlbs, subject="knee", pattern="chase",
                    control=control, tolerance=near, visible=visible,
                )
            )  # fmt: skip
        for pattern in ("chase", "page", "random") if on_huge else ():
            if pattern not in table.patterns or (pattern == "chase" and ring):
                continue
            found.append(
                knee_finding(
                    table.knees(pattern, table.huge[0]), reaches.tlbs, pattern=pattern,
                    subject=f"knee {pattern}" if found else "knee", broken=broken,
                    tolerance=near, visible=visible,
                )
            )  # fmt: skip
        return found

    def figures(self, run: Run) -> dict[str, Figure]:
        """Times against the size of the code; cores and pages compared; simulated misses."""
        from perflib.experiments.code_size import figures as code_figures

        reaches = Reaches.of(run.provenance.get("machine", {}))
        table = self.table_of(run)
        drawn = {
            f"time_{pattern}": code_figures.time_per_step(table, pattern, reaches, "step")
            for pattern in table.sweeps
        }
        if table.huge and SMALL_PAGES in table.backings:
            knees = {name: table.knees(name, table.huge[0]) for name in table.sweeps}
            drawn["page_ratio"] = code_figures.page_ratio(table, reaches, knees)
        if table.has_ring_control:
            drawn["ring_ratio"] = code_figures.ring_ratio(table, reaches)
        if len(table.cores) > 1:
            drawn["core_difference"] = code_figures.core_difference(table, table.sweeps[0], reaches)
        if "simulated" in run.provenance:
            drawn["misses"] = code_figures.misses(table, run.provenance["simulated"], reaches)
        return drawn

    def published(self) -> pd.DataFrame:
        """What the source reports of its two synthetic benchmarks."""
        return synthetic_benchmarks()


experiment = CodeSegment()
