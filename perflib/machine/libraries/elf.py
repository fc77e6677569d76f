"""ELF files, the programs and libraries of Linux: for which machine, loaded where, named how.

pyelftools reads the headers. numpy reads the symbols from where they stand: one by one, a library
of 30,000 of them takes pyelftools most of a second.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from perflib.store.regular import open_to_read

if TYPE_CHECKING:
    import numpy as np
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import Section
    from numpy.typing import NDArray

_MAGIC = b"\x7fELF"
_READ_WHOLE = _MAGIC + b"\x02\x01"  # 64 bits, little-endian
_SYMBOL = [
    ("name", "<u4"),
    ("info", "u1"),
    ("other", "u1"),
    ("section", "<u2"),
    ("value", "<u8"),
    ("bytes", "<u8"),
]
_CODE, _DATA = (2, 10), (1,)  # STT_FUNC and STT_GNU_IFUNC; STT_OBJECT
_LOCAL = 0


class Header(NamedTuple):
    """The first words of an ELF file; ``machine`` and ``kind`` are its e_machine and e_type."""

    bits: int
    order: Literal["little", "big"]
    machine: int
    kind: int


def header(path: Path) -> Header | None:
    """The header of an ELF file; ``None`` for any other file.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with open_to_read(path) as file:
        raw = file.read(20)
    if len(raw) < 20 or not raw.startswith(_MAGIC):
        return None
    order: Literal["little", "big"] = "big" if raw[5] == 2 else "little"
    kind, machine = (int.from_bytes(raw[at : at + 2], order) for at in (16, 18))
    return Header(64 if raw[4] == 2 else 32, order, machine, kind)


class Segment(NamedTuple):
    """A part of the file that is loaded; ``memory_bytes`` has the zeros behind it, too."""

    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class SymbolTable:
    """Symbols by address, one name an address; nested symbols do not occur in practice."""

    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    names: tuple[int, ...] = ()  # where each begins in the strings
    strings: bytes = b""

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        """First address, the address behind it, and name, by address."""
        for start, end, name in zip(self.starts, self.ends, self.names, strict=True):
            yield start, end, _source_name(_string(self.strings, name))

    def at(self, address: int) -> tuple[str, int] | None:
        """The symbol that contains an address, and the address's offset in it."""
        row = bisect.bisect_right(self.starts, address) - 1
        if row < 0 or address >= self.ends[row]:
            return None
        return _source_name(_string(self.strings, self.names[row])), address - self.starts[row]

    def within(self, begin: int, end: int) -> list[str]:
        """The symbols with a byte from an address on, before another; by address."""
        rows = range(bisect.bisect_right(self.ends, begin), bisect.bisect_left(self.starts, end))
        return [_source_name(_string(self.strings, self.names[row])) for row in rows]


@dataclass(frozen=True)
class Elf:
    """Loaded segments, functions and variables; empty where the file could not be read."""

    segments: tuple[Segment, ...] = ()
    code: SymbolTable = SymbolTable()
    data: SymbolTable = SymbolTable()

    def address(self, offset: int) -> int | None:
        """The address, as ``objdump`` prints it, of a byte of the file."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.file_bytes:
                return segment.address + offset - segment.offset
        return None


@functools.lru_cache(maxsize=64)
def read_elf(path: Path) -> Elf:
    """Read a program or library of 64 bits, little-endian.

    Returns
    -------
    Empty for any other file, and for one that is gone, damaged or cut off. The symbols are those of
    the linker, or, where they were stripped, the exported ones.
    """
    from elftools.common.exceptions import ELFError

    try:
        with io.BufferedReader(open_to_read(path)) as file:
            if file.read(len(_READ_WHOLE)) != _READ_WHOLE:
                return Elf()  # most mapped data files end here
            from elftools.elf.elffile import ELFFile

            return _read(ELFFile(file))
    except (OSError, ValueError, ELFError):
        return Elf()


def _read(file: ELFFile) -> Elf:
    import numpy as np

    segments = tuple(
        Segment(*(int(each[name]) for name in ("p_offset", "p_vaddr", "p_filesz", "p_memsz")))
        for each in file.iter_segments("PT_LOAD")
    )
    for kind in ("SHT_SYMTAB", "SHT_DYNSYM"):
        for section in file.iter_sections(kind):
            strings = _data(file, file.get_section(section["sh_link"]))
            symbols = np.frombuffer(_data(file, section), _SYMBOL)
            symbols = symbols[(symbols["section"] > 0) & (symbols["section"] < file.num_sections())]
            tables = (_table(file, symbols, types, strings) for types in (_CODE, _DATA))
            return Elf(segments, *tables)
    return Elf(segments)


def _data(file: ELFFile, section: Section) -> bytes:
    if section["sh_size"] > file.stream_len:  # reading would take as much memory first
        msg = f"section {section.name} is larger than its file"
        raise ValueError(msg)
    data: bytes = section.data()
    return data


def _table(
    file: ELFFile, symbols: NDArray[np.void], types: tuple[int, ...], strings: bytes
) -> SymbolTable:
    import numpy as np

    kept = symbols[np.isin(symbols["info"] & 15, types)]
    # Of several names of one address the one that others use counts, and of those the plainest:
    # pthread_mutex_lock, not ___pthread_mutex_lock.
    local = kept["info"] >> 4 == _LOCAL
    texts = [_string(strings, start) for start in kept["name"].tolist()]
    underscores = np.array([len(text) - len(text.lstrip("_")) for text in texts], np.int64)
    lengths = np.array([len(text) for text in texts], np.int64)
    kept = kept[np.lexsort((lengths, underscores, local, kept["bytes"] == 0, kept["value"]))]
    starts, first = np.unique(kept["value"], return_index=True)
    kept = kept[first]
    ends = (starts + kept["bytes"]).tolist()
    # Assembly may not say how long a function is: it ends where the next or its section does.
    for row in np.flatnonzero(kept["bytes"] == 0).tolist():
        section = file.get_section(int(kept["section"][row]))
        limit = section["sh_addr"] + section["sh_size"]
        following = int(starts[row + 1]) if row + 1 < len(starts) else limit
        ends[row] = max(min(limit, following), int(starts[row]))
    return SymbolTable(tuple(starts.tolist()), tuple(ends), tuple(kept["name"].tolist()), strings)


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


def _source_name(name: str) -> str:
    """A name as its source has it."""
    demangled = _demangler() if name.startswith("_Z") else None
    return demangled(name.encode()) if demangled is not None else name
