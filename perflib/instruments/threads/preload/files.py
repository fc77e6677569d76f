"""The files that the preloaded library writes (kernels_c/tools/thread_waits.c), read.

kernels_c/common/thread_waits_file.h declares them. A process may have been killed at
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

MAGIC = 0x7741697453746D61
CHUNK_MAGIC = 0xC4754B7741697453
GRAIN, SLOT_WORDS, HEADER_BYTES = 16384, 8, 256

SHARED = record("thread_waits_file", "tw_shared")
"""Settings, and what all processes of a job count together."""

PROCESS = record("thread_waits_file", "tw_process")
"""The header of a process's file."""

CHUNK = record("thread_waits_file", "tw_chunk")
"""The header of a chunk."""

WAIT = record("thread_waits_file", "tw_slot")
"""A wait; ``cpu_ns``: CPU time in it; ``cpu_end_ns``: the thread's CPU time at its end."""


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
    """What is special about a process's file."""

    OWNERS = 1
    SIGNAL_TAKEN = 2
    NO_TIMER = 4
    ENDED = 8
    NOT_EXTENDED = 16


_WAIT, _STACK, _SAMPLE = 0xE101, 0xE102, 0xE103
_LATEST_NS = 1 << 61  # what is later is no time: the job has written over its own record


class StackSample(NamedTuple):
    """A stack, from the instruction itself on, and the CPU time (ns) that it stands for."""

    time_ns: int
    weight_ns: int
    frames: tuple[int, ...]


class Records(NamedTuple):
    """What a thread wrote: waits (``WAIT``), stacks by their numbers (return addresses), samples.

    Addresses of a stack go from the innermost on.
    """

    waits: npt.NDArray[np.void]
    stacks: dict[int, tuple[int, ...]]
    samples: list[StackSample]


@dataclass
class ThreadFile:
    """A thread of a process, with its chunks; ``address`` is that by which it is joined.

    ``open``: one ``WAIT`` that had not ended when the process did, or none.
    """

    tid: int
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    start_cpu_ns: int = 0
    end_cpu_ns: int = 0
    address: int = 0
    open: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, WAIT))
    chunks: list[npt.NDArray[np.uint64]] = field(default_factory=list)

    def records(self) -> Records:
        """Everything that it wrote, in the order in which it did."""
        found = Records(np.empty(0, WAIT), {}, [])
        waits = [found.waits]
        for words in self.chunks:
            slots = words[: len(words) // SLOT_WORDS * SLOT_WORDS].view(WAIT)
            ended = (slots["record"] == _WAIT) & (slots["end_ns"] < _LATEST_NS)
            ended &= slots["start_ns"] <= slots["end_ns"]
            waits.append(slots[ended & (slots["start_ns"] >= 0)])
            for at in np.flatnonzero(np.isin(slots["record"], (_STACK, _SAMPLE))).tolist():
                depth, first = int(slots["depth"][at]), at * SLOT_WORDS + 1
                if slots["record"][at] == _STACK:
                    frames = tuple(words[first : first + depth].tolist())
                    found.stacks[int(slots["stack"][at])] = frames
                else:
                    time_ns, weight_ns, _cpu, *frames = words[first : first + 3 + depth].tolist()
                    if frames and max(time_ns, weight_ns) < _LATEST_NS:
                        found.samples.append(StackSample(time_ns, weight_ns, tuple(frames)))
        return found._replace(waits=np.concatenate(waits))


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

    A file whose process was killed before it wrote a header is left out.
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
        **{name: min(int(header[name]), _LATEST_NS) for name in same},
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
                setattr(thread, name, min(int(header[name]), _LATEST_NS))
            thread.address = int(header["self"])
            waiting = header["open"]
            if waiting["start_ns"]:
                thread.open = np.zeros(1, WAIT)
                thread.open["start_ns"] = min(int(waiting["start_ns"]), _LATEST_NS)
                thread.open["kind"] = min(int(waiting["kind"]), 255)
                thread.open["stack"] = min(int(waiting["stack"]), 2**31 - 1)
                thread.open["lock"], thread.open["owner"] = waiting["lock"], waiting["owner"]
        thread.chunks.append(words)
    return [threads[number] for number in sorted(threads)]
