"""One event profiled on each core: which functions take the additional time of a slow core.

The source attached perf to ATLAS Kit Validation only while event 73 was simulated, on core 8 and on
core 0, and shared the additional cycles out among functions. Here the event is profiled on the
cores in turn, again and again, so that each function's share has an interval.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from perflib.experiments.event_profile.analyse import (
    as_one_arm,
    comparisons,
    nothing_compared,
    profiled,
    reference_of,
    shares_percent,
    unseen_percent,
)
from perflib.experiments.event_profile.measure import ProfiledJobs, ProfiledRunning, repeats_for
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.jobs import (
    JOB_BEGIN,
    JOB_COMMAND,
    JOB_END,
    JOB_TIMEOUT_S,
    check_command,
    copies_for,
    job_template,
    log_format,
)
from perflib.framework.params import Params, parameter
from perflib.framework.published import published
from perflib.instruments.perf.event_profile import Sampling
from perflib.instruments.perf.recorder import CallGraph, Recorder
from perflib.instruments.perf.tool import PerfUnavailableError, find_perf
from perflib.instruments.profile.comparison import Comparison, compare_samples
from perflib.instruments.profile.entry_cost import EntryCost, entry_cost
from perflib.kernels import Build, build
from perflib.measure.schedule import Columns
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EventParams", "EventProfiles", "experiment", "profiled"]

_LEAST_S = 8.0
_TERMS = re.compile(r"/[^/]*/")  # cpu/event=0x3c,umask=0x00/ is one event


def _as_logged(value: object) -> object:
    """A number as the log's reader has it: 73, '73' and '073' are one event."""
    if type(value) is int:
        return str(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return str(int(value))
    return value


EventName = Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_as_logged)]
# The command line and the form read the word 'none' as no value.
Callers = Annotated[CallGraph, BeforeValidator(lambda value: "none" if value is None else value)]


class EventParams(Params):
    """Which event of which job, how it is sampled, and what it is compared with."""

    precision_percent: float = parameter(
        1.0,
        "measure until no excess of a function larger than this share of the event could have "
        "stayed unseen; with one core: until each function's share of the event is so well known",
        "percentage points",
        gt=0,
        le=100,
    )
    event: EventName = parameter("73", "number or name of the event, as the job's log has it")
    events_before: int = parameter(
        2, "how many events the job does before it; fewer if its number is smaller", ge=0, le=10_000
    )
    event_ms: float = parameter(
        500.0,
        "job=program: the event is simulated so often over that it takes about so long",
        "ms",
        ge=1,
        le=600_000,
    )
    code_kib: int = parameter(
        256, "job=program: size of the physics code, which is copied", "KiB", ge=100, le=8192
    )
    reference_core: int | None = parameter(
        None, "the core that the others are compared with (none: the first)", ge=0, le=65535
    )
    dearer_core: int | None = parameter(
        None,
        "job=program, to try the method: this core is given a build whose kv_runge_kutta is "
        "about a tenth dearer",
        ge=0,
        le=65535,
    )
    frequency_hz: int = parameter(
        2000, "samples a second of each thread that runs", "Hz", ge=10, le=50_000
    )
    sampled_event: str | None = parameter(
        None,
        "what perf samples, as it names it (none: core cycles, or the CPU clock without them)",
    )
    call_graph: Callers = parameter(
        "fp",
        "how callers are found: by frame pointers, 'dwarf' (copies of the stack), 'lbr', 'none'",
    )
    job: Literal["program", "pythia", "command", "running"] = parameter(
        "program",
        "what is profiled: our simulation as a 'program', 'pythia' (needs perflib[hep]), any "
        "'command' with job_command, or a job that is 'running' with job_pid and job_log",
    )
    job_command: str = JOB_COMMAND
    job_pid: int | None = parameter(None, "process id of job=running", ge=1, le=2**22)
    job_log: str = parameter("", "the log that job=running writes")
    job_begin: str = JOB_BEGIN
    job_end: str = JOB_END
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> EventParams:
        check_command(self.job, self.job_command)
        if len({self.job == "running", self.job_pid is not None, bool(self.job_log)}) > 1:
            msg = "job=running, job_pid=... and job_log=... go together"
            raise ValueError(msg)
        if self.job in ("program", "pythia") and not self.event.isdecimal():
            msg = f"events of job={self.job} have numbers from 0: event={self.event!r} is none"
            raise ValueError(msg)
        if self.dearer_core is not None and self.job != "program":
            msg = "dearer_core needs job=program: only of our own simulation is there such a build"
            raise ValueError(msg)
        if re.search("[,{]", _TERMS.sub("", self.sampled_event or "")):
            msg = f"sampled_event={self.sampled_event!r} is several: their samples cannot be added"
            raise ValueError(msg)
        log_format(self.job_begin, self.job_end)
        return self


