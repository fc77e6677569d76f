"""What perf_data.c does, with the module struct: the records of perf's data files."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.instruments.perf import perf_files as has
from tests.instruments.perf.perf_files import FileEvent

KNOWN = {1, 2, 3, 4, 5, 7, 9, 10, 13, 15, 68}
KERNEL_TYPES, USER_TYPES = range(1, 23), range(64, 86)


class CompressedError(Exception):
    pass


class ShortError(Exception):
    """Something lies beyond the end of a record."""


@dataclass
class Parsed:
    records: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    unknown: int = 0
    damaged: int = 0
    cut: int = 0
    broken: int = -1


class _Words:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise ShortError
        self.at += n
        return self.data[self.at - n : self.at]

    def get(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def name(self) -> bytes:
        rest = self.data[self.at :]
        if b"\0" not in rest:
            raise ShortError
        return rest[: rest.index(b"\0")]


Fields = Mapping[int, Sequence[tuple[int, int, bool]]]


def perf_data(data: bytes, events: Sequence[FileEvent], fields: Fields) -> Parsed:
    """All records of a data section; the fields of each event's raw data by its number."""
    parsed = Parsed()
    event_of = {id_: number for number, event in enumerate(events) for id_ in event.ids}
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            parsed.cut = len(data) - at
            break
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        if size < 8:
            parsed.broken = at
            break
        if len(data) - at < size:
            parsed.cut = len(data) - at
            break
        if kind in (81, 83):
            raise CompressedError
        body = data[at + 8 : at + size]
        parsed.count += 1
        begin = at
        at += size + _following(kind, body)
        if kind not in KERNEL_TYPES and kind not in USER_TYPES:
            parsed.unknown += 1
        elif kind == 69:
            parsed.records += [one | _place(begin, size) for one in _index(body, misc)]
        elif kind in KNOWN:
            now = _blank(kind, misc) | _place(begin, size)
            try:
                _read(now, body, events, event_of, fields)
            except ShortError:
                parsed.damaged += 1
            else:
                parsed.records.append(now)
    return parsed


def _blank(kind: int, misc: int) -> dict[str, Any]:
    now: dict[str, Any] = dict.fromkeys(("time_ns", "period", "a", "b", "c", "d"), 0)
    return (
        now
        | {"type": kind, "misc": misc, "event": -1, "cpu": -1, "pid": -1, "tid": -1}
        | {"text": None}
    )


def _place(begin: int, size: int) -> dict[str, Any]:
    return {"offset": begin, "bytes": size}


