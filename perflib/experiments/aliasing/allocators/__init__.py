"""Which allocators give buffers whose addresses alias, and what that costs.

The source (R. E. Jensen, P. Simonsen, *"Performance bugs" and how to find them*, 2017) printed the
addresses of pairs of equal buffers from four allocators: large ones are mapped, begin at a page,
and so share their low 12 bits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import BeforeValidator, Field

from perflib.experiments.aliasing.allocators.measure import AGAIN, NEW, AllocatorTurns, Arm, Work
from perflib.experiments.aliasing.allocators.table import AllocatorTable, Cost, Share
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Cores, Params, parameter
from perflib.framework.published import published
from perflib.machine.libraries.allocators import Allocator, chosen
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding, Verdict
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Allocators", "AllocatorsParams", "experiment"]

_LEAST_S = 8.0


def _split(value: object) -> object:
    """A list, one of its items, or text with commas between."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


Words = Annotated[list[str], BeforeValidator(_split), Field(min_length=1)]
Function = Literal["convolution", "copy"]
Functions = Annotated[list[Function], BeforeValidator(_split), Field(min_length=1)]
Sizes = Annotated[
    list[Annotated[int, Field(ge=8, le=1 << 28)]],
    BeforeValidator(_split),
    Field(min_length=1, max_length=64),
]
TimedSizes = Annotated[
    list[Annotated[int, Field(ge=64, le=1 << 28, multiple_of=4)]],
    BeforeValidator(_split),
    Field(min_length=1),
]


class AllocatorsParams(Params):
    """Which allocators, pairs of what sizes, and what is timed on them."""

    cores: Cores = parameter(
        "first",
        "which CPUs to visit: one is enough where all are alike; they are averaged",
    )
    budget_s: float = parameter(
        40.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        0.5,
        "measure until the half-width of every cost is below this",
        "percentage points",
        gt=0,
        le=100,
    )
    allocators: Words = parameter(
        ["all"],
        "glibc (the C library's own), tcmalloc, jemalloc, mimalloc, hoard, absolute paths of "
        "shared libraries, or 'all' that are installed",
    )
    sizes: Sizes = parameter(
        [
            64, 256, 1024, 5120, 16384, 65536, 131072, 262144,
            1048576, 4194304, 16777216,
        ],
        "of the buffers whose addresses are looked at; the source's are 5120 and 1048576",
        "B",
    )  # fmt: skip
    pairs: int = parameter(6, "pairs of each size in each process", ge=1, le=128)
    processes: int = parameter(
        16, "fresh processes in which addresses are looked at, of each allocator", ge=1, le=10_000
    )
    large_bytes: int = parameter(
        131072,
        "the claim on addresses is made of buffers of this size and more",
        "B",
        ge=1,
        le=1 << 28,
    )
    share_percent: float = parameter(
        50.0,
        "an allocator counts as aliasing if more of the large pairs share their low 12 bits",
        "percent",
        ge=0,
        le=100,
    )
    functions: Functions = parameter(
        ["convolution", "copy"], "what is timed from the first buffer of a pair to the second"
    )
    timed_sizes: TimedSizes = parameter(
        [8192, 262144, 4194304], "of the buffers on which functions are timed, multiples of 4", "B"
    )
    level: Literal["O0", "O2", "O3"] = parameter(
        "O2", "the compiler's optimisation of what is timed"
    )
    sample_ms: float = parameter(
        0.2, "how long a function is timed at once; one call at least", "ms", ge=0.01, le=1000
    )
    threshold_percent: float = parameter(
        5.0, "aliasing counts as costly from this on", "percent", gt=0, le=1000
    )
    sham: bool = parameter(
        False, "the null test: the far buffer is the one at the same distance, timed again"
    )


