"""One trial of ``threads``: a job alone or under the profile, and what both report."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perflib.framework.jobs import Jobs
from perflib.framework.results import results
from perflib.instruments.threads.concurrency import (
    concurrency,
    effective_concurrency,
    serial_parts,
    thread_states,
)
from perflib.instruments.threads.formats import STATES, Selection
from perflib.instruments.threads.record import Profiled, Ran, profile_job, run_alone
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.waits import lock_waits
from perflib.instruments.threads.wakeups import gains
from perflib.measure.conditions import Conditions
from perflib.measure.jobs.event_loop import Account
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, PerflibError, UserError

ONE, ALONE, PROFILED, WITHOUT = "one_thread", "alone", "profiled", "without:"
SEGMENTS = 12  # of the recording of a job that runs: one row each
_MAX_LOCKS = 100  # of a row; the others' waits are shorter
_OFFSET = re.compile(r"(\+0x[0-9a-f]+|\[\d+\])+$")

_OF_THE_TRIAL = (
    "version", "configuration", "threads", "start_ns", "job_time_s", "wall_s", "self_report", "ok",
)  # fmt: skip
_OF_THE_PROFILE = (
    "backend", "cpus", "recorded_s", "whole_s", "concurrency", "concurrency_s",
    *(f"{state}_s" for state in STATES), "free_ready_s", "locks", "limiting", "serial_begin_s",
    "serial_end_s", "serial_middle_s", "lost_events", "lost_samples",
)  # fmt: skip
COLUMNS = (*_OF_THE_TRIAL, *_OF_THE_PROFILE)


class Configuration(NamedTuple):
    """What is run in a trial: ``argv`` is the job, ``way`` how it runs."""

    version: str
    way: str
    threads: int
    argv: Sequence[str]


def file_name(version: str) -> str:
    """A version's name as that of a folder."""
    return re.sub(r"\W+", "_", version)


def summary(
    recording: Recording, begin_ns: int, end_ns: int, rows: Sequence[int] | None = None
) -> dict[str, Any]:
    """What a recording says of a span of time, one value a column; ``rows``: of these threads.

    ``locks`` is JSON: by name (of all objects of one array together) the waits, seconds of waiting
    and of run-queue delay while asking for the lock, the longest wait in ms, and by how many
    seconds the job would end earlier without waits for it.
    """
    selection = Selection(begin_ns, end_ns, rows)
    states = thread_states(recording, selection)
    seconds = {f"{state}_s": float(states[state].sum()) for state in STATES}
    waits = lock_waits(recording, selection)
    locks: dict[str, dict[str, Any]] = {}
    numbers: dict[str, list[int]] = {}
    for one in waits.to_dict("records"):
        name = _OFFSET.sub("", str(one["name"]))
        mine = locks.setdefault(
            name,
            {
                "kind": str(one["kind"]),
                "waits": 0,
                "waiting_s": 0.0,
                "ready_s": 0.0,
                "longest_ms": 0,
            },
        )
        mine["waits"] += int(one["waits"])
        mine["waiting_s"] += float(one["waiting_s"])
        mine["ready_s"] += float(one["ready_s"])
        numbers.setdefault(name, []).append(int(one["lock"]))
        mine["longest_ms"] = max(mine["longest_ms"], float(one["longest_ms"]))
    locks = dict(sorted(locks.items(), key=lambda item: -_total_s(item[1]))[:_MAX_LOCKS])
    gained = gains(recording, [numbers[name] for name in locks], selection)
    for mine, gain_s in zip(locks.values(), gained, strict=True):
        mine["gain_s"] = gain_s
    at_once = concurrency(recording, selection)
    return {
        "recorded_s": (end_ns - begin_ns) / 1e9,
        "concurrency": float(effective_concurrency(recording, selection)),
        "concurrency_s": json.dumps(np.round(np.trim_zeros(at_once, "b") / 1e9, 6).tolist()),
        **seconds,
        "free_ready_s": max(0.0, seconds["ready_s"] - float(waits["ready_s"].sum())),
        "locks": json.dumps(locks),
        "limiting": next(iter(locks), ""),
    }


def _total_s(lock: Mapping[str, Any]) -> float:
    return float(lock["waiting_s"]) + float(lock["ready_s"])


