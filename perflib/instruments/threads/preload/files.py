"""The files that the preloaded library writes (kernels_c/tools/thread_waits.c), read.

What stands where is said in kernels_c/common/thread_waits_file.h. A process may have been killed at
any instruction and a file may be cut off anywhere: what was whole is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perflib.kernels.records import record

__all__ = [
    "CHUNK",
    "PROCESS",
    "SHARED",
    "WAIT",
    "OpenWait",
    "ProcessFile",
    "ProcessFlag",
    "Records",
    "ThreadFile",
    "WaitKind",
    "read_processes",
]

MAGIC = 0x7741697453746D61
CHUNK_MAGIC = 0xC4754B7741697453
GRAIN, SLOT_WORDS, HEADER_BYTES = 16384, 8, 256

SHARED = record("thread_waits_file", "tw_shared")
"""Settings, and what all processes of a job count together."""

PROCESS = record("thread_waits_file", "tw_process")
"""The header of a process's file."""

CHUNK = record("thread_waits_file", "tw_chunk")
"""The header of a chunk."""

WAIT = np.dtype(
    [
        ("start_ns", "i8"),
        ("end_ns", "i8"),
        ("lock", "u8"),
        ("kind", "u1"),
        ("result", "i2"),
        ("owner", "i4"),
        ("cpu_ns", "i8"),
        ("cpu", "i2"),
        ("cpu_end_ns", "i8"),
        ("stack", "i4"),
    ],
    align=True,
)
"""A wait.

``lock``: its address; of a join that of the thread. ``cpu_ns``: CPU time in it; ``cpu_end_ns``: the
thread's CPU time at its end.
"""


class WaitKind(IntEnum):
    """What a thread waited for."""

    MUTEX = 0
    CONDITION = 1
    RWLOCK = 2
    SEMAPHORE = 3
    BARRIER = 4
    JOIN = 5
    SPIN = 6


class ProcessFlag(IntFlag):
    """What a process's file says of itself."""

    OWNERS = 1
    SIGNAL_TAKEN = 2
    NO_TIMER = 4
    ENDED = 8
    NOT_EXTENDED = 16


_WAIT, _STACK, _SAMPLE = 0xE101, 0xE102, 0xE103


class OpenWait(NamedTuple):
    """A wait that had not ended when the process did."""

    start_ns: int
    lock: int
    kind: int
    owner: int
    stack: int


class Records(NamedTuple):
    """What a thread wrote.

    ``stacks``: by their numbers, return addresses from the innermost on. ``frames``: of the
    samples, the first address of each is the instruction itself.
    """

    waits: npt.NDArray[np.void]
    stacks: dict[int, tuple[int, ...]]
    time_ns: npt.NDArray[np.int64]
    weight_ns: npt.NDArray[np.int64]
    frames: list[tuple[int, ...]]


