"""What the preloaded library stamped and what was seen in /proc, put together to a recording."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads import futex
from perflib.instruments.threads.formats import LOCK_KINDS, LOST, SAMPLE, State
from perflib.instruments.threads.preload.files import (
    WAIT,
    ProcessFile,
    ProcessFlag,
    Records,
    ThreadFile,
    WaitKind,
)
from perflib.instruments.threads.preload.intervals import Life, spinning, thread_intervals
from perflib.instruments.threads.preload.naming import Naming
from perflib.instruments.threads.preload.sampler import UNKNOWN_FUTEX, Sampled, SeenThread
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.writer import Writer
from perflib.model.errors import MeasurementError
from perflib.model.expressions import Expression

_OTHER = LOCK_KINDS.index("other")
_MAX_LOCK_BYTES = np.uint64(64)  # bytes
_OF_A_ROW = ("tid", "pid", "name", "start_ns", "end_ns")
_SAME_NS = 30_000_000  # stat has a thread's begin to a hundredth of a second


@dataclass(frozen=True)
class Parts:
    """Everything that was written while a job ran.

    ``full``: the data reached their bound.
    """

    backend: str
    pid: int
    processes: list[ProcessFile]
    sampled: Sampled
    from_ns: int
    until_ns: int
    cpus: int
    settings: Settings
    full: bool = False


@dataclass
class _Row:
    """A thread of the recording: what was stamped of it, program by program, and seen."""

    pid: int
    tid: int
    stamped: list[tuple[ProcessFile, ThreadFile]] = field(default_factory=list)
    seen: SeenThread | None = None
    end_ns: int = 0

    @property
    def start_ns(self) -> int:
        if self.stamped:
            process, thread = self.stamped[0]
            return thread.start_ns or process.start_ns
        assert self.seen is not None
        return self.seen.start_ns

    @property
    def name(self) -> str:
        """The last that is known: the library misses names that are given by prctl()."""
        named = [thread.name for _, thread in self.stamped if thread.name]
        if self.seen is not None and (self.seen.renamed or not named):
            ended = self.stamped and (
                self.stamped[-1][1].end_ns or ProcessFlag.ENDED in self.stamped[-1][0].flags
            )
            if not (named and ended):
                return self.seen.name
        return named[-1] if named else ""


def write(parts: Parts, out: Path) -> Recording:
    """Write the recording.

    Raises
    ------
    MeasurementError
        There is nothing to write.
    """
    rows = _rows(parts)
    end_ns = min(parts.until_ns, max((row.end_ns for row in rows), default=0))
    first = min((row.start_ns for row in rows), default=0)
    if parts.backend == "states" and len(parts.sampled.readings):
        first = int(parts.sampled.readings["time_ns"][0])
    start_ns = max(parts.from_ns, first)
    rows = [row for row in rows if row.start_ns < end_ns and row.end_ns > start_ns]
    if not rows or end_ns <= start_ns:
        msg = "nothing was recorded: the job had ended before the time that is recorded began"
        raise MeasurementError(msg)
    naming = Naming(parts.sampled, parts.processes)
    owners, others = _Owners(rows), _Others(parts.sampled.busy)
    spins = Expression(parts.settings.spin_functions, "spin_functions")
    order = np.argsort(parts.sampled.readings["thread"], kind="stable")
    threads = parts.sampled.readings["thread"][order]
    samples = [np.empty(0, SAMPLE)]
    with Writer(out) as writer:
        for number, row in enumerate(rows):
            readings = np.empty(0, parts.sampled.readings.dtype)
            if row.seen is not None:
                low, high = np.searchsorted(threads, [row.seen.number, row.seen.number + 1])
                readings = parts.sampled.readings[np.sort(order[low:high])]
            life, found, spun = _life(parts, row, readings, naming, owners, spins)
            for part in thread_intervals(life):
                intervals = _clipped(spinning(part, *spun), start_ns, end_ns)
                writer.add(np.full(len(intervals), number, np.int32), intervals)
                others.add(intervals)
            found["thread"] = number
            inside = (found["time_ns"] >= start_ns) & (found["time_ns"] < end_ns)
            samples.append(found[inside])
        every = np.concatenate(samples)
        writer.add_samples(every)
        columns = {name: [getattr(row, name) for row in rows] for name in _OF_A_ROW}
        # A name is any bytes: Arrow, in which pandas keeps text where there is Arrow, refuses some.
        table = pd.DataFrame(columns | {"name": pd.Series(columns["name"], dtype=object)})
        table["start_ns"], table["end_ns"] = (
            table[name].clip(start_ns, end_ns) for name in ("start_ns", "end_ns")
        )
        writer.close(
            threads=table,
            stacks=list(naming.stacks),
            locks=naming.locks,
            lost=_lost(parts, start_ns, end_ns),
            meta=_meta(parts, start_ns, end_ns, every, rows) | {"others_busy_ns": others.busy_ns()},
            keep=parts.settings.keeps(table["name"]),
        )
    return Recording.open(out)


# --- threads -------------------------------------------------------------------------------------


def _rows(parts: Parts) -> list[_Row]:
    """The threads, by their begin. A process keeps its main thread when it runs another program."""
    rows: list[_Row] = []
    mains: dict[int, _Row] = {}
    by_tid: dict[tuple[int, int], list[_Row]] = {}
    followed = parts.processes if parts.settings.follow else [
        process for process in parts.processes if process.pid == parts.pid
    ]  # fmt: skip
    for process in followed:
        for thread in process.threads:
            main = mains.get(process.pid) if thread.tid == process.pid else None
            again = main is not None and main.stamped[-1][0].generation < process.generation
            row = main if main is not None and again else _Row(process.pid, thread.tid)
            row.stamped.append((process, thread))
            if row is not main:
                rows.append(row)
                by_tid.setdefault((process.pid, thread.tid), []).append(row)
            if thread.tid == process.pid:
                mains[process.pid] = row
    for seen in parts.sampled.threads:
        near = [
            row
            for row in by_tid.get((seen.pid, seen.tid), [])
            if row.seen is None and row.start_ns - _SAME_NS < seen.seen_ns
        ]
        if near:
            min(near, key=lambda row: abs(row.start_ns - seen.start_ns)).seen = seen
        else:
            rows.append(_Row(seen.pid, seen.tid, seen=seen))
    last_ns = {
        (one.pid, one.generation): _last_ns(one) for one in parts.processes if not one.end_ns
    }
    for row in rows:
        row.end_ns = _end(parts, row, last_ns)
    return sorted(rows, key=lambda row: (row.start_ns, row.pid, row.tid))


def _successor_ns(parts: Parts, process: ProcessFile) -> int | None:
    """When the process became another program, and lost its other threads; None: it did not."""
    later = (
        other.start_ns
        for other in parts.processes
        if other.pid == process.pid and other.generation > process.generation
    )
    return min(later, default=None)


def _end(parts: Parts, row: _Row, last_ns: dict[tuple[int, int], int]) -> int:
    """When a thread ended, as far as it is known."""
    seen_ns = row.seen.seen_ns if row.seen is not None else 0
    if not row.stamped:
        return max(seen_ns, row.start_ns)
    process, thread = row.stamped[-1]
    stamped_ns = thread.end_ns or process.end_ns or _successor_ns(parts, process)
    return stamped_ns or max(seen_ns, last_ns[process.pid, process.generation])


def _last_ns(process: ProcessFile) -> int:
    """The last time that a process wrote anything: it was alive then."""
    last = process.start_ns
    for thread in process.threads:
        records = thread.records()
        last = max(last, thread.start_ns, thread.end_ns)
        last = max(last, int(records.waits["end_ns"].max(initial=0)))
        last = max([last, *(sample.time_ns for sample in records.samples)])
        last = max([last, *(thread.open["start_ns"] + 1).tolist()])
    return last


class _Owners:
    """The rows of those who were waited for: numbers and addresses of threads are used again."""

    def __init__(self, rows: list[_Row]) -> None:
        self._by_tid: dict[int, tuple[list[int], list[int]]] = {}
        self._joined: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        for number, row in enumerate(rows):  # by their begin
            keys = {(process.pid, thread.address) for process, thread in row.stamped}
            for known in (
                self._by_tid.setdefault(row.tid, ([], [])),
                *(self._joined.setdefault(key, ([], [])) for key in keys),
            ):
                known[0].append(row.start_ns)
                known[1].append(number)

    def rows(self, pid: int, waits: npt.NDArray[np.void]) -> npt.NDArray[np.int32]:
        """Of each wait the row of who held the lock when it began, -1: not known."""
        found = np.full(len(waits), -1, np.int32)
        joins = waits["kind"] == WaitKind.JOIN
        for tid in np.unique(waits["owner"][~joins]).tolist():
            which = ~joins & (waits["owner"] == tid)
            self._fill(found, which, waits["start_ns"], self._by_tid.get(tid))
        for address in np.unique(waits["lock"][joins]).tolist():
            which = joins & (waits["lock"] == address)
            self._fill(found, which, waits["end_ns"], self._joined.get((pid, address)))
        return found

    @staticmethod
    def _fill(
        found: npt.NDArray[np.int32],
        which: npt.NDArray[np.bool_],
        times: npt.NDArray[np.int64],
        known: tuple[list[int], list[int]] | None,
    ) -> None:
        if known is not None:
            at = np.searchsorted(known[0], times[which], side="right") - 1
            found[which] = np.array(known[1])[np.maximum(at, 0)]


def _life(
    parts: Parts,
    row: _Row,
    readings: npt.NDArray[np.void],
    naming: Naming,
    owners: _Owners,
    spins: Expression,
) -> tuple[Life, npt.NDArray[np.void], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """What is known of one thread; its samples; and the spans in which these saw it spin."""
    start_ns, end_ns = row.start_ns, row.end_ns
    waits, locks, stacks = [np.empty(0, WAIT)], [], []
    samples: list[tuple[int, int, int, int]] = []
    spun: list[tuple[int, int]] = []
    for process, thread in row.stamped:
        symbols = naming.symbols(process.pid, process.generation)
        records = thread.records()
        program_end_ns = _successor_ns(parts, process) or end_ns
        written = _whole(records, thread, min(thread.end_ns or end_ns, program_end_ns))
        waits.append(written)
        texts = {
            number: naming.stack(symbols, frames, exact=False)
            for number, frames in records.stacks.items()
        }
        locks.append(_numbers_of_locks(written, process, naming, texts))
        numbers = {number: naming.number(text) for number, text in texts.items()}
        stacks.append(np.array([numbers.get(n, -1) for n in written["stack"].tolist()], np.int32))
        for time_ns, weight_ns, frames in records.samples:
            number = naming.number(naming.stack(symbols, frames, exact=True))
            samples.append((time_ns, -1, number, weight_ns))
            if spins.finds([symbols.name(frames[0])])[0]:
                spun.append((time_ns - weight_ns, time_ns))
    every = np.concatenate(waits)
    lock = np.concatenate([np.empty(0, np.int32), *locks])
    stack = np.concatenate([np.empty(0, np.int32), *stacks])
    order = np.argsort(every["start_ns"], kind="stable")
    every, lock, stack = every[order], lock[order], stack[order]
    # A signal's handler may wait within a wait: the outer one counts.
    reached = np.maximum.accumulate(np.append(0, every["end_ns"]))[:-1]
    outer = (every["start_ns"] >= np.maximum(reached, start_ns)) & (every["end_ns"] <= end_ns)
    every, lock, stack = every[outer], lock[outer], stack[outer]
    readings = readings[(readings["time_ns"] > start_ns) & (readings["time_ns"] <= end_ns)]
    last = row.stamped[-1][1] if row.stamped else None
    spans = np.array(spun, np.int64).reshape(-1, 2)
    life = Life(
        start_ns=start_ns if row.stamped or not len(readings) else int(readings["time_ns"][0]),
        end_ns=end_ns,
        start_cpu_ns=row.stamped[0][1].start_cpu_ns if row.stamped else -1,
        end_cpu_ns=last.end_cpu_ns if last is not None and last.end_ns else -1,
        waits=every,
        locks=lock,
        others=owners.rows(row.pid, every),
        stacks=stack,
        readings=readings,
        reading_locks=_locks_at_readings(row, readings, every, naming),
    )
    return life, np.array(samples, SAMPLE), (spans[:, 0], spans[:, 1])


def _whole(records: Records, thread: ThreadFile, end_ns: int) -> npt.NDArray[np.void]:
    """The waits, with the one that the thread did not come back from."""
    last = thread.open[thread.open["start_ns"] < end_ns]
    last["end_ns"] = end_ns
    known = records.waits["cpu_end_ns"]
    last["cpu_end_ns"], last["cpu"] = (known[-1] if len(known) else 0), -1
    return np.concatenate([records.waits, last])


def _numbers_of_locks(
    waits: npt.NDArray[np.void], process: ProcessFile, naming: Naming, stacks: dict[int, str]
) -> npt.NDArray[np.int32]:
    places = np.where(waits["kind"] == WaitKind.JOIN, 0, waits["lock"])  # all joins are one
    pairs = np.stack([waits["kind"].astype(np.uint64), places], axis=1)
    unique, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    numbers = [
        naming.lock(
            process.pid,
            process.generation,
            LOCK_KINDS[min(kind, _OTHER)],
            address,
            stacks.get(stack, ""),
        )
        for (kind, address), stack in zip(
            unique.tolist(), waits["stack"][first].tolist(), strict=True
        )
    ]
    return np.array(numbers, np.int32)[inverse.reshape(-1)]


def _locks_at_readings(
    row: _Row, readings: npt.NDArray[np.void], waits: npt.NDArray[np.void], naming: Naming
) -> npt.NDArray[np.int32]:
    """What a thread was blocked on at each reading: `Life.reading_locks`.

    The futex's operation distinguishes a mutex (which waits without a bit set) from what may time
    out; a join, whose futex belongs to the kernel, is not private.
    """
    found = np.full(len(readings), -1, np.int32)
    stamped = _stamped(readings, waits)
    found[stamped] = -2
    generation = row.stamped[-1][0].generation if row.stamped else 0
    for address, operation in np.unique(readings[["futex", "operation"]][~stamped]).tolist():
        if not address:
            continue
        which = ~stamped & (readings["futex"] == address) & (readings["operation"] == operation)
        kind = "condition" if operation & futex.PRIVATE else "join"
        if operation & futex.COMMAND in (futex.WAIT, futex.LOCK_PI, futex.LOCK_PI2):
            kind = "mutex"
        if address == UNKNOWN_FUTEX:
            kind = "other"
        place = 0 if kind in ("join", "other") else address
        found[which] = naming.lock(row.pid, generation, kind, place)
    return found


def _stamped(readings: npt.NDArray[np.void], waits: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which readings saw a wait that was stamped too.

    One right before a wait may have seen its futex: what it reads, it reads one after the other.
    """
    if not len(waits):
        return np.zeros(len(readings), dtype=bool)
    at = np.searchsorted(waits["start_ns"], readings["time_ns"], side="right") - 1
    inside = (at >= 0) & (readings["time_ns"] < waits["end_ns"][at])
    known = np.unique(waits["lock"])
    address = readings["futex"]
    near = known[np.maximum(np.searchsorted(known, address, side="right") - 1, 0)]
    same: npt.NDArray[np.bool_] = (address >= near) & (address < near + _MAX_LOCK_BYTES)
    return inside | (same & (address > UNKNOWN_FUTEX))


