"""One turn of the experiment: a job counted in one mode, with other jobs beside it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from perflib.framework.jobs import Jobs
from perflib.instruments.counters.groups import Asked, Group
from perflib.instruments.counters.monitor import Monitor, totals
from perflib.instruments.counters.watched import watch
from perflib.instruments.joblog.jobrun import JobResult, job_argv, run_job
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.perf import script as perfscript
from perflib.instruments.perf.recorder import Recorder
from perflib.machine.files import text
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, PerflibError

__all__ = [
    "ALONE",
    "NOTHING",
    "ONE_SET",
    "SAMPLED",
    "Arm",
    "CountedJobs",
    "Job",
    "arms_of",
    "countable",
    "events_for",
    "why_not_sampled",
]

ALONE, ONE_SET, SAMPLED = "alone", "one set", "sampled"
NOTHING = "(none)"  # in the columns of set and event, where there is none
_PILOT_EVENTS = 20
_END_S = 10.0
Attach = Callable[[int], contextlib.AbstractContextManager[object]]

_COUNTED_AS = {"cpu-clock": "task-clock"}  # what perf samples, and the counter of the same


class Arm(NamedTuple):
    """How the job is counted, how many jobs there are, and which set is counted alone."""

    mode: str
    jobs: int
    set: str = NOTHING


class Job(NamedTuple):
    """A job's command line, what its log looks like, its seed, and how long it may take."""

    template: str
    log_format: LogFormat
    seed: int
    timeout_s: float


def arms_of(jobs: Sequence[int], sets: Sequence[str], *, sampled: bool) -> list[Arm]:
    """Every mode with every number of jobs; one set at a time is an arm for each set."""
    modes = ["rotated", "kernel", *([SAMPLED] if sampled else [])]
    return [
        arm
        for count in jobs
        for arm in (
            Arm(ALONE, count),
            *(Arm(ONE_SET, count, name) for name in sets),
            *(Arm(mode, count) for mode in modes),
        )
    ]


def countable(sets: Mapping[str, Sequence[Asked]]) -> tuple[list[str], dict[str, str]]:
    """The sets of which this machine counts something, and of the others why not."""
    found, absent = [], {}
    for name, events in sets.items():
        with Group(events, watch(), name=name) as group:
            if group.events:
                found.append(name)
            else:
                absent[name] = group.refused[events[0].name]
    return found, absent


