"""How the code segment is measured: a sweep, and simulated misses at some of its sizes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from perflib.experiments.code_size import measure
from perflib.experiments.code_size.code_segment import CodeSegmentParams
from perflib.experiments.code_size.code_segment.simulated import simulated_misses, spread
from perflib.experiments.code_size.measure import Sweep
from perflib.experiments.code_size.table import COMPILED
from perflib.framework.experiment import Session
from perflib.kernels import Build, build
from perflib.model.errors import PerflibError


def program() -> Build:
    """The kernel as a program, linked as libhugetlbfs wants it."""
    return build("code_segment", variant="hugectl", executable=True)


def sweep(params: CodeSegmentParams) -> Sweep:
    """One build serves every size; that with the compiled switch is made where it is wanted."""
    patterns = tuple(dict.fromkeys(params.patterns))
    kernel = build("code_segment", variant=_variant(patterns))
    return Sweep(kernel, patterns, program, params.perf_map)


def _variant(patterns: Container[str]) -> str | None:
    return COMPILED if COMPILED in patterns else None


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
    """Not of the chase's control, of which a page holds 64 jumps, nor of what misses as others.

    The compiled switch and the assembled one, which it is compared with, at the same sizes.
    """
    alike = {"line", "page"} if "random" in pieces else {"line"}
    both = {"random", COMPILED} <= set(pieces)
    sizes = len(pieces[COMPILED]) if both else None  # the smallest ones: it is the smaller switch
    chosen = {
        pattern: spread(numbers[:sizes] if pattern == "random" else numbers, params.simulated_sizes)
        for pattern, numbers in pieces.items()
        if pattern not in alike
    }
    program = build("code_segment", variant=_variant(pieces), executable=True)
    return simulated_misses(program.library, chosen)
