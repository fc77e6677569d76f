"""KV on every core: trials of events, by the kernel in a worker or by a job that writes a log."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perflib.experiments.kv_per_core import KvParams
from perflib.experiments.kv_per_core.table import kv_table
from perflib.framework.brackets import bracket_columns
from perflib.framework.experiment import Session
from perflib.framework.jobs import Jobs, copies_for, job_template, log_format
from perflib.framework.results import results
from perflib.instruments.joblog.jobrun import job_argv, run_logged
from perflib.instruments.joblog.logformat import LogFormat
from perflib.kernels import Build, build, record
from perflib.machine.activity.activity import cpu_times
from perflib.machine.activity.interrupts import core_activity
from perflib.machine.activity.tasks import TaskWatch
from perflib.machine.hardware.topology import topology
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError

_PILOT_TIMEOUT_S = 600.0
_PILOT_CORES = 3  # so that one which computes wrong is outvoted
_LIFE_S, _MIN_TRIALS = 3.0, 4  # of a worker: shorter than a batch, longer than its start

Events = Sequence[int]


def chunks_of(times_ms: Sequence[float], first_event: int, trial_ms: float) -> list[list[int]]:
    """Group successive events into trials of about ``trial_ms``: ``[first, count]`` each.

    Few events, or cheap ones, make one trial of all of them.
    """
    total = sum(times_ms)
    count = max(1, min(len(times_ms), round(total / trial_ms)))
    ends = np.searchsorted(np.cumsum(times_ms), total * (np.arange(count) + 1) / count - 1e-9)
    edges = sorted({0, *(int(end) + 1 for end in ends[:-1]), len(times_ms)})
    edges = [edge for edge in edges if edge <= len(times_ms)]
    return [[first_event + low, high - low] for low, high in itertools.pairwise(edges)]


def plan(params: KvParams) -> dict[str, Any]:
    """The cores, and how often the code is copied."""
    cores = params.resolved_cores()
    copied = params.job in ("kernel", "program")
    found = {
        "cores": cores,
        "copies": copies_for(params.code_kib) if copied else None,
        "notes": topology().notes_of(cores),
    }
    if params.job != "kernel":
        _trials(params, found, cores)  # a wrong job fails here
    return found


def pilot(params: KvParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the first cores say of each event: which go into a trial, and what is to come out."""
    events = range(params.first_event, params.first_event + params.events)
    asked = _PILOT_CORES if params.job == "kernel" else 1
    with _trials(params, plan, plan["cores"][:asked]) as trials:
        times_ms, found = trials.pilot(events)
    chunks = chunks_of(times_ms, params.first_event, params.trial_ms)
    return {"chunks": chunks, **found}


def _trials(
    params: KvParams, plan: Mapping[str, Any], cores: Sequence[int]
) -> KernelTrials | JobTrials:
    conditions = [params.conditions(cpu) for cpu in cores]
    if params.job == "kernel":
        kernel = build("kv", copies=plan["copies"])
        return KernelTrials(kernel, conditions, params.seed, params.slice_us)
    template = job_template(params.job, params.job_command, copies=plan["copies"])
    expressions = log_format(params.job_begin, params.job_end)
    return JobTrials(template, expressions, conditions, params.seed, params.job_timeout_s)


def take(params: KvParams, session: Session) -> str:
    """Simulate each trial's events on every core, round by round."""
    plan = session.plan
    cores, chunks = plan["cores"], plan["chunks"]
    tasks = TaskWatch()
    ticks, activity = cpu_times(), {cpu: core_activity(cpu) for cpu in cores}
    with _trials(params, plan, cores) as trials:
        trials.expect(plan, params.first_event)

        def trial(round_: int, core: int) -> Columns:
            tasks.look()
            first, count = chunks[round_ % len(chunks)]
            return trials.take(core, range(first, first + count))

        stopped = session.rounds(
            params, len(cores), trial, lambda samples: kv_table(samples).half_width
        )
        session.note(trials)
    session.problems += plan.get("notes", [])
    session.provenance["softirqs"] = {
        str(cpu): {
            "ticks": spent.softirq,
            "of_ticks": spent.total,
            "kinds": dict((core_activity(cpu) - activity[cpu]).by_kind or {}),
        }
        for cpu in cores
        if (spent := cpu_times()[cpu] - ticks[cpu]).total
    }
    tasks.look(now=True)
    session.provenance["tasks"] = {str(cpu): tasks.busiest(cpu) for cpu in cores}
    return stopped


