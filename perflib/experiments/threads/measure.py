"""A job's versions in every configuration: what is planned, and measured round by round."""

from __future__ import annotations

import math
import shutil
from typing import Any

import pandas as pd

from perflib.experiments.threads import ThreadsParams, points_of
from perflib.experiments.threads.table import ThreadTable
from perflib.experiments.threads.trials import (
    ALONE,
    ONE,
    PROFILED,
    WITHOUT,
    Configuration,
    ThreadTrials,
)
from perflib.framework.experiment import Session
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.threads.record import backends, chosen
from perflib.kernels import build
from perflib.measure.jobs import event_loop

_MIN_S = 8.0
_ANY = "the job"  # in the place of a version, where it is not our event loop


def plan(params: ThreadsParams) -> dict[str, Any]:
    """The CPUs, the backend, the versions and how each is run."""
    running = params.job == "running"
    backend = chosen(params.backend, running=running)
    made: dict[str, Any] = {"cpus": params.resolved_cores(), "backend": backend}
    if running:
        return {**made, "configurations": [[_ANY, PROFILED, 1]]}
    if params.job == "command":
        _argv(params, _ANY, ALONE, 1)  # a wrong command fails here
        return {**made, "configurations": [[_ANY, way, 1] for way in (ALONE, PROFILED)]}
    threads = params.threads or len(made["cpus"])
    configurations: list[list[Any]] = []
    for version in dict.fromkeys(params.versions):
        configurations += [[version, ONE, 1], [version, ALONE, threads]]
        configurations.append([version, PROFILED, threads])
        if params.without:
            configurations += [[version, WITHOUT + one, threads] for one in points_of(version)]
    return {**made, "configurations": configurations}


def take(params: ThreadsParams, session: Session) -> str:
    """Every version in every way once a round; of each version the last recording is kept."""
    trials = _trials(params, session)
    running = params.job == "running"  # it is recorded once
    try:
        stopped = session.rounds(
            params,
            len(session.plan["configurations"]),
            trials.take,
            lambda samples: 0.0 if running else _half_width(samples),
            least_s=0.0 if running else _MIN_S,
        )
    finally:
        if not any("columns" in trial for trial in session.journal.trials):
            shutil.rmtree(session.journal.recordings, ignore_errors=True)
    if params.job == "event_loop":
        session.provenance["kernel"] = build("event_loop", executable=True).provenance
    session.provenance |= {"backend": session.plan["backend"], "backends": backends()}
    session.note(trials)
    session.problems += trials.problems
    return stopped


def _trials(params: ThreadsParams, session: Session) -> ThreadTrials:
    return ThreadTrials(
        [
            Configuration(version, way, threads, _argv(params, version, way, threads))
            for version, way, threads in session.plan["configurations"]
        ],
        reports=params.job == "event_loop",
        conditions=params.conditions(None),
        cpus=session.plan["cpus"],
        settings=params.recorded(),
        backend=session.plan["backend"],
        folder=session.journal.recordings,
        timeout_s=params.job_timeout_s,
        pid=params.job_pid,
        stop=session.stop,
    )


def _argv(params: ThreadsParams, version: str, way: str, threads: int) -> list[str]:
    if params.job == "running":
        return []
    if params.job == "command":
        return job_argv(params.job_command, first=0, events=params.events, seed=params.seed)
    points = set(points_of(version)) - {way.removeprefix(WITHOUT)}
    return event_loop.argv(
        threads, params.events, points, seed=params.seed, spin=params.spin, lock=params.lock
    )


def _half_width(samples: pd.DataFrame) -> float:
    """The widest, in percentage points, of speed-ups and of the profile's cost."""
    table = ThreadTable(samples)
    widths = []
    for version in table.versions:
        if ONE in table.configurations(version):
            speedup = table.speedup(version)
            widths.append(100 * speedup.half_width / speedup.effect)
        widths.append(table.overhead(version).half_width)
    return max((one if math.isfinite(one) else math.inf for one in widths), default=math.inf)
