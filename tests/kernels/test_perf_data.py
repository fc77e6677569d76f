"""perf_data.c against its Python reference; tests/fuzz checks every access to memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perflib import kernels
from tests.instruments.perf import perf_files as made
from tests.instruments.perf.perf_files import FileEvent
from tests.reference.perf_data import CompressedError, Fields, Parsed, perf_data

NUMBERS = (
    *("time_ns", "period", "a", "b", "c", "d"),
    *("type", "misc", "event", "cpu", "pid", "tid", "bytes", "offset"),
)
KERNEL = "perf_data"


def parse(
    kernel: kernels.Kernel,
    data: bytes,
    events: list[FileEvent],
    fields: Fields,
    piece: int = 10**9,
    room: int = 50,
) -> Parsed:
    """The kernel's answer in the reference's form; the bytes come in pieces."""
    lib, ffi = kernel.lib, kernel.ffi
    state = lib.perf_data_open()
    for number, event in enumerate(events):
        assert lib.perf_data_event(state, event.sample_type, event.read_format, event.sample_id_all)
        for id_ in event.ids:
            assert lib.perf_data_id(state, id_, number)
        for slot, (offset, size, signed) in enumerate(fields.get(number, ())):
            lib.perf_data_field(state, number, slot, offset, size, signed)
    records, count = ffi.new("perf_data_record[]", room), ffi.new("int64_t *")
    parsed = Parsed()
    at, given_ = 0, 0
    last = False
    while not last:
        given_ = min(len(data), given_ + piece)
        last = given_ == len(data)
        while True:
            part = data[at:given_]
            used = lib.perf_data_feed(state, part, len(part), last, records, room, count)
            if used == -2:
                lib.perf_data_close(state)
                raise CompressedError
            assert used >= 0
            at += used
            parsed.records += [
                {name: getattr(records[i], name) for name in (*NUMBERS, "text")}
                for i in range(count[0])
            ]
            if count[0] < room:
                break
    assert at == len(data)
    names = names_of(kernel, state)
    for one in parsed.records:
        one["text"] = None if one["text"] < 0 else names[one["text"]]
    report = lib.perf_data_reported(state)
    parsed.count, parsed.unknown, parsed.damaged = report.records, report.unknown, report.damaged
    parsed.cut, parsed.broken = report.cut, report.broken
    lib.perf_data_close(state)
    return parsed


def names_of(kernel: kernels.Kernel, state: Any) -> list[bytes]:
    ends = kernel.ffi.new("int64_t[]", 3)
    found: list[bytes] = []
    room = 40
    while len(found) < kernel.lib.perf_data_count(state):
        buffer = kernel.ffi.new("char[]", room)
        got = kernel.lib.perf_data_names(state, len(found), buffer, room, ends, 3)
        room *= 1 if got else 2
        begins = [0, *ends[0:got]]
        raw = bytes(kernel.ffi.buffer(buffer, begins[-1]))
        found += [raw[begins[i] : begins[i + 1]] for i in range(got)]
    return found


def either(data: bytes, events: list[FileEvent], fields: Fields) -> Parsed | str:
    try:
        return perf_data(data, events, fields)
    except CompressedError:
        return "compressed"


def same(
    kernel: kernels.Kernel,
    data: bytes,
    events: list[FileEvent],
    fields: Fields,
    piece: int,
    room: int,
) -> None:
    try:
        ours: Parsed | str = parse(kernel, data, events, fields, piece, room)
    except CompressedError:
        ours = "compressed"
    assert ours == either(data, events, fields)


SAMPLE_TYPES = st.lists(st.sampled_from([1 << bit for bit in range(11)]), max_size=11).map(sum)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[FileEvent], Fields, list[bytes]]:
    """Events that perf could write together, the fields wanted, and records of theirs."""
    common = draw(st.sampled_from([made.IDENTIFIER, made.ID | made.IP | made.TID, 0]))
    number = draw(st.integers(1, 3)) if common else 1
    bits = [1 << bit for bit in range(11) if common == made.IDENTIFIER or not 1 << bit & 0x4B]
    trailers = draw(st.booleans())
    events = [
        FileEvent(
            ids=(10 * i + 1, 10 * i + 2),
            sample_type=common | sum(draw(st.sets(st.sampled_from(bits)))),
            read_format=draw(st.integers(0, 31)),
            sample_id_all=trailers,
        )
        for i in range(number)
    ]
    sizes = st.tuples(st.integers(0, 12), st.sampled_from([1, 2, 4, 8]), st.booleans())
    fields = {i: draw(st.lists(sizes, max_size=4)) for i in range(number)}
    return events, fields, [one_record(draw, events) for _ in range(draw(st.integers(0, 8)))]


def one_record(draw: st.DrawFn, events: list[FileEvent]) -> bytes:
    event = draw(st.sampled_from(events))
    id_ = draw(st.sampled_from([*event.ids, 999]))
    name = draw(st.binary(max_size=20).filter(lambda raw: b"\0" not in raw))
    who: Any = {"pid": draw(INTS), "time_ns": draw(LONGS)}
    kind = draw(st.integers(0, 12))
    if kind <= 3:
        return made.sample(
            event,
            id_,
            **who,
            tid=draw(INTS),
            cpu=draw(INTS),
            period=draw(LONGS),
            chain=draw(st.lists(st.integers(0, 2**64 - 1), max_size=3)),
            counts=draw(st.lists(st.integers(0, 2**64 - 1), max_size=3)),
            raw=draw(st.binary(max_size=24)),
            after=draw(st.binary(max_size=10)),
        )
    if kind == 4:
        return made.comm(event, name, **who, tid=draw(INTS), exec_=draw(st.booleans()))
    if kind == 5:
        which = draw(st.sampled_from([4, 7]))
        return made.task(event, which, **who, tid=draw(INTS), ppid=draw(INTS), ptid=draw(INTS))
    if kind == 6:
        return made.mmap2(event, name, **who, address=draw(st.integers(0, 2**64 - 1)), size=4096)
    if kind == 7:
        return made.mmap(event, name, pid=who["pid"], address=4096, size=8192)
    if kind == 8:
        return made.lost_record(event, id_, draw(st.integers(0, 9)), time_ns=who["time_ns"])
    if kind == 9:
        return made.lost_samples(event, id_, draw(st.integers(0, 9)))
    if kind == 10:
        return made.id_index(draw(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9)))))
    if kind == 11:
        return made.cpu_switch(event, tid=who["pid"], other=draw(INTS), time_ns=who["time_ns"])
    type_ = draw(st.sampled_from([0, 6, 12, 22, 23, 63, 64, 66, 68, 71, 80, 85, 86, 2**31 + 9]))
    if type_ in (66, 71):
        extra = draw(st.binary(max_size=16))
        size = len(extra) + -len(extra) % 8
        return made.record(type_, size.to_bytes(8, "little")) + extra.ljust(size, b"\0")
    return made.record(type_, draw(st.binary(max_size=30)))


@pytest.mark.arm64
@given(file=files(), piece=st.integers(1, 300), room=st.integers(1, 9))
def test_made_files(
    kernel: kernels.Kernel,
    file: tuple[list[FileEvent], Fields, list[bytes]],
    piece: int,
    room: int,
) -> None:
    events, fields, records = file
    same(kernel, b"".join(records), events, fields, piece, room)


@given(file=files(), data=st.data(), piece=st.integers(1, 300))
def test_files_that_are_cut_have_the_records_before(
    kernel: kernels.Kernel,
    file: tuple[list[FileEvent], Fields, list[bytes]],
    data: st.DataObject,
    piece: int,
) -> None:
    events, fields, records = file
    whole = b"".join(records)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    same(kernel, cut, events, fields, piece, 5)
    found = parse(kernel, cut, events, fields).records
    assert found == parse(kernel, whole, events, fields).records[: len(found)]


@given(file=files(), data=st.data(), piece=st.integers(1, 300), room=st.integers(1, 9))
@example(file=([FileEvent()], {}, [bytes(8)]), data=None, piece=1, room=1)
@example(file=([FileEvent()], {}, [made.record(81, bytes(8))]), data=None, piece=1, room=1)
def test_damaged_files(
    kernel: kernels.Kernel,
    file: tuple[list[FileEvent], Fields, list[bytes]],
    data: st.DataObject | None,
    piece: int,
    room: int,
) -> None:
    events, fields, records = file
    whole = bytearray(b"".join(records))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(0, len(whole)))
            whole[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    same(kernel, bytes(whole), events, fields, piece, room)


@pytest.mark.arm64
@given(data=st.binary(max_size=200), piece=st.integers(1, 50), room=st.integers(1, 4))
def test_random_bytes(kernel: kernels.Kernel, data: bytes, piece: int, room: int) -> None:
    events = [FileEvent(sample_type=0x107FF, read_format=31)]
    same(kernel, data, events, {0: [(0, 8, True)]}, piece, room)


def test_many_different_names(kernel: kernels.Kernel) -> None:
    event = FileEvent()
    records = [made.comm(event, f"name {i}".encode(), pid=i, tid=i) for i in range(3000)]
    found = parse(kernel, b"".join(records), [event], {}, 1000).records
    assert [one["text"] for one in found] == [f"name {i}".encode() for i in range(3000)]
    assert [one["pid"] for one in found] == list(range(3000))
