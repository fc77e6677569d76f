"""How alias_offsets measures: each function at every offset once a round; then the simulation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflib.experiments.aliasing.offsets import AliasOffsetsParams
from perflib.experiments.aliasing.offsets.functions import (
    DGEMV,
    VARIANTS,
    Configuration,
    variant,
)
from perflib.experiments.aliasing.offsets.simulated import simulated_aliases
from perflib.experiments.aliasing.offsets.table import functions_in
from perflib.experiments.aliasing.offsets.trials import OffsetTrials, with_calls
from perflib.framework.experiment import Session
from perflib.machine.libraries.blas import Blas, chosen
from perflib.model.errors import PerflibError, UserError
from perflib.stats.interval import widest

_LEAST_S = 8.0
# What is simulated, by build; -O3 with restrict is what a careful author would ship.
_SIMULATED: Mapping[str, list[str]] = {
    "convolution": ["O0", "O2", "O3", "O3-restrict"],
    "copy": ["O2"],
}


def plan(params: AliasOffsetsParams) -> dict[str, Any]:
    """The cores, the libraries that are found, and all that is measured."""
    cores = params.resolved_cores()
    libraries, absent = _libraries(params)
    return {
        "cores": cores,
        "libraries": [vars(library) for library in libraries],
        "absent": absent,
        "openblas_coretype": {**os.environ, **params.environment}.get("OPENBLAS_CORETYPE"),
        "configurations": [
            Configuration(core, *what)
            for core in range(len(cores))
            for what in functions_of(params, [library.name for library in libraries])
        ],
    }


def pilot(params: AliasOffsetsParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How often each function is called in a sample."""
    with _trials(params, plan) as trials:
        return {"configurations": with_calls(trials, trials.configurations, params.sample_ms)}


def take(params: AliasOffsetsParams, session: Session) -> str:
    """Every function at every offset once a round; then the simulated aliases."""
    plan = session.plan
    with _trials(params, plan) as trials:
        stopped = session.rounds(
            params, len(trials.configurations), trials.take, half_width, least_s=_LEAST_S
        )
        session.note(trials)
    session.provenance["blas"] = plan["libraries"]
    session.provenance["openblas_coretype"] = plan["openblas_coretype"]
    if plan["absent"]:
        session.problems.append(plan["absent"])
    if stopped != "interrupted":
        _simulate(params, session)
    return stopped


def half_width(samples: pd.DataFrame) -> float:
    """The widest, of all functions for which aliasing is predicted somewhere."""
    widths = [
        table.predicted(swept.period).half_width
        for swept, table in functions_in(samples)
        if swept.period is not None
    ]
    return widest(widths, default=math.inf)


def _libraries(params: AliasOffsetsParams) -> tuple[list[Blas], str]:
    """The libraries, and why there are none; without a BLAS the other functions continue."""
    if DGEMV not in params.functions:
        return [], ""
    try:
        return chosen(params.blas, params.environment), ""
    except UserError as error:
        if params.blas != ["all"] or params.functions == [DGEMV]:
            raise
        return [], str(error)


def functions_of(
    params: AliasOffsetsParams, libraries: Sequence[str]
) -> list[tuple[str, str, int, str]]:
    """Routine, build, size and order of all that is measured."""
    with_restrict = {"both": [False, True], "with": [True], "without": [False]}
    builds = [
        variant(level, restrict=restrict)
        for level in dict.fromkeys(params.levels)
        for restrict in with_restrict[params.restrict]
    ]
    found: list[tuple[str, str, int, str]] = [
        (function, name, n, "")
        for function in dict.fromkeys(params.functions)
        if function != DGEMV
        for name in (builds if function != "memcpy" else builds[-1:])
        for n in dict.fromkeys(params.elements)
    ]
    found += [
        (DGEMV, library, n, order)
        for library in libraries
        for order in dict.fromkeys(params.orders)
        for n in dict.fromkeys(params.sizes)
    ]
    return found


def _trials(params: AliasOffsetsParams, plan: Mapping[str, Any]) -> OffsetTrials:
    return OffsetTrials(
        [Configuration(*configuration) for configuration in plan["configurations"]],
        [params.conditions(cpu) for cpu in plan["cores"]],
        [Blas(**library) for library in plan["libraries"]],
        sorted(set(params.offsets)),
        seed=params.seed,
        together=params.together,
    )


def _simulate(params: AliasOffsetsParams, session: Session) -> None:
    builds: dict[str, list[str]] = {
        function: [name for name in names if VARIANTS[name][0] in params.levels]
        for function, names in _SIMULATED.items()
        if function in params.functions
    }
    if not params.simulated_offsets or not any(builds.values()):
        return
    try:
        session.provenance["simulated"] = simulated_aliases(
            builds, sorted(set(params.simulated_offsets))
        )
    except PerflibError as error:
        session.problems.append(f"4K aliases are not simulated: {error}")
