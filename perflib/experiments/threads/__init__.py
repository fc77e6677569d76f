"""What the threads of a job do: run, wait for locks and for cores; and what each lock costs.

C. Jones, *Threading Performance Measurements with VTune* (2015), profiled a job of eight threads
after each of three rounds of fixes. The profiler made the job up to nine times as long, and its
concurrency did not match the real speed-up. Here each version of such a job runs with one thread,
with all, under the profile, and with each of its synchronisation points switched off. So the
profile is compared with the job's self-reported waits, with its speed-up, and with what is gained
in fact.
"""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from perflib.experiments.threads.claims import CLAIMS
from perflib.experiments.threads.shapes import BY_LOCK, HISTOGRAM, SELF_REPORT
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JOB_COMMAND, JOB_TIMEOUT_S, check_command
from perflib.framework.params import (
    AnyWords,
    OrNone,
    Params,
    Words,
    budget,
    limit,
    parameter,
    precision,
)
from perflib.framework.results import RESULTS
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps
from perflib.instruments.perf.tool import CallGraph
from perflib.instruments.threads.settings import Settings
from perflib.measure.jobs import event_loop
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.expressions import Expression

__all__ = ["Threads", "ThreadsParams", "experiment", "points_of"]

_NO_POINTS = "none"


def points_of(version: str) -> tuple[str, ...]:
    """The synchronisation points of a version: a preset's, or those that its name lists.

    Raises
    ------
    UserError
        It is neither.

    Examples
    --------
    >>> points_of("CMSSW I"), points_of("formula+queue"), points_of("none")
    (('output', 'queue'), ('formula', 'queue'), ())
    """
    if version in event_loop.VERSIONS:
        return event_loop.VERSIONS[version]
    if version == _NO_POINTS:
        return ()
    points = version.split("+")
    if set(points) <= set(event_loop.POINTS):
        return tuple(point for point in event_loop.POINTS if point in points)
    if len(points) > 1:
        wrong = next(point for point in points if point not in event_loop.POINTS)
        raise UserError(choose("synchronisation point", wrong, event_loop.POINTS))
    known = [*event_loop.VERSIONS, _NO_POINTS, *event_loop.POINTS]
    raise UserError(
        choose("version", version, known) + ", several synchronisation points with + between"
    )


class ThreadsParams(Params):
    """Which job, in which versions, and how its threads are recorded."""

    budget_s: float = budget(120.0)
    precision_percent: float = precision(
        2.0, "the half-widths of all speed-ups and of the profile's cost are below this"
    )
    job: Literal["event_loop", "command", "running"] = parameter(
        "event_loop",
        "whose threads: our 'event_loop', any 'command' with job_command, or a job that is "
        "'running' with job_pid",
    )
    versions: Words = parameter(
        list(event_loop.VERSIONS),
        "of the event loop: Initial, ROOT, CMSSW I, Final (Jones 2015); 'none' without "
        "synchronisation points; or some of them with + between (formula, interface, output, "
        "checksum, queue)",
    )
    threads: int = parameter(
        0, "threads of the event loop; 0: as many as it has cores", ge=0, le=1024
    )
    events: int = parameter(200, "events of one trial, some ms each", ge=1, le=10**8)
    spin: int = parameter(
        0, "how often the event loop tries for a lock before it waits for it", ge=0, le=10**9
    )
    lock: Literal["mutex", "adaptive", "recursive", "robust"] = parameter(
        "mutex", "the kind of the event loop's locks"
    )
    without: bool = parameter(
        True, "also measure each version with each of its synchronisation points switched off"
    )
    backend: Literal["auto", "perf", "preload", "states"] = parameter(
        "auto",
        "what records: 'perf' (events of the scheduler and of locks), 'preload' (our library in a "
        "job that we start), 'states' (of a running job, from /proc), or the best that is allowed",
    )
    skip_s: float = parameter(0.0, "the first seconds, which are not recorded", "s", ge=0, le=1e6)
    duration_s: float | None = parameter(
        None, "how long is recorded (none: to the job's end)", "s", gt=0, le=1e6
    )
    sample_period_us: float = parameter(
        1000.0, "CPU time between two samples of a thread's stack", "us", ge=10, le=1e6
    )
    call_graph: OrNone[CallGraph] = parameter(
        "fp", "how the samples' callers are found: 'fp', 'dwarf' (copies of the stack), 'none'"
    )
    keep_threads: str = parameter(
        "", "regular expression: keep the threads whose names it is found in; empty: all"
    )
    follow: bool = parameter(True, "also record the processes that the job starts")
    ignore: AnyWords = parameter(
        [], "programs that are left alone, as patterns of file names (* and ?) with commas between"
    )
    max_data_mb: int = parameter(
        2048, "most data of one recording on disk; it ends there", "MB", ge=1, le=10**7
    )
    distortion_percent: float = limit(
        5.0,
        "by how much the job may be longer under the profile, and the profile's waits off those "
        "that the job reports",
    )
    ratio_percent: float = limit(
        10.0, "by how much concurrency may be off the speed-up that it predicts"
    )
    cost_percent: float = limit(
        2.0, "a lock, a synchronisation point or run-queue delay counts from this on", le=100
    )
    busy_percent: float = limit(
        80.0, "a job that keeps more of its cores busy uses them well", le=100
    )
    job_command: str = JOB_COMMAND
    job_pid: int | None = parameter(None, "process id of job=running", ge=1, le=2**22)
    job_timeout_s: float = JOB_TIMEOUT_S

    @field_validator("versions")
    @classmethod
    def _versions_are_known(cls, versions: list[str]) -> list[str]:
        try:
            for version in versions:
                points_of(version)
        except UserError as error:
            msg = str(error)
            raise ValueError(msg) from None
        return versions

    @field_validator("keep_threads")
    @classmethod
    def _is_an_expression(cls, expression: str) -> str:
        try:
            Expression(expression, "it")
        except UserError as error:
            raise ValueError(str(error)) from None
        return expression

    @model_validator(mode="after")
    def _job_is_whole(self) -> ThreadsParams:
        check_command(self.job, self.job_command)
        if (self.job == "running") != (self.job_pid is not None):
            msg = "job=running and job_pid=... go together"
            raise ValueError(msg)
        return self

    def recorded(self) -> Settings:
        """What is recorded, and how."""
        return Settings(
            skip_s=self.skip_s,
            duration_s=self.duration_s,
            sample_period_us=self.sample_period_us,
            call_graph=self.call_graph,
            threads=self.keep_threads,
            follow=self.follow,
            ignore=tuple(self.ignore),
            max_data_mb=self.max_data_mb,
        )


