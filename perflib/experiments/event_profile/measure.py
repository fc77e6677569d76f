"""One event profiled on every core: by a job that is started there, or that is running already."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from perflib.experiments.event_profile.alone import slices_of_samples
from perflib.experiments.event_profile.analyse import unseen_percent
from perflib.framework.jobs import Jobs, copies_for, job_template, log_format
from perflib.instruments.joblog.jobrun import job_argv, run_job
from perflib.instruments.joblog.logformat import FORMATS, LogFormat
from perflib.instruments.perf import script as perfscript
from perflib.instruments.perf.event_profile import (
    EventProfile,
    Sampling,
    profile_job,
    profile_running,
)
from perflib.instruments.profile.annotate import annotate
from perflib.instruments.profile.views import merge_copies
from perflib.kernels import Build, build, load, record
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, PerflibError, UserError, choose

if TYPE_CHECKING:
    from perflib.experiments.event_profile import EventParams
    from perflib.framework.experiment import Session

__all__ = ["ProfiledJobs", "ProfiledRunning", "pilot", "plan", "repeats_for", "take"]

_LEAST_S = 8.0
_PILOTS, _PILOT_REPEATS = 4, 50
_PILOT_TIMEOUT_S = 600.0
_SLICE_US = 300.0
_LEAST_SAMPLES = 50  # of a function whose instructions are worth looking up
_POOR_COVERAGE_PERCENT = 95.0


def plan(params: EventParams) -> dict[str, Any]:
    """The cores, which of them is the reference, and of our simulation the copies of the code."""
    if params.job == "running":
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


def pilot(params: EventParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How often our simulation repeats the event to last as long as requested; its slices."""
    if params.job != "program":
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
    """Profile the event on every core, round by round."""
    plan = session.plan
    running = params.job == "running"  # its event comes once
    with _trials(params, plan) as trials:

        def trial(_round: int, place: int) -> Columns:
            columns = trials.take(place, session.stop)
            return {"core": [plan["cores"][place]] * len(columns["time_ns"]), **columns}

        stopped = session.rounds(
            params,
            len(plan["cores"]),
            trial,
            lambda samples: 0.0 if running else unseen_percent(samples, plan),
            least_s=0.0 if running else _LEAST_S,
        )
        if params.job == "program":
            session.provenance["kernel"] = _program(plan).provenance
        session.note(trials)
        session.problems += trials.problems
        return stopped


def _trials(params: EventParams, plan: Mapping[str, Any]) -> ProfiledJobs | ProfiledRunning:
    expressions = log_format(params.job_begin, params.job_end)
    sampling = Sampling(
        event=params.sampled_event,
        frequency_hz=params.frequency_hz,
        call_graph=params.call_graph,
    )
    if params.job == "running":
        assert params.job_pid is not None
        return ProfiledRunning(
            params.job_pid,
            params.job_log,
            expressions,
            params.event,
            params.job_timeout_s,
            sampling,
        )
    return ProfiledJobs(
        [_template(params, plan, core) for core in plan["cores"]],
        expressions,
        [params.conditions(core) for core in plan["cores"]],
        event=params.event,
        events_before=params.events_before,
        seed=params.seed,
        timeout_s=params.job_timeout_s,
        sampling=sampling,
        slice_steps=plan.get("slice_steps"),  # runs of before have no plan of slices
    )


def _program(plan: Mapping[str, Any]) -> Build:
    return build("kv", variant="framed", copies=plan["copies"], executable=True)


def _template(params: EventParams, plan: Mapping[str, Any], core: int) -> str:
    if params.job != "program":
        return job_template(params.job, params.job_command)
    variant = "costlier" if core == params.costlier_core else "framed"
    template = job_template("program", copies=plan["copies"], variant=variant)
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


class _Recorded:
    """What trials have in common: problems, remarks, and the layout of the functions they met."""

    def __init__(self) -> None:
        self._problems: dict[str, list[str]] = {}
        self._sampled: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._looked_up: set[str] = set()
        self._instructions: dict[str, list[int]] = {}

    @property
    def problems(self) -> list[str]:
        """What was wrong; what differs between trials in its numbers only is said once."""
        return [
            first if not more else f"{first} (in {1 + len(more)} trials; the numbers are one's)"
            for first, *more in self._problems.values()
        ]

    @property
    def any(self) -> bool:
        """Whether any trial was recorded."""
        return bool(self._sampled)

    def _problem(self, sentence: str) -> None:
        self._problems.setdefault(re.sub(r"\d+(\.\d+)?", "#", sentence), []).append(sentence)

    def provenance(self) -> dict[str, Any]:
        """What was sampled, what is to be known of it, and functions' instructions."""
        return {**self._sampled, "instructions": self._instructions}

    def columns(self, profile: EventProfile, event: str, slices: Path | None) -> Columns:
        """The samples of the wanted event, with the event's own times on every row.

        ``slices``: the file of the slices that it was cut into.
        """
        recorded = [one for one in profile.events if str(one.event.event) == event]
        if not recorded:
            why = "; ".join(profile.problems) or "no reason known"
            msg = f"event {event} was not recorded: {why}"
            raise WorkerError(msg)
        one = recorded[0]
        if not one.coverage.samples:
            took = f"no sample was taken during event {event}, of {one.event.time_ns / 1e6:g} ms"
            raise WorkerError("; ".join([took, *profile.problems]))
        read = perfscript.read(profile.samples)
        if read.unread_count:
            first = read.unread[0]
            self._problem(
                f"{read.unread_count} lines of perf's text could not be read, the first, line "
                f"{first.line}: {first.reason}"
            )
        time_ns = read.samples["time_ns"]
        samples = read.samples[(time_ns >= one.event.begin_ns) & (time_ns <= one.event.end_ns)]
        if one.coverage.covered_percent < _POOR_COVERAGE_PERCENT:
            self._problem(
                f"only {one.coverage.covered_percent:.0f} % of an event was recorded: "
                f"{one.coverage.missed_begin_ns / 1e6:.1f} ms are missed at its begin"
            )
        for sentence in profile.problems:
            self._problem(sentence)
        self._sampled = {"sampled": profile.sampled, "remarks": profile.remarks}
        self._look_up(samples)
        in_slices: Columns = {}
        if slices is not None:
            cut = np.fromfile(slices, dtype=record(build("kv"), "kv_slice"))
            in_slices = slices_of_samples(samples["time_ns"].to_numpy(np.int64), cut)
        return (
            _columns(samples)
            | in_slices
            | {
                "begin_ns": [one.event.begin_ns] * len(samples),
                "event_time_ns": [one.event.time_ns] * len(samples),
                "missed_begin_ns": [one.coverage.missed_begin_ns] * len(samples),
                "missed_end_ns": [one.coverage.missed_end_ns] * len(samples),
            }
        )

    def _look_up(self, samples: pd.DataFrame) -> None:
        """Note where a function's instructions begin, while its file is still there."""
        merged = merge_copies(samples)
        here = Counter(merged["symbol"].astype(str))
        self._counts += here
        for function in here.keys() - self._looked_up - {"[unknown]"}:
            if self._counts[function] >= _LEAST_SAMPLES:
                self._looked_up.add(function)  # once: what has no file will have none later
                table = annotate(merged, function).table
                offsets = sorted({int(at) for at in table["offset"][table["instruction"].notna()]})
                if offsets[:1] == [0]:
                    self._instructions[function] = offsets