@dataclass
class ThreadFile:
    """A thread of a process, with its chunks; ``address`` is that by which it is joined."""

    tid: int
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    start_cpu_ns: int = 0
    end_cpu_ns: int = 0
    address: int = 0
    open: OpenWait | None = None
    chunks: list[npt.NDArray[np.uint64]] = field(default_factory=list)

    def records(self) -> Records:
        """Everything that it wrote, in the order in which it did."""
        waits, times, weights = [], [], []
        stacks: dict[int, tuple[int, ...]] = {}
        frames: list[tuple[int, ...]] = []
        for words in self.chunks:
            slots = words[: len(words) // SLOT_WORDS * SLOT_WORDS].reshape(-1, SLOT_WORDS)
            heads = slots[:, 0]
            kinds = heads >> np.uint64(48)
            waits.append(_waits(slots[kinds == _WAIT]))
            for at in np.flatnonzero(kinds == _STACK).tolist():
                depth, number = _depth(int(heads[at])), int(heads[at]) & 0xFFFFFFFF
                first = at * SLOT_WORDS + 1
                stacks[number] = tuple(words[first : first + depth].tolist())
            sampled = np.flatnonzero(kinds == _SAMPLE)
            times.append(slots[sampled, 1].astype(np.int64))
            weights.append(slots[sampled, 2].astype(np.int64))
            for at in sampled.tolist():
                first = at * SLOT_WORDS + 4
                frames.append(tuple(words[first : first + _depth(int(heads[at]))].tolist()))
        none = np.empty(0, np.int64)
        return Records(
            np.concatenate([np.empty(0, WAIT), *waits]),
            stacks,
            np.concatenate([none, *times]),
            np.concatenate([none, *weights]),
            frames,
        )


@dataclass(frozen=True)
class ProcessFile:
    """One program that a process ran; without an ``end_ns`` (0) it was killed, or became another.

    ``generation``: how many it ran before.
    """

    pid: int
    generation: int
    start_ns: int
    end_ns: int
    flags: ProcessFlag
    lost_waits: int
    lost_samples: int
    first_lost_ns: int
    last_lost_ns: int
    threads: list[ThreadFile]
    maps: str


def read_processes(folder: Path) -> list[ProcessFile]:
    """Every process of a job, in the order in which they began.

    A file whose process was killed before it had a header is left out.
    """
    named = re.compile(r"waits\.(\d+)\.(\d+)")
    found = []
    for path in folder.iterdir():
        if match := named.fullmatch(path.name):
            process = _process(path, int(match[2]))
            if process is not None:
                found.append(process)
    return sorted(found, key=lambda process: (process.start_ns, process.pid))


def _process(path: Path, generation: int) -> ProcessFile | None:
    if path.stat().st_size < PROCESS.itemsize:
        return None
    raw = np.memmap(path, np.uint8, mode="r")
    header = raw[: PROCESS.itemsize].view(PROCESS)[0]
    if header["magic"] != MAGIC:
        return None
    maps = path.with_name(path.name.replace("waits", "maps", 1))
    same = ("pid", "start_ns", "end_ns", "lost_waits", "lost_samples", "first_lost_ns",
            "last_lost_ns")  # fmt: skip
    return ProcessFile(
        **{name: int(header[name]) for name in same},
        generation=generation,
        flags=ProcessFlag(int(header["flags"]) & 31),
        threads=_threads(raw),
        maps=maps.read_text(errors="surrogateescape") if maps.is_file() else "",
    )


def _chunks(raw: npt.NDArray[np.uint8]) -> Iterator[tuple[np.void, npt.NDArray[np.uint64]]]:
    at = GRAIN
    while at + HEADER_BYTES <= len(raw):
        header = raw[at : at + CHUNK.itemsize].view(CHUNK)[0]
        if header["magic"] != CHUNK_MAGIC or int(header["bytes"]) < GRAIN:
            at += GRAIN  # the process ended while this one was made
            continue
        end = min(at + int(header["bytes"]), len(raw) // 8 * 8)
        yield header, raw[at + HEADER_BYTES : end].view(np.uint64)
        at += int(header["bytes"])


def _threads(raw: npt.NDArray[np.uint8]) -> list[ThreadFile]:
    threads: dict[int, ThreadFile] = {}
    for header, words in sorted(_chunks(raw), key=lambda chunk: int(chunk[0]["sequence"])):
        thread = threads.setdefault(int(header["thread"]), ThreadFile(int(header["tid"])))
        if header["sequence"] == 0:
            thread.name = bytes(header["name"]).decode(errors="surrogateescape")
            for name in ("start_ns", "end_ns", "start_cpu_ns", "end_cpu_ns"):
                setattr(thread, name, int(header[name]))
            thread.address = int(header["self"])
            waiting = header["open"]
            if waiting["start_ns"]:
                thread.open = OpenWait(*(int(waiting[name]) for name in OpenWait._fields))
        thread.chunks.append(words)
    return [threads[number] for number in sorted(threads)]


def _depth(head: int) -> int:
    return head >> 32 & 0xFFFF


def _waits(slots: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
    waits = np.empty(len(slots), WAIT)
    signed = slots.astype(np.int64)
    waits["start_ns"], waits["end_ns"] = signed[:, 1], signed[:, 2]
    waits["lock"] = slots[:, 3]
    waits["owner"] = (slots[:, 4] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    waits["kind"] = slots[:, 4] >> np.uint64(32) & np.uint64(0xFF)
    waits["result"] = (slots[:, 4] >> np.uint64(48)).astype(np.uint16).view(np.int16)
    waits["cpu_ns"], waits["cpu_end_ns"] = signed[:, 5], signed[:, 7]
    waits["cpu"] = signed[:, 6]
    waits["stack"] = signed[:, 0] & 0xFFFFFFFF
    return waits
