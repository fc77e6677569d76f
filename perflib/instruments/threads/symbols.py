"""The names of a process's addresses: from its mappings and the symbol tables of its files."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mapping", "Symbols", "read_maps"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("address", "<u8"),
        ("physical", "<u8"),
        ("file_bytes", "<u8"),
        ("memory_bytes", "<u8"),
        ("align", "<u8"),
    ]
)
_SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entry_bytes", "<u8"),
    ]
)
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("bytes", "<u8"),
    ]
)
_LOAD, _SYMTAB, _DYNSYM = 1, 2, 11
_CODE, _DATA = (2, 10), (1,)  # STT_FUNC and STT_GNU_IFUNC; STT_OBJECT
_LOCAL = 0
_PAGE = 4096
_MAPS_ROW = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S{4} ([0-9a-f]+) \S+ \d+ *(.*)$", re.MULTILINE)
_DELETED = " (deleted)"


@dataclass(frozen=True)
class Mapping:
    """One row of ``/proc/PID/maps``."""

    start: int
    end: int
    offset: int
    path: str


def read_maps(text: str) -> list[Mapping]:
    r"""Every whole row of the text of ``/proc/PID/maps``; a row that was cut off is left out.

    >>> read_maps("1000-3000 r-xp 00001000 fe:00 12   /opt/a job\n5000-60")
    [Mapping(start=4096, end=12288, offset=4096, path='/opt/a job')]
    """
    rows = (match.groups() for match in _MAPS_ROW.finditer(text))
    # The kernel writes a line end within a file's name in octal; nothing else is changed.
    return [
        Mapping(int(start, 16), int(end, 16), int(offset, 16), path.replace("\\012", "\n"))
        for start, end, offset, path in rows
    ]


@dataclass(frozen=True)
class _Table:
    """Symbols by address, one name an address; nested symbols do not occur in practice."""

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    names: NDArray[np.uint32]
    strings: bytes

    def at(self, address: int) -> tuple[str, int] | None:
        row = int(np.searchsorted(self.starts, np.uint64(address), side="right")) - 1
        if row < 0 or address >= int(self.ends[row]):
            return None
        name = _plain(_string(self.strings, int(self.names[row])))
        return name, address - int(self.starts[row])


@dataclass(frozen=True)
class _File:
    """What a mapped file says of its addresses; without segments where it is no such file."""

    segments: NDArray[np.void]
    code: _Table | None = None
    data: _Table | None = None

    def base(self, mapping: Mapping) -> int | None:
        """Where address 0 of the file lies in memory, from the mapping of its first segment."""
        if not len(self.segments):
            return None
        first = self.segments[0]
        if mapping.offset != int(first["offset"]) // _PAGE * _PAGE:
            return None
        return mapping.start - int(first["address"]) // _PAGE * _PAGE

    def extent(self) -> tuple[int, int]:
        """Lowest and highest address of what is loaded of it, with what the file has no bytes of"""
        ends = self.segments["address"] + self.segments["memory_bytes"]
        end = -(-int(ends.max()) // _PAGE) * _PAGE
        return int(self.segments["address"].min()) // _PAGE * _PAGE, end


@dataclass(frozen=True)
class _Module:
    """A file at a place in memory."""

    path: str
    base: int
    start: int
    end: int
    file: _File


def _string(strings: bytes, start: int) -> str:
    raw = strings[start : strings.find(b"\0", start)]
    return raw.decode(errors="replace").partition("@")[0]  # of a version: pthread_join@GLIBC_2.34


@functools.cache
def _demangler() -> Callable[[bytes], str] | None:
    """What turns C++'s names of the linker into those of the source: C++'s own library, if any."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library["__cxa_demangle"], ctypes.CDLL(None)["free"]
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free.argtypes = [ctypes.c_void_p]
    free.restype = None

    def demangled(name: bytes) -> str:
        text = demangle(name, None, None, None)
        if not text:
            return name.decode(errors="replace")
        try:
            return ctypes.string_at(text).decode(errors="replace")
        finally:
            free(text)

    return demangled


def _plain(name: str) -> str:
    """A name as its source has it."""
    demangled = _demangler() if name.startswith("_Z") else None
    return demangled(name.encode()) if demangled is not None else name


@functools.lru_cache(maxsize=64)
def _read(path: str) -> _File:
    """A file's segments and symbols; empty for one that is gone, cut off or no ELF file."""
    nothing = _File(np.empty(0, _SEGMENT))
    try:
        with Path(path).open("rb") as file:  # most mapped data files end here
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or head[:6] != b"\x7fELF\x02\x01":
                return nothing
            raw = head + file.read()
        return _parse(raw)
    except (OSError, ValueError, struct.error):
        return nothing


