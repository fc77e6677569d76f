"""Threads recorded by perf: every switch of the scheduler, every wait for a futex, and samples.

perf watches the whole machine, because who wakes a thread may be anywhere, and so may be what runs
instead of it. Costs arise per event: a switch has the addresses of its callers copied, a wait for a
futex a piece of the stack, as the C library keeps no frame pointers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.instruments.perf.control import ControlledPerf
from perflib.instruments.perf.data import PerfData
from perflib.instruments.perf.tool import PerfUnavailableError, find_perf, refusal
from perflib.instruments.threads import futex
from perflib.instruments.threads.lock_names import name_locks
from perflib.instruments.threads.perf.descendants import Tree, read_tree
from perflib.instruments.threads.perf.events import Converted
from perflib.instruments.threads.perf.stacks import Stacks, write_job_only
from perflib.instruments.threads.perf.tracepoints import Tracepoints
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings, matches
from perflib.instruments.threads.states import Pieces, StateMachine
from perflib.instruments.threads.symbols import Symbols
from perflib.instruments.threads.writer import Writer
from perflib.model.errors import MeasurementError

_INITIAL_PIDS = "pid:[4026531836]"  # the kernel's own number of it
_FLAGS = (0, futex.PRIVATE, futex.CLOCK_REALTIME, futex.PRIVATE | futex.CLOCK_REALTIME)
_BUFFER_PAGES, _ALL_BUFFERS_PAGES = 4096, 65_536  # 16 MiB a CPU, 256 MiB in all
_CLOCK = "CLOCK_MONOTONIC"
_LIMIT = "size limit reached"


def unavailable() -> str:
    """Why perf cannot record threads here, in a sentence; empty where it can."""
    try:
        perf = find_perf()
    except PerfUnavailableError as error:
        return str(error)
    return _refused(perf, os.geteuid())


@functools.cache
def _refused(perf: Path, _user: int) -> str:
    with contextlib.suppress(OSError):
        if str(Path("/proc/self/ns/pid").readlink()) != _INITIAL_PIDS:
            return "In a container the scheduler's events name threads by numbers of the host."
    argv = [str(perf), "stat", "-a", "-e", "sched:sched_switch", "-e", "syscalls:sys_enter_futex"]
    done = subprocess.run([*argv, "true"], capture_output=True, check=False)
    if done.returncode:
        return refusal(perf, None)
    try:
        Tracepoints.read()
    except MeasurementError as error:
        return str(error)
    return ""


class PerfThreads(ControlledPerf):
    """perf attached to the whole machine, for the threads of one job.

    Entering waits until perf is ready, with its events off. Leaving ends perf.

    Parameters
    ----------
    folder
        Where perf's data file is made.
    settings
        What is recorded.

    Raises
    ------
    PerfUnavailableError
        There is no perf, it is too old, or it is not allowed here (a MeasurementError).
    MeasurementError
        perf cannot record, or has died; its own words are in the message.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        super().__init__(folder, None)
        self._settings = settings
        self._tracepoints = Tracepoints.read()
        self._cpus: frozenset[int] = frozenset(os.sched_getaffinity(0))
        self._job = -1
        self._on_ns = self._off_ns = 0
        self._cut = ""

    # --- while it runs -------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Variables that a job which we start must have: none."""
        return {}

    def started(self, pid: int) -> None:
        """The process to be recorded is there."""
        self._job = pid
        self._read_cpus()

    def enable(self) -> int:
        """Record from now on; returns when that is in force, on CLOCK_MONOTONIC in ns."""
        self._on_ns = super().enable()
        return self._on_ns

    def disable(self) -> int:
        """Record no more; returns when that is in force, on CLOCK_MONOTONIC in ns.

        If perf has ended by itself, what it recorded is kept; the recording's ``cut`` explains it.
        """
        self._read_cpus()
        before_ns = time.monotonic_ns()
        try:
            after_ns = super().disable()
        except MeasurementError:
            assert self._process is not None
            if self._process.poll() is None:
                raise
            self._died()
            return before_ns
        self._off_ns = before_ns
        return after_ns

    def _failure(self) -> MeasurementError:
        if _LIMIT in self._said():  # as it begins, or before it is switched on
            most = self._settings.max_data_mb
            msg = f"max_data_mb={most} is too little: a list of what runs here is larger alone"
            return MeasurementError(msg)
        return super()._failure()

    def _died(self) -> None:
        assert self._process is not None
        if _LIMIT in self._said():
            most = self._settings.max_data_mb
            self._cut = f"Its data on disk reached max_data_mb={most}: the recording ends there."
        elif (code := self._process.wait()) < 0:
            self._cut = f"perf was killed by signal {-code}: the recording ends there."
        else:
            self._cut = f"perf ended early: {self._failure()}"

    def _read_cpus(self) -> None:
        if self._job > 0:
            with contextlib.suppress(OSError):
                self._cpus = frozenset(os.sched_getaffinity(self._job))

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if _LIMIT in self._said():  # it ends well then
            self._died()
        super().__exit__(kind, *rest)

    def _cpu(self) -> int | None:
        return None

    def _options(self) -> list[str]:
        chosen = self._settings
        waits = [op | bits for op in futex.WAITS for bits in _FLAGS]
        copied = f"call-graph=dwarf,stack-size={chosen.stack_bytes}"
        graph = copied if chosen.call_graph == "dwarf" else f"call-graph={chosen.call_graph}"
        graph = graph.replace("none", "no")
        period = f"period={round(1000 * chosen.sample_period_us)}"
        options = ["-a", "--switch-events"]
        options += ["-d"]  # without what maps data, no caller is found from a copied stack
        if os.geteuid() == 0:  # others may lock little memory
            options += ["-m", str(_buffer_pages())]
        options += ["-e", "sched:sched_switch/call-graph=fp/"]
        options += ["-e", "sched:sched_waking/call-graph=no/"]
        options += ["-e", f"syscalls:sys_enter_futex/{copied}/"]
        options += ["--filter", "||".join(f"op=={op}" for op in waits)]
        options += ["-e", "syscalls:sys_exit_futex/call-graph=no/"]
        options += ["-e", f"cpu-clock/{period},{graph},name=cpu/I"]
        return [*options, "--max-size", f"{chosen.max_data_mb}M"]

    # --- what was recorded ---------------------------------------------------------------------

    def recording(self, pid: int, out: Path) -> Recording:
        """What was recorded of a process and of those it started, written to a folder.

        Raises
        ------
        MeasurementError
            Nothing was recorded of it.
        """
        tree = read_tree(self.path, pid)
        job_only = self.path.with_suffix(".job")
        try:
            write_job_only(self.path, job_only, tree, self._tracepoints)
            return self._convert(pid, tree, job_only, out)
        finally:
            job_only.unlink(missing_ok=True)

    def _convert(self, pid: int, tree: Tree, job_only: Path, out: Path) -> Recording:
        chosen = self._settings
        with (
            Writer(out) as writer,
            PerfData(self.path) as data,
            Stacks(self._perf, job_only) as stacks,
        ):
            ours = data.clock == _CLOCK
            off_ns = self._off_ns if ours and self._off_ns else np.iinfo(np.int64).max
            found = Converted(data, self._tracepoints, (self._on_ns if ours else 0, off_ns))
            batches = found.batches()
            first = next(batches)
            start_ns = self._on_ns if ours else _first_time(first)
            machine = StateMachine(
                start_ns=start_ns,
                names=data.names,
                stacks=stacks.texts,
                spin_functions=chosen.spin_functions,
                cpus=self._cpus,
                follow=chosen.follow,
                belongs=_Belongs(pid, chosen.ignore, tree) if chosen.ignore else None,
            )
            machine.process(pid)
            for batch in itertools.chain([first], batches):
                events = batch[batch["time_ns"] <= off_ns]
                stacks.join(events)
                _write(writer, machine.feed(events))
            end_ns = self._off_ns if ours and self._off_ns else max(start_ns, found.last_ns)
            _write(writer, machine.finish(end_ns))
            stacks.finish()
            threads = machine.threads
            if threads.empty:
                msg = f"nothing was recorded of process {pid}: it did not run meanwhile"
                raise MeasurementError(msg)
            locks, lock_of = name_locks(
                machine.keys, stacks.texts, found.hints, lambda one: Symbols(tree.mappings(one))
            )
            writer.close(
                threads=threads,
                stacks=stacks.texts,
                locks=locks,
                lock_of=lock_of,
                lost=machine.lost,
                keep=chosen.keeps(threads["name"]),
                meta=self._meta(pid, data, found, machine, stacks, (start_ns, end_ns)),
            )
        return Recording.open(out)

    def _meta(
        self,
        pid: int,
        data: PerfData,
        found: Converted,
        machine: StateMachine,
        stacks: Stacks,
        span: tuple[int, int],
    ) -> dict[str, Any]:
        remarks = [*self.remarks, *data.remarks]
        if stacks.remark:
            remarks.append(stacks.remark)
        if data.clock != _CLOCK:
            remarks.append(
                f"Its times are of {data.clock}, not of {_CLOCK}: they cannot be compared with "
                "those of the job."
            )
        if found.missing:
            remarks.append(
                f"{found.missing} switches between threads were not reported by the kernel, "
                "although there was room for them. They count as lost events."
            )
        if found.throttled:
            remarks.append(
                f"The kernel thinned out the samples {found.throttled} times, as they took too "
                "much time: sample_period_us should be longer."
            )
        if machine.impossible:
            remarks.append(
                f"{machine.impossible} events could not be after those before them: the state of "
                "their threads is unknown since then."
            )
        return {
            "backend": "perf",
            "clock": data.clock,
            "start_ns": span[0],
            "end_ns": span[1],
            "job_pid": pid,
            "cpus": len(self._cpus),
            "sample_period_ns": round(1000 * self._settings.sample_period_us),
            "remarks": remarks,
            "lost": {"events": max(found.lost) + found.missing, "samples": found.lost_samples},
            "cut": self._cut or data.cut,
            "others_busy_ns": machine.others_busy_ns,
        }