class Threads(Experiment, about=__file__):
    """Versions of a job: alone, profiled, and without each of their synchronisation points."""

    name = "threads"
    notebook = "13_threads"
    Params = ThreadsParams
    live_rounds = 1
    same_work = ()
    claims = CLAIMS
    published_table = "vtune_calibration"
    renamed = {"arm": "configuration", "account": "self_report"}
    columns = (
        key("version", "text", "of the event loop; of any other job 'the job'"),
        key("configuration", "text", "one_thread, alone (all threads), profiled, without:POINT"),
        key("round", "integer", "number of the round; comparisons are within"),
        key("threads", "integer", "how many the job has", least=1),
        Column(
            "job_time_s",
            "number",
            "s",
            "of the event loop; of a command: from start to end",
            True,
            "measured",
            set=True,
        ),
        Column("wall_s", "number", "s", "from the job's start to its end"),
        Column(
            "self_report", "json", "", "the job's self-reported waits, by lock", holds=SELF_REPORT
        ),
        Column("backend", "text", "", "what recorded"),
        Column("cpus", "integer", "", "how many the job may use"),
        Column("recorded_s", "number", "s", "the part of the loop that the profile speaks of"),
        Column("whole_s", "number", "s", "all that was recorded, with the serial begin and end"),
        Column("concurrency", "number", "", "threads that ran at once, on average"),
        Column(
            "concurrency_s",
            "json",
            "s",
            "how long k threads ran at once, k = 0, 1 ...",
            holds=HISTOGRAM,
        ),
        Column("running_s", "number", "s", "of all threads: on a core, at work"),
        Column("ready_s", "number", "s", "of all threads: run-queue delay"),
        Column("free_ready_s", "number", "s", "the part of ready_s in which no lock was asked for"),
        Column("waiting_s", "number", "s", "of all threads: for a lock"),
        Column("sleeping_s", "number", "s", "of all threads: for a timer, a file, a device"),
        Column("spinning_s", "number", "s", "of all threads: on a core, asking for a lock"),
        Column("unknown_s", "number", "s", "of all threads: not known"),
        Column(
            "locks",
            "json",
            "s",
            "by lock: waits, waiting and ready seconds, longest ms, seconds to gain",
            holds=BY_LOCK,
        ),
        Column("limiting", "text", "", "the lock that was waited for longest"),
        Column("serial_begin_s", "number", "s", "at the begin, with one thread awake"),
        Column("serial_end_s", "number", "s", "at the end, with one thread awake"),
        Column("serial_middle_s", "number", "s", "between, with one thread running"),
        Column("lost_events", "integer", "", "that the recording missed"),
        Column("lost_samples", "integer", "", "that the recording missed"),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("start_ns", "integer", "ns", "when the trial began"),
        ok("the job's result is wrong"),
        *RESULTS,
    )

    def unavailable(self) -> str:
        """Whether neither a job that we start nor one that runs can be recorded."""
        from perflib.instruments.threads.record import chosen

        why = ""
        for running in (False, True):
            try:
                chosen(None, running=running)
            except MeasurementError as error:
                why = why or str(error)
            else:
                return ""
        return why

    def _steps(self) -> Steps[ThreadsParams]:
        from perflib.experiments.threads import analyse, measure

        return Steps(measure, analyse)

    def _figures(self) -> Drawing:
        from perflib.experiments.threads import figures

        return figures


experiment = Threads()
