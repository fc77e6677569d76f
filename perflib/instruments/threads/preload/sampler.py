"""Threads' states, polled in /proc: of a process and of what it starts.

No privilege is needed for one's own processes. Of each thread are read its time on a CPU and its
run-queue delay (schedstat), its state (stat), and if it is blocked the system call that it is
in (syscall: for a futex its address). That takes some microseconds a thread, so the period adapts
itself: polling never takes more than a share of a core, however many threads there are.

/proc/PID/task/TID/schedstat is brought up to date at the kernel's ticks and when a thread leaves
its CPU: what a thread ran since then is missing from it until the next reading.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from perflib.instruments.threads import futex
from perflib.instruments.threads.settings import matches
from perflib.instruments.threads.symbols import read_maps
from perflib.model.errors import MeasurementError

READING = np.dtype(
    [
        ("time_ns", "i8"),
        ("run_ns", "i8"),
        ("delay_ns", "i8"),
        ("futex", "u8"),
        ("thread", "i4"),
        ("operation", "i2"),
        ("cpu", "i2"),
        ("state", "S1"),
    ],
    align=True,
)
"""One reading of a thread (its number): CPU time and run-queue delay since its start.

``state``: the letter of /proc/PID/stat. ``futex``, ``operation``: what it is blocked on, 0 if that
is no futex.
"""

UNKNOWN_FUTEX = 1
"""Instead of an address: it waits for a futex, but the address is hidden from us."""

_FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
_MAX_FILES = 192  # kept open: opening costs more than reading
_MAX_SHARE = 0.015  # of a core, for polling
_LIST_S = 0.05  # how often new threads are searched for
_NAMES_S = 0.5


@dataclass
class SeenThread:
    """A thread that was seen."""

    number: int
    pid: int
    tid: int
    name: str
    start_ns: int  # when it began, to a hundredth of a second
    seen_ns: int  # for the last time
    renamed: bool = False  # since it was first seen


@dataclass(frozen=True)
class Sampled:
    """All that was seen.

    Parameters
    ----------
    threads
        The threads, by their numbers.
    readings
        Records ``READING``, in the order of time.
    maps, programs
        Each process's mappings and the path of its program.
    remarks
        What a reader should know, in sentences.
    busy
        Times in ns, and how long the CPUs that the process may use were busy by then (ns, of
        all of them, in steps of the kernel's clock).
    """

    threads: list[SeenThread]
    readings: npt.NDArray[np.void]
    maps: dict[int, str]
    programs: dict[int, str]
    remarks: list[str]
    busy: list[tuple[int, int]] = field(default_factory=list)


def unavailable() -> str:
    """Why threads' states cannot be sampled; empty where they can.

    >>> unavailable()
    ''
    """
    try:
        words = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError as error:
        return f"/proc/thread-self/schedstat cannot be read: {error.strerror}"
    if len(words) < 2 or int(words[0]) == 0:
        return "the kernel does not count threads' CPU time in schedstat (CONFIG_SCHED_INFO)"
    return ""


class Sampler:
    """Polls the threads of a process, and of those it starts, until it is stopped.

    Parameters
    ----------
    pid
        The process.
    file
        Where the readings are written: memory does not grow with the run.
    period_s
        Time between two readings of each thread; more where polling would take 1.5 % of a core.
    follow
        Also the processes that it starts.
    ignore
        Patterns of the names of programs that are left alone, with what they start.
    most_bytes
        The file's bound; when it is reached, polling ends and ``remarks`` reports it.
    """

    def __init__(
        self,
        pid: int,
        file: Path,
        *,
        period_s: float = 0.01,
        follow: bool = True,
        ignore: tuple[str, ...] = (),
        most_bytes: int = 1 << 31,
    ) -> None:
        self.pid = pid
        self._path = file
        self._period_s = period_s
        self._follow = follow
        self._ignore = ignore
        self._left = most_bytes // READING.itemsize
        self._futex = _FUTEX_CALL.get(os.uname().machine, -1)
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._threads: list[SeenThread] = []
        self._live: dict[tuple[int, int], _Live] = {}
        self._files = 0
        self._processes: dict[int, bool] = {}  # whether they are to be read
        self._maps: dict[int, list[str]] = {}
        self._programs: dict[int, str] = {}
        self._remarks: list[str] = []
        self._busy: list[tuple[int, int]] = []
        self._cpus: set[str] = set()
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None
        self._problem: BaseException | None = None

    def __enter__(self) -> Self:
        self._out = self._path.open("wb")
        with contextlib.suppress(OSError):
            self._cpus = {f"cpu{cpu}" for cpu in os.sched_getaffinity(self.pid)}
        self._add_busy()
        self._list()
        if not self._live:
            self._out.close()
            msg = f"there is no process {self.pid}, or its threads may not be seen"
            raise MeasurementError(msg)
        self._worker = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; once is enough, more does no harm."""
        self._stop.set()
        if self._worker is not None:
            self._worker.join()
            self._worker = None
            self._add_busy()
            for live in self._live.values():
                live.close()
            self._out.close()

    def sampled(self) -> Sampled:
        """What was seen, after the end."""
        assert self._stop.is_set(), "stop it first"
        if self._problem is not None:
            msg = f"the sampling of threads' states broke off: {self._problem}"
            raise MeasurementError(msg) from self._problem
        readings = (
            np.memmap(self._path, READING, mode="r")
            if self._path.stat().st_size >= READING.itemsize
            else np.empty(0, READING)
        )
        maps = {pid: "".join(texts) for pid, texts in self._maps.items()}
        return Sampled(self._threads, readings, maps, self._programs, self._remarks, self._busy)

    # --- polling ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            listed = named = time.monotonic()
            while not self._stop.is_set():
                before = time.thread_time()
                now = time.monotonic()
                if now - named >= _NAMES_S:
                    self._name()
                    named = now
                if now - listed >= _LIST_S or not self._live:
                    self._list()
                    listed = now
                if not self._poll():
                    break
                spent = time.thread_time() - before
                self._stop.wait(max(self._period_s, spent / _MAX_SHARE))
            else:
                self._poll()
        except Exception as error:  # noqa: BLE001 (sampled() raises it)
            self._problem = error

    def _list(self) -> None:
        """Find the processes and threads that are new."""
        pending = [self.pid]
        if self._follow:  # also those whose parents have ended meanwhile: daemons
            pending += [pid for pid, wanted in self._processes.items() if wanted]
        found: set[int] = set()
        while pending:
            pid = pending.pop()
            if pid in found:
                continue
            found.add(pid)
            try:
                tids = _numbers(f"/proc/{pid}/task")
            except OSError:
                self._processes.pop(pid, None)
                continue
            if pid not in self._processes:
                self._processes[pid] = not self._ignored(pid)
            if not self._processes[pid]:
                continue
            for tid in tids:
                if (pid, tid) not in self._live:
                    self._begin(pid, tid)
                if self._follow:
                    pending += _children(pid, tid)

    def _ignored(self, pid: int) -> bool:
        if not self._ignore:
            return False
        names = [_text(f"/proc/{pid}/comm").rstrip("\n")]
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{pid}/exe").readlink().name)
        return matches(self._ignore, *names)

    def _begin(self, pid: int, tid: int) -> None:
        folder = f"/proc/{pid}/task/{tid}"
        fields = _text(f"{folder}/stat").rpartition(")")[2].split()
        if len(fields) < 20:
            return  # it has ended
        # stat counts from the boot, our clock does not count the time that the machine slept.
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        start_ns = int(fields[19]) * self._tick_ns - boot_ns
        name = _text(f"{folder}/comm").rstrip("\n")
        thread = SeenThread(len(self._threads), pid, tid, name, start_ns, time.monotonic_ns())
        self._threads.append(thread)
        keep = self._files + 3 <= _MAX_FILES
        live = self._live[pid, tid] = _Live(thread, folder, keep)
        self._files += live.files

    def _name(self) -> None:
        """Read anew what may have changed: threads' names, programs and their mappings."""
        self._add_busy()
        for live in list(self._live.values()):
            name = _text(f"/proc/{live.thread.pid}/task/{live.thread.tid}/comm").rstrip("\n")
            if name and name != live.thread.name:
                live.thread.name, live.thread.renamed = name, True
        for pid, wanted in list(self._processes.items()):
            if wanted:
                if self._ignored(pid):  # it has become another program
                    self._processes[pid] = False
                else:
                    self._map(pid)

    def _add_busy(self) -> None:
        total = 0
        for line in _text("/proc/stat").splitlines():
            name, *words = line.split()
            if name in self._cpus:  # user, nice, system, idle, iowait, irq, softirq, stolen
                total += sum(int(word) for i, word in enumerate(words[:8]) if i not in (3, 4))
        self._busy.append((time.monotonic_ns(), total * self._tick_ns))

    def _map(self, pid: int) -> None:
        text = "".join(
            line for line in _text(f"/proc/{pid}/maps").splitlines(keepends=True) if "/" in line
        )
        seen = self._maps.setdefault(pid, [])
        if text and (not seen or seen[-1] != text):
            known = {row for one in seen for row in read_maps(one)}
            if not known.issuperset(read_maps(text)):
                seen.append(text)
        with contextlib.suppress(OSError):
            self._programs[pid] = str(Path(f"/proc/{pid}/exe").readlink())

    def _poll(self) -> bool:
        """Read every thread once; whether there is room for more."""
        rows = []
        for key, live in list(self._live.items()):
            row = live.poll(self._futex)
            if row is None:
                del self._live[key]
                self._files -= live.files
                live.close()
            elif row:
                rows.append(row)
        for live in list(self._live.values()):
            if live.thread.pid not in self._maps:
                self._map(live.thread.pid)
        if len(rows) > self._left:
            self._remarks.append("States were sampled until the data reached their bound.")
            return False
        self._left -= len(rows)
        self._out.write(np.array(rows, READING).tobytes())
        return True


class _Live:
    """A thread that lives, its files open if there are not too many."""

    def __init__(self, thread: SeenThread, folder: str, keep: bool) -> None:
        self.thread = thread
        self._paths = [f"{folder}/{name}" for name in ("schedstat", "stat", "syscall")]
        self._open: list[int | None] = [None, None, None]
        self._unreadable = False
        self._blocked_at: tuple[int, int, int] | None = None  # counts of a thread that was blocked
        if keep:
            for i, path in enumerate(self._paths):
                with contextlib.suppress(OSError):
                    self._open[i] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.files = 3 if keep else 0

    def close(self) -> None:
        for file in self._open:
            if file is not None:
                os.close(file)
        self._open = [None, None, None]

    def _read(self, which: int) -> bytes:
        file = self._open[which]
        if file is not None:
            return os.pread(file, 512, 0)
        file = os.open(self._paths[which], os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, 512)
        finally:
            os.close(file)

    def poll(self, futex_call: int) -> tuple[object, ...] | None:
        """One row; empty if nothing has changed since the last; None: the thread has ended.

        Of a thread that is blocked all the time only the first and the last reading are needed.
        """
        try:
            words = self._read(0).split()
            self.thread.seen_ns = now = time.monotonic_ns()
            counts = (int(words[0]), int(words[1]), int(words[2]))
            if counts == self._blocked_at:  # it cannot have run since
                return ()
            fields = self._read(1).rpartition(b")")[2].split()
        except (OSError, IndexError):
            return None
        state = fields[0]
        if state in b"ZX":
            return None
        self._blocked_at = counts if state in b"SDTtI" else None
        futex, operation = 0, 0
        if state in b"SD":
            futex, operation = self._blocked(futex_call)
        return (now, *counts[:2], futex, self.thread.number, operation, int(fields[36]), state)

    def _blocked(self, futex_call: int) -> tuple[int, int]:
        if not self._unreadable:
            try:
                words = self._read(2).split()
            except OSError:
                self._unreadable = True  # another user's, or ptrace is restricted here
            else:
                if len(words) > 2 and words[0] == str(futex_call).encode():
                    operation = int(words[2], 16) & 0xFFFF
                    if operation & futex.COMMAND in futex.WAITS:
                        return int(words[1], 16), operation
                return 0, 0
        try:
            with open(self._paths[2].replace("syscall", "wchan"), "rb") as file:  # noqa: PTH123
                return (UNKNOWN_FUTEX if file.read(64).startswith(b"futex") else 0), 0
        except OSError:
            return 0, 0


def _numbers(folder: str) -> list[int]:
    with os.scandir(folder) as entries:
        return [int(entry.name) for entry in entries]


def _children(pid: int, tid: int) -> list[int]:
    return [int(word) for word in _text(f"/proc/{pid}/task/{tid}/children").split()]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""
