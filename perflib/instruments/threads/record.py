"""One way to record the threads of a job, whichever backend the machine allows.

A job that we start leads a process group of its own and carries a mark in its environment: when
its first process has ended, and when this call is interrupted, whatever the job left behind is
killed, also what made itself a daemon. A job that runs already is left as it is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from perflib.instruments.threads.perf import backend as perf_backend
from perflib.instruments.threads.preload.backend import Preloaded, States
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.measure import launch
from perflib.measure.conditions import Conditions, check
from perflib.model.errors import MeasurementError, UserError, choose

__all__ = ["Profiled", "Ran", "backends", "chosen", "profile_job", "run_alone"]

MARK = "PERFLIB_JOB"  # a variable of the job's environment, by which its daemons are found
_OUTPUT_BYTES = 1 << 20
_POLL_S = 0.05  # how often a job is asked whether it has ended, should its output not tell
_SETTLED_S = 0.1
_MOST_KILLS = 20
_LAUNCHER = os.fsencode(launch.__file__)
_NOT_STARTED = 2  # what `perflib.measure.launch` ends with then


@dataclass(frozen=True)
class Ran:
    """What a job did.

    Parameters
    ----------
    returncode
        Its exit status; negative: the signal that ended it; None: it runs on.
    output
        The last mebibyte of its standard output and error.
    wall_s
        From its start to its end; of a job that ran already: how long it was recorded.
    problem
        How it ended, if not well: ``died of SIGSEGV (Segmentation fault)``.
    """

    returncode: int | None
    output: str
    wall_s: float
    problem: str


@dataclass(frozen=True)
class Profiled(Ran):
    """What a job did while it was recorded, and the recording."""

    recording: Recording


class Backend(Protocol):
    """What writes down what threads do: ready when entered, at an end when left."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def environment(self) -> Mapping[str, str]:
        """Variables that a job which we start must have."""

    def started(self, pid: int, /) -> None:
        """The process to be recorded is there."""

    def enable(self) -> object:
        """Record from now on."""

    def disable(self) -> object:
        """Record no more."""

    def recording(self, pid: int, out: Path) -> Recording:
        """What was recorded of a process and what it started, written to a folder."""


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
    stamp every wait; ``states`` asks /proc again and again about a job that runs already.
    """
    return {name: kind.unavailable() for name, kind in KINDS.items()}


def chosen(backend: str | None, *, running: bool) -> str:
    """The backend to use: the one that was asked for, or the best that this machine allows.

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
    said = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    msg = f"no backend can record threads here: {said}"
    raise MeasurementError(msg)


def run_alone(
    argv: Sequence[str],
    conditions: Conditions | None = None,
    *,
    cpus: Sequence[int] = (),
    timeout_s: float = 600.0,
    seen: Callable[[int], None] | None = None,
) -> Ran:
    """Run a job to its end without recording it, started and ended as `profile_job` does.

    Parameters
    ----------
    argv
        The job.
    conditions
        What its process is to have.
    cpus
        The CPUs that it may use; empty: those of this process.
    timeout_s
        When it is killed; ``problem`` says so.
    seen
        Called once with the job's process id a tenth of a second after its start, if it still runs.

    Raises
    ------
    MeasurementError
        It cannot be started.
    UserError
        The conditions cannot be had.
    """
    with _Started(argv, conditions or Conditions(), cpus, timeout_s, seen) as job:
        job.wait()
        return job.ran()


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
        Its command line; or the process id of one that runs. That one goes on.
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
        That backend or those conditions cannot be had, or there is no such process.
    MeasurementError
        No backend can be used, the job cannot be started, or nothing was recorded. A job that dies
        is no error: what it did until then was recorded, and ``problem`` says how it ended.
    """
    running = isinstance(job, int)
    name = chosen(backend, running=running)
    if isinstance(job, int) and not _lives(job):
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
                ran, pid = _record_started(job, on, settings, wanted, cpus, timeout_s, seen)
        recording = on.recording(pid, folder)
    return Profiled(ran.returncode, ran.output, ran.wall_s, ran.problem, recording)


def _record_started(
    argv: Sequence[str],
    backend: Backend,
    settings: Settings,
    conditions: Conditions,
    cpus: Sequence[int],
    timeout_s: float,
    seen: Callable[[int], None] | None,
) -> tuple[Ran, int]:
    if not settings.skip_s:  # from its first instruction
        backend.enable()
    with _Started(argv, conditions, cpus, timeout_s, seen) as job:
        job.become()
        backend.started(job.pid)
        if settings.skip_s:
            if job.wait(settings.skip_s):
                msg = (
                    f"the job ended after {job.ran().wall_s:.2f} s: all of it lies in its first "
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
        if stop.wait(min(_POLL_S, left)) or not _lives(pid):
            return False
    return not stop.is_set() and _lives(pid)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _with(conditions: Conditions, variables: Mapping[str, str]) -> Conditions:
    """Conditions with a backend's variables; its library comes behind those that are wanted."""
    own = dict(variables)
    libraries = tuple(own.pop("LD_PRELOAD", "").split())
    inherited = () if conditions.preload else tuple(_inherited_preload())
    return replace(
        conditions,
        preload=(*conditions.preload, *inherited, *libraries) if libraries else conditions.preload,
        environment={**conditions.environment, **own},
    )


