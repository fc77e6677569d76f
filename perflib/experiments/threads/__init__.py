"""What the threads of a job do: run, wait for locks and for cores; and what each lock costs.

The source (C. Jones, *Threading Performance Measurements with VTune*, 2015) looked at a job of
eight threads after each of three rounds of fixes. Its profiler made the job up to nine times as
long, and its concurrency did not match the real speed-up. Here each version of such a job is run
with one thread, with all, under the profile, and with each of its serialisation points switched
off, in turn: the profile is held to the job's own account of its waits, to its speed-up, and to
what is gained in fact.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import BeforeValidator, field_validator, model_validator

from perflib.experiments.threads.analyse import Limits, findings
from perflib.experiments.threads.measure import ALONE, ONE, PROFILED, WITHOUT, Arm, ThreadTurns
from perflib.experiments.threads.table import ThreadTable
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.jobs import JOB_COMMAND, JOB_TIMEOUT_S, check_command
from perflib.framework.params import AnyWords, Params, Words, parameter
from perflib.framework.published import published
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.perf.recorder import CallGraph
from perflib.instruments.threads.record import backends, chosen
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.kernels import build
from perflib.measure.jobs import event_loop
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.store import runs_dir

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Threads", "ThreadsParams", "experiment", "points_of"]

_LEAST_S = 8.0
_NO_POINTS = "none"
_ANY = "the job"  # in the place of a version, where it is not our event loop

# The command line and the form read the word 'none' as no value.
Callers = Annotated[CallGraph, BeforeValidator(lambda value: "none" if value is None else value)]


def points_of(version: str) -> tuple[str, ...]:
    """The serialisation points of a version: a preset's, or those that its name lists.

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
        raise UserError(choose("point", wrong, event_loop.POINTS))
    known = [*event_loop.VERSIONS, _NO_POINTS, *event_loop.POINTS]
    raise UserError(choose("version", version, known) + ", several points with + between")


