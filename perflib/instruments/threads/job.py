"""A job that we start, until its end.

It leads a process group of its own and carries a mark in its environment: when its first process
has ended, and when this call is interrupted, whatever it left behind is killed, also what made
itself a daemon.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from perflib.machine.processes import has_ended, signal_name
from perflib.measure import launch
from perflib.measure.conditions import Conditions, check
from perflib.model.errors import MeasurementError, UserError

__all__ = ["Ran", "Started", "run_alone"]

MARK = "PERFLIB_JOB"  # a variable of the job's environment, by which its daemons are found
_OUTPUT_BYTES = 1 << 20
_POLL_S = 0.05  # how often a job is polled for its end, if its output does not show it
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
        When it is killed; ``problem`` reports it.
    seen
        Called once with the job's process id a tenth of a second after its start, if it still runs.

    Raises
    ------
    MeasurementError
        It cannot be started.
    UserError
        The conditions are not available.
    """
    with Started(argv, conditions or Conditions(), cpus, timeout_s, seen) as job:
        job.wait()
        return job.ran()


class Started:
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
            problem = f"died of {signal_name(-code)}"
        elif not problem and code:
            last = output.strip().splitlines()[-1:] or ["(nothing)"]
            problem = f"ended with status {code}; its last line: {last[0]}"
        return Ran(code, output, self._end - self._begun, problem)

    def _has_ended(self) -> None:
        """Note the end; the process stays a zombie until its group is killed."""
        if not has_ended(self.pid):
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
