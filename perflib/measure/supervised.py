"""A job of the user's, which may be any program, under a supervisor that leaves nothing of it.

Every foreign program is started here, and ended here: its threads and children, what these left
behind, what made itself a daemon, whatever ignores signals or stopped itself. All of them end with
the job's first process, with `Supervised.kill`, and with this process, be it by ``kill -9``: see
`perflib.measure.launch`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from perflib.machine.processes import is_gone
from perflib.measure import launch
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError, UserError

_START_S, _END_S = 60.0, 15.0
_LAUNCHER = os.fsencode(launch.__file__)
_HINTS = {
    errno.ENOENT: "is its name right, and is it on PATH?",
    errno.EACCES: "may it be executed (chmod +x), and can you enter its folder (for a bare name, "
    "each folder on PATH)?",
    errno.ENOEXEC: "it lacks a #! line, or was built for another kind of machine",
}


class Supervised:
    """A job from its start, on entering, to the end of all of its processes, on leaving.

    It reads nothing, leads a session of its own, and must be used by one thread: it ends with that
    thread.

    Parameters
    ----------
    argv
        The job.
    conditions
        What its process runs under; they are in force before it is held.
    stdout, stderr
        Where it writes: descriptors, or ``subprocess.DEVNULL``.
    held
        Entering returns with the job stopped before its first instruction, until `release`.
    environment
        The whole environment; by default that of the conditions.
    cwd
        The folder where it starts; by default this process's.

    Attributes
    ----------
    pid : int
        The job's first process. It stays a zombie when it has ended, until `kill`.
    report : int
        A descriptor that is readable when the job has ended.
    returncode : int
        After `kill`, its exit status; negative: the signal that ended it.
    cpu_time_ns : int
        After `kill`, the CPU time of it, and of the children for which it waited.
    problem : str
        After `kill`: what could not be ended, in a sentence; or empty.

    Raises
    ------
    UserError
        The command line is empty.
    MeasurementError
        The job cannot be started; where that shows later, `check_started` raises it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        conditions: Conditions | None = None,
        *,
        stdout: int,
        stderr: int,
        held: bool = False,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        if not argv:
            msg = "there is no job to run: its command line is empty"
            raise UserError(msg)
        self._argv = list(argv)
        self._conditions = conditions or Conditions()
        self._stdout, self._stderr = stdout, stderr
        self._held = held
        self._environment, self._cwd = environment, cwd
        self._pending = b""
        self._failure = ""
        self._has_ended = self._is_gone = False
        self.pid = 0
        self.returncode = -signal.SIGKILL
        self.cpu_time_ns = 0
        self.problem = ""

    def __enter__(self) -> Self:
        self.report, theirs = os.pipe()
        try:
            argv, environment = launch.supervised(
                self._conditions,
                self._argv,
                theirs,
                held=self._held,
                environment=self._environment,
            )
            self._process = subprocess.Popen(
                argv,
                env=environment,
                cwd=self._cwd,
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=self._stderr,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(self.report)
            number = error.errno if isinstance(error, OSError) else None
            raise self._not_started(number or 0, str(error)) from error
        except BaseException:
            os.close(self.report)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(self.report, False)
        try:
            self._begun()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self.report)

    def _begun(self) -> None:
        """Wait until its process is there, and stopped if it is to be held."""
        limit = time.monotonic() + _START_S
        while not (self.pid and not self._held):
            self._poll(limit)
            if self._failure or self._is_gone or (self._has_ended and self._held):
                self.check_started()
                msg = f"the job {self._argv[0]!r} was killed before it began"
                raise MeasurementError(msg)
            if time.monotonic() >= limit:
                msg = f"the job {self._argv[0]!r} could not be started within {_START_S:g} s"
                raise MeasurementError(msg)

    def release(self) -> None:
        """Let a held job continue."""
        os.kill(self.pid, signal.SIGCONT)

    def become(self, timeout_s: float) -> None:
        """Wait until the process has become the job: it begins as the Python that starts it."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit and not self.ended():
            try:
                words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return
            if _LAUNCHER not in words:  # nor has what has ended
                return
            time.sleep(0.001)

    def ended(self, timeout_s: float = 0.0) -> bool:
        """Whether all of it has ended, waiting so long for that at most."""
        limit = time.monotonic() + timeout_s
        while not self._has_ended and self._poll(limit):
            pass
        return self._has_ended

    def kill(self) -> None:
        """End all of it, if it has not ended."""
        if not self._is_gone:
            self._finish()
        self._process.wait()

    def _finish(self) -> None:
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # the job may have stopped its supervisor
        limit = time.monotonic() + _END_S
        while self._poll(limit):
            pass
        if not self._is_gone:
            self._process.kill()
            self._lost()

    def check_started(self) -> None:
        """Raise the MeasurementError of a job that could not be started."""
        if self._failure:
            number, _, why = self._failure.partition(" ")
            raise self._not_started(int(number), why)

    def _not_started(self, number: int, why: str) -> MeasurementError:
        reason = os.strerror(number) if number else why
        hint = f": {_HINTS[number]}" if number in _HINTS else ""
        if number == errno.EACCES and Path(self._argv[0]).is_dir():
            hint = ": it is a folder, not a program"
        return MeasurementError(f"the job {self._argv[0]!r} cannot be started: {reason}{hint}")

    def _poll(self, limit: float) -> bool:
        """Read reports, waiting for one until the limit; whether there may be more by then."""
        poller = select.poll()
        poller.register(self.report, select.POLLIN)
        if not poller.poll(1000 * max(0.0, limit - time.monotonic())):
            return False
        chunk = os.read(self.report, 1 << 16)
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            word, _, rest = os.fsdecode(line).partition(" ")
            if word == "pid":
                self.pid = int(rest)
            elif word == "held":
                self._held = False
            elif word == "failed":
                self._failure = rest
            elif word == "ended":
                self._has_ended = True
            elif word == "waited":
                self._waited(*map(int, rest.split()))
        if not chunk and not self._is_gone:
            self._lost()
        return not self._is_gone

    def _waited(self, status: int, cpu_time_ns: int, left: int) -> None:
        self._has_ended = self._is_gone = True
        self.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_time_ns = cpu_time_ns
        if left:
            self.problem = (
                f"{left} processes of the job could not be ended: they belong to another user, "
                "or start new ones all the time"
            )

    def _lost(self) -> None:
        """The supervisor was killed: the job dies with it, but who knows what that has left."""
        self._has_ended = self._is_gone = True
        self.problem = "the job's supervisor was killed: what the job had left may still run"
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            limit = time.monotonic() + _END_S
            while not is_gone(self.pid) and time.monotonic() < limit:
                time.sleep(0.001)