class Allocators(Experiment):
    """Pairs of equal buffers from every allocator: where they lie, and what that costs."""

    name = "allocators"
    title = "4K aliasing: what allocators do"
    question = "Does the allocator put buffers where loads are taken for earlier stores?"
    notebook = "11_aliasing_allocators"
    Params: ClassVar[type[Params]] = AllocatorsParams
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 14.0, "timed_sizes": [8192, 262144]},
        "full": {"budget_s": 600.0, "precision_percent": 0.2, "processes": 100},
    }
    columns = (
        Column("round", "integer", "", "number of the round; each turn is a fresh process", True),
        Column("allocator", "text", "", "where malloc comes from", True),
        Column("state", "text", "", "the pair: new, again (after frees), or timed (new)", True),
        Column("size_bytes", "integer", "B", "of each of the two buffers", True),
        Column("first_address", "integer", "", "of the first buffer", True),
        Column("second_address", "integer", "", "of the second, or of the one in its place", True),
        Column("function", "text", "", "what is timed; empty where nothing is"),
        Column(
            "place", "text", "", "second buffer: given (malloc's), same (ours, at that distance), "
            "far (ours, far from aliasing)",
        ),
        Column("calls", "number", "", "how often the function was called"),
        Column("time_ns", "number", "ns", "wall time of all calls"),
        Column("cpu", "integer", "", "the core"),
        Column("position", "integer", "", "place of the turn in its round"),
        Column("start_ns", "integer", "ns", "when it began; without it rounds count alike"),
        Column(
            "ok", "boolean", "", "false: the core, the place or the result is not what it should "
            "be; it is not used",
        ),
    )  # fmt: skip

    def published(self) -> pd.DataFrame:
        """The source's addresses."""
        return published("aliasing_allocator_addresses")

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: Any) -> dict[str, Any]:
        """The cores, and the allocators that run: each is started once."""
        if max(params.sizes) < params.large_bytes:
            msg = f"large_bytes: no size is of {params.large_bytes} B or more; the largest is "
            raise UserError(msg + f"{max(params.sizes)} B")
        found, absent = chosen(params.allocators)
        cores = params.resolved_cores()
        plan: dict[str, Any] = {"cores": cores, "absent": absent}
        usable = []
        for one in found:
            alone = {**plan, "allocators": [vars(one)], "arms": [Arm(0, 0)]}
            try:
                self._turns(params, alone).observe()
            except MeasurementError as error:
                named = [
                    os.path.realpath(word) if "/" in word else word for word in params.allocators
                ]
                if one.name in named or one.path in named:
                    msg = f"allocators: {error}"
                    raise UserError(msg) from error
                absent.append(str(error))
            else:
                usable.append(vars(one))
        if not usable:
            msg = f"allocators: none can be used: {'; '.join(absent)}"
            raise UserError(msg)
        arms = [Arm(core, one) for core in range(len(cores)) for one in range(len(usable))]
        return {**plan, "allocators": usable, "arms": arms}

    @staticmethod
    def _turns(params: AllocatorsParams, plan: Mapping[str, Any]) -> AllocatorTurns:
        work = Work(
            sorted(set(params.sizes)),
            params.pairs,
            params.processes,
            [
                (function, size)
                for size in sorted(set(params.timed_sizes))
                for function in dict.fromkeys(params.functions)
            ],
            max(1, round(params.sample_ms * 1e6)),
            params.sham,
        )
        return AllocatorTurns(
            [Arm(*arm) for arm in plan["arms"]],
            [Allocator(**one) for one in plan["allocators"]],
            [params.conditions(cpu) for cpu in plan["cores"]],
            work,
            level=params.level,
            seed=params.seed,
        )

    def take(self, params: AllocatorsParams, session: Session) -> str:
        """Every allocator in a fresh process once a round."""
        turns = self._turns(params, session.plan)
        turns.observe()
        stopped = session.rounds(
            params, len(session.plan["arms"]), turns.take, self._half_width, least_s=_LEAST_S
        )
        session.note(turns)
        session.provenance["allocators"] = session.plan["allocators"]
        session.problems += session.plan["absent"]
        return stopped

    @staticmethod
    def _half_width(samples: pd.DataFrame) -> float:
        """The widest, of what any distance costs."""
        widths = [cost.distance.half_width for cost in AllocatorTable(samples).costs.values()]
        return max(
            (width if math.isfinite(width) else math.inf for width in widths), default=math.inf
        )

    # --- what it says ----------------------------------------------------------------------------

    def analyse(self, run: Run) -> list[Finding]:
        """Of each allocator: do large pairs share their low bits, and what does it cost?"""
        params = AllocatorsParams.make(run.params)
        table = AllocatorTable(run.samples)
        found = []
        for allocator in table.allocators:
            for state in (NEW, AGAIN):
                share = table.share(allocator, state, params.large_bytes)
                if share is not None:
                    found.append(_share_finding(allocator, state, share, params))
        costs = [_cost_finding(*cell, cost, params) for cell, cost in table.costs.items()]
        return found + costs

    def figures(self, run: Run) -> dict[str, Figure]:
        """The share of aliasing pairs by allocator and size; costs; time an element."""
        from perflib.experiments.aliasing.allocators import figures as allocators_figures

        table = AllocatorTable(run.samples)
        drawn = {}
        if table.sizes:
            drawn["addresses"] = allocators_figures.addresses(table)
        if table.cells:
            drawn["cost"] = allocators_figures.cost(table)
            drawn["time"] = allocators_figures.time(table)
        return drawn


