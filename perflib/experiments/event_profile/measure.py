"""Profiles of some events of a job or of all of it: on every core, or where it runs already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.experiments.event_profile import EventParams
from perflib.experiments.event_profile.analyse import unseen_percent
from perflib.experiments.event_profile.trials import (
    Events,
    ProfiledJobs,
    ProfiledRunning,
    RecordedFor,
)
from perflib.framework.experiment import Session
from perflib.framework.jobs import copies_for, job_template, log_format
from perflib.instruments.joblog.jobrun import run_job
from perflib.instruments.joblog.logformat import FORMATS
from perflib.instruments.perf.event_profile import Sampling
from perflib.instruments.perf.recorder import Recorder
from perflib.instruments.perf.tool import PerfUnavailableError
from perflib.kernels import Build, build, load
from perflib.measure.conditions import Conditions
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError, choose

_MIN_S = 8.0
_PILOTS, _PILOT_REPEATS = 4, 50
_PILOT_TIMEOUT_S = 600.0
_SLICE_US = 300.0


def plan(params: EventParams) -> dict[str, Any]:
    """The cores, which of them is the reference, and of our simulation the copies of the code."""
    if params.job == "cpus":  # what runs on them differs: they are not compared
        return {"cores": [-1], "reference": -1, "cpus": params.resolved_cores()}
    if params.job == "running" or not params.pinned:
        return {"cores": [-1], "reference": -1}
    cores = params.resolved_cores()
    reference = cores[0] if params.reference_core is None else params.reference_core
    for name, core in (("reference_core", reference), ("costlier_core", params.costlier_core)):
        if core is not None and core not in cores:
            raise UserError(choose(f"core in {name}", str(core), map(str, cores)))
    found: dict[str, Any] = {"cores": cores, "reference": reference}
    if params.job == "program":
        found["copies"] = copies_for(params.code_kib)
    _trials(params, {"repeats": 1, **found})  # a wrong job fails here
    return found


def cannot_see(params: EventParams) -> list[str]:
    """What a profile with these parameters will not show on this machine; nothing is started."""
    pid = None if params.job == "cpus" else params.job_pid or os.getpid()
    cpus = params.resolved_cores() if pid is None else []
    try:
        recorder = Recorder(pid, folder=Path(), cpus=cpus, **asdict(_sampling(params)))
    except PerfUnavailableError as error:
        return [str(error)]
    said = list(recorder.remarks)
    said.append(
        "A sample's instruction is where the interrupt was taken, some instructions after the "
        "costly one: functions can be distinguished, instructions hardly."
    )
    if params.call_graph == "fp":
        said.append(
            "Callers are found by frame pointers: where a program or library keeps none, stacks "
            "end early (-p call_graph=dwarf copies the stack instead)."
        )
    if params.job == "cpus":
        said.append("An idle CPU has samples, too: of its idle loop, in 'swapper'.")
    else:
        said.append("Time in which the job waits has no samples.")
    trials = _trials(params, plan(params))
    return said + (trials.python_remarks() if isinstance(trials, ProfiledJobs) else [])


def pilot(params: EventParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How often our simulation repeats the event to last as long as requested; its slices."""
    if params.job != "program" or not params.event.isdecimal():
        return {}
    program, conditions = _program(plan).library, params.conditions(plan["cores"][0])
    # Other work can make a pilot run longer, never shorter.
    repeats = max(
        repeats_for(program, params.event, params.seed, params.event_ms, conditions)
        for _ in range(_PILOTS)
    )
    slices = 1e3 * params.event_ms / repeats / _SLICE_US  # of one event
    steps = max(1, round(_steps_of(int(params.event), params.seed) / max(1.0, slices)))
    return {"repeats": repeats, "slice_steps": steps}


def _steps_of(event: int, seed: int) -> int:
    kernel = load("kv")
    done = kernel.ffi.new("kv_event *")
    kernel.lib.kv_run(seed, kernel.ffi.new("int64_t[]", [event]), 1, done)
    return int(done.steps)


def take(params: EventParams, session: Session) -> str:
    """Profile on every core, round by round."""
    plan = session.plan
    once = params.once or params.job in ("running", "cpus")
    cores = plan["cores"]

    def half_width(samples: pd.DataFrame) -> float:
        if once:
            return 0.0
        classes = (
            [part for _, part in samples.groupby("event_name")]
            if "event_name" in samples
            else [samples]
        )
        return max(unseen_percent(part, plan) for part in classes)

    with _trials(params, plan) as trials:

        def trial(_round: int, place: int) -> Columns:
            columns = trials.take(place, session.stop)
            return {"core": [cores[place]] * len(columns["time_ns"]), **columns}

        stopped = session.rounds(
            params, len(cores), trial, half_width, least_s=0.0 if once else _MIN_S
        )
        if params.job == "program":
            session.provenance["kernel"] = _program(plan).provenance
        session.note(trials)
        session.problems += trials.problems
        return "recorded once" if once and stopped == "precise enough" else stopped


def _sampling(params: EventParams) -> Sampling:
    return Sampling(
        event=params.sampled_event,
        frequency_hz=params.frequency_hz,
        call_graph=params.call_graph,
    )


def _trials(
    params: EventParams, plan: Mapping[str, Any]
) -> ProfiledJobs | ProfiledRunning | RecordedFor:
    expressions = log_format(params.job_begin, params.job_end)
    sampling = _sampling(params)
    events = Events(params.event, params.events_before, params.job_events, params.slowest_percent)
    if params.job == "cpus" or (params.job == "running" and not params.event):
        assert params.duration_s is not None
        cpus = plan.get("cpus", ())
        return RecordedFor(params.duration_s, params.job_pid, cpus, sampling)
    if params.job == "running":
        assert params.job_pid is not None
        return ProfiledRunning(
            params.job_pid, params.job_log, expressions, events, params.job_timeout_s, sampling
        )
    return ProfiledJobs(
        [_template(params, plan, core) for core in plan["cores"]],
        expressions,
        [params.conditions(core if core >= 0 else None) for core in plan["cores"]],
        events=events,
        seed=params.seed,
        timeout_s=params.job_timeout_s,
        sampling=sampling,
        duration_s=params.duration_s,
        slice_steps=plan.get("slice_steps"),  # runs of before have no plan of slices
    )


def _program(plan: Mapping[str, Any]) -> Build:
    return build("kv", variant="framed", copies=plan["copies"], executable=True)


def _template(params: EventParams, plan: Mapping[str, Any], core: int) -> str:
    if params.job != "program":
        return job_template(params.job, params.job_command)
    variant = "costlier" if core == params.costlier_core else "framed"
    template = job_template("program", copies=plan["copies"], variant=variant)
    if not params.event.isdecimal():
        return template
    return f"{template} --repeat {params.event}:{plan['repeats']}"


def repeats_for(
    program: Path, event: str, seed: int, event_ms: float, conditions: Conditions
) -> int:
    """How often KV must simulate an event to be busy for about ``event_ms``."""
    argv = [str(program), "--events", "1", "--first", event, "--seed", str(seed)]
    argv += ["--repeat", f"{event}:{_PILOT_REPEATS}"]
    result = run_job(argv, FORMATS["kv"], conditions, timeout_s=_PILOT_TIMEOUT_S)
    seconds = result.events[0].reported_seconds if result.events else None
    if seconds is None:
        msg = f"the pilot run of event {event} gave no time: {' '.join(result.tail)}"
        raise MeasurementError(msg)
    return max(1, round(event_ms / 1e3 / max(1e-9, seconds / _PILOT_REPEATS)))
