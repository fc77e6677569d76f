"""One event profiled on each core: which functions take the additional time of a slow core.

Guerri et al. 2015 attached perf to ATLAS Kit Validation only while event 73 was simulated, on
core 8 and on core 0, and shared the additional cycles out among functions. Here the event is
profiled on all cores in each round, again and again, so that each function's share has an interval.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from perflib.experiments.event_profile.claims import CLAIMS
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JobParams
from perflib.framework.params import OrNone, parameter, precision
from perflib.framework.schema import Column
from perflib.framework.steps import Drawing, Steps
from perflib.instruments.perf.tool import CallGraph

__all__ = ["EventParams", "EventProfile", "experiment"]

_TERMS = re.compile(r"/[^/]*/")  # cpu/event=0x3c,umask=0x00/ is one event


def _as_logged(value: object) -> object:
    """A number as the log's reader has it: 73, '73' and '073' are one event."""
    if type(value) is int:
        return str(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return str(int(value))
    return value


EventName = Annotated[str, Field(max_length=200), BeforeValidator(_as_logged)]


class EventParams(JobParams):
    """Which event of which job, how it is sampled, and what it is compared with."""

    precision_percent: float = precision(
        1.0,
        "no excess of a function larger than this share of the event could have stayed "
        "unseen; with one core: until each function's share of the event is so well known",
    )
    event: EventName = parameter(
        "73",
        "number or name of the event, as the job's log has it, or a regular expression for whole "
        "names of several: each name is a profile of its own, or each value of the named group "
        "'event'; empty: the whole job, without a log",
    )
    slowest_percent: float | None = parameter(
        None,
        "keep only so many of these events, the slowest, and some others to compare them with",
        "%",
        gt=0,
        le=100,
    )
    events_before: int = parameter(
        2, "how many events the job does before it; fewer if its number is smaller", ge=0, le=10_000
    )
    job_events: int = parameter(
        100,
        "how many events a job does ({events}), from the first, where the event is no number",
        ge=1,
        le=10**9,
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
    costlier_core: int | None = parameter(
        None,
        "job=program, to try the method: this core is given a build whose kv_runge_kutta is "
        "about a tenth costlier",
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
    call_graph: OrNone[CallGraph] = parameter(
        "fp",
        "how callers are found: by frame pointers, 'dwarf' (copies of the stack), 'lbr', 'none'",
    )
    job: Literal["program", "pythia", "command", "running", "cpus"] = parameter(
        "program",
        "what is profiled: our simulation as a 'program', 'pythia' (of the extra [hep]), any "
        "'command' with job_command, a job that is 'running' with job_pid, or all that runs on "
        "the 'cpus' of cores",
    )
    job_pid: int | None = parameter(None, "process id of job=running", ge=1, le=2**22)
    job_log: str = parameter("", "the log that job=running writes, where an event is wanted")
    duration_s: float | None = parameter(
        None,
        "without an event: how long is recorded (none: a job that is started, to its end)",
        "s",
        ge=0.1,
        le=1e6,
    )
    pinned: bool = parameter(True, "whether a job is started on each of cores, or runs anywhere")
    once: bool = parameter(False, "whether one round is enough, however imprecise it is")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._has_what_it_records()
        names = self._names()
        if self.job in ("program", "pythia") and not all(map(str.isdecimal, names)):
            msg = f"events of job={self.job} have numbers from 0: event={self.event!r} is none"
            raise ValueError(msg)
        if self.costlier_core is not None and self.job != "program":
            msg = "costlier_core needs job=program: only of our simulation is there such a build"
            raise ValueError(msg)
        if re.search("[,{]", _TERMS.sub("", self.sampled_event or "")):
            msg = f"sampled_event={self.sampled_event!r} is several: their samples cannot be added"
            raise ValueError(msg)
        return self

    def _has_what_it_records(self) -> None:
        """Refuse a process, log, event or time that is missing or means nothing here."""
        if (self.job == "running") != (self.job_pid is not None) or (
            self.job_log and self.job != "running"
        ):
            msg = "job=running and job_pid=... go together, job_log=... with both"
        elif self.job == "running" and bool(self.job_log) != bool(self.event):
            msg = (
                "job=running: an event is found by the log, so event=... and job_log=... go "
                "together; for all that runs: event= and duration_s=..."
            )
        elif self.job == "cpus" and self.event:
            msg = f"job=cpus has no log and no events: event={self.event!r} must be empty (event=)"
        elif not self.event and self.slowest_percent is not None:
            msg = "slowest_percent is of events: say which with event=... ('.*': all)"
        elif not self.event and self.job in ("running", "cpus") and self.duration_s is None:
            msg = f"job={self.job} without an event: say how long with duration_s=..."
        elif self.event and self.duration_s is not None:
            msg = "duration_s is for recordings without an event (event=)"
        else:
            return
        raise ValueError(msg)

    def _names(self) -> tuple[str, ...]:
        """The events' names, where they are written out; the expression is checked, too."""
        from perflib.instruments.joblog.wanted import Wanted
        from perflib.model.errors import UserError

        try:
            return Wanted(self.event).names
        except UserError as error:
            raise ValueError(str(error)) from None


class EventProfile(Experiment, about=__file__):
    """The profile of one event on every core, compared."""

    name = "event_profile"
    notebook = "02_event_profile"
    Params = EventParams
    columns = (
        Column("symbol", "text", "", "the function in which the sample was taken", True),
        Column(
            "period",
            "number",
            "",
            "what the sample stands for: ns of a clock, cycles",
            True,
            "measured",
            least=0,
            set=True,
        ),
        Column(
            "round", "integer", "", "number of the round; cores are compared within", role="key"
        ),
        Column("position", "integer", "", "place of the core's trial in its round"),
        Column(
            "core",
            "integer",
            "",
            "the core that the job was given; -1: a running job's own",
            role="key",
            least=-1,
        ),
        Column(
            "offset", "integer", "B", "where in the function; -1: unknown", least=-1, most=2**30
        ),
        Column("object", "text", "", "the program or library that the function is in"),
        Column("stack", "text", "", "the functions from the outermost caller on, ';' between"),
        Column("event", "text", "", "what perf sampled", role="key"),
        Column("event_name", "text", "", "the job's event, or its class", role="key"),
        Column("time_ns", "integer", "ns", "when, on CLOCK_MONOTONIC"),
        Column("cpu", "integer", "", "where the sample was taken"),
        Column("pid", "integer", "", "process"),
        Column("tid", "integer", "", "thread"),
        Column("comm", "text", "", "the thread's name"),
        Column(
            "ip",
            "integer",
            "",
            "the instruction's address, as a signed number",
            least=-(2**63),
            most=2**63,
        ),
        Column("begin_ns", "integer", "ns", "when the event began (its line arrived)"),
        Column("event_time_ns", "integer", "ns", "how long the event took"),
        Column("missed_begin_ns", "integer", "ns", "of it before perf counted; at most"),
        Column("missed_end_ns", "integer", "ns", "of it after perf had ended"),
        Column("slice", "integer", "", "part of the event that it was taken in; empty: between"),
        Column("slice_start_ns", "integer", "ns", "when the slice began, on CLOCK_MONOTONIC"),
        *PROBE_COLUMNS,
    )

    claims = CLAIMS
    published_table = "kv_additional_cycles"
    renamed = {"dearer_core": "costlier_core"}

    def unavailable(self) -> str:
        """Try to record this very process for a moment."""
        import os

        from perflib.instruments.perf.recorder import Recorder
        from perflib.instruments.perf.tool import PerfUnavailableError
        from perflib.machine.scratch import scratch

        try:
            with (
                scratch() as folder,
                Recorder(os.getpid(), folder=folder) as recorder,
            ):
                recorder.enable()
                recorder.disable()
        except PerfUnavailableError as error:
            return str(error)
        return ""

    def _steps(self) -> Steps[EventParams]:
        from perflib.experiments.event_profile import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, compare=analyse.compare)

    def _figures(self) -> Drawing:
        from perflib.experiments.event_profile import figures

        return figures


experiment = EventProfile()
