"""A recording of threads as a native trace for https://ui.perfetto.dev.

A thread is a track with a slice for each interval; an arrow leads from the thread that wakes to the
one that is woken; samples are perf's. Packets have a fixed width, so that numpy writes them: a
number of the wire format may have leading groups of zeros.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perflib.instruments.profile.export.files import written
from perflib.instruments.profile.export.perfetto import (
    FIRST,
    FOLLOWING,
    interned,
    packet,
    stack_names,
)
from perflib.instruments.profile.export.protobuf import message, number, text, varint
from perflib.instruments.threads.formats import STATES, State
from perflib.instruments.threads.recording import Recording
from perflib.model.escape import visible

_SLICES, _SAMPLES = 1, 2  # sequences of packets
_BEGIN, _END, _INSTANT = 1, 2, 3
_CPU, _BY, _STACK = 1, 2, 3  # arguments of a slice
_WAKES, _WOKEN = 1, 2  # names; those of intervals follow
_TIME, _SHORT = 9, 4  # bytes of numbers: 63 bits, 28 bits
_PIECE = 1 << 16  # intervals, or samples, in memory at once

_Part = bytes | tuple[npt.NDArray[np.integer], int]


def write(recording: Recording, path: Path) -> None:
    """Write the trace, gzipped (Perfetto reads it as it is), whole or not at all.

    It is written in pieces, so that memory does not grow with the recording's length.

    Raises
    ------
    UserError
        It cannot be written there (what was there is unchanged), or the recording is damaged.
    """
    with (
        written(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as file,
    ):
        file.write(_tracks(recording))
        for row in range(len(recording.threads)):
            for piece in _pieces(recording, row):
                for part in _slices(recording, row, piece):
                    file.write(part)
        for part in _samples(recording):
            file.write(part)


def _tracks(recording: Recording) -> bytes:
    """Processes, threads, and the names that slices refer to."""
    threads = recording.threads
    parts = []
    first = threads.drop_duplicates("pid")  # a process is named as its first thread
    for at, (pid, name) in enumerate(zip(first["pid"], first["name"], strict=True), start=1):
        process = number(1, int(pid)) + text(6, visible(str(name)))
        parts.append(packet(message(60, number(1, len(threads) + at) + message(3, process))))
    columns = (threads[name] for name in ("pid", "tid", "name"))
    for row, (pid, tid, name) in enumerate(zip(*columns, strict=True)):
        thread = number(1, int(pid)) + number(2, int(tid)) + text(5, visible(str(name)))
        parts.append(packet(message(60, number(1, row + 1) + message(4, thread))))
    called = ["wakes", "woken", *_names(recording)]
    data = [interned(2, iid, name) for iid, name in enumerate(called, start=1)]
    data += [interned(3, iid, name) for iid, name in enumerate(("cpu", "by", "stack"), start=1)]
    data += [
        interned(29, iid, visible(value))
        for iid, value in enumerate([*map(str, threads["name"]), *recording.stacks], start=1)
    ]
    parts.append(packet(message(12, b"".join(data)), _SLICES, FIRST))
    return b"".join(parts)


def _slices(recording: Recording, row: int, piece: npt.NDArray[np.void]) -> Iterator[bytes]:
    """A begin and an end for each interval, and arrows.

    The ends come first: of packets with one time the first in the file counts first, and a slice
    ends when the next one begins.
    """
    track: _Part = varint(row + 1)
    yield _rows(_event(piece["end_ns"], _END, track))
    name = piece["state"].astype(np.int64) * (len(recording.locks) + 1) + piece["lock"] + 1
    name += _WOKEN + 1
    n_threads = len(recording.threads)
    layout = (piece["cpu"] >= 0) + 2 * (piece["other"] >= 0) + 4 * (piece["stack"] >= 0)
    for which in np.unique(layout).tolist():
        some = layout == which
        arguments: list[_Part] = []
        if which & 1:
            arguments += _argument(_CPU, varint(3 << 3), piece["cpu"][some])
        if which & 2:
            arguments += _argument(_BY, varint(17 << 3), piece["other"][some] + 1)
        if which & 4:
            values = piece["stack"][some].astype(np.int64) + n_threads + 1
            arguments += _argument(_STACK, varint(17 << 3), values)
        named: list[_Part] = [varint(10 << 3), (name[some], _SHORT), *arguments]
        yield _rows(_event(piece["start_ns"][some], _BEGIN, track, *named))
    ended = piece[_woken(piece)]
    if len(ended):
        # Of a thread there is one wake-up at a time: that makes a number of its own.
        arrow = ended["end_ns"].astype(np.int64) * 0x9E3779B1 + row
        wakes: _Part = (ended["other"].astype(np.int64) + 1, _SHORT)
        yield _rows(_event(ended["end_ns"], _INSTANT, wakes, number(10, _WAKES),
                           varint(47 << 3 | 1), (arrow, -8)))  # fmt: skip
        yield _rows(_event(ended["end_ns"], _INSTANT, track, number(10, _WOKEN),
                           varint(48 << 3 | 1), (arrow, -8)))  # fmt: skip


def _event(time_ns: npt.NDArray[np.integer], kind: int, track: _Part, *more: _Part) -> list[_Part]:
    """A packet with a track event."""
    event: list[_Part] = [number(9, kind), varint(11 << 3), track, *more]
    return _packet(time_ns, _SLICES, 11, event)


def _packet(
    time_ns: npt.NDArray[np.integer], sequence: int, field: int, content: list[_Part]
) -> list[_Part]:
    head = number(10, sequence) + number(13, FOLLOWING) + varint(field << 3 | 2)
    inner: list[_Part] = [varint(8 << 3), (time_ns, _TIME), head + varint(_size(content))]
    inner += content
    return [varint(1 << 3 | 2) + varint(_size(inner)), *inner]


def _argument(name: int, tag: bytes, values: npt.NDArray[np.integer]) -> list[_Part]:
    content: list[_Part] = [number(1, name) + tag, (values, _SHORT)]
    return [varint(4 << 3 | 2) + varint(_size(content)), *content]


def _size(parts: Sequence[_Part]) -> int:
    return sum(len(part) if isinstance(part, bytes) else abs(part[1]) for part in parts)


def _rows(parts: Sequence[_Part]) -> bytes:
    """Messages of one layout: bytes that all share, and numbers of so many groups of seven bits.

    -8 groups are eight bytes, the least significant first.
    """
    n = next(len(part[0]) for part in parts if not isinstance(part, bytes))
    made = np.empty((n, _size(parts)), dtype=np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, bytes):
            made[:, at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
            at += len(part)
            continue
        values, width = part[0].astype(np.int64), part[1]
        if width < 0:
            made[:, at : at - width] = values.astype("<u8").view(np.uint8).reshape(n, -width)
        else:
            shifts = 7 * np.arange(width)
            made[:, at : at + width] = (values[:, None] >> shifts) & 0x7F
            made[:, at : at + width - 1] |= 0x80
        at += abs(width)
    return made.tobytes()


def _samples(recording: Recording) -> Iterator[bytes]:
    """The samples as perf's, with the CPU time that they stand for."""
    if not len(recording.samples):
        return
    defaults = message(59, message(12, message(1, message(3, text(1, "cpu-time")))))
    known = message(12, stack_names(recording.stacks, {}))
    yield packet(defaults + known, _SAMPLES, FIRST)
    pids, tids = (recording.threads[name].to_numpy() for name in ("pid", "tid"))
    total = 0
    for at in range(0, len(recording.samples), _PIECE):
        piece = np.array(recording.samples[at : at + _PIECE])
        recording.check(rows=piece["thread"], stacks=piece["stack"])
        count = total + np.cumsum(piece["weight_ns"])
        total = int(count[-1])
        row = piece["thread"]
        with_stack = np.array([bool(stack) for stack in recording.stack_texts(piece["stack"])])
        for some, has_stack in ((with_stack, True), (~with_stack, False)):
            if not some.any():
                continue
            content: list[_Part] = [varint(2 << 3), (pids[row[some]], 5)]
            content += [varint(3 << 3), (tids[row[some]], 5)]
            if has_stack:
                content += [varint(4 << 3), (piece["stack"][some] + 1, _SHORT)]
            content += [varint(6 << 3), (count[some], _TIME)]
            yield _rows(_packet(piece["time_ns"][some], _SAMPLES, 66, content))


def _pieces(recording: Recording, row: int) -> Iterator[npt.NDArray[np.void]]:
    """The intervals of a thread by time, once their references are checked."""
    first, last = (int(at) for at in recording.first[row : row + 2])
    for at in range(first, last, _PIECE):
        piece = np.array(recording.intervals[at : min(at + _PIECE, last)])
        known = piece["lock"][piece["lock"] >= 0]
        recording.check(others=piece["other"], stacks=piece["stack"], locks=known)
        piece["state"] = np.minimum(piece["state"], State.UNKNOWN)
        yield piece[piece["end_ns"] > piece["start_ns"]]


def _names(recording: Recording) -> list[str]:
    """Names of intervals: that of a state and a lock is at ``state * (locks + 1) + lock + 1``."""
    locks = ["", *(f": {visible(lock.name)}" for lock in recording.locks)]
    return [state + lock for state in STATES for lock in locks]


def _woken(piece: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which intervals another thread of the job ended."""
    asleep = (piece["state"] == State.WAITING) | (piece["state"] == State.SLEEPING)
    return np.asarray(asleep & (piece["other"] >= 0), dtype=bool)
