"""Profiles for https://ui.perfetto.dev: samples of perf in a native trace.

The messages are those of https://github.com/google/perfetto/blob/main/protos/perfetto/trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.profile.export.protobuf import message, number, text
from perflib.instruments.profile.export.samples import by_event, weights
from perflib.instruments.profile.python_frames import python_frame
from perflib.instruments.profile.views import object_of
from perflib.model.escape import visible

FIRST, FOLLOWING = 1, 2
"""Flags of a sequence's packets: its names begin anew here; it uses names from before."""

_UNKNOWN = "[unknown]"


def packet(content: bytes, sequence: int = 0, flags: int = 0, time_ns: int | None = None) -> bytes:
    """A packet of a trace; the names in it are those of its sequence.

    No clock is named, so all times are of the trace's own.
    """
    parts = b"" if time_ns is None else number(8, time_ns)
    if sequence:
        parts += number(10, sequence) + number(13, flags)
    return message(1, parts + content)


def interned(field: int, iid: int, name: str) -> bytes:
    """A name that a sequence refers to by its number."""
    return message(field, number(1, iid) + text(2, name))


def write(samples: pd.DataFrame, name: str, path: Path) -> None:
    """Write a trace with perf's samples on the tracks of their threads.

    Each event is a sequence of its own, with the sum of its periods so far as a counter for each
    CPU. A process has the profile's name and its number where nothing else is known of it.
    """
    with path.open("wb") as file:
        file.write(_processes(samples, name))
        for sequence, (event, part) in enumerate(by_event(samples).items(), start=1):
            for piece in _sequence(part, event, sequence):
                file.write(piece)


def _processes(samples: pd.DataFrame, name: str) -> bytes:
    """Names of processes and threads: a thread's last one."""
    last = samples.drop_duplicates(["pid", "tid"], keep="last")
    threads = [
        (int(tid) if pid < 0 else int(pid), int(tid), visible(str(comm)))
        for pid, tid, comm in zip(last["pid"], last["tid"], last["comm"], strict=True)
    ]
    main = {pid: comm for pid, tid, comm in threads if pid == tid}
    tree = b"".join(
        message(1, number(1, pid) + text(3, main.get(pid, visible(name))))
        for pid in sorted({pid for pid, _, _ in threads})
    )
    tree += b"".join(
        message(2, number(1, tid) + number(3, pid) + text(2, comm)) for pid, tid, comm in threads
    )
    return packet(message(2, tree))


def _sequence(samples: pd.DataFrame, event: str, sequence: int) -> Iterator[bytes]:
    ordered = samples.sort_values("time_ns", kind="stable")
    yield packet(_defaults(event) + message(12, _names(samples)), sequence, FIRST)
    counts = _counts(ordered)
    columns: list[Any] = [
        ordered[column].to_numpy().tolist() for column in ("time_ns", "cpu", "pid", "tid")
    ]
    stacks = ordered["stack"].cat
    empty = {at for at, stack in enumerate(stacks.categories) if not stack}
    for time_ns, cpu, pid, tid, code, count in zip(
        *columns, stacks.codes.tolist(), counts, strict=True
    ):
        sample = number(1, max(cpu, 0)) + number(2, tid if pid < 0 else pid) + number(3, tid)
        if code not in empty:
            sample += number(4, code + 1)
        yield packet(message(66, sample + number(6, count)), sequence, FOLLOWING, time_ns)


def _counts(ordered: pd.DataFrame) -> list[int]:
    """The event's count on the sample's CPU so far; what is of no known CPU is of the first."""
    weight = pd.Series(weights(ordered))
    sums: list[int] = weight.groupby(ordered["cpu"].to_numpy().clip(0)).cumsum().tolist()
    return sums


def _defaults(event: str) -> bytes:
    """The event's name, as that of a tracepoint, which takes any."""
    timebase = message(3, text(1, visible(event or "samples"))) + text(
        10, visible(event or "samples")
    )
    return message(59, message(12, message(1, timebase)))


def _names(samples: pd.DataFrame) -> bytes:
    """Objects, functions and stacks of samples, by their numbers from 1 on."""
    codes = samples["stack"].cat.codes.to_numpy()
    used = np.bincount(codes[codes >= 0], minlength=len(samples["stack"].cat.categories)) > 0
    stacks = samples["stack"].cat.categories
    return stack_names(
        [stack if there else "" for stack, there in zip(stacks, used, strict=True)],
        object_of(samples),
    )


def stack_names(stacks: Sequence[str], objects: Mapping[str, str]) -> bytes:
    """What a sequence's samples refer to: a stack by its number in ``stacks``, from 1 on.

    ``objects`` has the file of a function, where it is known. Empty stacks are left out.
    """
    files = {_UNKNOWN: 1}
    frames: dict[str, int] = {}
    made = []
    for iid, stack in enumerate(stacks, start=1):
        if stack:
            numbers = [frames.setdefault(one, len(frames) + 1) for one in stack.split(";")]
            made.append(message(7, number(1, iid) + b"".join(number(2, one) for one in numbers)))
    parts = []
    for frame, iid in frames.items():
        file = files.setdefault(objects.get(frame) or _UNKNOWN, len(files) + 1)
        parts.append(interned(5, iid, visible(python_frame(frame))))
        parts.append(message(6, number(1, iid) + number(2, iid) + number(3, file)))
    for path, iid in files.items():
        parts.append(interned(17, iid, visible(path)))
        parts.append(message(19, number(1, iid) + number(7, iid)))
    return b"".join(parts + made)