def _clipped(intervals: npt.NDArray[np.void], start_ns: int, end_ns: int) -> npt.NDArray[np.void]:
    kept = intervals[(intervals["end_ns"] > start_ns) & (intervals["start_ns"] < end_ns)]
    kept["start_ns"] = np.maximum(kept["start_ns"], start_ns)
    kept["end_ns"] = np.minimum(kept["end_ns"], end_ns)
    return kept


class _Others:
    """CPU time of other processes while threads of the job were ready.

    Between two readings of the CPUs' busy time it is what the job did not have of it, and at most
    the time that its threads were ready.
    """

    def __init__(self, busy: list[tuple[int, int]]) -> None:
        self._edges = np.array([time for time, _ in busy], np.int64)
        self._busy = np.array([total for _, total in busy], np.int64)
        self._job = np.zeros(len(busy), np.int64)
        self._ready = np.zeros(len(busy), np.int64)

    def add(self, intervals: npt.NDArray[np.void]) -> None:
        """Count a thread's intervals."""
        self._job += self._before(intervals, (State.RUNNING, State.SPINNING))
        self._ready += self._before(intervals, (State.READY,))

    def _before(
        self, intervals: npt.NDArray[np.void], states: tuple[State, ...]
    ) -> npt.NDArray[np.int64]:
        """The time in some states before each reading."""
        chosen = intervals[np.isin(intervals["state"], states)]
        if not len(chosen):
            return np.zeros_like(self._edges)
        length = chosen["end_ns"] - chosen["start_ns"]
        at = np.searchsorted(chosen["start_ns"], self._edges, side="right")
        last = np.maximum(at - 1, 0)
        later = np.maximum(chosen["end_ns"][last] - self._edges, 0)
        total: npt.NDArray[np.int64] = np.append(0, np.cumsum(length))[at]
        return total - np.where(at > 0, later, 0)

    def busy_ns(self) -> int:
        """The time, of all threads added."""
        others = np.maximum(np.diff(self._busy) - np.diff(self._job), 0)
        return int(np.minimum(others, np.diff(self._ready)).sum())