class ThreadTrials(Jobs):
    """Starts a job for each trial, or attaches to one that runs; keeps versions' last recordings.

    Parameters
    ----------
    configurations
        What is run, by number.
    reports
        Whether the job reports its waits at its end (`perflib.measure.jobs.event_loop.Account`).
    conditions, cpus
        The conditions of the job's process, and where it may run.
    settings, backend
        What is recorded, and how.
    folder
        Where recordings are kept, by `file_name` of the version.
    timeout_s
        Of one trial.
    pid
        The job that runs already (its configurations have no command line).
    stop
        Ends the recording of such a job.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        *,
        reports: bool,
        conditions: Conditions,
        cpus: Sequence[int],
        settings: Settings,
        backend: str,
        folder: Path,
        timeout_s: float,
        pid: int | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(
            f"process {pid}" if pid else " ".join(configurations[0].argv), [conditions]
        )
        self._configurations = configurations
        self._reports = reports
        self._cpus = list(cpus)
        self._settings = settings
        self._backend = backend
        self._folder = folder
        for left in folder.glob(".*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        self._timeout_s = timeout_s
        self._pid = pid
        self._stop = stop
        self._checksum: object = None
        self._any = False
        self._problems: dict[str, None] = {}
        self._lost = {"events": (0, 0), "samples": (0, 0)}
        self._remarks: dict[str, list[str]] = {}

    @property
    def problems(self) -> list[str]:
        """What was wrong with some trials."""
        lost = [
            f"{what} lost: {count} (recordings: {recordings}); what they touch is marked there"
            for what, (count, recordings) in self._lost.items()
            if count
        ]
        return [*self._problems, *lost]

    def provenance(self) -> dict[str, Any]:
        """The job and its conditions, what was recorded how, and where recordings are kept."""
        return {
            **super().provenance(),
            "cpus": self._cpus,
            "recorded": asdict(self._settings),
            "remarks": [
                first if not more else f"{first} (so or alike in {1 + len(more)} recordings)"
                for first, *more in self._remarks.values()
            ],
            "recordings": {
                one.version: file_name(one.version)
                for one in self._configurations
                if (self._folder / file_name(one.version)).is_dir()
            },
        }

    def take(self, _round: int, place: int) -> Columns:
        """One trial: one row, or of a running job one row a segment of its recording."""
        wanted = self._configurations[place]
        start_ns = time.monotonic_ns()
        try:
            if wanted.way == PROFILED:
                rows = self._profiled(wanted)
            else:
                rows = [self._row(wanted, self._alone(wanted))]
        except UserError:
            raise
        except PerflibError as error:
            msg = f"{wanted.version}, {wanted.way}: {error}"
            if not self._any:  # not even once: another trial would fail, too
                raise MeasurementError(msg) from error
            raise WorkerError(msg) from error
        self._any = True
        names = dict.fromkeys([*COLUMNS, *rows[0]])
        return {name: [{"start_ns": start_ns, **row}.get(name) for row in rows] for name in names}

    def _alone(self, wanted: Configuration) -> Ran:
        return run_alone(
            wanted.argv,
            self.conditions[0],
            cpus=self._cpus,
            timeout_s=self._timeout_s,
            seen=lambda pid: self.read_back(0, pid),
        )

    def _row(self, wanted: Configuration, ran: Ran) -> dict[str, Any]:
        """What the job itself reports."""
        row: dict[str, Any] = {
            "version": wanted.version, "configuration": wanted.way, "threads": wanted.threads,
            "cpus": len(self._cpus),
            "job_time_s": ran.wall_s, "wall_s": ran.wall_s, "ok": True,
        }  # fmt: skip
        if ran.problem:
            if self._reports:
                msg = f"the job {ran.problem}"
                raise WorkerError(msg)
            self._problems[f"the job {ran.problem}"] = None
        if self._reports:
            account = Account.parse(ran.output)
            if self._checksum is None:
                self._checksum = account.checksum
            wrong = results([self._checksum], [account.checksum])
            row |= {
                "threads": account.threads,
                "job_time_s": account.duration_s,
                "self_report": json.dumps(_account(account)),
                "ok": account.checksum == self._checksum,
                **{name: one for name, (one,) in wrong.items()},
            }
            if not row["ok"]:
                self._problems["the job's result differs from trial to trial"] = None
        return row

    def _profiled(self, wanted: Configuration) -> list[dict[str, Any]]:
        name = file_name(wanted.version)
        new, kept = self._folder / f".{name}", self._folder / name
        shutil.rmtree(new, ignore_errors=True)
        done = profile_job(
            wanted.argv if self._pid is None else self._pid,
            self._settings,
            new,
            self._backend,
            self.conditions[0],
            cpus=self._cpus,
            timeout_s=self._timeout_s,
            stop=self._stop,
            seen=lambda pid: self.read_back(0, pid),
        )
        rows = self._rows(wanted, done)
        shutil.rmtree(kept, ignore_errors=True)
        new.rename(kept)
        return rows

    def _rows(self, wanted: Configuration, done: Profiled) -> list[dict[str, Any]]:
        recording, meta = done.recording, done.recording.meta
        self._remark(meta)
        row = self._row(wanted, done)
        begin_ns, end_ns = int(meta["start_ns"]), int(meta["end_ns"])
        rows = None
        if self._reports:
            account = Account.parse(done.output)
            begin_ns, end_ns = max(begin_ns, account.begin_ns), min(end_ns, account.end_ns)
            tids = [one.tid for one in account.per_thread]
            rows = np.flatnonzero(recording.threads["tid"].isin(tids)).tolist()
            if len(rows) < account.threads:
                row["self_report"] = None
                self._problems[
                    "not all threads of the loop are in the recording, so that its "
                    "waits cannot be compared with what the job reports"
                ] = None
        if end_ns <= begin_ns:
            msg = "nothing of the job is in the recording: is skip_s too long?"
            raise WorkerError(msg)
        serial = serial_parts(recording)
        whole_s = (meta["end_ns"] - meta["start_ns"]) / 1e9
        middle_s = whole_s - serial.start_s - serial.end_s
        row |= {
            "backend": meta["backend"], "cpus": int(meta["cpus"]), "whole_s": whole_s,
            "serial_begin_s": serial.start_s, "serial_end_s": serial.end_s,
            "serial_middle_s": serial.alone_share * middle_s if middle_s > 0 else 0.0,
            "lost_events": int(meta["lost"]["events"]),
            "lost_samples": int(meta["lost"]["samples"]),
            "threads": row["threads"] if self._reports else _lived(recording),
        }  # fmt: skip
        parts = np.linspace(begin_ns, end_ns, 2 if self._pid is None else SEGMENTS + 1)
        edges = parts.astype(np.int64).tolist()
        return [
            {**row, **summary(recording, low, high, rows), **self._segment(low, high)}
            for low, high in itertools.pairwise(edges)
        ]

    def _segment(self, low: int, high: int) -> dict[str, Any]:
        """Of a job that runs, each segment of the recording is a row of its own."""
        if self._pid is None:
            return {}
        serial = dict.fromkeys(
            ("serial_begin_s", "serial_end_s", "serial_middle_s")
        )  # the recording's, not the job's
        return {"start_ns": low, "job_time_s": (high - low) / 1e9, **serial}

    def _remark(self, meta: Mapping[str, Any]) -> None:
        for sentence in meta["remarks"]:  # what differs in its numbers only is listed once
            self._remarks.setdefault(re.sub(r"\d+(\.\d+)?", "#", sentence), []).append(sentence)
        for what, (count, recordings) in self._lost.items():
            number = int(meta["lost"][what])
            self._lost[what] = (count + number, recordings + (number > 0))
        if meta["cut"]:
            self._problems[f"a recording ends early: {meta['cut']}"] = None


def _lived(recording: Recording) -> int:
    """How many threads the job had, at one time or another."""
    return max(1, int((recording.threads["end_ns"] > recording.threads["start_ns"]).sum()))


def _account(account: Account) -> dict[str, dict[str, Any]]:
    """The job's self-reported waits by lock, of all objects of one name together."""
    locks: dict[str, dict[str, Any]] = {}
    for one in account.locks:
        mine = locks.setdefault(
            one.name,
            {"point": one.point, "waits": 0, "waiting_s": 0.0, "spinning_s": 0.0, "held_s": 0.0},
        )
        mine["waits"] += one.waits
        mine["waiting_s"] += one.waiting_ns / 1e9
        mine["spinning_s"] += one.spinning_ns / 1e9
        mine["held_s"] += one.held_ns / 1e9
    return locks
