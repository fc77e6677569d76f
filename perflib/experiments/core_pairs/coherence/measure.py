"""How cache coherence is measured: every pair once a round, and the controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflib.experiments.core_pairs.coherence import CoherenceParams
from perflib.experiments.core_pairs.coherence.names import WITH_THIRD, main_of
from perflib.experiments.core_pairs.coherence.plan import (
    PLANNED,
    PairConfiguration,
    always_visited,
    configurations_of,
    control_layouts,
    whats_of,
)
from perflib.experiments.core_pairs.coherence.planned import Deciding
from perflib.experiments.core_pairs.coherence.table import CoherenceTable
from perflib.experiments.core_pairs.coherence.trials import CoherenceTrials
from perflib.experiments.core_pairs.measure import ended_coarse
from perflib.framework.experiment import Session
from perflib.kernels import build
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.topology import topology
from perflib.measure.workers import Workers
from perflib.model.errors import UserError


def plan(params: CoherenceParams) -> dict[str, Any]:
    """The cores, those that stand for their groups, and the states that can be prepared."""
    cores = params.resolved_cores()
    if len(cores) < 2:
        msg = (
            f"cores: coherence is between two cores, and {params.cores!r} is only "
            f"cpu{cores[0]}: name several, or 'all'"
        )
        raise UserError(msg)
    if params.at_once > len(cores) // 2:
        msg = (
            f"at_once: {params.at_once} pairs at the same time need {2 * params.at_once} "
            f"cores, and {len(cores)} are visited: {len(cores) // 2} is the most"
        )
        raise UserError(msg)
    states = [
        state for state in dict.fromkeys(params.states)
        if len(cores) > 2 or state not in WITH_THIRD
    ]  # fmt: skip
    if not params.protocols and not states:
        msg = f"states: {', '.join(params.states)} need a third core, and only two are visited"
        raise UserError(msg)
    build("coherence")  # what cannot be compiled fails here
    return {"cores": cores, "near": _near(cores), "states": states}


def _near(cores: Sequence[int]) -> list[list[int]]:
    """Two of each group of cores that share a NUMA node and a last-level cache, or the only one.

    The two are not hardware threads of one core, if the group has another.
    """
    places = topology()
    chosen = []
    for group in places.groups(caches()):
        here = [cpu for cpu in cores if cpu in group]
        if not here:
            continue
        own = places.cpu(here[0]).siblings
        others = [cpu for cpu in here[1:] if cpu not in own] or here[1:]
        chosen.append([here[0], *others[:1]])
    return chosen


def configurations(params: CoherenceParams, plan: Mapping[str, Any]) -> list[PairConfiguration]:
    """What trials are of; the same whenever the run is resumed."""
    return configurations_of(plan["cores"], plan["near"], params.detail, params.at_once)


def take(params: CoherenceParams, session: Session) -> str:
    """Every pair once a round, and the controls."""
    plan = session.plan
    found = configurations(params, plan)
    last_stage = max(one.stage for one in found)
    most = max(len(one.pairs) for one in found)
    accesses = list(dict.fromkeys(params.accesses))
    whats = whats_of(dict.fromkeys(params.protocols), plan["states"], accesses, params.lines)
    deciding = None
    if params.detail == PLANNED:
        deciding = Deciding(
            session.journal.trials,
            main_of([what.name for what in whats]) or "",
            always_visited(plan["near"]),
            params.threshold_percent,
        )

    def half_width(samples: pd.DataFrame) -> float:
        whole = samples["round"].max() >= last_stage and samples["ok"].any()
        return CoherenceTable(samples).half_width if whole else math.inf

    with Workers(build("coherence"), [params.conditions(None)] * most) as workers:
        trials = CoherenceTrials(
            [workers[slot] for slot in range(most)],
            found,
            whats,
            control_layouts(params.control_lines),
            cores=plan["cores"],
            repeats=params.repeats,
            exchanges=params.exchanges,
            seed=params.seed,
            deciding=deciding,
        )
        enough = half_width if deciding is None else deciding.half_width
        stopped = session.rounds(params, len(found), trials.take, enough)
        session.note(workers)
    session.problems += trials.problems
    absent = [state for state in dict.fromkeys(params.states) if state not in plan["states"]]
    if absent:
        session.problems.append(
            "left out, since they need a third core and only two are visited: states "
            + ", ".join(absent)
        )
    last = [one for one in found if one.stage == last_stage]
    pairs = sum(len(one.pairs) for one in last)
    session.problems += ended_coarse(session, last_stage, len(last), pairs)
    return stopped
