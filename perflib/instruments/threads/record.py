"""One way to record the threads of a job, whichever backend the machine allows.

A job that runs already is left as it is; for one that we start see `perflib.measure.job`.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perflib.instruments.threads.perf import backend as perf_backend
from perflib.instruments.threads.preload.backend import Preloaded, States
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.machine.processes import is_gone
from perflib.measure.conditions import Conditions, inherited_preload
from perflib.measure.job import Ran, Started, run_alone
from perflib.model.errors import MeasurementError, UserError, choose

__all__ = ["Profiled", "Ran", "backends", "chosen", "profile_job", "run_alone"]

_POLL_S = 0.05  # how often a job that runs already is polled for its end


@dataclass(frozen=True)
class Profiled(Ran):
    """What a job did while it was recorded, and the recording."""

    recording: Recording


Backend = perf_backend.PerfThreads | States
"""What writes down what threads do: ready when entered, at an end when left."""


@dataclass(frozen=True)
class Kind:
    """A backend: for jobs that run already, for those that we start, or (None) for both."""

    running: bool | None
    unavailable: Callable[[], str]
    open: Callable[[Path, Settings], Backend]


KINDS = {
    "perf": Kind(None, perf_backend.unavailable, perf_backend.PerfThreads),
    "preload": Kind(False, Preloaded.unavailable, Preloaded),
    "states": Kind(True, States.unavailable, States),
}


def backends() -> dict[str, str]:
    """Why each backend cannot be used on this machine; empty where it can.

    ``perf`` (scheduler and futex events) and ``preload`` (a library of ours in a job that we start)
    stamp every wait; ``states`` polls /proc for a job that runs already.
    """
    return {name: kind.unavailable() for name, kind in KINDS.items()}


def chosen(backend: str | None, *, running: bool) -> str:
    """The backend to use: the one that was requested, or the best that this machine allows.

    Raises
    ------
    UserError
        There is none of that name, it cannot be used here, or not on such a job.
    MeasurementError
        None can be used.
    """
    fitting = [name for name, kind in KINDS.items() if kind.running in (None, running)]
    if backend not in (None, "auto"):
        if backend not in KINDS:
            raise UserError(choose("backend", str(backend), ["auto", *KINDS]))
        if backend not in fitting:
            such = "that runs already" if running else "that we start"
            msg = f"backend={backend}: a job {such} is recorded by {' or '.join(fitting)}"
            raise UserError(msg)
        if why := KINDS[backend].unavailable():
            msg = f"backend={backend} cannot be used here: {why}"
            raise UserError(msg)
        return backend
    reasons = {name: KINDS[name].unavailable() for name in fitting}
    for name, why in reasons.items():
        if not why:
            return name
    why_not = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    msg = f"no backend can record threads here: {why_not}"
    raise MeasurementError(msg)


def profile_job(
    job: Sequence[str] | int,
    settings: Settings,
    folder: Path,
    backend: str | None = None,
    conditions: Conditions | None = None,
    *,
    cpus: Sequence[int] = (),
    timeout_s: float = 600.0,
    stop: threading.Event | None = None,
    seen: Callable[[int], None] | None = None,
) -> Profiled:
    """Start a job, or attach to one, and record what its threads do.

    Parameters
    ----------
    job
        Its command line; or the process id of one that runs, which continues afterwards.
    settings
        What is recorded. A job that we start runs to its end, also when ``duration_s`` is over.
    folder
        Which is made, and becomes the recording.
    backend
        ``perf``, ``preload``, ``states``; None or ``auto``: the best that can be used.
    conditions, cpus, seen
        As for `run_alone`; not for a job that runs already.
    timeout_s
        When a job that we start is killed, or the recording of a running one ends.
    stop
        Set it, from another thread, to end the recording of a running job. So does Ctrl-C.

    Raises
    ------
    UserError
        That backend or those conditions are not available, or there is no such process.
    MeasurementError
        No backend can be used, the job cannot be started, or nothing was recorded. A job that dies
        is no error: what it did until then was recorded, and ``problem`` describes how it ended.
    """
    running = isinstance(job, int)
    name = chosen(backend, running=running)
    if isinstance(job, int) and is_gone(job):
        msg = f"there is no process {job} (any more): there is nothing to record"
        raise UserError(msg)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".threads-", dir=folder.parent) as raw:
        with KINDS[name].open(Path(raw), settings) as on:
            if isinstance(job, int):
                ran = _record_running(job, on, settings, timeout_s, stop)
                pid = job
            else:
                wanted = _with(conditions or Conditions(), on.environment())
                started = Started(job, wanted, cpus, timeout_s, seen)
                ran, pid = _record_started(started, on, settings)
        recording = on.recording(pid, folder)
    return Profiled(ran.returncode, ran.output, ran.wall_s, ran.problem, recording)


def _record_started(started: Started, backend: Backend, settings: Settings) -> tuple[Ran, int]:
    if not settings.skip_s:  # from its first instruction
        backend.enable()
    with started as job:
        job.become()
        backend.started(job.pid)
        if settings.skip_s:
            if job.wait(settings.skip_s):
                msg = (
                    f"the job ended after {job.ran().wall_s:.2f} s: all of it is in its first "
                    f"{settings.skip_s:g} s (skip_s), which are not recorded"
                )
                raise MeasurementError(msg)
            backend.enable()
        longest_s = settings.duration_s
        job.wait(None if longest_s is None else job.elapsed_s + longest_s)
        backend.disable()
        job.wait()
        return job.ran(), job.pid


def _record_running(
    pid: int,
    backend: Backend,
    settings: Settings,
    timeout_s: float,
    stop: threading.Event | None,
) -> Ran:
    stop = stop or threading.Event()
    begun = time.monotonic()
    backend.started(pid)
    problem = ""
    enabled = begun
    try:
        if _watched(pid, begun + settings.skip_s, stop):
            backend.enable()
            enabled = time.monotonic()
            limit = enabled + (settings.duration_s or timeout_s)
            if _watched(pid, limit, stop) and settings.duration_s is None:
                problem = f"was recorded for {timeout_s:g} s; it did not end by then"
    except KeyboardInterrupt:
        problem = "was recorded until it was interrupted by Ctrl-C"
    wall_s = time.monotonic() - enabled
    backend.disable()
    return Ran(None, "", wall_s, problem)


def _watched(pid: int, until: float, stop: threading.Event) -> bool:
    """Wait; whether the time was reached with the process alive and nobody asking to stop."""
    while (left := until - time.monotonic()) > 0:
        if stop.wait(min(_POLL_S, left)) or is_gone(pid):
            return False
    return not stop.is_set() and not is_gone(pid)


def _with(conditions: Conditions, variables: Mapping[str, str]) -> Conditions:
    """Conditions with a backend's variables; its library comes behind those that are wanted."""
    others = dict(variables)
    libraries = tuple(others.pop("LD_PRELOAD", "").split())
    inherited = () if conditions.preload else inherited_preload()
    return replace(
        conditions,
        preload=(*conditions.preload, *inherited, *libraries) if libraries else conditions.preload,
        environment={**conditions.environment, **others},
    )
