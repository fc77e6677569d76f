"""Which sizes there are, what is predicted for each, and the rounds of starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.experiments.aliasing.environment import STEP_BYTES, AliasEnvironmentParams
from perflib.experiments.aliasing.environment.addresses import (
    PAGE,
    STACK,
    pairs_of,
    with_stack_lower,
)
from perflib.experiments.aliasing.environment.simulated import simulated_aliases
from perflib.experiments.aliasing.environment.starts import (
    LONGEST_VARIABLE,
    PADDING,
    Program,
    least_bytes,
    linked,
    orders,
    start,
)
from perflib.experiments.aliasing.environment.table import (
    ASLR,
    LINK_ORDER,
    SWEEP,
    AliasEnvTable,
)
from perflib.experiments.aliasing.environment.trials import Configuration, EnvironmentTrials
from perflib.framework.experiment import Session
from perflib.instruments.counters.groups import Requested, countable
from perflib.instruments.counters.sets import events_of, sets
from perflib.kernels import build
from perflib.machine.scratch import scratch
from perflib.measure.process import Worker
from perflib.measure.schedule import Status, frame_of
from perflib.model.errors import MeasurementError, PerflibError, UserError, choose

Ask = Callable[[Program, int], dict[str, int]]
_NAME = "alias_environment"
_AGAIN = 8  # starts a round at a predicted size, of which there are one or two in a period
_ORDER_STARTS = 4  # a round, of each link order


# --- what is decided beforehand ------------------------------------------------------------------


def plan(params: AliasEnvironmentParams) -> dict[str, Any]:
    """The cores, and the sizes of the environment."""
    if params.aslr:
        msg = "aslr must be false: where addresses are random the size decides nothing"
        raise UserError(msg)
    cores = params.resolved_cores()
    params.launcher_conditions(cores[0])  # wrong conditions fail here
    sets_of(params)  # and wrong names of sets
    return {"cores": cores, "sizes": _sizes(params)}


def sets_of(params: AliasEnvironmentParams) -> dict[str, list[Requested]]:
    """The requested sets of counters by name, with their events.

    Raises
    ------
    UserError
        A name that is no set, nor ``all`` or ``none``.
    """
    names = list(sets()) if "all" in params.sets else [one for one in params.sets if one != "none"]
    for name in names:
        if name not in sets():
            msg = f"sets: {choose('set of events', name, [*sets(), 'all', 'none'])}"
            raise UserError(msg)
    return {name: events_of(name) for name in names}


def _sizes(params: AliasEnvironmentParams) -> list[int]:
    least = least_bytes(params.program_environment())
    first = params.environment_bytes
    if first is None:
        first = -(-least // STEP_BYTES) * STEP_BYTES
    if first < least:
        msg = f"environment_bytes={first}: with its variables it has {least} bytes at least"
        raise UserError(msg)
    last = first + params.periods * PAGE - params.step_bytes
    most = LONGEST_VARIABLE + least - len(PADDING) - 2
    if last > most:
        msg = (
            f"the sweep would end at an environment of {last} bytes, and one variable holds "
            f"{LONGEST_VARIABLE}: begin at {most - (last - first)} (environment_bytes) at "
            "most, or sweep fewer periods"
        )
        raise UserError(msg)
    return list(range(first, last + 1, params.step_bytes))


def pilot(params: AliasEnvironmentParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What can be counted; at which sizes addresses agree, and so what is started a round."""
    found, absent = countable(sets_of(params))
    with Worker(build(_NAME), params.launcher_conditions(plan["cores"][0])) as worker:
        ask = _asking(worker, params.program_environment())
        predicted = _predict(ask, _program(params), plan["sizes"])
        link_bytes = _link_environment(ask, params, plan["sizes"][0])
    configurations = _configurations(params, plan, list(predicted["predicted"]), link_bytes)
    return {
        "sets": found,
        "absent": absent,
        **predicted,
        "link_bytes": link_bytes,
        "configurations": configurations,
    }


def _asking(worker: Worker, variables: Mapping[str, str]) -> Ask:
    """Where a program has its variables, as it reports, under a size of the environment."""

    def ask(program: Program, environment_bytes: int) -> dict[str, int]:
        return start(worker, program, environment_bytes, variables=variables).addresses

    return ask


def _program(params: AliasEnvironmentParams) -> Program:
    path = build(_NAME, executable=True).library
    return Program(path, params.iterations, params.repetitions, params.variables)