class ThreadsParams(Params):
    """Which job, in which versions, and how its threads are recorded."""

    budget_s: float = parameter(
        120.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        2.0,
        "measure until the half-widths of all speed-ups and of the profile's cost are below this",
        "percentage points",
        gt=0,
        le=100,
    )
    job: Literal["event_loop", "command", "running"] = parameter(
        "event_loop",
        "whose threads: our 'event_loop', any 'command' with job_command, or a job that is "
        "'running' with job_pid",
    )
    versions: Words = parameter(
        list(event_loop.VERSIONS),
        "of the event loop: the source's Initial, ROOT, CMSSW I, Final; 'none' without "
        "serialisation points; or points with + between (formula, interface, output, checksum, "
        "queue)",
    )
    threads: int = parameter(
        0, "threads of the event loop; 0: as many as it has cores", ge=0, le=1024
    )
    events: int = parameter(200, "events of one turn, some ms each", ge=1, le=10**8)
    spin: int = parameter(
        0, "how often the event loop tries for a lock before it waits for it", ge=0, le=10**9
    )
    lock: Literal["mutex", "adaptive", "recursive", "robust"] = parameter(
        "mutex", "the kind of the event loop's locks"
    )
    without: bool = parameter(
        True, "also measure each version with each of its points switched off, one at a time"
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
    call_graph: Callers = parameter(
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
    distortion_percent: float = parameter(
        5.0,
        "by how much the job may be longer under the profile, and the profile's waits off the "
        "job's own account",
        "percent",
        gt=0,
        le=1000,
    )
    ratio_percent: float = parameter(
        10.0, "by how much concurrency may be off the speed-up that it predicts", "percent", gt=0,
        le=1000,
    )  # fmt: skip
    cost_percent: float = parameter(
        2.0, "a lock, a point or a want of cores counts from this on", "percent", gt=0, le=100
    )
    busy_percent: float = parameter(
        80.0, "a job that keeps more of its cores busy uses them well", "percent", gt=0, le=100
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
            re.compile(expression)
        except re.error as error:
            msg = f"it is no regular expression: {error}"
            raise ValueError(msg) from None
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

    def limits(self) -> Limits:
        """From where on something counts."""
        return Limits(
            self.distortion_percent, self.ratio_percent, self.cost_percent, self.busy_percent
        )


class Threads(Experiment):
    """Versions of a job: alone, under the profile, and without each of their points."""

    name = "threads"
    title = "Threads: concurrency, waits and locks"
    question = "What do the threads of a job wait for, and what would they gain without?"
    notebook = "13_threads"
    Params: ClassVar[type[Params]] = ThreadsParams
    live_rounds = 1
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 35.0, "events": 60},
        "full": {"budget_s": 1800.0, "precision_percent": 0.5, "events": 400},
    }
    columns = (
        Column("version", "text", "", "of the event loop; of any other job 'the job'", True),
        Column(
            "arm", "text", "", "one_thread, alone (all threads), profiled, without:POINT", True
        ),
        Column("round", "integer", "", "number of the round; arms are compared within", True),
        Column("threads", "integer", "", "how many the job has", True),
        Column("job_time_s", "number", "s", "of the event loop; of a command: from start to end",
               True),
        Column("wall_s", "number", "s", "from the job's start to its end"),
        Column("account", "text", "", "JSON: the job's own account, by lock"),
        Column("backend", "text", "", "what recorded"),
        Column("cpus", "integer", "", "how many the job may use"),
        Column("recorded_s", "number", "s", "the part of the loop that the profile speaks of"),
        Column("whole_s", "number", "s", "all that was recorded, with the serial begin and end"),
        Column("concurrency", "number", "", "threads that ran at once, on average"),
        Column("concurrency_s", "text", "s", "JSON: how long k threads ran at once, k = 0, 1 ..."),
        Column("running_s", "number", "s", "of all threads: on a core, at work"),
        Column("ready_s", "number", "s", "of all threads: could run, without a core"),
        Column("free_ready_s", "number", "s", "of these, those that asked for no lock"),
        Column("waiting_s", "number", "s", "of all threads: for a lock"),
        Column("sleeping_s", "number", "s", "of all threads: for a timer, a file, a device"),
        Column("spinning_s", "number", "s", "of all threads: on a core, asking for a lock"),
        Column("unknown_s", "number", "s", "of all threads: not known"),
        Column("locks", "text", "s", "JSON by lock: waits, waiting and ready seconds, longest ms"),
        Column("limiting", "text", "", "the lock that was waited for longest"),
        Column("serial_begin_s", "number", "s", "at the begin, with one thread awake"),
        Column("serial_end_s", "number", "s", "at the end, with one thread awake"),
        Column("serial_middle_s", "number", "s", "between, with one thread running"),
        Column("lost_events", "integer", "", "that the recording missed"),
        Column("lost_samples", "integer", "", "that the recording missed"),
        Column("position", "integer", "", "place of the turn in its round"),
        Column("start_ns", "integer", "ns", "when the turn began"),
        Column("ok", "boolean", "", "false: the job's result is wrong; it is not used"),
    )  # fmt: skip

    def published(self) -> pd.DataFrame:
        """The source's calibration of its profiler."""
        return published("vtune_calibration")

    def unavailable(self) -> str:
        """Whether a job that we start can be recorded at all."""
        try:
            chosen(None, running=False)
        except MeasurementError as error:
            return str(error)
        return ""

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: Any) -> dict[str, Any]:
        """The CPUs, the backend, the versions and how each is run."""
        running = params.job == "running"
        backend = chosen(params.backend, running=running)
        plan: dict[str, Any] = {"cpus": params.resolved_cores(), "backend": backend}
        if running:
            return {**plan, "arms": [[_ANY, PROFILED, 1]]}
        if params.job == "command":
            job_argv(params.job_command, first=0, events=params.events, seed=params.seed)
            return {**plan, "arms": [[_ANY, arm, 1] for arm in (ALONE, PROFILED)]}
        threads = params.threads or len(plan["cpus"])
        arms: list[tuple[str, str, int]] = []
        for version in dict.fromkeys(params.versions):
            arms += [(version, ONE, 1), (version, ALONE, threads), (version, PROFILED, threads)]
            if params.without:
                arms += [(version, WITHOUT + point, threads) for point in points_of(version)]
        return {**plan, "arms": arms}

    def _turns(self, params: ThreadsParams, session: Session) -> ThreadTurns:
        plan = session.plan
        return ThreadTurns(
            [Arm(version, arm, threads, self._argv(params, version, arm, threads))
             for version, arm, threads in plan["arms"]],
            accounts=params.job == "event_loop",
            conditions=params.conditions(None),
            cpus=plan["cpus"],
            settings=params.recorded(),
            backend=plan["backend"],
            folder=_folder(session.journal.path),
            timeout_s=params.job_timeout_s,
            pid=params.job_pid,
            stop=session.stop,
        )  # fmt: skip

    @staticmethod
    def _argv(params: ThreadsParams, version: str, arm: str, threads: int) -> list[str]:
        if params.job == "running":
            return []
        if params.job == "command":
            return job_argv(params.job_command, first=0, events=params.events, seed=params.seed)
        points = set(points_of(version)) - {arm.removeprefix(WITHOUT)}
        return event_loop.argv(
            threads, params.events, points, seed=params.seed, spin=params.spin, lock=params.lock
        )

    def take(self, params: ThreadsParams, session: Session) -> str:
        """Every version in every way once a round; of each version the last recording is kept."""
        turns = self._turns(params, session)
        running = params.job == "running"  # it is recorded once
        try:
            stopped = session.rounds(
                params,
                len(session.plan["arms"]),
                turns.take,
                lambda samples: 0.0 if running else self._half_width(samples),
                least_s=0.0 if running else _LEAST_S,
            )
        finally:
            if not any("columns" in turn for turn in session.journal.turns):
                shutil.rmtree(_folder(session.journal.path), ignore_errors=True)
        if params.job == "event_loop":
            session.provenance["kernel"] = build("event_loop", executable=True).provenance
        session.provenance |= {"backend": session.plan["backend"], "backends": backends()}
        session.note(turns)
        session.problems += turns.problems
        return stopped

    @staticmethod
    def _half_width(samples: pd.DataFrame) -> float:
        """The widest, in percentage points, of speed-ups and of the profile's cost."""
        table = ThreadTable(samples)
        widths = []
        for version in table.versions:
            if ONE in table.arms(version):
                speedup = table.speedup(version)
                widths.append(100 * speedup.half_width / speedup.effect)
            widths.append(table.overhead(version).half_width)
        return max((one if math.isfinite(one) else math.inf for one in widths), default=math.inf)

    # --- what it says ----------------------------------------------------------------------------

    @staticmethod
    def table(run: Run) -> ThreadTable:
        """The run's samples, its versions in the order of the parameters."""
        return ThreadTable(run.samples, run.params.get("versions", ()))

    def analyse(self, run: Run) -> list[Finding]:
        """Does the profile distort, does concurrency predict speed-up, and what limits."""
        return findings(self.table(run), ThreadsParams.make(run.params).limits())

    def calibration(self, run: Run) -> pd.DataFrame:
        """The source's table for this machine, beside the published one; one row a version."""
        return self.table(run).calibration(self.published())

    @staticmethod
    def recordings(run: Run) -> dict[str, Recording]:
        """The last recording of each version, as far as they are still on this machine.

        Raises
        ------
        UserError
            One is damaged.
        """
        folder = _folder(runs_dir() / run.id)
        kept: Mapping[str, str] = run.provenance.get("recordings", {})
        return {
            version: Recording.open(folder / name)
            for version, name in kept.items()
            if (folder / name).is_dir()
        }

    def figures(self, run: Run) -> dict[str, Figure]:
        """Calibration, states, waits by lock, gains predicted and measured, cost of the profile."""
        from perflib.experiments.threads import figures as threads_figures

        table = self.table(run)
        drawn: dict[str, Figure] = {}
        profiled = [version for version in table.versions if table.is_profiled(version)]
        if any(ONE in table.arms(version) for version in profiled):
            drawn["calibration"] = threads_figures.calibration(table, self.published())
        if profiled:
            drawn["states"] = threads_figures.states(table)
            drawn["concurrency"] = threads_figures.concurrency(table)
            drawn["waits"] = threads_figures.waits(table)
        if any(table.points(version) for version in profiled):
            drawn["gains"] = threads_figures.gains(table)
        if any(ALONE in table.arms(version) for version in profiled):
            drawn["overhead"] = threads_figures.overhead(
                table, ThreadsParams.make(run.params).distortion_percent, self.published()
            )
        return drawn


def _folder(journal: Path) -> Path:
    """Where the recordings of a run lie, beside its file."""
    return journal.with_name(f"{journal.name.removesuffix('.journal')}.recordings")


experiment = Threads()
