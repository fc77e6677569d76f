"""How both sweeps are measured: every core, size and backing once a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflib.experiments.code_size import CodeParams
from perflib.experiments.code_size.reaches import itlb_reach_bytes
from perflib.experiments.code_size.table import COMPILED, RINGS, CodeTable
from perflib.experiments.code_size.trials import (
    SAMPLE_MS,
    CodeConfiguration,
    CodeTrials,
    bounds_of,
    calibrate,
    page_reach,
)
from perflib.framework.experiment import Session
from perflib.framework.page_control import PageControl
from perflib.kernels import Build
from perflib.measure.pages.backings import resolve
from perflib.measure.pages.kinds import BACKINGS, SMALL_PAGES
from perflib.model.errors import MeasurementError

_KNOWN = (*(name for name in BACKINGS if name != "loaded"), "hugectl")
_APART = {(pattern, "hugectl") for pattern in (*RINGS, COMPILED)}  # not in that program's text
_SWITCH_EVERY_ROUNDS, _OTHERS_EVERY_ROUNDS = (
    2,
    4,
)  # rounds from one visit to the next, of what shows no knee
_NOTHING_LEFT = (
    "hugectl puts a program's own text on huge pages, and neither the ring of pattern 'chase' nor "
    "the compiled switch is part of it: name another pattern or backing"
)


@dataclass(frozen=True)
class Sweep:
    """What the two experiments run.

    Parameters
    ----------
    kernel
        Its code is swept.
    patterns
        The orders in which it runs.
    program
        The same as a program that hugectl can start, where there is one.
    perf_map
        Whether a profiler that attaches shall find the names of the pieces.
    """

    kernel: Build
    patterns: tuple[str, ...]
    program: Callable[[], Build] | None = None
    perf_map: bool = False

    def lacking(self, backing: str) -> str:
        """Why hugectl has no program to start."""
        if backing != "hugectl":
            return ""
        if self.program is None:
            return f"hugectl starts programs, and {self.kernel.name} is none"
        try:
            self.program()
        except MeasurementError as error:  # the library to link with is not there
            return str(error)
        return ""


def plan(sweep: Sweep, params: CodeParams) -> dict[str, Any]:
    """The cores, the pieces of code of each size, and the backings that are available."""
    cores = params.resolved_cores()
    bounds = bounds_of(sweep.kernel, params.conditions(cores[0]))
    pieces = bounds.pieces(sweep.patterns, params.sizes_kib, itlb_reach_bytes() >> 10)
    pages = len(cores) * bounds.huge_pages(pieces)
    return {
        "cores": cores,
        "piece_bytes": bounds.piece_bytes,
        "pieces": pieces,
        "hugetlb_pages": pages,
        **resolve(params.backings, _KNOWN, pages, params.settings, sweep.lacking),
    }


def pilot(sweep: Sweep, params: CodeParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How many steps each size takes, the backings that fail, and the control of page sizes."""
    cores, where = plan["cores"], params.conditions(plan["cores"][0])
    steps, failed = calibrate(
        sweep.kernel, where, plan["pieces"], plan["backings"], min(params.trial_ms, SAMPLE_MS)
    )
    absent = plan["absent"] | failed
    backings = [name for name in plan["backings"] if name not in failed]
    if not backings:
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        msg = f"none of the backings is available here: {reasons}"
        raise MeasurementError(msg)
    # The ring on few pages is compared with the chase on small ones: once is enough.
    control = SMALL_PAGES if SMALL_PAGES in backings else backings[0]
    pairs = page_reach(sweep.kernel, where, backings)
    knee = _of_the_knee(sweep.patterns, backings, PageControl(pairs))
    configurations = [
        CodeConfiguration(core, pattern, n, backing, count, *_visits(pattern, backing, knee))
        for core in range(len(cores))
        for (pattern, n), count in steps.items()
        for backing in backings
        if (pattern, backing) not in _APART and (pattern != "line" or backing == control)
    ]
    if not configurations:
        raise MeasurementError(_NOTHING_LEFT)
    return {
        "absent": absent,
        "backings": backings,
        "page_reach": pairs,
        "configurations": configurations,
    }


def _of_the_knee(
    patterns: Sequence[str], backings: Sequence[str], control: PageControl
) -> set[tuple[str, str]]:
    """Patterns and backings that show where the knee is; none where nothing else is measured.

    The chase on 4 KiB pages, and on 2 MiB pages where the host backs them, or else its control.
    """
    if "chase" not in patterns or SMALL_PAGES not in backings:
        return set()
    huge = [name for name in backings if name != SMALL_PAGES and control.prevents(name) is None]
    if huge:
        return {("chase", SMALL_PAGES), ("chase", huge[0])}
    return {(ring, SMALL_PAGES) for ring in RINGS}


def _visits(pattern: str, backing: str, knee: set[tuple[str, str]]) -> tuple[int, int]:
    """In which rounds a pattern is visited: a knee takes many of them, the others take turns.

    The switch, by which cores are compared, and its compiled control in every second. What is
    compared with each other is visited in the same rounds.
    """
    if not knee or (pattern, backing) in knee:
        return 1, 0
    return (
        (_SWITCH_EVERY_ROUNDS, 0) if pattern in ("random", COMPILED) else (_OTHERS_EVERY_ROUNDS, 1)
    )


def trials(sweep: Sweep, params: CodeParams, plan: Mapping[str, Any]) -> CodeTrials:
    """What takes a trial."""
    hugectl = "hugectl" in plan["backings"] and sweep.program is not None
    return CodeTrials(
        sweep.kernel,
        sweep.program() if hugectl and sweep.program is not None else None,
        [params.conditions(cpu) for cpu in plan["cores"]],
        [CodeConfiguration(*one) for one in plan["configurations"]],
        piece_bytes=plan["piece_bytes"],
        trial_ms=params.trial_ms,
        seed=params.seed,
        perf_map=sweep.perf_map,
    )


def take(sweep: Sweep, params: CodeParams, session: Session) -> str:
    """Every core, size and backing once a round."""
    plan = session.plan
    with trials(sweep, params, plan) as taken:
        stopped = session.rounds(
            params,
            len(plan["configurations"]),
            taken.take,
            lambda samples: CodeTable(samples).half_width,
        )
        session.note(taken)
    session.problems += [f"{name}: {why}" for name, why in plan["absent"].items()]
    return stopped