class KernelTrials(Workers):
    """KV called as a kernel, one worker a core. Checks every result against the first run's.

    A process can be a percent or two faster or slower for as long as it lives (where its pages
    happen to be is the likeliest reason), which between two equal cores is a difference in every
    trial. So each core's worker is replaced every few seconds: process-to-process variation widens
    the interval.
    """

    def __init__(
        self, build: Build, conditions: Sequence[Conditions], seed: int, slice_us: float
    ) -> None:
        super().__init__(build, conditions)
        self._event, self._slice = record(build, "kv_event"), record(build, "kv_slice")
        self._conditions = conditions
        self._seed = seed
        self._slice_us = slice_us
        self._slice_steps = 0
        self._expected: dict[int, dict[str, int]] = {}
        self._slowest_ms = 0.0
        self._wrong: dict[int | None, set[int]] = {}
        self._born_s = [0.0] * len(conditions)
        self._trials = [0] * len(conditions)

    @property
    def violated(self) -> list[str]:
        """Conditions that are not in force, and results that are not what they should be."""
        return super().violated + [
            f"cpu{cpu} computed events {sorted(events)} differently from the pilot run: a core or "
            "memory that is broken is the likeliest cause"
            for cpu, events in self._wrong.items()
        ]

    def _simulate(self, which: int, events: Events, timeout_s: float) -> Any:
        wanted = np.asarray(events, dtype=np.int64)
        code, (done,) = self[which].call(
            "kv_run",
            self._seed,
            wanted,
            len(wanted),
            Out(self._event, len(wanted)),
            timeout_s=timeout_s,
        )
        if code:
            msg = f"kv_run() returns {code} for events {events[0]} to {events[-1]}"
            raise MeasurementError(msg)
        return done

    def pilot(self, events: Events) -> tuple[list[float], dict[str, Any]]:
        """CPU time of each event in ms, and what it has to give, from a pass after a warm-up.

        What most cores say of an event has to come out of it; of several that are even, the first.
        """
        passes = []
        for which in range(len(self._conditions)):
            self._simulate(which, events[: min(len(events), 10)], _PILOT_TIMEOUT_S)
            passes.append(self._simulate(which, events, _PILOT_TIMEOUT_S))
        every = np.stack(passes)
        alike = (every["checksum"][:, None] == every["checksum"]).sum(axis=1)
        done = every[alike.argmax(axis=0), np.arange(len(events))]
        step_us = float(done["cpu_time_ns"].sum()) / 1e3 / max(1, int(done["steps"].sum()))
        return [float(cpu_ns) / 1e6 for cpu_ns in np.median(every["cpu_time_ns"], axis=0)], {
            "checksums": done["checksum"].tolist(),
            "steps": done["steps"].tolist(),
            "slice_steps": max(1, round(self._slice_us / step_us)),
        }

    def expect(self, plan: Mapping[str, Any], first_event: int) -> None:
        """What the pilot found: the length of a slice, each event's checksum and steps."""
        self._slice_steps = plan["slice_steps"]
        self._expected = {
            first_event + number: {"checksum": checksum, "steps": steps}
            for number, (checksum, steps) in enumerate(
                zip(plan["checksums"], plan["steps"], strict=True)
            )
        }

    def _renew(self, which: int, events: Events) -> None:
        """Replace an old worker by a new one, and warm that up; before anything is timed."""
        old = (
            time.monotonic() - self._born_s[which] > _LIFE_S and self._trials[which] >= _MIN_TRIALS
        )
        if old or self._trials[which] == 0:
            self[which].kill()
            self._simulate(which, events[:1], _PILOT_TIMEOUT_S)
            self._born_s[which], self._trials[which] = time.monotonic(), 0
        self._trials[which] += 1

    def take(self, which: int, events: Events) -> Columns:
        """Simulate events on a core: one row a slice, ``ok`` if its event is as in the pilot."""
        self._renew(which, events)
        begun = time.monotonic()
        timeout_s = max(60.0, 100 * self._slowest_ms / 1e3) if self._slowest_ms else 600.0
        steps = [self._expected[event]["steps"] for event in events]
        most = sum(count // self._slice_steps + 1 for count in steps)
        wanted = np.asarray(events, dtype=np.int64)
        count, (done, slices) = self[which].call(
            "kv_run_slices",
            self._seed,
            wanted,
            len(wanted),
            self._slice_steps,
            Out(self._event, len(wanted)),
            Out(self._slice, most),
            most,
            timeout_s=timeout_s,
        )
        self._slowest_ms = max(self._slowest_ms, 1e3 * (time.monotonic() - begun))
        if count < 0:
            msg = f"kv_run_slices() returns {count} for events {events[0]} to {events[-1]}"
            raise MeasurementError(msg)
        cpu = self._conditions[which].cpu
        checksums = np.array([self._expected[event]["checksum"] for event in events], np.uint64)
        right = done["checksum"] == checksums
        if not right.all():
            self._wrong.setdefault(cpu, set()).update(done["event"][~right].tolist())
        slices = slices[: min(count, most)]
        good = right & (done["truncated"] == 0)
        as_planned = np.isin(slices["event"], done["event"][good]) & (slices["cpu"] == cpu)
        samples, numbers = slices["sample"], slices["event"].tolist()
        found = dict(zip(done["event"].tolist(), done["checksum"].tolist(), strict=True))
        expected = dict(zip(events, checksums.tolist(), strict=True))
        return {
            "cpu": [cpu] * len(slices),
            **{name: slices[name].tolist() for name in ("event", "slice")},
            **{name: samples[name].tolist() for name in ("start_ns", "time_ns")},
            **bracket_columns(samples),
            "ok": as_planned.tolist(),
            **results([expected.get(one) for one in numbers], [found.get(one) for one in numbers]),
        }


class JobTrials(Jobs):
    """Any job with a log: started anew for each trial, its events timed by its log lines."""

    def __init__(
        self,
        template: str,
        log_format: LogFormat,
        conditions: Sequence[Conditions],
        seed: int,
        timeout_s: float,
    ) -> None:
        super().__init__(template, conditions)
        self._format = log_format
        self._seed = seed
        self._timeout_s = timeout_s
        job_argv(template, first=0, events=1, seed=seed)  # a wrong template fails here

    def pilot(self, events: Events) -> tuple[list[float], dict[str, Any]]:
        """Time of each event in ms; a job's log says nothing of its results."""
        try:
            columns = self.take(0, events)
        except WorkerError as error:
            raise MeasurementError(str(error)) from None
        return [time_ns / 1e6 for time_ns in columns["time_ns"]], {}

    def expect(self, plan: Mapping[str, Any], first_event: int) -> None:
        """Nothing is expected of a log but the events."""

    def take(self, which: int, events: Events) -> Columns:
        """Run the job for these events on a core: one row for each event in its log."""
        wanted = job_argv(self.template, first=events[0], events=len(events), seed=self._seed)
        result, times = run_logged(
            wanted,
            self._format,
            self.conditions[which],
            events,
            timeout_s=self._timeout_s,
            on_event=lambda pid: self.read_back(which, pid),
        )
        return {
            "cpu": [self.conditions[which].cpu] * len(events),
            "event": list(events),
            "start_ns": [event.begin_ns for event in result.events],
            "time_ns": times,
            "ok": [True] * len(events),
        }
