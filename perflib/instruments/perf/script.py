"""The text of ``perf script`` as a table of samples.

Any such text is read: with and without header, process and thread, core, time, period, several
events, tracepoints with their fields, call chains or none, inlined functions, lines of source. The
text is gone through once, in pieces, by a C kernel; what cannot be read is counted and reported.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib import kernels
from perflib.instruments.perf.pieces import fed, strings
from perflib.model.errors import MeasurementError, UserError

_PIECE = 1 << 21  # bytes of text in memory; a line may have half of it
_ROOM = 1 << 14  # samples that the kernel hands over at once
_STRINGS = ("comm", "event", "symbol", "object", "stack")  # in the kernel's order
_COLUMNS = (
    *("time_ns", "cpu", "pid", "tid", "comm", "event", "period"),
    *("ip", "symbol", "offset", "object", "stack"),
)
_REASONS = (
    "neither a sample's first line nor a frame",
    "a frame that belongs to no sample",
    "cut: a part of it is missing",
    "longer than 1 MiB",
)
_HOW = "Such a text is made with: perf script -i perf.data > out.txt"
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip -c"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"BZh": ("bzip2", "bunzip2 -c"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}


@dataclass(frozen=True)
class Unread:
    """A line that could not be read: its number from 1, its beginning, and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Profile:
    """What a text of ``perf script`` holds.

    Attributes
    ----------
    samples
        One row a sample; see :func:`read`.
    unread
        The first hundred lines that could not be read.
    unread_count
        How many there are in all.
    header
        What ``perf script --header`` says, by its own names (``hostname``, ``cmdline`` ...); a name
        that comes more than once (``event``) has its values in lines.
    lines
        Lines of the text.
    records
        Lines about something else than a sample (``PERF_RECORD_MMAP2`` ..., ``---``), left out.
    """

    samples: pd.DataFrame
    unread: list[Unread]
    unread_count: int
    header: dict[str, str]
    lines: int
    records: int


def read(path: Path) -> Profile:
    """Read the text of ``perf script``.

    Parameters
    ----------
    path
        A file, or anything else that can be read from its beginning to its end.

    Returns
    -------
    Profile
        Its ``samples`` have the columns ``time_ns``, ``cpu``, ``pid``, ``tid``, ``period`` (-1
        where the text has none; the period in the event's own unit), ``comm``, ``event`` (``""``
        where the text has none), ``ip`` (0: none), and of the innermost frame ``symbol`` as it is
        printed, ``offset`` in the function in bytes (-1: unknown) and ``object``, its file
        (``[unknown]`` where they are). ``stack`` has the frames as ``stackcollapse-perf`` tidies
        them, the outermost first, with ``;`` between them; it is empty for a sample without any.
        An inlined function's object is the one of the function that it was inlined into.

    Raises
    ------
    UserError
        There is no such file, it may not be read, is something else than such a text, or has not
        one sample in it.

    Examples
    --------
    >>> profile = read(Path("out.txt"))  # doctest: +SKIP
    >>> profile.samples["symbol"].value_counts().head()  # doctest: +SKIP
    """
    try:
        with path.open("rb", buffering=0) as file, _Reader() as kernel:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):  # it may have no end
                raise OSError(errno.EINVAL, "it is a device, not a file")
            columns = _columns(kernel, file, path)
            return _profile(kernel, _table(kernel, columns), path)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UserError(msg) from error


class _Reader:
    """The C kernel, with one text's state."""

    def __init__(self) -> None:
        kernel = kernels.load("perf_script")
        self.build = kernel.build
        self.lib: Any = kernel.lib
        self.ffi: Any = kernel.ffi
        self.state = self.lib.perf_script_open()
        if not self.state:
            raise _no_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.perf_script_close(self.state)


def _no_memory() -> MeasurementError:
    msg = "there is not enough memory for what is different in this text: read a part of it"
    return MeasurementError(msg)


def _columns(reader: _Reader, file: FileIO, path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every sample's numbers; strings are numbers still."""
    pieces: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in _COLUMNS}
    for samples in _parts(reader, file, path):
        for name in _COLUMNS:
            pieces[name].append(samples[name].copy())
    return {name: np.concatenate(pieces.pop(name)) for name in _COLUMNS}


