"""perf's data file (``perf.data``), read as it stands: every record, in the order of the file.

``perf script`` prints samples, but not all that a file knows: losses that perf notes at the end of
a recording are left out, and the name of a thread that has a line break in it breaks its lines.
The file is gone through once, in pieces, by a C kernel; a file that ends early (a full disk, a
perf that was killed) is read as far as it goes, and ``cut`` says so.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from perflib import kernels
from perflib.instruments.perf.pieces import fed, strings
from perflib.model.errors import MeasurementError, UserError
from perflib.store.regular import open_to_read


class Type:
    """Types of records, and what stands in their ``a`` to ``d``."""

    MMAP, MMAP2 = 1, 10
    """A file was mapped: address, length, offset in the file, protection (-1: unknown); text."""
    LOST = 2
    """The buffer was full: id of the event (of any), how many records."""
    COMM = 3
    """A thread was named (text); ``misc & EXEC`` where it began a program."""
    EXIT, FORK = 4, 7
    """A thread ended, or came to be: parent's process and thread."""
    THROTTLE = 5
    """The kernel thinned out samples: id of the event."""
    SAMPLE = 9
    """Of an event: the requested fields."""
    LOST_SAMPLES = 13
    """How many samples of an event were lost since it was opened, and the event's id."""
    SWITCH_CPU_WIDE = 15
    """A thread left a CPU (``misc & OUT``; ``PREEMPTED``: it was runnable), or came to it: process
    and thread that came instead, or had left."""
    FINISHED_ROUND = 68
    """All records that follow are later than the latest of the round before this one."""
    ID_INDEX = 69
    """An event's id, nothing, and the CPU that it counts on."""
    EXEC, OUT, PREEMPTED = 1 << 13, 1 << 13, 1 << 14


_PIECE = 1 << 20
_ROOM = 1 << 14  # records that the kernel hands over at once
_MAGIC = b"PERFILE2"
_HEADER, _SECTION, _SMALLEST_ATTR = 104, 16, 64
_MOST_EVENTS, _MOST_PERIOD = 4096, 1 << 62
_SAMPLE_TYPES, _SAMPLE_TIME = 1 << 16 | 0x7FF, 1 << 2  # what may stand before the raw data
_SAMPLE_ID_ALL, _USE_CLOCKID = 1 << 18, 1 << 25
_FREQUENCY = 1 << 10
_CLOCKS = {
    0: "CLOCK_REALTIME", 1: "CLOCK_MONOTONIC", 4: "CLOCK_MONOTONIC_RAW", 7: "CLOCK_BOOTTIME",
    11: "CLOCK_TAI",
}  # fmt: skip
_PERFS_CLOCK = "perf's own"
_COMPRESSED = -2


class Field(NamedTuple):
    """Where a number stands in an event's raw data."""

    offset: int
    size: int
    signed: bool


@dataclass(frozen=True)
class Event:
    """One event of a file: a ``perf_event_attr``, and the ids that its records bear.

    Attributes
    ----------
    type, config
        What is counted (``PERF_TYPE_TRACEPOINT`` is 2; config is then the tracepoint's id).
    period
        Events between two samples; 0 where a frequency was requested.
    ids
        One for each CPU or thread that it counts on.
    clock
        What ``time_ns`` is read from; ``perf's own`` where none was requested.
    """

    type: int
    config: int
    sample_type: int
    read_format: int
    sample_id_all: bool
    period: int
    ids: tuple[int, ...]
    clock: str


