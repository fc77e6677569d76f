"""The program under the simulator: a trial for each geometry, and for its caches and its TLBs."""

from __future__ import annotations

import os
from typing import Any

import pandas as pd

from perflib.experiments.simulate import SimulateParams
from perflib.experiments.simulate.analyse import OTHERS, spread_percent
from perflib.framework.experiment import Session
from perflib.framework.jobs import copies_for, job_template
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.simulators.cachegrind import VALGRIND_INSTALL, cachegrind_counts
from perflib.instruments.simulators.geometry import geometry
from perflib.instruments.simulators.lines import shared_lines
from perflib.instruments.simulators.qemu import emulator
from perflib.instruments.simulators.run import find_program, find_tool
from perflib.machine.describe import describe
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, PerflibError, UserError

_MIN_SHARE = 1e-3  # of a counter: what is less is added up, and thousands of rows are spared


def plan(params: SimulateParams) -> dict[str, Any]:
    """The geometries with their levels, and which of them have TLBs."""
    machine = describe()
    shapes = [geometry(words, machine) for words in params.geometries]
    trials = [
        [which, part]
        for which, shape in enumerate(shapes)
        for part in params.parts
        if part == "caches" or (part == "TLBs" and shape.tlbs) or (part == "lines" and not which)
    ]
    unknown = [one.name for one in shapes if "TLBs" in params.parts and not one.tlbs]
    if not trials:
        msg = f"{_give(unknown[0])}, or name a processor"
        raise UserError(msg)
    program = find_program(_argv(params), None)  # a wrong job fails here
    if "lines" in params.parts:
        emulator(program)
    if set(params.parts) != {"lines"}:
        find_tool("valgrind", VALGRIND_INSTALL)
    return {
        "configurations": trials,
        "absent": {name: _give(name) for name in unknown},
        "geometries": [
            {
                "geometry": shape.name,
                "source": shape.source,
                "levels": {name: str(level) for name, level in shape.levels.items()},
            }
            for shape in shapes
        ],
    }


def take(params: SimulateParams, session: Session) -> str:
    """Simulate until two simulations agree."""
    trials = session.plan["configurations"]
    machine = describe()
    argv = _argv(params)
    environment = {**os.environ, **params.environment}

    def trial(_round: int, which: int) -> Columns:
        words, part = params.geometries[trials[which][0]], trials[which][1]
        given: dict[str, Any] = {"environment": environment, "timeout_s": params.job_timeout_s}
        try:
            if part == "lines":
                table = shared_lines(argv, **given).assign(source_file="")
            else:
                shape = geometry(words, machine)
                table = _largest(cachegrind_counts(argv, shape, tlbs=part == "TLBs", **given))
                table = table.assign(function="", thread=-1, bytes="")
        except UserError:
            raise
        except PerflibError as error:
            if not session.journal.trials:  # not even once: another trial would fail, too
                raise MeasurementError(str(error)) from error
            raise WorkerError(str(error)) from error
        table = table.assign(geometry=words, part=part)
        return {str(name): table[name].tolist() for name in table}

    session.problems += session.plan["absent"].values()
    session.provenance["job"] = params.job_command or "the detector simulation"
    return session.rounds(params, len(trials), trial, spread_percent, least_s=0.0)


def _give(name: str) -> str:
    return (
        f"the TLBs of {name} are not known, and not simulated: give them, as "
        f"'{name} iTLB=64:8 dTLB=64:4 STLB=1536:12'"
    )


def _argv(params: SimulateParams) -> list[str]:
    copies = copies_for(params.code_kib) if params.job == "program" else None
    template = job_template(params.job, params.job_command, copies=copies)
    return job_argv(template, first=0, events=params.events, seed=params.seed)


def _largest(counts: pd.DataFrame) -> pd.DataFrame:
    """Functions with a thousandth of a counter or more; the others as one."""
    total = counts.groupby("counter")["simulated_count"].transform("sum")
    small = counts["simulated_count"] < _MIN_SHARE * total
    table = counts.assign(
        symbol=counts["symbol"].where(~small, OTHERS),
        source_file=counts["source_file"].where(~small, ""),
    )
    keys = ["counter", "symbol", "source_file", "tool"]
    return table.groupby(keys, sort=False)["simulated_count"].sum().reset_index()
