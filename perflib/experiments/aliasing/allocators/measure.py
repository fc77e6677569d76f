"""How ``allocators`` measures: every allocator in a fresh process once a round."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perflib.experiments.aliasing.allocators import AllocatorsParams
from perflib.experiments.aliasing.allocators.table import AllocatorTable
from perflib.experiments.aliasing.allocators.trials import AllocatorTrials, Configuration, Work
from perflib.framework.experiment import Session
from perflib.machine.libraries.allocators import Allocator, chosen
from perflib.model.errors import MeasurementError, UserError
from perflib.stats.interval import widest

_LEAST_S = 8.0


def plan(params: AllocatorsParams) -> dict[str, Any]:
    """The cores, and the allocators that are found."""
    if max(params.sizes) < params.large_bytes:
        msg = f"large_bytes: no size is of {params.large_bytes} B or more; the largest is "
        raise UserError(msg + f"{max(params.sizes)} B")
    found, absent = chosen(params.allocators)
    return {
        "cores": params.resolved_cores(),
        "allocators": [vars(one) for one in found],
        "absent": absent,
    }


def pilot(params: AllocatorsParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The allocators that run: each is started once.

    Raises
    ------
    UserError
        One that was asked for by name does not run, or none does.
    """
    absent, usable = list(plan["absent"]), []
    named = [os.path.realpath(word) if "/" in word else word for word in params.allocators]
    for one in plan["allocators"]:
        alone = {**plan, "allocators": [one], "configurations": [Configuration(0, 0)]}
        try:
            trials_of(params, alone).observe()
        except MeasurementError as error:
            if one["name"] in named or one["path"] in named:
                msg = f"allocators: {error}"
                raise UserError(msg) from error
            absent.append(str(error))
        else:
            usable.append(one)
    if not usable:
        msg = f"allocators: none can be used: {'; '.join(absent)}"
        raise UserError(msg)
    configurations = [
        Configuration(core, one) for core in range(len(plan["cores"])) for one in range(len(usable))
    ]
    return {"allocators": usable, "absent": absent, "configurations": configurations}


def take(params: AllocatorsParams, session: Session) -> str:
    """Every allocator in a fresh process once a round."""
    plan = session.plan
    trials = trials_of(params, plan)
    trials.observe()
    stopped = session.rounds(
        params, len(plan["configurations"]), trials.take, half_width, least_s=_LEAST_S
    )
    session.note(trials)
    session.provenance["allocators"] = plan["allocators"]
    session.problems += plan["absent"]
    return stopped


def half_width(samples: pd.DataFrame) -> float:
    """The widest, of what any distance costs."""
    widths = [cost.distance.half_width for cost in AllocatorTable(samples).costs.values()]
    return widest(widths, default=math.inf)


def trials_of(params: AllocatorsParams, plan: Mapping[str, Any]) -> AllocatorTrials:
    """The trials that a plan says."""
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
        params.control,
    )
    return AllocatorTrials(
        [Configuration(*one) for one in plan["configurations"]],
        [Allocator(**one) for one in plan["allocators"]],
        [params.conditions(cpu) for cpu in plan["cores"]],
        work,
        level=params.level,
        seed=params.seed,
    )
