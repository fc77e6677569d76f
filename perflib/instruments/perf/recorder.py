"""perf record under control: attached beforehand, switched on while an event runs, then off again.

From the order to the acknowledgement that every counter is on takes 0.2 ms where perf may run with
real-time priority, and 1 to 5 ms where it may not and the job keeps the cores busy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from perflib.instruments.perf.control import PRIORITY, ControlledPerf
from perflib.instruments.perf.data import PerfData, Type, lost
from perflib.instruments.perf.tool import CallGraph, kernel_allowed
from perflib.machine.files import integer
from perflib.machine.hardware.hypervisor import hypervisor
from perflib.machine.hardware.pmu import pmu
from perflib.machine.hardware.topology import topology
from perflib.machine.processes import family
from perflib.model.errors import UserError, choose

__all__ = ["CallGraph", "Recorder", "away_from", "prompt"]

_FIELDS = "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"


class Recorder(ControlledPerf):
    """perf attached to a process, its threads, and the children both make later; or to CPUs.

    Parameters
    ----------
    pid
        The process. Children that it has already are recorded too. None: whatever runs on ``cpus``.
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
    cpus
        The CPUs to record, in place of a process.
    piece_kib
        A new data file whenever one has about this size: `pieces` has those that are complete. By
        default all is in one file.

    Attributes
    ----------
    event : str
        What is sampled; in addition to those of `ControlledPerf`.

    Raises
    ------
    PerfUnavailableError, MeasurementError
        As of `ControlledPerf`.
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
        pid: int | None,
        *,
        folder: Path,
        event: str | None = None,
        frequency_hz: int = 4000,
        period: int | None = None,
        call_graph: CallGraph = "none",
        cpus: Sequence[int] = (),
        piece_kib: int | None = None,
    ) -> None:
        if call_graph not in get_args(CallGraph):
            raise UserError(choose("call_graph", call_graph, get_args(CallGraph)))
        if frequency_hz < 1 or (period is not None and period < 1):
            msg = f"frequency_hz={frequency_hz} and period={period}: both are whole numbers from 1"
            raise UserError(msg)
        if (pid is None) != bool(cpus):
            msg = f"pid={pid} and cpus={list(cpus)}: one of the two is recorded"
            raise UserError(msg)
        super().__init__(folder, pid)
        self._cpus = cpus
        self._piece_kib = piece_kib
        self.event = self._sampled(event)
        self._rate = self._rate_options(frequency_hz, period)
        self._call_graph = call_graph

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

    def _options(self) -> list[str]:
        if self._pid is None:
            options = ["-a", "-C", ",".join(map(str, self._cpus))]
        else:
            options = ["-p", ",".join(map(str, family(self._pid)))]
        if self._piece_kib is not None:
            options.append(f"--switch-output={self._piece_kib}K")
        options += ["-e", self.event, *self._rate, "--period", "--sample-cpu"]
        if self._call_graph == "none":
            return options
        return [*options, "--call-graph", self._call_graph]

    def _cpu(self) -> int | None:
        away = [] if self._pid is None else away_from(self._pid)
        return away[-1] if away else None

    # --- what was recorded ---------------------------------------------------------------------

    @property
    def pieces(self) -> list[Path]:
        """The data files that are complete, the oldest first, where ``piece_kib`` makes several."""
        return sorted(self.path.parent.glob(f"{self.path.name}.*"))

    def script(
        self,
        out: Path,
        *,
        data: Path | None = None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Path:
        """Write the samples as text, for `perflib.instruments.perf.script.read`; after the end.

        Parameters
        ----------
        out
            The file of the text.
        data
            One of `pieces`, which may be read before the end.
        ranges
            Only samples taken from the first to the second of such a pair, in ns.
        """
        # Without inlined functions: naming them may take minutes for a large program.
        options = ["--header", "-F", _FIELDS, "--no-inline"]
        if ranges:
            options += ["--time", " ".join(f"{_s(first)},{_s(last)}" for first, last in ranges)]
        with out.open("wb") as file:
            self._script(options, file, data)
        return out

    def times(self) -> tuple[NDArray[np.int64], int]:
        """When each sample was taken, on CLOCK_MONOTONIC in ns, in order; and how many were lost.

        A sample is lost when perf does not empty its buffer in time.
        """
        times = [np.empty(0, dtype=np.int64)]
        losses = np.zeros(2, dtype=np.int64)
        for path in self.pieces if self._piece_kib is not None else [self.path]:
            with PerfData(path) as data:
                for records in data.records():
                    times.append(records["time_ns"][records["type"] == Type.SAMPLE])
                    losses += lost(records)
        return np.sort(np.concatenate(times)), int(losses.max())


def _s(time_ns: int) -> str:
    return f"{time_ns // 10**9}.{time_ns % 10**9:09d}"


# --- where, and how promptly -------------------------------------------------------------------


def away_from(pid: int) -> list[int]:
    """The CPUs that this process may use and where no job interferes; none if the job is anywhere.

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
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        if away := away_from(pid):
            os.sched_setaffinity(0, away)
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, policy, parameters)