def _columns(samples: pd.DataFrame) -> Columns:
    columns: Columns = {}
    for name in samples:
        values = samples[name]
        if name == "ip":  # DuckDB and JSON take signed numbers
            values = pd.Series(values.to_numpy(np.uint64).view(np.int64))
        columns[str(name)] = values.tolist()
    return columns


class ProfiledJobs(Jobs):
    """A job started for each trial, held until perf is attached, recorded during one event."""

    def __init__(
        self,
        templates: Sequence[str],
        log_format: LogFormat,
        conditions: Sequence[Conditions],
        *,
        event: str,
        events_before: int,
        seed: int,
        timeout_s: float,
        sampling: Sampling,
        slice_steps: int | None = None,
    ) -> None:
        super().__init__(templates[0], conditions)
        self._slice_steps = slice_steps
        number = int(event) if event.isdecimal() else 0
        before = min(events_before, number)
        self._argv = [
            job_argv(template, first=number - before, events=before + 2, seed=seed)
            for template in templates
        ]
        self._format = log_format
        self._event = event
        self._timeout_s = timeout_s
        self._sampling = sampling
        self._recorded = _Recorded()

    @property
    def problems(self) -> list[str]:
        """What was wrong with some trials."""
        return self._recorded.problems

    def provenance(self) -> dict[str, Any]:
        """The job, its conditions, and what was sampled."""
        return {**super().provenance(), **self._recorded.provenance()}

    def take(self, place: int, _stop: threading.Event | None) -> Columns:
        """Run the job on a core and record the event: one row a sample."""
        with scratch() as folder:
            argv, slices = self._argv[place], None
            if self._slice_steps is not None:
                slices = folder / "slices"
                argv = [*argv, "--slices", f"{self._slice_steps}:{slices}"]
            try:
                profile = profile_job(
                    argv,
                    self._format,
                    {self._event},
                    folder=folder,
                    timeout_s=self._timeout_s,
                    conditions=self.conditions[place],
                    sampling=self._sampling,
                    on_end=lambda _event, pid: self.read_back(place, pid),
                )
                return self._recorded.columns(profile, self._event, slices)
            except UserError:
                raise
            except PerflibError as error:
                if not self._recorded.any:  # not even once: another trial would fail, too
                    raise MeasurementError(str(error)) from error
                raise WorkerError(str(error)) from error


class ProfiledRunning:
    """A job that runs already, where it happens to run; its event is recorded once."""

    violated: ClassVar[list[str]] = []

    def __init__(
        self,
        pid: int,
        log: str,
        log_format: LogFormat,
        event: str,
        timeout_s: float,
        sampling: Sampling,
    ) -> None:
        self._pid = pid
        self._log = Path(log)
        self._format = log_format
        self._event = event
        self._timeout_s = timeout_s
        self._sampling = sampling
        self._recorded = _Recorded()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def problems(self) -> list[str]:
        """What was wrong with the recording."""
        return self._recorded.problems

    def provenance(self) -> dict[str, Any]:
        """The process, its log, and what was sampled."""
        return {"job": f"process {self._pid}, log {self._log.name}", **self._recorded.provenance()}

    def take(self, _place: int, stop: threading.Event | None) -> Columns:
        """Wait for the event and record it: one row a sample."""
        begun = time.monotonic()
        with scratch() as folder:
            profile = profile_running(
                self._pid,
                self._log,
                self._format,
                {self._event},
                folder=folder,
                timeout_s=self._timeout_s,
                stop=stop,
                sampling=self._sampling,
            )
            try:
                return self._recorded.columns(profile, self._event, None)
            except WorkerError as error:  # there is no other trial
                waited = f"the log was followed for {time.monotonic() - begun:.1f} s"
                if stop is not None and stop.is_set():
                    waited += ", until it was stopped"
                if not self._log.exists():
                    waited = f"there is no log {self._log}"
                msg = f"{error}; {waited}"
                raise MeasurementError(msg) from error
