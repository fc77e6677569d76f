"""How the matrix of memory latencies is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perflib.experiments.core_pairs.measure import ended_coarse
from perflib.experiments.core_pairs.numa import NumaParams
from perflib.experiments.core_pairs.numa.analyse import cells_of
from perflib.experiments.core_pairs.numa.trials import (
    NumaTrials,
    Stages,
    array_bytes,
    calibrate,
)
from perflib.framework.experiment import Session
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import LINE_BYTES, Arrays
from perflib.measure.pages.backings import why_not
from perflib.model.errors import UserError

_MIN_REPEATS = 3
_MIN_REPEATS_OF_A_ROW = 30  # over all cores
_UNKNOWN_BYTES = 1 << 50  # of free memory, where the kernel does not say


def plan(params: NumaParams) -> dict[str, Any]:
    """Cores, nodes, groups, and the size of the arrays."""
    if params.memory_policy != "default":
        msg = (
            f"memory_policy: {params.memory_policy!r} decides where memory comes from; here "
            "each core's first touch does: leave it at 'default'"
        )
        raise UserError(msg)
    cores = params.resolved_cores()
    if len(cores) < 2:
        msg = f"cores: this experiment compares cores and needs two; {cores} is only one"
        raise UserError(msg)
    places, found = topology(), caches()
    mine = [[cpu for cpu in group if cpu in cores] for group in places.groups(found)]
    heads = [group[0] for group in mine if group]
    holds = [c.size_bytes for c in found if c.kind == "unified" and cores[0] in c.shared_cpus]
    allocating = len(heads) if params.detail == "groups" else len(cores)
    size, smaller = array_bytes(
        params.array_mib, allocating, max(holds, default=0), free_bytes() or _UNKNOWN_BYTES
    )
    return {
        "cores": cores,
        "heads": heads if len(heads) > 1 else cores[:2],
        "nodes": [places.cpu(cpu).node for cpu in cores],
        "array_bytes": size,
        "smaller": smaller,
        "repeats": max(_MIN_REPEATS, _MIN_REPEATS_OF_A_ROW // len(cores) | 1),
        "memory_only": [node.node for node in places.nodes if not node.cpus],
    }


def pilot(params: NumaParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How many loads a repeat takes, by what a load takes on the first core."""
    if reason := why_not(params.backing):
        msg = f"backing: {reason}"
        raise UserError(msg)
    with Arrays(params.conditions(None)) as arrays:
        loads = calibrate(
            arrays, _nodes(plan), _MIN_REPEATS, params.trial_ms, **_arrays_as(params, plan)
        )
    return {"loads": loads}


def take(params: NumaParams, session: Session) -> str:
    """Each cell once a round, in random order, the coarser matrices first."""
    plan = session.plan
    stages = Stages(tuple(plan["cores"]), tuple(plan["heads"]), params.detail)

    def half_width(samples: pd.DataFrame) -> float:
        whole = samples["round"].max() > stages.whole_round  # and complete
        return cells_of(samples).half_width if whole and samples["ok"].any() else math.inf

    with Arrays(params.conditions(None)) as arrays:
        trials = NumaTrials(
            arrays,
            stages,
            _nodes(plan),
            loads=plan["loads"],
            repeats=plan["repeats"],
            seed=params.seed,
            **_arrays_as(params, plan),
        )
        stopped = session.rounds(params, len(plan["cores"]) ** 2, trials.take, half_width)
        session.note(arrays)
    cells = stages.count(stages.detail)
    session.problems += [
        *trials.problems,
        *filter(None, [plan["smaller"]]),
        *(
            f"node {node} has memory and no CPU: no core's first touch allocates there, so it is "
            "not in the matrix"
            for node in plan["memory_only"]
        ),
        *ended_coarse(session, stages.whole_round, cells, cells),
    ]
    return stopped


def _nodes(plan: Mapping[str, Any]) -> dict[int, int | None]:
    return dict(zip(plan["cores"], plan["nodes"], strict=True))


def _arrays_as(params: NumaParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the arrays are like."""
    whole = plan["array_bytes"] // LINE_BYTES * LINE_BYTES
    return {"order": params.order, "bytes_": whole, "backing": params.backing}