def _inherited_preload() -> list[str]:
    """What this process's own LD_PRELOAD names, and `Conditions` can name: files by whole paths."""
    words = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return [word for word in words if Path(word).is_absolute() and Path(word).is_file()]


# --- a job that we start -----------------------------------------------------------------------


class _Started:
    """A job from its start to its end; leaving kills what is left of it."""

    def __init__(
        self,
        argv: Sequence[str],
        conditions: Conditions,
        cpus: Sequence[int],
        timeout_s: float,
        seen: Callable[[int], None] | None = None,
    ) -> None:
        if not argv:
            msg = "there is no job to run: its command line is empty"
            raise UserError(msg)
        self._argv = list(argv)
        self._mark = secrets.token_hex(8)
        marked = {**conditions.environment, MARK: self._mark}
        self._conditions = replace(conditions, environment=marked)
        check(self._conditions)
        self._cpus = cpus
        self._timeout_s = timeout_s
        self._seen = seen
        self._output = bytearray()
        self._problem = ""
        self._end: float | None = None

    def __enter__(self) -> Self:
        launched, environment = launch.command(self._conditions, self._argv)
        self._pipe, theirs = os.pipe()
        try:
            with _on(self._cpus):
                self._begun = time.monotonic()
                self._process = subprocess.Popen(
                    launched, env=environment, stdin=subprocess.DEVNULL, stdout=theirs,
                    stderr=theirs, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            os.close(self._pipe)
            msg = f"the job {self._argv[0]!r} cannot be started: {error}"
            raise MeasurementError(msg) from error
        finally:
            os.close(theirs)
        os.set_blocking(self._pipe, False)
        self._poller = select.poll()
        self._poller.register(self._pipe, select.POLLIN)
        self._open = True
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._process.wait()
        os.close(self._pipe)

    def become(self) -> None:
        """Wait until the process has become the job: it begins as a Python that starts it."""
        limit = self._begun + self._timeout_s
        while time.monotonic() < limit:
            try:
                words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return
            if _LAUNCHER not in words:  # nor has what has ended
                return
            time.sleep(0.001)

    @property
    def elapsed_s(self) -> float:
        """Since its start."""
        return time.monotonic() - self._begun

    def wait(self, until_s: float | None = None) -> bool:
        """Wait for the end, or until so long after the start; whether it has ended."""
        limit = self._begun + self._timeout_s
        until = limit if until_s is None else min(limit, self._begun + until_s)
        while self._end is None:
            now = time.monotonic()
            if self._seen is not None and now >= self._begun + _SETTLED_S:
                seen, self._seen = self._seen, None
                seen(self.pid)
            if now >= limit:
                self._problem = f"did not end within {self._timeout_s:g} s and was killed"
                self._kill()
            elif now >= until:
                return False
            if self._open and self._poller.poll(1000 * min(_POLL_S, max(0.0, until - now))):
                self._read()
            elif not self._open:
                time.sleep(min(0.002, max(0.0, until - now)))
            self._has_ended()
        return True

    def ran(self) -> Ran:
        """What it did, after its end."""
        assert self._end is not None
        code = self._process.wait()
        problem = self._problem
        output = self._output.decode(errors="replace")
        if code == _NOT_STARTED and output.startswith("perflib: cannot start"):
            msg = f"the job: {output.strip().removeprefix('perflib: ')}"
            raise MeasurementError(msg)
        if not problem and code < 0:
            problem = f"died of {_signal_name(-code)}"
        elif not problem and code:
            last = output.strip().splitlines()[-1:] or ["(nothing)"]
            problem = f"ended with status {code}; its last line: {last[0]}"
        return Ran(code, output, self._end - self._begun, problem)

    def _has_ended(self) -> None:
        """Note the end; the process stays a zombie until its group is killed."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self._end = time.monotonic()
        self._kill()
        while self._open and self._read():
            pass

    def _read(self) -> bool:
        """Read what it wrote; whether there was any."""
        try:
            chunk = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self._poller.unregister(self._pipe)
            self._open = False
            return False
        self._output += chunk
        del self._output[:-_OUTPUT_BYTES]
        return True

    def _kill(self) -> None:
        """Kill its group, and whatever carries its mark: a daemon leads a group of its own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        for _ in range(_MOST_KILLS):  # they may start others meanwhile
            if not (left := _marked(self._mark)):
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)


def _marked(mark: str) -> list[int]:
    """The processes with this mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def _on(cpus: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile may use these CPUs only."""
    before = os.sched_getaffinity(0)
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        os.sched_setaffinity(0, before)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"
