"""One trial of the experiment: a job counted in one mode, next to other jobs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from perflib.experiments.counters.modes import ALONE, KERNEL, NOTHING, SAMPLED, Configuration
from perflib.experiments.counters.pairs import SLICE_COLUMNS, Segments, Switch
from perflib.framework.jobs import Jobs, job_template, log_format
from perflib.instruments.counters.groups import Requested, in_domain
from perflib.instruments.counters.monitor import Monitor, totals
from perflib.instruments.counters.sets import events_of
from perflib.instruments.counters.watched import watch
from perflib.instruments.joblog.jobrun import JobResult, job_argv, run_job
from perflib.instruments.perf import script as perfscript
from perflib.instruments.perf.recorder import Recorder
from perflib.machine.files import text
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.supervised import Supervised
from perflib.model.errors import PerflibError

if TYPE_CHECKING:
    from perflib.experiments.counters import CountersParams

_END_S = 10.0
_COUNTED_AS = {"cpu-clock": "task-clock"}  # what perf samples, and the counter of the same
_LONG_ENOUGH = 100  # times the counted job's events: what runs next to it is ended with it

Attach = Callable[[int], contextlib.AbstractContextManager[object]]
Rows = list[dict[str, Any]]


def sets_of(params: CountersParams) -> dict[str, list[Requested]]:
    """The events of each set of the parameters."""
    return {name: in_domain(events_of(name), params.domain) for name in params.sets}


def conditions_of(params: CountersParams) -> Conditions:
    """As for any experiment, but on all of the cores: the jobs are put on them together."""
    return replace(params.conditions(0), cpu=None)


def template_of(params: CountersParams, plan: Mapping[str, Any]) -> str:
    """The command line of the job, its placeholders still open."""
    return job_template(params.job, params.job_command, copies=plan["copies"])


class CountedJobs(Jobs):
    """A job started for each trial, held until it is counted, with as many others as are wanted.

    The jobs run wherever the system puts them on the chosen cores; one of them is counted, from
    its release to its end. The others would run on, and are ended with it. What counting
    costs our own simulation is measured apart, in segments of it: see `pairs`.
    """

    def __init__(self, params: CountersParams, plan: Mapping[str, Any]) -> None:
        template, conditions = template_of(params, plan), conditions_of(params)
        super().__init__(template, [conditions])
        self._params = params
        self._log_format = log_format(params.job_begin, params.job_end)
        self._cores: list[int] = plan["cores"]
        self._configurations = [Configuration(*one) for one in plan["configurations"]]
        self._sets = {
            name: events for name, events in sets_of(params).items() if name in plan["sets"]
        }
        self._absent: dict[str, str] = plan["absent"]
        self._sampled: str = plan["sampled"]

        events = plan["events"]
        self._counted = job_argv(template, first=0, events=events, seed=params.seed)
        self._other = job_argv(
            template, first=0, events=_LONG_ENOUGH * events, seed=params.seed + 1
        )
        self._series: dict[Configuration, dict[str, Any]] = {}
        # Runs of before have no plan of segments.
        self._segment: list[int] | None = plan.get("stretch")
        self._segments = (
            Segments(plan["copies"], conditions, self._cores, params.seed)
            if self._segment
            else None
        )

    def __enter__(self) -> Self:
        if self._segments is not None:
            self._segments.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._segments is not None:
            self._segments.__exit__()

    def provenance(self) -> dict[str, Any]:
        """The job, its conditions, and one job's readings over time in each mode."""
        series = [one._asdict() | {"readings": read} for one, read in self._series.items()]
        return {**super().provenance(), "series": series}

    def take(self, round_: int, configuration: int) -> Columns:
        """Run the job once in a mode: one row an event that was counted."""
        wanted = self._configurations[configuration]
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
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        if self._segments is None or self._segment is None:
            return columns
        for name in SLICE_COLUMNS:  # rows of whole jobs and of slices are in one table
            columns.setdefault(name, [None] * len(rows))
        if wanted.set not in (NOTHING, next(iter(self._sets))):
            return columns  # what one set costs is measured of the first
        with self._others(wanted.jobs - 1), self._switch(wanted, self._segments.pid) as switched:
            for part in self._segments.pairs(switched, self._segment, f"{round_}/{configuration}"):
                _append(columns, wanted, part)
        return columns

    # --- modes ---------------------------------------------------------------------------------

    def _count(self, round_: int, wanted: Configuration) -> tuple[Rows, dict[str, Any]]:
        params = self._params
        sets = self._sets if wanted.set == NOTHING else {wanted.set: self._sets[wanted.set]}
        monitors: list[Monitor] = []

        @contextlib.contextmanager
        def attach(pid: int) -> Iterator[None]:
            with Monitor(
                sets,
                watch(pid=pid),
                period_s=params.period_ms / 1e3,
                order="kernel" if wanted.mode == KERNEL else "random",
                seed=params.seed + 1000 * round_,  # each round another order of the sets
            ) as monitor:
                monitors.append(monitor)
                yield
                monitor.wait(_END_S)

        spent = self._run(wanted.jobs, attach)
        (monitor,) = monitors
        series = monitor.series()
        if wanted.jobs == min(params.jobs):
            self._series.setdefault(wanted, _over_time(series))
        obtained, due = monitor.samples
        table = totals(series).rename(columns={"scaled": "estimate"})
        names = ("set", "event", "enabled_ns", "running_ns", "scaled_error", "status")
        rows = [
            _row(
                value=found["estimate"],
                obtained=obtained,
                due=due,
                **{name: found[name] for name in names},
            )
            for found in table.to_dict("records")
        ]
        if wanted.set == next(iter(self._sets)):  # once for each number of jobs
            rows += [_row(set=name, status=why) for name, why in self._absent.items()]
        return rows, spent

    def _sample(self, wanted: Configuration) -> tuple[Rows, dict[str, Any]]:
        recorders: list[Recorder] = []
        with scratch() as folder:

            @contextlib.contextmanager
            def attach(pid: int) -> Iterator[None]:
                recorder = Recorder(
                    pid,
                    folder=folder,
                    event=self._sampled,
                    frequency_hz=self._params.sampling_hz,
                )
                with recorder:
                    recorder.enable()
                    recorders.append(recorder)
                    yield

            spent = self._run(wanted.jobs, attach)
            (recorder,) = recorders
            samples = perfscript.read(recorder.script(folder / "samples.txt")).samples
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
            obtained=len(samples),
            due=round(self._params.sampling_hz * spent["cpu_time_ns"] / 1e9),
        )
        return [row], spent

    @contextlib.contextmanager
    def _switch(self, wanted: Configuration, pid: int) -> Iterator[Switch]:
        """What turns a way of counting on, for as long as a ``with`` statement lasts."""
        params = self._params
        if wanted.mode != SAMPLED:
            sets = self._sets if wanted.set == NOTHING else {wanted.set: self._sets[wanted.set]}
            order: Literal["kernel", "random"] = "kernel" if wanted.mode == KERNEL else "random"
            yield lambda: Monitor(
                sets, watch(pid=pid), period_s=params.period_ms / 1e3, order=order
            )
            return
        with (
            scratch() as folder,
            Recorder(
                pid, folder=folder, event=self._sampled, frequency_hz=params.sampling_hz
            ) as recorder,
        ):

            @contextlib.contextmanager
            def sampling() -> Iterator[None]:
                recorder.enable()
                try:
                    yield
                finally:
                    recorder.disable()

            yield sampling

    # --- jobs ----------------------------------------------------------------------------------

    def _run(self, jobs: int, attach: Attach) -> dict[str, Any]:
        """Run the counted job among others, under what ``attach(pid)`` returns; its times."""
        begun: list[int] = []
        with contextlib.ExitStack() as stack:

            def hold(pid: int) -> None:
                os.sched_setaffinity(pid, self._cores)
                stack.enter_context(attach(pid))
                stack.enter_context(self._others(jobs - 1))
                begun.append(_cpu_ns(pid))

            result = run_job(
                self._counted,
                self._log_format,
                self.conditions[0],
                timeout_s=self._params.job_timeout_s,
                on_start=hold,
                on_event=lambda _event, pid: self.read_back(0, pid),
            )
            cpu_time_ns = result.cpu_time_ns - begun[0]
        _check(result, self._counted)
        return {"time_ns": _worked_ns(result), "cpu_time_ns": cpu_time_ns}

    @contextlib.contextmanager
    def _others(self, count: int) -> Iterator[None]:
        null = subprocess.DEVNULL
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                other = Supervised(self._other, self.conditions[0], stdout=null, stderr=null)
                with contextlib.suppress(ProcessLookupError):  # it has ended already
                    os.sched_setaffinity(stack.enter_context(other).pid, self._cores)
            yield