def _share_finding(allocator: str, state: str, share: Share, params: AllocatorsParams) -> Finding:
    limit = params.share_percent
    when = " after others were freed" if state == AGAIN else ""
    verdict: Verdict = "inconclusive"
    if share.percent.low > limit:
        verdict = "supported"
    elif share.percent.high < limit:
        verdict = "refuted"
    reason = f"{share.equal} of {share.pairs} pairs in {share.processes} processes do"
    close = share.near - share.equal
    reason += f"; {close} more lie up to 127 B above, which is as bad." if close else "."
    if verdict == "inconclusive":
        reason += " More processes would narrow the interval."
    return Finding(
        f"{allocator} gives, of pairs of {params.large_bytes} B and more{when}, more than "
        f"{limit:g} % that share their low 12 bits",
        f"{allocator} aliasing" + (" again" if state == AGAIN else ""),
        verdict, *share.percent, unit="percent", reason=reason,
        evidence={
            "pairs": share.pairs, "equal": share.equal, "up_to_127_bytes_above": share.near,
            "processes": share.processes,
        },
    )  # fmt: skip


def _cost_finding(
    allocator: str, function: str, size: int, cost: Cost, params: AllocatorsParams
) -> Finding:
    verdict, reason = _cost_verdict(cost, params.threshold_percent)
    return Finding(
        f"{allocator} makes a {function} between two buffers of {size} B take more than "
        f"{params.threshold_percent:g} % longer than it does far from aliasing",
        f"{allocator} cost {function} {size}", verdict, *cost.distance, unit="percent",
        reason=reason,
        evidence={
            "processes_predicted_to_alias_percent": cost.aliasing,
            "other_effects_percent": list(cost.other),
            "element_ns": list(cost.element_ns),
            "segments_percent": list(cost.segments),
        },
    )  # fmt: skip


def _cost_verdict(cost: Cost, limit: float) -> tuple[Verdict, str]:
    """``supported`` takes the interval and every third of the run."""
    found = cost.distance
    if not math.isfinite(found.half_width):
        return "inconclusive", "It takes two rounds or more."
    if found.high < limit:
        if found.high <= 0:
            return "refuted", "It takes no longer there."
        return "refuted", f"It is below {found.high:.2g} %."
    if found.low <= limit:
        return "inconclusive", f"{limit:g} % lies within the interval: more rounds would narrow it."
    if not all(part > limit for part in cost.segments):
        parts = ", ".join(f"{part:+.1f}" for part in cost.segments)
        return "inconclusive", f"Not every third of the run shows it ({parts} %)."
    return "supported", "The whole interval lies above, and every third of the run shows it."


experiment = Allocators()
