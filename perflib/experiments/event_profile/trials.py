"""What is recorded in one trial: some events of a job, the whole of it, or whatever runs here."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from perflib.experiments.event_profile.recorded import Recorded
from perflib.framework.jobs import Jobs
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.joblog.wanted import Wanted
from perflib.instruments.perf.event_profile import (
    EventProfile,
    Sampling,
    profile_job,
    profile_running,
)
from perflib.instruments.perf.slowest import Slowest
from perflib.instruments.perf.whole import record_for, record_job
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions
from perflib.measure.process import WorkerError
from perflib.measure.python_jobs import PerfSupport, perf_support
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, PerflibError, UserError

SEGMENTS = 10
"""Parts of a recording that no events divide; they are its rounds."""


@dataclass(frozen=True)
class Events:
    """Which events are recorded.

    Parameters
    ----------
    text
        A name, a number, or a regular expression of them; empty: the whole job.
    before
        How many events a job does before the first wanted one.
    count
        How many it does where ``text`` is no number.
    slowest_percent
        Only so many, the slowest, and some others; None: all that are wanted.
    """

    text: str
    before: int = 0
    count: int = 100
    slowest_percent: float | None = None

    def wanted(self) -> Wanted:
        """What finds them in the log."""
        return Wanted(self.text)

    def slowest(self, sampling: Sampling, seed: int) -> Slowest | None:
        """What keeps the slowest of them."""
        if self.slowest_percent is None:
            return None
        return Slowest(self.slowest_percent, sampling.frequency_hz, seed)

    def placeholders(self) -> dict[str, int]:
        """The first event that a job is to do, and how many there are."""
        if not self.text.isdecimal():
            return {"first": 0, "events": self.count}
        number = int(self.text)
        before = min(self.before, number)
        return {"first": number - before, "events": before + 2}


class ProfiledJobs(Jobs):
    """A job started for each trial, held until perf is attached, recorded during its events."""

    def __init__(
        self,
        templates: Sequence[str],
        log_format: LogFormat,
        conditions: Sequence[Conditions],
        *,
        events: Events,
        seed: int,
        timeout_s: float,
        sampling: Sampling,
        duration_s: float | None = None,
        slice_steps: int | None = None,
    ) -> None:
        super().__init__(templates[0], conditions)
        self._argv = [
            job_argv(template, **events.placeholders(), seed=seed) for template in templates
        ]
        self._format = log_format
        self._events = events
        self._seed = seed
        self._timeout_s = timeout_s
        self._sampling = sampling
        self._duration_s = duration_s
        self._slice_steps = slice_steps
        self._recorded = Recorded()

    @property
    def problems(self) -> list[str]:
        """What was wrong with some trials."""
        return self._recorded.problems

    def provenance(self) -> dict[str, Any]:
        """The job, its conditions, and what was sampled."""
        return {**super().provenance(), **self._recorded.provenance()}

    def take(self, place: int, _stop: threading.Event | None) -> Columns:
        """Run the job on a core and record it: one row a sample."""
        with scratch() as folder:
            argv, slices = self._argv[place], None
            if self._slice_steps is not None:
                slices = folder / "slices"
                argv = [*argv, "--slices", f"{self._slice_steps}:{slices}"]
            wanted = self.conditions[place]
            python = perf_support(argv, wanted.process_environment())
            conditions = replace(wanted, environment={**python.variables, **wanted.environment})
            try:
                profile = self._profile(place, argv, conditions, folder)
                remarks = [*profile.remarks, *_python_remarks(python, self._sampling)]
                profile = replace(profile, remarks=remarks)
                return self._recorded.columns(
                    profile, self._events.text, slices, remove_maps=bool(python.variables)
                )
            except UserError:
                raise
            except PerflibError as error:
                if not self._recorded.any:  # not even once: another trial would fail, too
                    raise MeasurementError(str(error)) from error
                raise WorkerError(str(error)) from error

    def python_remarks(self) -> list[str]:
        """What is to be said of the names of a job's Python functions; the job is not started."""
        python = perf_support(self._argv[0], self.conditions[0].process_environment())
        return _python_remarks(python, self._sampling)

    def _profile(
        self, place: int, argv: Sequence[str], conditions: Conditions, folder: Path
    ) -> EventProfile:
        common: dict[str, Any] = {
            "folder": folder,
            "timeout_s": self._timeout_s,
            "conditions": conditions,
            "sampling": self._sampling,
        }
        if not self._events.text:
            return record_job(
                argv,
                duration_s=self._duration_s,
                on_start=lambda pid: self.read_back(place, pid),
                **common,
            )
        return profile_job(
            argv,
            self._format,
            self._events.wanted(),
            slowest=self._events.slowest(self._sampling, self._seed),
            on_end=lambda _event, pid: self.read_back(place, pid),
            **common,
        )


