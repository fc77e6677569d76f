"""perf record under control: attached beforehand, switched on and off through its own channel.

Attaching perf takes 120 to 220 ms. So it is attached with its events disabled, and
learns through its control channel (``--control``) when to count.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from perflib.instruments.perf.tool import ProcessGoneError, explain, find_perf
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from perflib.model.errors import MeasurementError

PRIORITY = 10  # above every ordinary process; below what a careful user reserves for more
_READY_S, _ACK_S, _END_S = 60.0, 10.0, 120.0


class ControlledPerf(ABC):
    """One run of ``perf record``, with its events off until they are switched on.

    Entering waits until perf is ready. Leaving ends perf; what it recorded is then in ``path``. It
    belongs to the thread that enters it: when that thread ends, be it by ``kill -9``, the kernel
    ends perf.

    Parameters
    ----------
    folder
        Where the data file is made, under a name of its own.
    pid
        The process that is recorded; None: the whole machine is.

    Attributes
    ----------
    path : Path
        perf's data file.
    remarks : list of str
        What a reader of the data should know, in sentences.

    Raises
    ------
    PerfUnavailableError
        There is no perf, it is too old, or it is not allowed here (a MeasurementError).
    MeasurementError
        The process is gone, perf cannot record it, or has died; its own words are in the message.
    """

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.remarks: list[str] = []
        self._pid = pid
        self._perf = find_perf()
        self._folder = folder
        self.path = folder
        self._ending = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _options(self) -> list[str]:
        """What perf is to record, and how, in its own words."""

    @abstractmethod
    def _cpu(self) -> int | None:
        """Where perf is to run; None: anywhere."""

    # --- from start to end ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            self._errors = started.enter_context(tempfile.TemporaryFile())
            name = "all" if self._pid is None else self._pid
            file, path = tempfile.mkstemp(prefix=f"perf-{name}-", suffix=".data", dir=self._folder)
            os.close(file)
            self.path = Path(path)
            unused = started.enter_context(contextlib.ExitStack())
            unused.callback(self.path.unlink, missing_ok=True)
            order, self._order = os.pipe()
            started.callback(os.close, self._order)
            self._answer, answer = os.pipe()
            started.callback(os.close, self._answer)
            try:
                argv, environment = command(self._conditions(), self._argv(order, answer))
                self._process = subprocess.Popen(
                    argv,
                    env=environment,
                    pass_fds=(order, answer),
                    stdin=subprocess.DEVNULL,
                    stdout=self._errors,
                    stderr=self._errors,
                    process_group=0,  # Ctrl-C is for us: perf is ended in order
                )
            finally:
                os.close(order)
                os.close(answer)  # so that perf's end ends the answers
            started.callback(self._kill)
            self._tell(b"disable\n", _READY_S)
            if os.sched_getscheduler(self._process.pid) != os.SCHED_FIFO:
                self.remarks.append(
                    "perf has no real-time priority, so switching it on takes milliseconds where "
                    "the machine is busy. It takes CAP_SYS_NICE, or 'ulimit -r 10'."
                )
            unused.pop_all()
            self._ending = started.pop_all()
        return self

    def _argv(self, order: int, answer: int) -> list[str]:
        argv = [str(self._perf), "record", *self._options(), "-o", str(self.path)]
        argv += ["-D", "-1", "--control", f"fd:{order},{answer}", "-k", "CLOCK_MONOTONIC"]
        # Without these, ending takes a second, and copies of programs pile up in ~/.debug.
        return [*argv, "--no-bpf-event", "--no-buildid-cache"]

    def _conditions(self) -> Conditions:
        return Conditions(
            cpu=self._cpu(),
            fifo_priority=PRIORITY,
            environment={"PERF_CONFIG": os.devnull},  # no setting of the user's changes the data
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._ending:
            process = self._process
            assert process is not None
            died = process.poll() is not None
            if not died:
                process.send_signal(signal.SIGINT)  # perf writes what it has, and its header
            try:
                code = process.wait(_END_S)
            except subprocess.TimeoutExpired:
                if kind is None:
                    msg = f"perf did not end within {_END_S:g} s and was killed: {self.path} is cut"
                    raise MeasurementError(msg) from None
                return
            if kind is None and code not in (0, -signal.SIGINT):
                self._died()

    def _died(self) -> None:
        """What becomes of a recording whose perf failed before its end."""
        raise self._failure()

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    # --- on and off ----------------------------------------------------------------------------

    def enable(self) -> int:
        """Count from now on; returns when that is in force, on CLOCK_MONOTONIC in ns."""
        return self._tell(b"enable\n", _ACK_S)

    def disable(self) -> int:
        """Count no more; returns when that is in force, on CLOCK_MONOTONIC in ns."""
        return self._tell(b"disable\n", _ACK_S)

    def _tell(self, order: bytes, timeout_s: float) -> int:
        """Give an order and wait for its acknowledgement."""
        with contextlib.suppress(BrokenPipeError):  # it has died: the answer's end says so
            os.write(self._order, order)
        poller = select.poll()
        poller.register(self._answer, select.POLLIN)
        answer = b""
        deadline = time.monotonic() + timeout_s
        while b"ack\n\0" not in answer:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(1000 * left):
                msg = (
                    f"perf did not acknowledge {order.decode().strip()!r} within {timeout_s:g} s. "
                    f"Its errors:\n{self._said()}"
                )
                raise MeasurementError(msg)
            chunk = os.read(self._answer, 64)
            arrival_ns = time.monotonic_ns()
            if not chunk:
                raise self._failure()
            answer += chunk
        return arrival_ns

    def _failure(self) -> MeasurementError:
        """Why perf ended on its own."""
        assert self._process is not None
        if self._process.wait() == 0:  # it does so when all that it records has ended
            if self._pid is None:
                return MeasurementError(f"perf has ended on its own. Its errors:\n{self._said()}")
            return ProcessGoneError(f"process {self._pid} has ended, and perf with it")
        return explain(self._said(), self._perf, self._pid)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    # --- what was recorded ---------------------------------------------------------------------

    def _script(self, options: Sequence[str], file: IO[bytes], data: Path | None = None) -> None:
        """Write what perf prints of a data file; by default of ``path``."""
        data = data or self.path
        argv = [str(self._perf), "script", "-i", str(data), "--ns", *options]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            env={**os.environ, "PERF_CONFIG": os.devnull},
            check=False,
        )
        if done.returncode:
            errors = done.stderr.decode(errors="replace").strip()
            msg = f"perf script could not read {data}. Its errors:\n{errors}"
            raise MeasurementError(msg)