def _following(kind: int, body: bytes) -> int:
    if kind == 71 and len(body) >= 8:
        return int(struct.unpack_from("<Q", body)[0]) & (2**63 - 1)
    if kind == 66 and len(body) >= 4:
        return -(-int.from_bytes(body[:4], "little") // 8) * 8 & (2**32 - 1)
    return 0


def _index(body: bytes, misc: int) -> list[dict[str, Any]]:
    found = []
    words = _Words(body)
    try:
        for _ in range(words.get("Q")):
            now = _blank(69, misc)
            now["a"], _, now["c"], _ = (words.get(code) for code in "qqqq")
            found.append(now)
    except ShortError:
        pass
    return found


def _read(
    now: dict[str, Any],
    body: bytes,
    events: Sequence[FileEvent],
    event_of: Mapping[int, int],
    fields: Fields,
) -> None:
    kind = now["type"]
    if kind == 9:
        _sample(now, body, events, event_of, fields)
        return
    id_ = 0
    if kind < 64:
        body, id_ = _trailer(now, body, events, event_of)
    words = _Words(body)
    if kind in (4, 7):
        now["pid"], now["a"], now["tid"], now["b"] = (words.get("i") for _ in range(4))
        time_ns = words.get("q")
        now["time_ns"] = now["time_ns"] or time_ns
    elif kind == 3:
        now["pid"], now["tid"] = words.get("i"), words.get("i")
        now["text"] = words.name()
    elif kind in (1, 10):
        now["pid"], now["tid"] = words.get("i"), words.get("i")
        now["a"], now["b"], now["c"] = words.get("q"), words.get("q"), words.get("q")
        now["d"] = -1
        if kind == 10:
            words.take(24)
            now["d"] = words.get("I")
            words.take(4)
        now["text"] = words.name()
    elif kind == 2:
        now["a"], now["b"] = words.get("q"), words.get("q")
    elif kind == 13:
        now["a"] = words.get("q")
        now["b"] = struct.unpack("<q", struct.pack("<Q", id_))[0]
    elif kind == 15:
        now["a"], now["b"] = words.get("i"), words.get("i")
    elif kind == 5:
        words.get("Q")
        now["a"] = words.get("q")


def _trailer(
    now: dict[str, Any], body: bytes, events: Sequence[FileEvent], event_of: Mapping[int, int]
) -> tuple[bytes, int]:
    id_ = 0
    if not events or not events[0].sample_id_all:
        return body, id_
    event = events[0]
    if event.sample_type & has.IDENTIFIER and len(body) >= 8:
        id_ = struct.unpack("<Q", body[-8:])[0]
        found = events[event_of[id_]] if id_ in event_of else event
        event = found if found.sample_id_all else event
    kept = [
        (code, names)
        for bit, code, names in (
            (has.TID, "ii", ("pid", "tid")),
            (has.TIME, "q", ("time_ns",)),
            (has.ID, "Q", ("id",)),
            (has.STREAM_ID, "Q", ("",)),
            (has.CPU, "ii", ("cpu", "")),
            (has.IDENTIFIER, "Q", ("",)),
        )
        if event.sample_type & bit
    ]
    size = 8 * len(kept)
    if len(body) < size:
        raise ShortError
    values = struct.unpack("<" + "".join(code for code, _ in kept), body[len(body) - size :])
    for name, value in zip((n for _, names in kept for n in names), values, strict=True):
        if name == "id":
            id_ = value
        elif name:
            now[name] = value
    now["event"] = event_of.get(id_, -1)
    return body[: len(body) - size], id_


def _event_of_sample(body: bytes, events: Sequence[FileEvent], event_of: Mapping[int, int]) -> int:
    if not events:
        return -1
    first = events[0].sample_type
    if first & has.IDENTIFIER:
        at = 0
    elif first & has.ID:
        at = 8 * sum(bool(first & bit) for bit in (has.IP, has.TID, has.TIME, has.ADDR))
    else:
        return 0 if len(events) == 1 else -1
    if len(body) < at + 8:
        return -1
    (id_,) = struct.unpack_from("<Q", body, at)
    return event_of.get(id_, -1)


def _sample(
    now: dict[str, Any],
    body: bytes,
    events: Sequence[FileEvent],
    event_of: Mapping[int, int],
    fields: Fields,
) -> None:
    number = now["event"] = _event_of_sample(body, events, event_of)
    if number < 0:
        return
    event = events[number]
    words = _Words(body)
    for bit, code, names in (
        (has.IDENTIFIER, "Q", [""]),
        (has.IP, "Q", [""]),
        (has.TID, "ii", ["pid", "tid"]),
        (has.TIME, "q", ["time_ns"]),
        (has.ADDR, "Q", [""]),
        (has.ID, "Q", [""]),
        (has.STREAM_ID, "Q", [""]),
        (has.CPU, "ii", ["cpu", ""]),
        (has.PERIOD, "q", ["period"]),
    ):
        if event.sample_type & bit:
            for one, name in zip(code, names, strict=True):
                value = words.get(one)
                if name:
                    now[name] = value
    if event.sample_type & has.READ:
        form = event.read_format
        n = words.get("Q") if form & has.GROUP else 1
        times = bool(form & has.ENABLED) + bool(form & has.RUNNING)
        each = 1 + bool(form & has.READ_ID) + bool(form & has.READ_LOST)
        words.take(8 * (times + n * each))
    if event.sample_type & has.CALLCHAIN:
        words.take(8 * words.get("Q"))
    if event.sample_type & has.RAW:
        raw = words.take(words.get("I"))
        for name, (offset, size, signed) in zip("abcd", fields.get(number, ()), strict=False):
            if offset + size <= len(raw):
                part = raw[offset : offset + size]
                value = int.from_bytes(part, "little", signed=signed or size == 8)
                now[name] = value
