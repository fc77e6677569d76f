"""What can be counted here, how long the job is, and the rounds of its configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perflib.experiments.counters.analyse import CountersTable
from perflib.experiments.counters.modes import configurations
from perflib.experiments.counters.pairs import segment_of
from perflib.experiments.counters.trials import (
    CountedJobs,
    conditions_of,
    sets_of,
    template_of,
)
from perflib.framework.jobs import Jobs, copies_for, log_format
from perflib.instruments.counters.groups import countable
from perflib.instruments.joblog.jobrun import job_argv, run_job
from perflib.instruments.perf.recorder import Recorder
from perflib.machine.hardware.pmu import pmu
from perflib.machine.scratch import scratch
from perflib.model.errors import MeasurementError

if TYPE_CHECKING:
    from perflib.experiments.counters import CountersParams
    from perflib.framework.experiment import Session

_MIN_S = 10.0
_PILOT_EVENTS = 20


# --- what is decided beforehand ----------------------------------------------------------------


def plan(params: CountersParams) -> dict[str, Any]:
    """The cores, and how often the code is copied."""
    found = {
        "cores": params.resolved_cores(),
        "copies": copies_for(params.code_kib) if params.job == "program" else None,
    }
    Jobs(template_of(params, found), [conditions_of(params)])  # wrong conditions fail here
    job_argv(template_of(params, found), first=0, events=1, seed=params.seed)  # and a wrong job
    return found


def pilot(params: CountersParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What can be counted and sampled with the settings in force, and the length of the job."""
    found, absent = countable(sets_of(params))
    if not found:
        raise MeasurementError(nothing(absent))
    domain = {"user": ":u", "kernel": ":k"}.get(params.domain, "")
    sampled = ("cycles" if pmu().available else "cpu-clock") + domain
    not_sampled = _why_not_sampled(sampled, params.sampling_hz)
    segment = None  # of any other job no part can be repeated
    if params.job == "program":
        segment = segment_of(plan["copies"], conditions_of(params), plan["cores"], params.seed)
    return {
        "sets": found,
        "absent": absent,
        "sampled": sampled,
        "not_sampled": not_sampled,
        "configurations": configurations(
            sorted(set(params.jobs)), found, sampled=not not_sampled, alone=segment is None
        ),
        "stretch": segment,
        "events": params.events or _events_for(params, plan),
    }


def nothing(absent: Mapping[str, str]) -> str:
    """Why this machine can count no set."""
    return f"nothing can be counted here: {'; '.join(dict.fromkeys(absent.values()))}"


def _why_not_sampled(event: str, frequency_hz: int) -> str:
    """Why perf cannot sample here, found by trying; empty where it can."""
    try:
        with (
            scratch() as folder,
            Recorder(os.getpid(), folder=folder, event=event, frequency_hz=frequency_hz),
        ):
            return ""
    except MeasurementError as error:
        return str(error)


def _events_for(params: CountersParams, plan: Mapping[str, Any]) -> int:
    """How many events the job must do to take about ``job_ms``, from a short run of it."""
    wanted = job_argv(template_of(params, plan), first=0, events=_PILOT_EVENTS, seed=params.seed)
    expressions = log_format(params.job_begin, params.job_end)
    result = run_job(wanted, expressions, conditions_of(params), timeout_s=params.job_timeout_s)
    spent_ns = sum(
        event.time_ns if event.reported_seconds is None else event.reported_seconds * 1e9
        for event in result.events
    )
    if result.returncode or not spent_ns:
        last = "\n".join(result.tail) or "(nothing)"
        msg = (
            f"the job's length cannot be chosen: of {_PILOT_EVENTS} events its log timed "
            f"{len(result.events)} (exit status {result.returncode}). Say events=..., or what its "
            f"log looks like (job_begin, job_end). Its last lines:\n{last}"
        )
        raise MeasurementError(msg)
    return max(1, round(params.job_ms * 1e6 * len(result.events) / spent_ns))


# --- measuring ---------------------------------------------------------------------------------


def take(params: CountersParams, session: Session) -> str:
    """Run the job in every mode, round by round."""
    plan = session.plan
    with CountedJobs(params, plan) as jobs:
        stopped = session.rounds(
            params,
            len(plan["configurations"]),
            jobs.take,
            lambda samples: CountersTable(samples).half_width,
            least_s=_MIN_S,
        )
        session.note(jobs)
        if plan["not_sampled"]:
            session.problems.append(f"perf does not sample here: {plan['not_sampled']}")
        return stopped
