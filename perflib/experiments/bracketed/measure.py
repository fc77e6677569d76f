"""A program that brackets its own pieces, started round by round."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.experiments.bracketed import BracketedParams, experiment
from perflib.experiments.bracketed.table import BracketedTable
from perflib.framework.experiment import Session
from perflib.framework.jobs import Jobs
from perflib.instruments.joblog.jobrun import job_argv
from perflib.kernels import build
from perflib.machine.scratch import scratch
from perflib.measure.job import run_alone
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.store.run_files import read_table

_VARIABLE = "PERFLIB_SAMPLES"
_MIN_STARTS = 8  # an exchange of names by chance is rare enough from there on
_NONE = (
    "the job wrote no samples: it has to include perflib_bracket.h ('perflib header' makes it), "
    'run PERFLIB_SAMPLE("name") {{ ... }} around its pieces, and end by return or exit(){last}'
)


def plan(params: BracketedParams) -> dict[str, Any]:
    """The CPUs that the job may use; what its pieces are called comes with the pilot."""
    _argv(params)  # a wrong command fails here
    return {"cpus": params.resolved_cores()}


def pilot(params: BracketedParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Start the job twice: it ends, writes samples, and of the same pieces."""
    jobs = _Starts(params, plan)
    most_s = min(params.job_timeout_s, max(params.budget_s, 1.0))
    begun = time.monotonic()
    try:
        names = list(dict.fromkeys(jobs.start(most_s)["name"]))
        start_s = time.monotonic() - begun
        jobs.names = sorted(names)
        jobs.start(params.job_timeout_s)
    except WorkerError as error:
        raise MeasurementError(str(error)) from error
    if params.against and params.against not in names:
        raise UserError(choose("piece (against)", params.against, names))
    notes = []
    if _MIN_STARTS * start_s > params.budget_s:
        notes.append(
            f"one start takes {start_s:.3g} s: a verdict takes {_MIN_STARTS} starts, so a budget "
            f"of {math.ceil(_MIN_STARTS * start_s)} s (budget_s), or shorter starts"
        )
    return {"names": sorted(names), "notes": notes}


def take(params: BracketedParams, session: Session) -> str:
    """Start after start."""
    jobs = _Starts(params, session.plan)
    jobs.names = session.plan["names"]
    stopped = session.rounds(params, 1, jobs.take, half_width_of(params.against))
    if params.job == "example":
        session.provenance["program"] = build("bracketed", executable=True).provenance
    session.note(jobs)
    session.problems += session.plan["notes"]
    return stopped


def half_width_of(against: str) -> Any:
    """The half-width that a run of samples has reached."""

    def half_width(samples: pd.DataFrame) -> float:
        return BracketedTable(experiment.check_samples(samples), against).half_width()

    return half_width


class _Starts(Jobs):
    """Starts the job, and reads what it wrote."""

    def __init__(self, params: BracketedParams, plan: Mapping[str, Any]) -> None:
        super().__init__(" ".join(_argv(params)), [params.conditions(None)])
        self._params, self._cpus = params, plan["cpus"]
        self.names: list[str] = []  # empty: not known yet

    def start(self, timeout_s: float) -> pd.DataFrame:
        """The samples of one start.

        Raises
        ------
        WorkerError
            It did not end well, or wrote no samples, or of other pieces than before.
        """
        with scratch() as folder:
            file = Path(folder) / "samples.csv"
            wanted = self.conditions[0]
            ran = run_alone(
                _argv(self._params),
                replace(wanted, environment={**wanted.environment, _VARIABLE: str(file)}),
                cpus=self._cpus,
                timeout_s=timeout_s,
                seen=lambda pid: self.read_back(0, pid),
            )
            if ran.problem:
                msg = f"the job {ran.problem}"
                raise WorkerError(msg)
            table = read_table(file) if file.is_file() and file.stat().st_size else pd.DataFrame()
        if table.empty:
            last = ran.output.strip().splitlines()[-1:]
            raise WorkerError(_NONE.format(last=f"; it printed {last[0]!r}" if last else ""))
        table = experiment.check_samples(table)
        found = sorted(set(table["name"]))
        if self.names and found != self.names:
            msg = (
                f"the job has other pieces from start to start: {', '.join(self.names)}, then "
                f"{', '.join(found)}: give them names without numbers of the run"
            )
            raise WorkerError(msg)
        return table

    def take(self, round_: int, _place: int) -> Columns:
        """One start: one row a sample."""
        table = self.start(self._params.job_timeout_s).assign(process=round_)
        return {str(name): values.tolist() for name, values in table.items()}


def _argv(params: BracketedParams) -> list[str]:
    if params.job == "here":
        msg = "job=here is what pl.bench and pl.sample measure: call them in your Python program"
        raise UserError(msg)
    if params.job == "example":
        return [str(build("bracketed", executable=True).library)]
    return job_argv(params.job_command, first=0, events=1, seed=params.seed)