def _append(columns: Columns, wanted: Configuration, part: Columns) -> None:
    """Add slices to the rows of whole jobs: they are rows without an event."""
    each = _row(status="slice") | wanted._asdict()
    for name in columns:
        columns[name] += part[name] if name in part else [each[name]] * len(part["slice"])


def _row(**known: Any) -> dict[str, Any]:
    unknown = {
        "set": NOTHING,
        "event": NOTHING,
        "value": np.nan,
        "enabled_ns": np.nan,
        "running_ns": np.nan,
        "scaled_error": np.nan,
        "status": "",
        "obtained": 0,
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


def _cpu_ns(pid: int) -> int:
    """CPU time of a process's first thread so far; 0 where the kernel keeps no account of it."""
    return int((text(Path(f"/proc/{pid}/schedstat")) or "0").split()[0])


def _worked_ns(result: JobResult) -> int:
    """From a job's first event to the end of its last; without any, from its start to its end.

    A job is started by way of a Python that becomes it, and perf makes exec and exit costlier by
    milliseconds: nothing to a job of hours, but a few percent of one of a third of a second.
    """
    if not result.events:
        return round(1e9 * result.wall_s)
    begin_ns = min(event.begin_ns for event in result.events)
    return max(event.end_ns for event in result.events) - begin_ns


def _check(result: JobResult, argv: Sequence[str]) -> None:
    if result.returncode:
        last = "\n".join(result.tail) or "(nothing)"
        msg = f"the job {argv[-1]!r} ended with status {result.returncode}. Its last lines:\n{last}"
        raise WorkerError(msg)