# --- metadata -------------------------------------------------------------------------------------


def _lost(parts: Parts, start_ns: int, end_ns: int) -> npt.NDArray[np.void]:
    rows = [
        (max(one.first_lost_ns, start_ns), min(one.last_lost_ns, end_ns), -1, number)
        for one in parts.processes
        if (number := one.lost_waits + one.lost_samples) and one.first_lost_ns < end_ns
    ]
    return np.array(rows, LOST)


def _meta(
    parts: Parts, start_ns: int, end_ns: int, samples: npt.NDArray[np.void], rows: list[_Row]
) -> dict[str, Any]:
    waits = sum(one.lost_waits for one in parts.processes)
    lost = {"events": waits, "samples": sum(one.lost_samples for one in parts.processes)}
    flags = ProcessFlag(0)
    for one in parts.processes:
        flags |= one.flags
    period_ns = int(parts.settings.sample_period_us * 1e3)
    remarks = list(parts.sampled.remarks)
    if parts.backend == "states":
        remarks.append(
            "Every state is sampled: waits shorter than the time between two readings are seen "
            "by chance only, and nothing is known of their callers."
        )
    elif len(samples):
        typical = int(np.median(samples["weight_ns"]))
        if typical > 1.5 * period_ns:
            remarks.append(
                f"Stacks were requested every {period_ns / 1e6:g} ms of CPU time and sampled every "
                f"{typical / 1e6:.3g} ms: without privileges the kernel samples at its ticks only."
            )
    if parts.processes and not all(one.flags & ProcessFlag.OWNERS for one in parts.processes):
        remarks.append("Who held a lock is not known: this C library keeps it elsewhere.")
    if flags & ProcessFlag.SIGNAL_TAKEN:
        remarks.append("The job uses the signal of the samples itself: there are none from then.")
    if flags & ProcessFlag.NO_TIMER:
        remarks.append("Threads were not sampled: the kernel gave no more timers (ulimit -i).")
    if parts.backend == "preload":
        stamped = {one.pid for one in parts.processes}
        for pid in sorted({row.pid for row in rows} - stamped):
            program = Path(parts.sampled.programs.get(pid, "")).name or "?"
            remarks.append(
                f"Process {pid} ({program}) did not load the library: its waits are not stamped, "
                "its states are sampled."
            )
    cut = ""
    if waits or lost["samples"]:
        cut = f"the data reached their bound of {parts.settings.max_data_mb} MB"
        if flags & ProcessFlag.NOT_EXTENDED and not parts.full:
            cut = "the data could not be written: the disk is full, or the folder is closed"
    return {
        "backend": parts.backend,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "job_pid": parts.pid,
        "cpus": parts.cpus,
        "sample_period_ns": 0 if parts.backend == "states" else period_ns,
        "remarks": remarks,
        "lost": lost,
        "cut": cut,
    }
