"""perf record under control: attached beforehand, switched on while an event runs, then off again.

Attaching perf takes 120 to 220 ms, by which time a short event is over. So perf is attached with
its events disabled, and is told through its control channel (``--control``) when to count: from
the order to the acknowledgement that every counter is on takes 0.2 ms where perf may run with
real-time priority, and 1 to 5 ms where it may not and the job keeps the cores busy.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from perflib.conditions import Conditions
from perflib.errors import MeasurementError, UserError, choose
from perflib.machine.files import integer, text
from perflib.machine.hypervisor import hypervisor
from perflib.machine.pmu import pmu
from perflib.machine.topology import topology
from perflib.measure.launch import command
from perflib.profiling.perf_tool import ProcessGoneError, explain, find_perf, kernel_allowed

__all__ = ["CallGraph", "Recorder", "away_from", "prompt"]

CallGraph = Literal["none", "fp", "dwarf", "lbr"]

_READY_S, _ACK_S, _END_S = 60.0, 10.0, 120.0
_PRIORITY = 10  # above every ordinary process; below what a careful user reserves for more
_FIELDS = "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"
_SAMPLE = re.compile(rb"\s*(\d+)\.(\d{9}):\s*")
_LOST = re.compile(rb".*PERF_RECORD_(LOST|LOST_SAMPLES)\s+lost\s+(\d+)\s*")


class Recorder:
    """perf attached to a process, its threads, and the children both make later.

    Entering waits until perf is ready, with its events off. Leaving ends perf; the samples are
    then in ``path``. It belongs to the thread that enters it: when that thread ends, be it by
    ``kill -9``, the kernel ends perf.

    Parameters
    ----------
    pid
        The process. Children that it has already are recorded too.
    folder
        Where the data file is made, under a name of its own.
    event
        What to sample, as perf names it. By default core cycles, or the CPU clock on a machine
        that cannot count them (``remarks`` says so).
    frequency_hz
        Samples a second of each thread that runs.
    period
        A sample every so many events instead (nanoseconds, for the CPU clock).
    call_graph
        How callers are found: ``fp`` (frame pointers), ``dwarf`` (a copy of the stack with every
        sample, for code without frame pointers), ``lbr`` (branch records of some processors).

    Attributes
    ----------
    path : Path
        perf's data file.
    event : str
        What is sampled.
    remarks : list of str
        What a reader of the samples should know, in sentences.

    Raises
    ------
    PerfUnavailableError
        There is no perf, it is too old, or it is not allowed here (a MeasurementError).
    MeasurementError
        The process is gone, perf cannot record it, or has died; its own words are in the message.
    UserError
        No such kind of call graph, or a frequency or period that is none.

    Examples
    --------
    >>> with Recorder(pid, folder=Path("profile")) as recorder:  # doctest: +SKIP
    ...     recorder.enable()
    ...     time.sleep(0.5)
    ...     recorder.disable()
    >>> recorder.script(Path("profile/samples.txt"))  # doctest: +SKIP
    """

    def __init__(
        self,
        pid: int,
        *,
        folder: Path,
        event: str | None = None,
        frequency_hz: int = 4000,
        period: int | None = None,
        call_graph: CallGraph = "none",
    ) -> None:
        if call_graph not in get_args(CallGraph):
            raise UserError(choose("call_graph", call_graph, get_args(CallGraph)))
        if frequency_hz < 1 or (period is not None and period < 1):
            msg = f"frequency_hz={frequency_hz} and period={period}: both are whole numbers from 1"
            raise UserError(msg)
        self.remarks: list[str] = []
        self._pid = pid
        self._perf = find_perf()
        self.event = self._sampled(event)
        self._rate = self._rate_options(frequency_hz, period)
        self._call_graph = call_graph
        self._folder = folder
        self.path = folder
        self._ending = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def _sampled(self, event: str | None) -> str:
        if event is None:
            found = pmu(virtual=hypervisor() is not None)
            event = "cycles" if found.available else "cpu-clock"
            if not found.available:
                self.remarks.append(f"The CPU clock is sampled, not core cycles: {found.reason}.")
        if ":" not in event and not kernel_allowed(self._perf):
            paranoid = integer("/proc/sys/kernel/perf_event_paranoid")
            self.remarks.append(
                f"Only user code is sampled: kernel.perf_event_paranoid is {paranoid} (the kernel "
                "is seen from 1 down, as root, and with CAP_PERFMON)."
            )
            event += ":u"
        return event

    def _rate_options(self, frequency_hz: int, period: int | None) -> list[str]:
        if period is not None:
            return ["-c", str(period)]
        most = integer("/proc/sys/kernel/perf_event_max_sample_rate")
        if most is not None and frequency_hz > most:
            self.remarks.append(
                f"{most} samples a second instead of {frequency_hz}: "
                "kernel.perf_event_max_sample_rate allows no more."
            )
            frequency_hz = most
        return ["-F", str(frequency_hz)]

    # --- from start to end ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            self._errors = started.enter_context(tempfile.TemporaryFile())
            file, path = tempfile.mkstemp(
                prefix=f"perf-{self._pid}-", suffix=".data", dir=self._folder
            )
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
        argv = [str(self._perf), "record", "-p", ",".join(map(str, _family(self._pid)))]
        argv += ["-D", "-1", "--control", f"fd:{order},{answer}", "-k", "CLOCK_MONOTONIC"]
        # Without these, ending takes a second, and copies of programs pile up in ~/.debug.
        argv += ["--no-bpf-event", "--no-buildid-cache"]
        argv += ["-e", self.event, *self._rate, "--period", "--sample-cpu", "-o", str(self.path)]
        return argv if self._call_graph == "none" else [*argv, "--call-graph", self._call_graph]

    def _conditions(self) -> Conditions:
        away = away_from(self._pid)
        return Conditions(
            cpu=away[-1] if away else None,
            fifo_priority=_PRIORITY,
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
        said = b""
        deadline = time.monotonic() + timeout_s
        while b"ack\n\0" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(1000 * left):
                msg = (
                    f"perf did not acknowledge {order.decode().strip()!r} within {timeout_s:g} s. "
                    f"It said:\n{self._said()}"
                )
                raise MeasurementError(msg)
            chunk = os.read(self._answer, 64)
            arrival_ns = time.monotonic_ns()
            if not chunk:
                raise self._failure()
            said += chunk
        return arrival_ns

    def _failure(self) -> MeasurementError:
        """Why perf ended on its own."""
        assert self._process is not None
        if self._process.wait() == 0:  # it does so when all that it records has ended
            return ProcessGoneError(f"process {self._pid} has ended, and perf with it")
        return explain(self._said(), self._perf, self._pid)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    # --- what was recorded ---------------------------------------------------------------------

    def script(self, out: Path, *, inline: bool = False) -> Path:
        """Write the samples as text, for `perflib.profiling.perfscript.read`; after the end.

        ``inline``: name inlined functions, too. perf may take minutes for a large program.
        """
        options = ["--header", "-F", _FIELDS, *([] if inline else ["--no-inline"])]
        with out.open("wb") as file:
            self._script(options, file)
        return out

    def times(self) -> tuple[NDArray[np.int64], int]:
        """When each sample was taken, on CLOCK_MONOTONIC in ns, in order; and how many were lost.

        A sample is lost when perf does not empty its buffer in time.
        """
        times = array("q")
        lost = {b"LOST": 0, b"LOST_SAMPLES": 0}  # two counts of the same, where both are given
        with tempfile.TemporaryFile() as file:
            self._script(["-F", "time", "-G", "--show-lost-events"], file)
            file.seek(0)
            for line in file:
                if sample := _SAMPLE.fullmatch(line):
                    times.append(int(sample[1]) * 10**9 + int(sample[2]))
                elif note := _LOST.fullmatch(line):
                    lost[note[1]] += int(note[2])
        return np.sort(np.array(times, dtype=np.int64)), max(lost.values())

    def _script(self, options: Sequence[str], file: Any) -> None:
        argv = [str(self._perf), "script", "-i", str(self.path), "--ns", *options]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            env={**os.environ, "PERF_CONFIG": os.devnull},
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            msg = f"perf script could not read {self.path}. It said:\n{said}"
            raise MeasurementError(msg)


# --- where, and how promptly -------------------------------------------------------------------


def away_from(pid: int) -> list[int]:
    """The CPUs that this process may use and a job does not disturb; none if the job is anywhere.

    Those of other cores; where there are none, those of its core that it does not use.
    """
    ours = os.sched_getaffinity(0)
    try:
        jobs = os.sched_getaffinity(pid)
    except ProcessLookupError:
        return []
    machine = topology()
    cores = {sibling for cpu in jobs for sibling in machine.cpu(cpu).siblings}
    return sorted(ours - cores or ours - jobs)


@contextlib.contextmanager
def prompt(pid: int) -> Iterator[None]:
    """Let this thread react at once, and away from a job, while the log is read.

    It gets real-time priority where that is allowed, and CPUs that the job does not use where
    there are any. Both are put back. What is started meanwhile inherits them.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    cpus = os.sched_getaffinity(0)
    try:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
        if away := away_from(pid):
            os.sched_setaffinity(0, away)
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, policy, parameters)


def _family(pid: int) -> list[int]:
    """A process and all that descend from it now."""
    found = [pid]
    for parent in found:  # which grows meanwhile
        for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, (text(tasks) or "").split())
    return found
