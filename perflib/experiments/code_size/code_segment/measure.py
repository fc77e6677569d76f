"""How the code segment is measured: a sweep, and simulated misses at some of its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perflib.experiments.code_size import measure
from perflib.experiments.code_size.code_segment.simulated import simulated_misses, spread
from perflib.experiments.code_size.measure import Sweep
from perflib.kernels import Build, build
from perflib.model.errors import PerflibError

if TYPE_CHECKING:
    from perflib.experiments.code_size.code_segment import CodeSegmentParams
    from perflib.framework.experiment import Session

__all__ = ["pilot", "plan", "program", "sweep", "take"]


def program() -> Build:
    """The kernel as a program, linked as libhugetlbfs wants it."""
    return build("code_segment", variant="hugectl", executable=True)


def sweep(params: CodeSegmentParams) -> Sweep:
    """One build serves every size."""
    patterns = tuple(dict.fromkeys(params.patterns))
    return Sweep(build("code_segment"), patterns, program, params.perf_map)


def plan(params: CodeSegmentParams) -> dict[str, Any]:
    """See ``code_size.measure``."""
    return measure.plan(sweep(params), params)


def pilot(params: CodeSegmentParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """See ``code_size.measure``."""
    return measure.pilot(sweep(params), params, plan)


def take(params: CodeSegmentParams, session: Session) -> str:
    """Measure, then simulate the misses at some of the sizes."""
    stopped = measure.take(sweep(params), params, session)
    if params.simulated_sizes and stopped != "interrupted":
        try:
            session.provenance["simulated"] = _simulated(params, session.plan["pieces"])
        except PerflibError as error:
            session.problems.append(f"iTLB misses are not simulated: {error}")
    return stopped


def _simulated(params: CodeSegmentParams, pieces: Mapping[str, list[int]]) -> dict[str, Any]:
    """Not of the chase's control, of which a page holds 64 jumps, nor of what misses as others."""
    alike = {"line", "page"} if "random" in pieces else {"line"}
    chosen = {
        pattern: spread(numbers, params.simulated_sizes)
        for pattern, numbers in pieces.items()
        if pattern not in alike
    }
    return simulated_misses(build("code_segment", executable=True).library, chosen)