def why_not_sampled(event: str, frequency_hz: int) -> str:
    """Why perf cannot sample here, found by trying; empty where it can."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="perflib-sampled-") as folder,
            Recorder(os.getpid(), folder=Path(folder), event=event, frequency_hz=frequency_hz),
        ):
            return ""
    except MeasurementError as error:
        return str(error)


def events_for(job: Job, job_ms: float, conditions: Conditions) -> int:
    """How many events the job must do to take about ``job_ms``, from a short run of it."""
    argv, environment = command(
        conditions, job_argv(job.template, first=0, events=_PILOT_EVENTS, seed=job.seed)
    )
    result = run_job(argv, job.log_format, environment=environment, timeout_s=job.timeout_s)
    spent_ns = sum(
        event.time_ns if event.reported_seconds is None else event.reported_seconds * 1e9
        for event in result.events
    )
    if result.returncode or not spent_ns:
        last = "\n".join(result.tail)
        msg = (
            f"the job's length cannot be chosen: of {_PILOT_EVENTS} events its log timed "
            f"{len(result.events)} (exit status {result.returncode}). Say events=..., or what its "
            f"log looks like (job_begin, job_end). Its last lines:\n{last}"
        )
        raise MeasurementError(msg)
    return max(1, round(job_ms * 1e6 * len(result.events) / spent_ns))


class CountedJobs(Jobs):
    """A job started for each turn, held until it is counted, with as many others as are wanted.

    The jobs run wherever the system puts them on the chosen cores; one of them is counted, from
    its release to its end. The others do twice its work, and are ended with it.

    Parameters
    ----------
    job, events
        What is counted, and how many events it does.
    conditions
        What every job is to have.
    cores
        Where the jobs may run.
    arms
        What a turn's number means.
    sets, absent
        Events of each set that is counted; the sets that are not, with the reason.
    period_s
        Between two readings; where sets are rotated by us, each has the counters so long.
    sampled, sampling_hz
        What perf samples, and how often.
    """

    def __init__(
        self,
        job: Job,
        events: int,
        conditions: Conditions,
        *,
        cores: Sequence[int],
        arms: Sequence[Arm],
        sets: Mapping[str, Sequence[Asked]],
        absent: Mapping[str, str],
        period_s: float,
        sampled: str,
        sampling_hz: int,
    ) -> None:
        super().__init__(job.template, [conditions])
        self._job = job
        self._cores = list(cores)
        self._arms = arms
        self._sets = sets
        self._absent = absent
        self._period_s = period_s
        self._sampled = sampled
        self._sampling_hz = sampling_hz
        self._launched = command(
            conditions, job_argv(job.template, first=0, events=events, seed=job.seed)
        )
        self._longer = command(
            conditions, job_argv(job.template, first=0, events=2 * events, seed=job.seed + 1)
        )
        self._series: dict[Arm, dict[str, Any]] = {}

    def provenance(self) -> dict[str, Any]:
        """The job, its conditions, and one job's readings over time in each mode."""
        series = [arm._asdict() | {"readings": read} for arm, read in self._series.items()]
        return {**super().provenance(), "series": series}

    def take(self, round_: int, arm: int) -> Columns:
        """Run the job once in a mode: one row an event that was counted."""
        wanted = self._arms[arm]
        try:
            if wanted.mode == ALONE:
                rows, spent = [_row()], self._run(wanted.jobs, contextlib.nullcontext)
            elif wanted.mode == SAMPLED:
                rows, spent = self._sample(wanted)
            else:
                rows, spent = self._count(round_, wanted)
        except WorkerError:
            raise
        except PerflibError as error:
            raise WorkerError(str(error)) from error
        rows = [wanted._asdict() | row | spent for row in rows]
        return {name: [row[name] for row in rows] for name in rows[0]}

    # --- modes ---------------------------------------------------------------------------------

    def _count(self, round_: int, arm: Arm) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        sets = self._sets if arm.set == NOTHING else {arm.set: self._sets[arm.set]}
        turns: Literal["us", "kernel"] = "kernel" if arm.mode == "kernel" else "us"
        monitors: list[Monitor] = []

        @contextlib.contextmanager
        def attach(pid: int) -> Iterator[None]:
            seed = self._job.seed + 1000 * round_  # each round another order of the sets
            watched = watch(pid=pid)
            with Monitor(sets, watched, period_s=self._period_s, turns=turns, seed=seed) as monitor:
                monitors.append(monitor)
                yield
                monitor.wait(_END_S)

        spent = self._run(arm.jobs, attach)
        (monitor,) = monitors
        series = monitor.series()
        if arm.jobs == min(other.jobs for other in self._arms):
            self._series.setdefault(arm, _over_time(series))
        got, due = monitor.samples
        table = totals(series).rename(columns={"scaled": "estimate"})
        names = ("set", "event", "enabled_ns", "running_ns", "scaled_error", "status")
        rows = [
            _row(value=found["estimate"], got=got, due=due, **{name: found[name] for name in names})
            for found in table.to_dict("records")
        ]
        if arm.set == next(iter(self._sets)):  # once for each number of jobs
            rows += [_row(set=name, status=why) for name, why in self._absent.items()]
        return rows, spent

    def _sample(self, arm: Arm) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        recorders: list[Recorder] = []
        with tempfile.TemporaryDirectory(prefix="perflib-sampled-") as folder:

            @contextlib.contextmanager
            def attach(pid: int) -> Iterator[None]:
                recorder = Recorder(
                    pid,
                    folder=Path(folder),
                    event=self._sampled,
                    frequency_hz=self._sampling_hz,
                )
                with recorder:
                    recorder.enable()
                    recorders.append(recorder)
                    yield

            spent = self._run(arm.jobs, attach)
            (recorder,) = recorders
            samples = perfscript.read(recorder.script(Path(folder) / "samples.txt")).samples
        base, colon, domain = recorder.event.partition(":")
        event = _COUNTED_AS.get(base, base) + colon + domain
        row = _row(
            event=event,
            set=next(
                (
                    name
                    for name, events in self._sets.items()
                    if any(one.name == event for one in events)
                ),
                NOTHING,
            ),
            value=float(samples["period"].sum()) if len(samples) else np.nan,
            status="sampled" if len(samples) else "no sample was taken",
            got=len(samples),
            due=round(self._sampling_hz * spent["cpu_time_ns"] / 1e9),
        )
        return [row], spent

    # --- jobs ----------------------------------------------------------------------------------

    def _run(self, jobs: int, attach: Attach) -> dict[str, Any]:
        """Run the counted job among others, under what ``attach(pid)`` returns; its times."""
        begun: list[int] = []
        with contextlib.ExitStack() as stack:

            def hold(pid: int) -> None:
                os.sched_setaffinity(pid, self._cores)
                stack.enter_context(attach(pid))
                stack.enter_context(self._others(jobs - 1))
                begun.append(_children_ns() + _cpu_ns(pid))

            argv, environment = self._launched
            result = run_job(
                argv,
                self._job.log_format,
                environment=environment,
                timeout_s=self._job.timeout_s,
                on_start=hold,
                on_event=lambda _event, pid: self.read_back(0, pid),
            )
            cpu_time_ns = _children_ns() - begun[0]
        _check(result, argv)
        return {"time_ns": _worked_ns(result), "cpu_time_ns": cpu_time_ns}

    @contextlib.contextmanager
    def _others(self, count: int) -> Iterator[None]:
        argv, environment = self._longer
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                process = subprocess.Popen(
                    argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                processes.append(process)
                os.sched_setaffinity(process.pid, self._cores)
            yield
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _row(**known: Any) -> dict[str, Any]:
    unknown = {
        "set": NOTHING,
        "event": NOTHING,
        "value": np.nan,
        "enabled_ns": np.nan,
        "running_ns": np.nan,
        "scaled_error": np.nan,
        "status": "",
        "got": 0,
        "due": 0,
    }
    return unknown | known


def _over_time(series: pd.DataFrame) -> dict[str, list[Any]]:
    """The readings of a monitor in which something was counted, from its start on."""
    begin_ns = float((series["time_ns"] - series["elapsed_ns"]).min())
    seen = series[series["running_ns"] > 0]
    return {
        "at_ms": ((seen["time_ns"] - begin_ns) / 1e6).round(3).tolist(),
        "ran_ms": (seen["running_ns"] / 1e6).round(3).tolist(),
        "set": seen["set"].astype(str).tolist(),
        "event": seen["event"].astype(str).tolist(),
        "value": seen["value"].tolist(),
    }


def _children_ns() -> int:
    """CPU time of all children that have ended and were waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(1e9 * (spent.ru_utime + spent.ru_stime))


def _cpu_ns(pid: int) -> int:
    """CPU time of a process's first thread so far; 0 where the kernel keeps no account of it."""
    return int((text(Path(f"/proc/{pid}/schedstat")) or "0").split()[0])


def _worked_ns(result: JobResult) -> int:
    """From a job's first event to the end of its last; without any, from its start to its end.

    A job is started by way of a Python that becomes it, and perf makes exec and exit dearer by
    milliseconds: nothing to a job of hours, but a few percent of one of a third of a second.
    """
    if not result.events:
        return round(1e9 * result.wall_s)
    begin_ns = min(event.begin_ns for event in result.events)
    return max(event.end_ns for event in result.events) - begin_ns


def _check(result: JobResult, argv: Sequence[str]) -> None:
    if result.returncode:
        last = "\n".join(result.tail)
        msg = f"the job {argv[-1]!r} ended with status {result.returncode}. Its last lines:\n{last}"
        raise WorkerError(msg)