def _predict(ask: Ask, program: Program, sizes: list[int]) -> dict[str, Any]:
    """The addresses at the smallest size, and from them the sizes at which some agree."""
    free = replace(program, variables="free")  # its arguments are on the stack, too
    first, again, largest = (ask(free, size) for size in (sizes[0], sizes[0], sizes[-1]))
    lower = sizes[-1] - sizes[0]
    if first != again or any(first[name] - largest[name] != lower for name in STACK):
        msg = (
            "the program's addresses are not the same from start to start, or do not follow "
            "the environment: ASLR cannot be switched off for it. A container's seccomp "
            "profile may forbid personality(2); the parameter settings=aslr=0 switches it "
            "off for the whole machine (root), and puts it back"
        )
        raise MeasurementError(msg)
    pairs = {size: pairs_of(with_stack_lower(first, size - sizes[0])) for size in sizes}
    return {
        "origin": ask(program, sizes[0]),
        "predicted": {str(size): which for size, which in pairs.items() if which},
    }


def _link_environment(ask: Ask, params: AliasEnvironmentParams, first_bytes: int) -> int | None:
    """The smallest size at which the first link order aliases, and some other does not."""
    if params.link_orders < 2 or params.variables == "hold":
        return None
    with scratch() as folder:
        there = ask(_linked(params, folder)[0], first_bytes)
    places = range(0, PAGE, STEP_BYTES)
    aliasing = (lower for lower in places if pairs_of(with_stack_lower(there, lower)))
    return first_bytes + next(aliasing, 0)


def _linked(params: AliasEnvironmentParams, folder: Path) -> list[Program]:
    return [
        Program(
            linked(order, folder / f"order{number}"),
            params.iterations,
            params.repetitions,
            order=" ".join(order),
        )
        for number, order in enumerate(orders(params.link_orders, params.seed))
    ]


def _configurations(
    params: AliasEnvironmentParams,
    plan: Mapping[str, Any],
    predicted: list[str],
    link_bytes: int | None,
) -> list[Configuration]:
    found = []
    again = [int(size) for size in predicted]
    for core in range(len(plan["cores"])):
        found += [Configuration(SWEEP, core, size) for size in plan["sizes"]]
        found += [Configuration(SWEEP, core, size) for size in again] * (_AGAIN - 1)
        if link_bytes is not None:
            numbers = range(params.link_orders)
            each = [Configuration(LINK_ORDER, core, link_bytes, number) for number in numbers]
            found += each * _ORDER_STARTS
        if again and params.variables == "free":
            found += [Configuration(ASLR, core, again[0])] * params.aslr_starts
    return found


# --- measuring -----------------------------------------------------------------------------------


def trials(
    params: AliasEnvironmentParams, plan: Mapping[str, Any], folder: Path
) -> EnvironmentTrials:
    """What takes the trials; programs linked in several orders go to a folder."""
    wanted = plan["link_bytes"] is not None
    return EnvironmentTrials(
        build(_NAME),
        [params.launcher_conditions(cpu) for cpu in plan["cores"]],
        (_program(params), _linked(params, folder) if wanted else []),
        [Configuration(*one) for one in plan["configurations"]],
        variables=params.program_environment(),
        predicted={int(size): pairs for size, pairs in plan["predicted"].items()},
        origin=(plan["sizes"][0], plan["origin"]),
        sets=plan["sets"],
    )


def take(params: AliasEnvironmentParams, session: Session) -> str:
    """Every size once a round, and what is compared with it; then the simulation."""
    plan = session.plan
    least_rounds = max(params.starts, len(plan["sets"]))

    def half_width(samples: pd.DataFrame) -> float:
        enough = samples["round"].max() + 1 >= least_rounds
        return AliasEnvTable(samples).half_width if enough else float("inf")

    with (
        scratch() as folder,
        trials(params, plan, folder) as starts,
    ):
        stopped = session.rounds(
            params, len(plan["configurations"]), starts.take, half_width, least_s=0.0
        )
        session.note(starts)
    session.provenance["program"] = build(_NAME, executable=True).provenance
    if params.simulate and stopped != "interrupted":
        _simulate(params, session)
    return stopped


def _simulate(params: AliasEnvironmentParams, session: Session) -> None:
    plan = session.plan
    program = replace(_program(params), iterations=params.simulated_iterations, repetitions=1)
    begin = time.monotonic()

    def progress(done: int) -> None:
        if session.stop is not None and session.stop.is_set():
            raise KeyboardInterrupt
        if session.progress is not None:
            spent = time.monotonic() - begin
            left = spent * (len(plan["sizes"]) - done) / done
            taken = session.journal.trials
            session.progress(Status(spent, left, taken[-1]["round"], None, lambda: frame_of(taken)))

    try:
        session.provenance["simulated"] = simulated_aliases(
            program,
            plan["sizes"],
            variables=params.program_environment(),
            origin=(plan["sizes"][0], plan["origin"]),
            at_once=len(os.sched_getaffinity(0)),
            progress=progress,
        )
    except PerflibError as error:
        session.problems.append(f"aliases are not simulated: {error}")
    except KeyboardInterrupt:
        session.problems.append("aliases are not simulated: it was interrupted")