class _Belongs:
    """Whether a process that executes a program stays in the job, by the program's file name.

    The kernel cuts a program's name to 15 bytes; what the process mapped then has the whole name.
    """

    def __init__(self, root: int, ignore: tuple[str, ...], tree: Tree) -> None:
        self._root = root
        self._ignore = ignore
        self._files = {pid: deque(files) for pid, files in tree.executed.items()}

    def __call__(self, pid: int, name: str) -> bool:
        if pid == self._root:  # the job itself, and what starts it
            return True
        files = self._files.get(pid)
        return not matches(self._ignore, name, Path(files.popleft()).name if files else "")


def _write(writer: Writer, pieces: Pieces) -> None:
    writer.add(pieces.rows, pieces.intervals)
    writer.add_samples(pieces.samples)


def _first_time(events: npt.NDArray[Any]) -> int:
    """When the first event was; a list of processes has no time."""
    timed = events["time_ns"][events["time_ns"] > 0]
    return int(timed[0]) if len(timed) else 0


def _buffer_pages() -> int:
    """Of each CPU's buffer: a power of two, and all of them together bounded."""
    most = min(_BUFFER_PAGES, _ALL_BUFFERS_PAGES // (os.cpu_count() or 1))
    return max(128, 1 << (most.bit_length() - 1))