def _python_remarks(python: PerfSupport, sampling: Sampling) -> list[str]:
    """What is to be said of the names of a job's Python functions."""
    said = [python.remark] if python.remark else []
    if python.call_graph not in ("", sampling.call_graph):
        said.append(
            f"Python's frames are followed with call_graph={python.call_graph}, and this is "
            f"call_graph={sampling.call_graph}: stacks may end early."
        )
    return said


class _Unstarted:
    """What is recorded where it happens to run, once."""

    violated: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self._recorded = Recorded()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def problems(self) -> list[str]:
        """What was wrong with the recording."""
        return self._recorded.problems


class ProfiledRunning(_Unstarted):
    """Events of a job that runs already, as its log reports them."""

    def __init__(
        self,
        pid: int,
        log: str,
        log_format: LogFormat,
        events: Events,
        timeout_s: float,
        sampling: Sampling,
    ) -> None:
        super().__init__()
        self._pid = pid
        self._log = Path(log)
        self._format = log_format
        self._events = events
        self._timeout_s = timeout_s
        self._sampling = sampling

    def provenance(self) -> dict[str, Any]:
        """The process, its log, and what was sampled."""
        return {"job": f"process {self._pid}, log {self._log.name}", **self._recorded.provenance()}

    def take(self, _place: int, stop: threading.Event | None) -> Columns:
        """Wait for the events and record them: one row a sample."""
        begun = time.monotonic()
        with scratch() as folder:
            profile = profile_running(
                self._pid,
                self._log,
                self._format,
                self._events.wanted(),
                folder=folder,
                timeout_s=self._timeout_s,
                stop=stop,
                sampling=self._sampling,
                slowest=self._events.slowest(self._sampling, seed=1),
            )
            try:
                return self._recorded.columns(profile, self._events.text)
            except WorkerError as error:  # there is no other trial
                waited = f"the log was followed for {time.monotonic() - begun:.1f} s"
                if stop is not None and stop.is_set():
                    waited += ", until it was stopped"
                if not self._log.exists():
                    waited = f"there is no log {self._log}"
                msg = f"{error}; {waited}"
                raise MeasurementError(msg) from error


class RecordedFor(_Unstarted):
    """A process that runs already, or all that runs on some CPUs, for a while."""

    def __init__(
        self, duration_s: float, pid: int | None, cpus: Sequence[int], sampling: Sampling
    ) -> None:
        super().__init__()
        self._duration_s = duration_s
        self._pid = pid
        self._cpus = cpus
        self._sampling = sampling

    def provenance(self) -> dict[str, Any]:
        """What was recorded, and what was sampled."""
        what = f"process {self._pid}" if self._pid is not None else "whatever runs on the CPUs"
        return {"job": f"{what}, {self._duration_s:g} s", **self._recorded.provenance()}

    def take(self, _place: int, stop: threading.Event | None) -> Columns:
        """Record once: one row a sample, in rounds that are segments of the time."""
        with scratch() as folder:
            profile = record_for(
                self._duration_s,
                pid=self._pid,
                cpus=self._cpus,
                folder=folder,
                stop=stop,
                sampling=self._sampling,
            )
            try:
                columns = self._recorded.columns(profile, "")
            except WorkerError as error:
                raise MeasurementError(str(error)) from error
        (event,) = (one.job_event for one in profile.events)
        times = np.array(columns["time_ns"], dtype=np.int64)
        segment = (times - event.begin_ns) * SEGMENTS // max(1, event.time_ns)
        segment = np.clip(segment, 0, SEGMENTS - 1)
        begins = event.begin_ns + np.arange(SEGMENTS) * event.time_ns // SEGMENTS
        columns |= {
            "round": segment.tolist(),
            "begin_ns": begins[segment].tolist(),
            "event_time_ns": [event.time_ns // SEGMENTS] * len(times),
        }
        return columns
