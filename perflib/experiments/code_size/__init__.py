"""Sweeps over the size of the code: cores, sizes and page backings, interleaved in rounds.

Two experiments are made of it, ``random_calls`` and ``code_segment``; their kernels have one
interface (``kernels_c/common/code_kernel.h``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import BeforeValidator, Field

from perflib.experiments.code_size.hypotheses import HYPOTHESES
from perflib.experiments.code_size.measure import Arm, CodeTurns, bounds_of, calibrate, page_reach
from perflib.experiments.code_size.table import SMALL_PAGES, CodeTable
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Params, Words, parameter, split_items
from perflib.framework.published import published
from perflib.kernels import Build
from perflib.machine.settings.changes import settings
from perflib.measure.pages.backings import resolve, with_pool
from perflib.measure.pages.text_backings import BACKINGS
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run

__all__ = ["CodeParams", "CodeSweep", "Sizes", "synthetic_benchmarks"]

_KNOWN = (*(name for name in BACKINGS if name != "loaded"), "hugectl")
_APART = {("chase", "hugectl"), ("line", "hugectl")}
_NO_ARMS = (
    "hugectl puts a program's own text on huge pages, and the ring of pattern 'chase' is no part "
    "of it: name another pattern or backing"
)


Sizes = Annotated[
    list[Annotated[int, Field(ge=4, le=65536)]], BeforeValidator(split_items), Field(min_length=1)
]


def synthetic_benchmarks() -> pd.DataFrame:
    """What the source reports of its two synthetic benchmarks."""
    table = published("kv_haswell")
    return table[table["where"].str.contains("benchmark")].reset_index(drop=True)


class CodeParams(Params):
    """Which sizes of code, on which pages."""

    budget_s: float = parameter(
        42.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        0.5,
        "measure until the half-width of what large code costs, between cores and between page "
        "sizes, is below this",
        "percentage points",
        gt=0,
        le=100,
    )
    backings: Words = parameter(
        ["4k", "huge"],
        "the pages that the code lies on: 4k, thp, collapse, hugetlb, hugectl, or 'huge', the "
        "first of thp and collapse that can be had; what cannot is said, and the rest goes on",
    )
    sizes_kib: Sizes = parameter([], "sizes of the code", "KiB")
    turn_ms: float = parameter(
        5.0, "how long one sample is timed, after its warm-up", "ms", ge=1, le=10_000
    )
    threshold_percent: float = parameter(
        1.0, "a core, or a size of pages, counts as slower from this on", "percent", gt=0, le=1000
    )


class CodeSweep(Experiment):
    """What both experiments have in common: their samples and how these are taken."""

    columns = (
        Column("round", "integer", "", "number of the round; arms are compared within", True),
        Column("cpu", "integer", "", "the core", True),
        Column("pattern", "text", "", "the order in which code runs", True),
        Column("backing", "text", "", "the pages that were asked for: 4k, thp ...", True),
        Column("n", "integer", "", "how many pieces of code were in use", True),
        Column("code_bytes", "integer", "B", "extent of the code that ran", True),
        Column("steps", "integer", "", "pieces of code that were run", True),
        Column("time_ns", "number", "ns", "wall time of all steps", True),
        Column("position", "integer", "", "place of the arm's turn in its round"),
        Column(
            "start_ns",
            "integer",
            "ns",
            "when it began, on one clock for the whole run; without it rounds count alike",
        ),
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column("huge_bytes", "integer", "B", "of the code, what was found on 2 MiB pages"),
        Column("softirqs", "integer", "", "soft interrupts on the core meanwhile"),
        Column("interrupts", "integer", "", "interrupts on the core meanwhile"),
        Column("switches", "integer", "", "context switches on the core meanwhile"),
        Column("involuntary_switches", "integer", "", "times the thread was pushed aside"),
        Column("itlb_misses", "number", "", "counted by the processor, where it can"),
        Column(
            "ok",
            "boolean",
            "",
            "false: its pages, core or result were not what they should be; it is not used",
        ),
    )
    patterns: ClassVar[tuple[str, ...]]
    x86_only = True
    hypotheses = HYPOTHESES

    # --- what differs -----------------------------------------------------------------------------

    @abstractmethod
    def code(self, params: Any) -> Build:
        """The kernel."""

    def program(self) -> Build | None:
        """The same as a program that hugectl can start, where there is one."""
        return None

    def wanted(self, _params: Any) -> tuple[str, ...]:
        """The patterns to measure."""
        return self.patterns

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: Any) -> dict[str, Any]:
        """The cores, the backings that can be had, and how many steps each size takes."""
        if reason := self.unavailable():
            raise UserError(reason)
        cores = params.resolved_cores()
        if not params.sizes_kib:
            msg = "sizes_kib: the list is empty; it needs sizes in KiB, for example 64,512,4096"
            raise UserError(msg)
        build = self.code(params)
        bounds = bounds_of(build, params.conditions(cores[0]))
        pieces = bounds.pieces(self.wanted(params), sorted(set(params.sizes_kib)))
        plan: dict[str, Any] = {"cores": cores, "piece_bytes": bounds.piece_bytes}
        plan["hugetlb_pages"] = len(cores) * bounds.huge_pages(pieces)
        plan |= resolve(
            params.backings, _KNOWN, plan["hugetlb_pages"], params.settings, self._lacking
        )
        with settings(self.system_settings(params, plan)):
            where = params.conditions(cores[0])
            steps, failed = calibrate(build, where, pieces, plan["backings"], params.turn_ms)
            plan["page_reach"] = page_reach(build, where, plan["backings"])
        plan["absent"] |= failed
        plan["backings"] = [name for name in plan["backings"] if name not in failed]
        if not plan["backings"]:
            reasons = "; ".join(f"{name}: {why}" for name, why in plan["absent"].items())
            msg = f"none of the backings can be had here: {reasons}"
            raise MeasurementError(msg)
        # The ring on few pages stands beside the chase on small ones: once is enough.
        small = SMALL_PAGES in plan["backings"]
        control = SMALL_PAGES if small else plan["backings"][0]
        plan["arms"] = [
            Arm(core, pattern, n, backing, count)
            for core in range(len(cores))
            for (pattern, n), count in steps.items()
            for backing in plan["backings"]
            if (pattern, backing) not in _APART and (pattern != "line" or backing == control)
        ]
        if not plan["arms"]:
            raise MeasurementError(_NO_ARMS)
        return plan

    def _lacking(self, backing: str) -> str:
        """The program that hugectl starts."""
        if backing != "hugectl":
            return ""
        try:
            program = self.program()
        except MeasurementError as error:  # the library to link with is not there
            return str(error)
        return "" if program else f"hugectl starts programs, and {self.name} is none"

    def system_settings(self, params: Any, plan: Mapping[str, Any]) -> dict[str, str]:
        """Those that were asked for, and the huge pages of a backing that reserves them."""
        return with_pool(params.settings, plan["backings"], plan["hugetlb_pages"])

    def turns(self, params: Any, plan: Mapping[str, Any]) -> CodeTurns:
        """What takes a turn."""
        return CodeTurns(
            self.code(params),
            self.program() if "hugectl" in plan["backings"] else None,
            [params.conditions(cpu) for cpu in plan["cores"]],
            [Arm(*arm) for arm in plan["arms"]],
            piece_bytes=plan["piece_bytes"],
            seed=params.seed,
            perf_map=getattr(params, "perf_map", False),
        )

    def take(self, params: Any, session: Session) -> str:
        """Every core, size and backing once a round."""
        plan = session.plan
        with self.turns(params, plan) as turns:

            def turn(round_: int, arm: int) -> Columns:
                return turns.take(round_, arm)

            stopped = session.rounds(
                params, len(plan["arms"]), turn, lambda samples: self.table(samples).half_width
            )
            session.note(turns)
        session.problems += [f"{name}: {why}" for name, why in plan["absent"].items()]
        return stopped

    # --- what it says ----------------------------------------------------------------------------

    def table(self, samples: pd.DataFrame) -> CodeTable:
        """Samples, with all that is computed from them."""
        return CodeTable(samples)

    def table_of(self, run: Run) -> CodeTable:
        """A run's samples, with all that is computed from them."""
        return self.table(run.samples)