def _parts(reader: _Reader, file: FileIO, path: Path) -> Iterator[np.ndarray[Any, Any]]:
    """The samples of a text as it comes; each part is valid until the next one."""
    samples = np.empty(_ROOM, dtype=kernels.record(reader.build, "perf_script_sample"))
    samples_at = reader.ffi.from_buffer("perf_script_sample[]", samples)
    count = reader.ffi.new("int64_t *")
    begin = True

    def feed(at: Any, size: int, last: bool) -> tuple[int, bool]:
        nonlocal begin
        if begin:
            _check_kind(bytes(reader.ffi.buffer(at, min(size, 8))), path)
            begin = False
        used = reader.lib.perf_script_feed(reader.state, at, size, last, samples_at, _ROOM, count)
        if used < 0:
            raise _no_memory()
        return used, count[0] > _ROOM - 3

    for _ in fed(file, reader.ffi, feed, _PIECE):
        yield samples[: count[0]]


class StackReader:
    """The stacks of a text that ``perf script`` is still writing, in its order.

    Parameters
    ----------
    file
        A pipe from it.

    Attributes
    ----------
    texts : list of str
        Every different stack so far, folded as in :func:`read`'s ``stack``, by its number.

    Examples
    --------
    >>> for times_ns, tids, stacks in StackReader(pipe):  # doctest: +SKIP
    ...     print(reader.texts[stacks[0]])
    """

    def __init__(self, file: FileIO) -> None:
        self.texts: list[str] = []
        self._file = file

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Any]]:
        """Parts: when each sample was taken, of which thread, and the number of its stack."""
        stack = _STRINGS.index("stack")
        with _Reader() as reader:
            for part in _parts(reader, self._file, Path("perf script")):
                self.texts += _strings(reader, stack, len(self.texts))
                yield part["time_ns"].copy(), part["tid"].copy(), part["stack"].copy()


def _check_kind(begin: bytes, path: Path) -> None:
    """Refuse what is no text of perf script, and name what it is."""
    if begin.startswith((b"PERFILE", b"2ELIFREP")):
        msg = f"{path} is perf's own data, not its text: perf script -i {path} > out.txt"
        raise UserError(msg)
    for magic, (name, command) in _COMPRESSED.items():
        if begin.startswith(magic):
            msg = f"{path} is compressed ({name}): {command} {path} > out.txt"
            raise UserError(msg)


def _strings(reader: _Reader, kind: int, first: int = 0) -> list[str]:
    """Every string of one kind from a number on."""
    lib, state = reader.lib, reader.state

    def read(*where: Any) -> int:
        return int(lib.perf_script_strings(state, kind, *where))

    return strings(reader.ffi, range(first, lib.perf_script_count(state, kind)), read)


def _categorical(codes: npt.NDArray[np.integer[Any]], strings: list[str]) -> Any:
    """Strings are distinct bytes; where they are no UTF-8, their text may be the same."""
    numbers: dict[str, int] = {}
    renumbered = [numbers.setdefault(text, len(numbers)) for text in strings]
    if len(numbers) < len(strings):
        codes = np.array(renumbered)[codes]
    # As objects: pandas' own texts are copied three times while it looks for equal ones.
    return pd.Categorical.from_codes(codes, pd.Index(list(numbers), dtype=object))


def _table(reader: _Reader, columns: dict[str, np.ndarray[Any, Any]]) -> pd.DataFrame:
    table: dict[str, Any] = {}
    for name in _COLUMNS:
        numbers = columns.pop(name)
        if name in _STRINGS:
            table[name] = _categorical(numbers, _strings(reader, _STRINGS.index(name)))
        else:
            table[name] = numbers
    return pd.DataFrame(table, copy=False)


def _header(text: str) -> dict[str, str]:
    """``# hostname : box`` by its name."""
    header: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.lstrip("# ").partition(":")
        name = name.strip()
        if colon and name:
            header[name] = f"{header[name]}\n{value.strip()}" if name in header else value.strip()
    return header


def _profile(reader: _Reader, samples: pd.DataFrame, path: Path) -> Profile:
    report = reader.lib.perf_script_reported(reader.state)
    unread = [
        Unread(
            entry.line,
            bytes(reader.ffi.buffer(entry.text, entry.bytes)).decode(errors="replace"),
            _REASONS[entry.reason],
        )
        for entry in report.unread[0 : report.kept]
    ]
    header = bytes(reader.ffi.buffer(report.header, report.header_bytes)) if report.header else b""
    if samples.empty:
        raise UserError(_nothing(path, report.lines, unread))
    return Profile(
        samples=samples,
        unread=unread,
        unread_count=report.unread_count,
        header=_header(header.decode(errors="replace")),
        lines=report.lines,
        records=report.records,
    )


def _nothing(path: Path, lines: int, unread: list[Unread]) -> str:
    if lines == 0:
        return f"{path} is empty. {_HOW}"
    why = f"; line {unread[0].line} is {unread[0].reason}" if unread else ""
    return (
        f"{path} has no sample in its {lines} lines{why}. {_HOW} (with -F: comm, pid or tid, time, "
        "event, ip, sym and dso)"
    )
