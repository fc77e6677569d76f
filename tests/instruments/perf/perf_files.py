"""Data files of perf, made: for what no recording on this machine can be made to have."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU = (1 << bit for bit in range(8))
PERIOD, STREAM_ID, RAW = 1 << 8, 1 << 9, 1 << 10
IDENTIFIER = 1 << 16
USUAL = IDENTIFIER | IP | TID | TIME | CPU | PERIOD
ENABLED, RUNNING, READ_ID, GROUP, READ_LOST = 1, 2, 4, 8, 16
MONOTONIC = 1


@dataclass(frozen=True)
class FileEvent:
    """What stands in a ``perf_event_attr``, and the event's ids."""

    ids: tuple[int, ...] = (1,)
    sample_type: int = USUAL
    type: int = 1
    config: int = 0
    read_format: int = 0
    sample_id_all: bool = True
    period: int = 1_000_000
    clock: int | None = MONOTONIC


def record(kind: int, body: bytes = b"", misc: int = 0) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def sample(
    event: FileEvent,
    id_: int,
    *,
    time_ns: int = 0,
    pid: int = 5,
    tid: int = 6,
    cpu: int = 0,
    period: int = 1,
    chain: Sequence[int] = (),
    counts: Sequence[int] = (),
    raw: bytes = b"",
) -> bytes:
    fields = (
        (IDENTIFIER, struct.pack("<Q", id_)),
        (IP, struct.pack("<Q", 0x1234)),
        (TID, struct.pack("<ii", pid, tid)),
        (TIME, struct.pack("<q", time_ns)),
        (ADDR, struct.pack("<Q", 0x5678)),
        (ID, struct.pack("<Q", id_)),
        (STREAM_ID, struct.pack("<Q", 99)),
        (CPU, struct.pack("<ii", cpu, 0)),
        (PERIOD, struct.pack("<q", period)),
        (READ, _read(event.read_format, counts)),
        (CALLCHAIN, struct.pack(f"<Q{len(chain)}Q", len(chain), *chain)),
        (RAW, struct.pack("<I", len(raw)) + raw),
    )
    return record(9, b"".join(value for bit, value in fields if event.sample_type & bit))


def _read(format_: int, counts: Sequence[int]) -> bytes:
    extra = bool(format_ & READ_ID) + bool(format_ & READ_LOST)
    times = [0] * (bool(format_ & ENABLED) + bool(format_ & RUNNING))
    if format_ & GROUP:
        words = [len(counts), *times]
        for count in counts:
            words += [count, *[0] * extra]
    else:
        words = [next(iter(counts), 0), *times, *[0] * extra]
    return struct.pack(f"<{len(words)}Q", *words)


def trailer(
    event: FileEvent, id_: int, *, time_ns: int = 0, pid: int = 0, tid: int = 0, cpu: int = 0
) -> bytes:
    if not event.sample_id_all:
        return b""
    fields = (
        (TID, struct.pack("<ii", pid, tid)),
        (TIME, struct.pack("<q", time_ns)),
        (ID, struct.pack("<Q", id_)),
        (STREAM_ID, struct.pack("<Q", 99)),
        (CPU, struct.pack("<ii", cpu, 0)),
        (IDENTIFIER, struct.pack("<Q", id_)),
    )
    return b"".join(value for bit, value in fields if event.sample_type & bit)


def _name(name: bytes) -> bytes:
    return name + bytes(8 - len(name) % 8)


def comm(
    event: FileEvent, name: bytes, *, pid: int, tid: int, time_ns: int = 0, exec_: bool = False
) -> bytes:
    body = struct.pack("<ii", pid, tid) + _name(name)
    body += trailer(event, event.ids[0], time_ns=time_ns, pid=pid, tid=tid)
    return record(3, body, misc=1 << 13 if exec_ else 0)


def task(
    event: FileEvent, kind: int, *, pid: int, tid: int, ppid: int, ptid: int, time_ns: int = 0
) -> bytes:
    """FORK (7) or EXIT (4)."""
    body = struct.pack("<iiiiq", pid, ppid, tid, ptid, time_ns)
    return record(kind, body + trailer(event, event.ids[0], time_ns=time_ns, pid=pid, tid=tid))


def mmap2(
    event: FileEvent,
    name: bytes,
    *,
    pid: int,
    address: int,
    size: int,
    offset: int = 0,
    time_ns: int = 0,
) -> bytes:
    body = struct.pack("<iiQQQ24xII", pid, pid, address, size, offset, 5, 2) + _name(name)
    return record(10, body + trailer(event, event.ids[0], time_ns=time_ns, pid=pid, tid=pid))


def mmap(event: FileEvent, name: bytes, *, pid: int, address: int, size: int) -> bytes:
    body = struct.pack("<iiQQQ", pid, pid, address, size, 0) + _name(name)
    return record(1, body + trailer(event, event.ids[0]))


def lost_record(event: FileEvent, id_: int, number: int, *, time_ns: int, cpu: int = 0) -> bytes:
    body = struct.pack("<QQ", id_, number)
    return record(2, body + trailer(event, id_, time_ns=time_ns, cpu=cpu))


def lost_samples(event: FileEvent, id_: int, number: int) -> bytes:
    """As perf writes it at the end of a recording: without time and CPU."""
    return record(13, struct.pack("<Q", number) + trailer(event, id_))


def cpu_switch(
    event: FileEvent, *, tid: int, other: int, time_ns: int, cpu: int = 0, misc: int = 1 << 13
) -> bytes:
    """SWITCH_CPU_WIDE: a thread leaves a CPU for another one."""
    body = struct.pack("<ii", other, other)
    body += trailer(event, event.ids[0], time_ns=time_ns, pid=tid, tid=tid, cpu=cpu)
    return record(15, body, misc)


def finished_round() -> bytes:
    return record(68)


def id_index(entries: Sequence[tuple[int, int]]) -> bytes:
    """Ids and the CPUs that they count on."""
    body = struct.pack("<Q", len(entries))
    for id_, cpu in entries:
        body += struct.pack("<QQqq", id_, 0, cpu, -1)
    return record(69, body)


def perf_file(
    events: Sequence[FileEvent],
    records: Sequence[bytes],
    *,
    size_known: bool = True,
    after: bytes = b"",
    attr_bytes: int = 128,
) -> bytes:
    """A file whose perf ended in order, or was killed (the size is not known)."""
    data = b"".join(records)
    begin = 104
    entry = attr_bytes + 16
    ids_at = begin + entry * len(events)
    attrs, ids = b"", b""
    for event in events:
        flags = (1 << 18 if event.sample_id_all else 0) | (0 if event.clock is None else 1 << 25)
        attr = struct.pack(
            "<IIQQQQQ",
            *(event.type, attr_bytes, event.config, event.period),
            *(event.sample_type, event.read_format, flags),
        )
        attr = attr.ljust(92, b"\0") + struct.pack("<i", event.clock or 0)
        attrs += attr.ljust(attr_bytes, b"\0")[:attr_bytes]
        attrs += struct.pack("<QQ", ids_at + len(ids), 8 * len(event.ids))
        ids += struct.pack(f"<{len(event.ids)}Q", *event.ids)
    data_at = ids_at + len(ids)
    head = b"PERFILE2" + struct.pack(
        "<9Q", 104, entry, begin, len(attrs), data_at, len(data) if size_known else 0, 0, 0, 0
    )
    return head.ljust(begin, b"\0") + attrs + ids + data + after