def _parse(raw: bytes) -> _File:
    header = _HEADER.unpack_from(raw)
    segments = np.frombuffer(raw, _SEGMENT, header[10], header[5])
    segments = segments[segments["type"] == _LOAD]
    try:
        sections = np.frombuffer(raw, _SECTION, header[12], header[6])
    except ValueError:  # a file may be loaded without them
        return _File(segments)
    for wanted in (_SYMTAB, _DYNSYM):
        for section in sections[sections["type"] == wanted]:
            if int(section["link"]) < len(sections):
                link = sections[int(section["link"])]
                strings = raw[int(link["offset"]) : int(link["offset"] + link["bytes"])]
                count = int(section["bytes"]) // _SYMBOL.itemsize
                symbols = np.frombuffer(raw, _SYMBOL, count, int(section["offset"]))
                return _File(
                    segments,
                    _table(symbols, sections, _CODE, strings),
                    _table(symbols, sections, _DATA, strings),
                )
    return _File(segments)


def _table(
    symbols: NDArray[np.void],
    sections: NDArray[np.void],
    types: tuple[int, ...],
    strings: bytes,
) -> _Table:
    defined = (symbols["section"] > 0) & (symbols["section"] < len(sections))
    kept = symbols[np.isin(symbols["info"] & 15, types) & defined]
    # Of several names of one address the one that others use counts, and of those the plainest:
    # pthread_mutex_lock, not ___pthread_mutex_lock.
    local = kept["info"] >> 4 == _LOCAL
    texts = [_string(strings, int(start)) for start in kept["name"]]
    underscores = np.array([len(text) - len(text.lstrip("_")) for text in texts], np.int64)
    lengths = np.array([len(text) for text in texts], np.int64)
    kept = kept[np.lexsort((lengths, underscores, local, kept["bytes"] == 0, kept["value"]))]
    starts, first = np.unique(kept["value"], return_index=True)
    kept = kept[first]
    ends = starts + kept["bytes"]
    # Assembly may not say how long a function is: it ends where the next or its section does.
    section = sections[kept["section"]]
    limits = np.minimum(np.append(starts[1:], starts[-1:] + np.uint64(1 << 62)),
                        section["address"] + section["bytes"])  # fmt: skip
    ends = np.where(kept["bytes"] == 0, np.maximum(limits, starts), ends)
    return _Table(starts, ends, kept["name"].copy(), strings)


class Symbols:
    """Names of addresses of one process.

    Parameters
    ----------
    mappings
        What was mapped where, earlier ones first: where two lie at one place, the later counts.
        Rows of ``/proc/PID/maps`` read at several times can stand one after the other.
    root
        The folder that the process took for ``/``, for one in a container.

    Examples
    --------
    >>> maps = Path("/proc/self/maps").read_text()
    >>> Symbols.from_maps(maps).name(16)
    '0x10'
    """

    def __init__(self, mappings: Iterable[Mapping], root: Path = Path("/")) -> None:
        rows = {(row.start, row.end, row.offset, row.path): row for row in mappings}
        newest_first = list(rows.values())[::-1]
        self._mappings = newest_first
        self._modules: list[_Module] = []
        self._names: dict[int, str] = {}
        for row in newest_first:
            if not row.path.startswith("/") or row.path.endswith(_DELETED):
                continue  # another file may have the deleted one's name by now
            file = _read(str(root / row.path.lstrip("/")))
            base = file.base(row)
            if base is not None:
                low, high = file.extent()
                self._modules.append(_Module(row.path, base, base + low, base + high, file))

    @classmethod
    def from_maps(cls, *texts: str, root: Path = Path("/")) -> Symbols:
        """Of the texts of ``/proc/PID/maps``, read one after the other."""
        return cls((row for text in texts for row in read_maps(text)), root)

    def knows(self, address: int) -> bool:
        """Whether the address lies in a mapping."""
        return self._row(address) is not None

    def name(self, address: int) -> str:
        """The function that an address lies in, else ``file+0x...``, else the address itself."""
        if address not in self._names:
            self._names[address] = self._name(address)
        return self._names[address]

    def object_at(self, address: int) -> tuple[str, int] | None:
        """The variable that contains an address, and the address's offset in it."""
        module = self._module(address)
        if module is None or module.file.data is None:
            return None
        return module.file.data.at(address - module.base)

    def _row(self, address: int) -> Mapping | None:
        rows = (row for row in self._mappings if row.start <= address < row.end)
        return next(rows, None)

    def _module(self, address: int) -> _Module | None:
        """The file that an address belongs to, also in the part that its file has no bytes of."""
        row = self._row(address)
        named = row.path if row is not None else ""
        for module in self._modules:
            # Text that was moved onto huge pages, and zeroed variables, are anonymous.
            if module.start <= address < module.end and named in ("", module.path):
                return module
        return None

    def _name(self, address: int) -> str:
        module = self._module(address)
        if module is not None:
            place = address - module.base
            found = module.file.code.at(place) if module.file.code is not None else None
            return found[0] if found is not None else f"{Path(module.path).name}+{place:#x}"
        row = self._row(address)
        if row is None or not row.path:
            return f"{address:#x}"
        place = address - row.start + row.offset
        return f"{Path(row.path.removesuffix(_DELETED)).name}+{place:#x}"