class PerfData:
    """A data file of perf, open; its records are gone through once.

    Parameters
    ----------
    path
        What ``perf record -o`` wrote.

    Attributes
    ----------
    events : list of Event
        In the order of the records' ``event``.
    names : list of str
        Programs and files, by the records' ``text``; as far as the records were gone through.
        Bytes that are no UTF-8 are replaced.
    clock : str
        What the records' time is read from.
    begin : int
        Where the records begin in the file.
    cut : str
        Why the file ends early, in a sentence; empty if it does not, or is not read to its end.
    remarks : list of str
        What else a reader of the records should know, in sentences.

    Raises
    ------
    UserError
        There is no such file, it may not be read, or is something else than perf's data.
    MeasurementError
        Its records are compressed, or its events cannot be read.

    Examples
    --------
    >>> with PerfData(Path("perf.data")) as data:  # doctest: +SKIP
    ...     samples = sum((part["type"] == Type.SAMPLE).sum() for part in data.records())
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.names: list[str] = []
        self.cut = ""
        self.remarks: list[str] = []
        try:
            self._file = open_to_read(path)
        except OSError as error:
            msg = f"{path} cannot be read: {error.strerror}"
            raise UserError(msg) from error
        try:
            self.begin, self._size = self._read_header()
            self._kernel = kernels.load("perf_data")
            self._lib: Any = self._kernel.lib
            self._ffi: Any = self._kernel.ffi
            self._state = self._lib.perf_data_open()
            if not self._state:
                raise _no_memory()
        except BaseException:
            self._file.close()
            raise
        try:
            self._declare_events()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file and the memory."""
        self._file.close()
        self._lib.perf_data_close(self._state)

    # --- the header ----------------------------------------------------------------------------

    def _read_header(self) -> tuple[int, int]:
        """Read the events. Returns where the records begin, and their bytes (0: to the end)."""
        head = _read_at(self._file, 0, _HEADER)
        if not head.startswith(_MAGIC):
            kind = "perf's data of another byte order" if head[:8] == _MAGIC[::-1] else ""
            kind = kind or ("empty" if not head else "no data file of perf (perf record -o FILE)")
            msg = f"{self._path} is {kind}"
            raise UserError(msg)
        size = struct.unpack_from("<Q", head, 8)[0] if len(head) >= 16 else 0
        if len(head) < _HEADER or size < _HEADER:
            how = "the end of perf's pipe" if size == 16 else "cut within its header"
            msg = f"{self._path} is {how}: its events are not in it"
            raise MeasurementError(msg)
        entry, attrs, attrs_size, data, data_size = struct.unpack_from("<5Q", head, 16)
        room = entry - _SECTION
        number = attrs_size // entry if entry else 0
        if room < _SMALLEST_ATTR or room > 4096 or not 1 <= number <= _MOST_EVENTS:
            msg = f"{self._path}: its header makes no sense ({number} events of {room} bytes)"
            raise MeasurementError(msg)
        actual = os.fstat(self._file.fileno()).st_size
        self.events = []
        room_for_ids = actual  # each event may name the same ids: together they fit into the file
        for i in range(number):
            self.events.append(self._read_event(attrs + i * entry, room, room_for_ids))
            room_for_ids -= 8 * len(self.events[-1].ids)
        self.clock = self.events[0].clock
        if data > actual:
            data, data_size = actual, 0
        if data_size == 0:
            self.cut = "perf was killed: it did not end its data file."
        elif data + data_size > actual:
            missing = data + data_size - actual
            self.cut = f"The data file is cut: {missing} bytes at its end are missing."
        return data, data_size

    def _read_event(self, offset: int, room: int, room_for_ids: int) -> Event:
        raw = _read_at(self._file, offset, room + _SECTION)
        if len(raw) < room + _SECTION:
            msg = f"{self._path} is cut within its header: its events are not in it"
            raise MeasurementError(msg)
        kind, _, config, period, sample_type, read_format, flags = struct.unpack_from("<II5Q", raw)
        ids_offset, ids_size = struct.unpack_from("<2Q", raw, room)
        if ids_size > room_for_ids:
            msg = f"{self._path}: its header makes no sense ({ids_size // 8} ids of an event)"
            raise MeasurementError(msg)
        ids = _read_at(self._file, ids_offset, ids_size)
        clockid = struct.unpack_from("<i", raw, 92)[0] if room >= 96 else 0
        clock = _CLOCKS.get(clockid, f"clock {clockid}")
        return Event(
            type=kind,
            config=config,
            sample_type=sample_type,
            read_format=read_format,
            sample_id_all=bool(flags & _SAMPLE_ID_ALL),
            period=0 if flags & _FREQUENCY else min(period, _MOST_PERIOD),
            ids=struct.unpack_from(f"<{len(ids) // 8}Q", ids),
            clock=clock if flags & _USE_CLOCKID else _PERFS_CLOCK,
        )

    def _declare_events(self) -> None:
        for number, event in enumerate(self.events):
            known = self._lib.perf_data_event(
                self._state, event.sample_type, event.read_format, event.sample_id_all
            )
            for one in event.ids:
                known = known and self._lib.perf_data_id(self._state, one, number)
            if not known:
                raise _no_memory()

    def fields(self, event: int, fields: Sequence[Field]) -> None:
        """What of the event's raw data stands in ``a`` to ``d`` of its samples; before `records`.

        Raises
        ------
        UserError
            More than four, or a size that is none of 1, 2, 4, 8.
        """
        if len(fields) > 4 or any(f.size not in (1, 2, 4, 8) or f.offset < 0 for f in fields):
            msg = f"fields of 1, 2, 4 or 8 bytes, four at most: not {list(fields)}"
            raise UserError(msg)
        for slot, one in enumerate(fields):
            self._lib.perf_data_field(self._state, event, slot, one.offset, one.size, one.signed)

    # --- the records ---------------------------------------------------------------------------

    def records(self) -> Iterator[NDArray[Any]]:
        """All records, in the order of the file, some ten thousand at a time.

        Yields
        ------
        Arrays of the kernel's struct ``perf_data_record``: ``time_ns`` (0: it has none), ``period``
        (0: none), ``type`` (see `Type`), ``misc``, ``event`` (number of its event; -1: unknown),
        ``cpu``, ``pid`` and ``tid`` (-1: none), ``text`` (number of a name, see `names`; -1: none),
        what its type has in ``a`` to ``d``, and where it is: ``offset`` (from `begin`), ``bytes``.

        Raises
        ------
        MeasurementError
            The records are compressed.
        """
        records = np.empty(_ROOM, dtype=kernels.record(self._kernel.build, "perf_data_record"))
        records_at = self._ffi.from_buffer("perf_data_record[]", records)
        count = self._ffi.new("int64_t *")

        def feed(at: Any, size: int, last: bool) -> tuple[int, bool]:
            used = self._lib.perf_data_feed(self._state, at, size, last, records_at, _ROOM, count)
            if used < 0:
                raise self._compressed() if used == _COMPRESSED else _no_memory()
            return used, count[0] == _ROOM

        self._file.seek(self.begin)
        for _ in fed(self._file, self._ffi, feed, _PIECE, self._size or 1 << 62):
            numbers = range(len(self.names), self._lib.perf_data_count(self._state))
            self.names += strings(self._ffi, numbers, self._names)
            if count[0]:
                yield records[: count[0]].copy()
        self._report()

    def _names(self, *where: Any) -> int:
        return int(self._lib.perf_data_names(self._state, *where))

    def _compressed(self) -> MeasurementError:
        msg = (
            f"{self._path} is compressed (perf record -z), which cannot be read here. perf can "
            "undo it: perf inject -i FILE -o PLAIN"
        )
        return MeasurementError(msg)

    def _report(self) -> None:
        report = self._lib.perf_data_reported(self._state)
        if report.broken >= 0:
            self.cut = (
                f"The data file is damaged after {report.broken} bytes of records: what follows "
                "is left out."
            )
        elif report.cut and not self.cut:
            self.cut = "The data file is cut: its last record is not all there."
        if report.damaged:
            self.remarks.append(
                f"{report.damaged} of {report.records} records are damaged and were left out."
            )


def lost(records: NDArray[Any]) -> tuple[int, int]:
    """How many records these notes of losses count: those of full buffers, those of the events.

    Both count the same. The first ones are written when there is room again, so they are missing
    where no record follows on that CPU; the second ones at the end, by perf since 6.1. The larger
    sum over a file is the truth.
    """
    of_buffers = records["b"][records["type"] == Type.LOST].sum()
    of_events = records["a"][records["type"] == Type.LOST_SAMPLES].sum()
    return int(of_buffers), int(of_events)


def _read_at(file: FileIO, offset: int, size: int) -> bytes:
    if offset > os.fstat(file.fileno()).st_size:
        return b""
    file.seek(offset)
    return file.read(size)


def _no_memory() -> MeasurementError:
    msg = "there is not enough memory for the names in this file"
    return MeasurementError(msg)