class EventProfiles(Experiment):
    """The profile of one event on every core, compared."""

    name = "event_profile"
    title = "Profile one event"
    question = "Which functions take the additional time of an event on a slower core?"
    notebook = "02_event_profile"
    Params: ClassVar[type[Params]] = EventParams
    columns = (
        Column("symbol", "text", "", "the function in which the sample was taken", True),
        Column("period", "number", "", "what the sample stands for: ns of a clock, cycles", True),
        Column("round", "integer", "", "number of the round; cores are compared within"),
        Column("position", "integer", "", "place of the core's turn in its round"),
        Column("core", "integer", "", "the core that the job was given; -1: a running job's own"),
        Column("offset", "integer", "B", "where in the function; -1: unknown"),
        Column("object", "text", "", "the program or library that the function is in"),
        Column("stack", "text", "", "the functions from the outermost caller on, ';' between"),
        Column("event", "text", "", "what perf sampled"),
        Column("time_ns", "integer", "ns", "when, on CLOCK_MONOTONIC"),
        Column("cpu", "integer", "", "where the sample was taken"),
        Column("pid", "integer", "", "process"),
        Column("tid", "integer", "", "thread"),
        Column("comm", "text", "", "the thread's name"),
        Column("ip", "integer", "", "the instruction's address, as a signed number"),
        Column("begin_ns", "integer", "ns", "when the event began (its line arrived)"),
        Column("event_time_ns", "integer", "ns", "how long the event took"),
        Column("missed_begin_ns", "integer", "ns", "of it before perf counted; at most"),
        Column("missed_end_ns", "integer", "ns", "of it after perf had ended"),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 40.0},
        "full": {"budget_s": 600.0, "cores": "all", "precision_percent": 0.3, "code_kib": 2048},
    }

    # --- measuring -----------------------------------------------------------------------------

    def plan(self, params: EventParams) -> dict[str, Any]:
        """The cores, and of our own simulation the copies of the code and repeats of the event."""
        find_perf()
        if params.job == "running":
            return {"cores": [-1], "reference": -1}
        cores = params.resolved_cores()
        reference = cores[0] if params.reference_core is None else params.reference_core
        for name, core in (("reference_core", reference), ("dearer_core", params.dearer_core)):
            if core is not None and core not in cores:
                unknown = choose(f"core in {name}", str(core), map(str, cores))
                raise UserError(unknown)
        plan: dict[str, Any] = {"cores": cores, "reference": reference}
        if params.job == "program":
            plan["copies"] = copies_for(params.code_kib)
            plan["repeats"] = repeats_for(
                self._program(plan).library,
                params.event,
                params.seed,
                params.event_ms,
                params.conditions(cores[0]),
            )
        self._turns(params, plan)
        return plan

    def _turns(self, params: EventParams, plan: dict[str, Any]) -> ProfiledJobs | ProfiledRunning:
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
        templates = [self._template(params, plan, core) for core in plan["cores"]]
        return ProfiledJobs(
            templates,
            expressions,
            [params.conditions(core) for core in plan["cores"]],
            event=params.event,
            events_before=params.events_before,
            seed=params.seed,
            timeout_s=params.job_timeout_s,
            sampling=sampling,
        )

    @staticmethod
    def _program(plan: dict[str, Any]) -> Build:
        return build("kv", variant="framed", copies=plan["copies"], executable=True)

    @staticmethod
    def _template(params: EventParams, plan: dict[str, Any], core: int) -> str:
        if params.job != "program":
            return job_template(params.job, params.job_command)
        variant = "dearer" if core == params.dearer_core else "framed"
        template = job_template("program", copies=plan["copies"], variant=variant)
        return f"{template} --repeat {params.event}:{plan['repeats']}"

    def take(self, params: EventParams, session: Session) -> str:
        """Profile the event on every core, round by round."""
        plan = session.plan
        with self._turns(params, plan) as turns:

            def turn(_round: int, arm: int) -> Columns:
                columns = turns.take(arm, session.stop)
                count = len(columns["time_ns"])
                return {"core": [plan["cores"][arm]] * count, **columns}

            running = params.job == "running"  # its event comes once
            stopped = session.rounds(
                params,
                len(plan["cores"]),
                turn,
                lambda samples: 0.0 if running else unseen_percent(samples, plan),
                least_s=0.0 if running else _LEAST_S,
            )
            if params.job == "program":
                session.provenance["kernel"] = self._program(plan).provenance
            session.note(turns)
            session.problems += turns.problems
            return stopped

    def unavailable(self) -> str:
        """Try to record this very process for a moment."""
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                Recorder(os.getpid(), folder=Path(folder)) as recorder,
            ):
                recorder.enable()
                recorder.disable()
        except PerfUnavailableError as error:
            return str(error)
        return ""

    # --- what it says --------------------------------------------------------------------------

    def comparisons(self, run: Run) -> dict[str, Comparison]:
        """Each core against the reference core, by its name."""
        return comparisons(profiled(run), reference_of(run))

    def entry(self, run: Run) -> EntryCost:
        """The share of samples on functions' first instructions, over all cores."""
        return entry_cost(profiled(run), run.provenance.get("instructions"))

    def analyse(self, run: Run) -> list[Finding]:
        """Of each core: longer, does a function stand out, which; and of all: the entry's cost."""
        by_core = self.comparisons(run)
        findings = [
            finding if len(by_core) == 1 else replace(finding, subject=f"{core} {finding.subject}")
            for core, comparison in by_core.items()
            for finding in comparison.findings()
        ] or [nothing_compared(profiled(run))]
        try:
            every, sham, *functions = self.entry(run).findings()
        except UserError:  # no offsets, or too few samples in each function
            return findings
        return [*findings, every, sham, *(f for f in functions if f.verdict == "supported")]

    def compare(self, first: Run, second: Run) -> list[Finding]:
        """Two runs' profiles, whatever their cores: two builds, two machines, two days."""
        samples = [as_one_arm(run) for run in (first, second)]
        sampled = [str(table["event"].iloc[0]) for table in samples]
        if sampled[0] != sampled[1]:
            each = f"{first.id} has samples of {sampled[0]}, {second.id} of {sampled[1]}"
            msg = f"{each}: they cannot be compared"
            raise UserError(msg)
        return compare_samples(pd.concat(samples), first.id, second.id).findings()

    def figures(self, run: Run) -> dict[str, Figure]:
        """Additional time by function, the cost on both cores, the entry's share, one time line."""
        from perflib.experiments.event_profile import figures as event_figures

        drawn: dict[str, Figure] = {}
        for core, comparison in self.comparisons(run).items():
            drawn[f"additional_time_{core}"] = event_figures.additional_time(comparison)
            drawn[f"cost_{core}"] = event_figures.cost_on_both(comparison)
        if not drawn:
            samples = profiled(run)
            drawn["cost"] = event_figures.cost_of_one(shares_percent(samples), len(samples))
        with contextlib.suppress(UserError):  # no offsets, or too few samples in each function
            drawn["entry"] = event_figures.entry_shares(self.entry(run))
        times = ["begin_ns", "event_time_ns", "missed_begin_ns", "missed_end_ns"]
        if {"round", "core", "time_ns", *times} <= set(run.samples):
            timed = run.samples.dropna(subset=["time_ns", *times])
            for _, turn in timed.groupby(["round", "core"]):
                begin_ns, event_ns, missed_begin_ns, missed_end_ns = (
                    int(turn[name].iloc[0]) for name in times
                )
                drawn["time_line"] = event_figures.time_line(
                    turn["time_ns"] - begin_ns,
                    event_ns,
                    missed_begin_ns,
                    missed_end_ns,
                    bin_ms=max(1.0, event_ns / 1e8),
                )
                break
        return drawn

    def published(self) -> pd.DataFrame:
        """The functions with most of the additional cycles on core 8, as the source reports."""
        return published("kv_additional_cycles")


experiment = EventProfiles()
