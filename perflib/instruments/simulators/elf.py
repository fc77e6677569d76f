"""As much of an ELF file as it takes to name an address: its machine, segments and functions."""

from __future__ import annotations

import bisect
import functools
import struct
from dataclasses import dataclass
from pathlib import Path

from perflib.model.errors import UserError

__all__ = ["Elf", "machine_of", "read_elf"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD = 1
_SYMTAB, _DYNSYM = 2, 11
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC


@dataclass(frozen=True)
class Elf:
    """What is known of a file; everything is empty where it could not be read."""

    segments: tuple[tuple[int, int, int], ...] = ()  # file offset, bytes in the file, address
    functions: tuple[tuple[int, int, str], ...] = ()  # address, end, name; by address

    def address(self, offset: int) -> int | None:
        """The address, as ``objdump`` prints it, of a byte of the file."""
        for start, size, address in self.segments:
            if start <= offset < start + size:
                return address + offset - start
        return None

    def function(self, address: int) -> str | None:
        """The function that an address lies in; ``None`` where no symbol covers it."""
        index = bisect.bisect_right(self.functions, address, key=lambda function: function[0]) - 1
        if index < 0 or address >= self.functions[index][1]:
            return None
        return self.functions[index][2]


def machine_of(path: Path) -> int:
    """The number of the machine (``e_machine``) that a program is for.

    Raises
    ------
    UserError
        It cannot be read, or is no 64-bit little-endian ELF file: a script, for example.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_HEADER.size)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UserError(msg) from error
    if raw[:2] == b"#!":
        msg = f"{path} is a script: name the program that runs it first, and then the script"
        raise UserError(msg)
    if len(raw) < _HEADER.size or raw[:6] != b"\x7fELF\x02\x01":
        msg = f"{path} is no 64-bit little-endian program (ELF)"
        raise UserError(msg)
    return int(_HEADER.unpack(raw)[2])


@functools.lru_cache(maxsize=16)
def read_elf(path: Path) -> Elf:
    """Segments and functions of a program or library; nothing of what is no such file."""
    try:
        raw = path.read_bytes()
        return _read(raw)
    except (OSError, ValueError, struct.error):
        return Elf()


def _read(raw: bytes) -> Elf:
    header = _HEADER.unpack_from(raw)
    if not header[0].startswith(b"\x7fELF\x02\x01"):
        return Elf()
    segments = [_SEGMENT.unpack_from(raw, header[5] + i * _SEGMENT.size) for i in range(header[10])]
    sections = [_SECTION.unpack_from(raw, header[6] + i * _SECTION.size) for i in range(header[12])]
    load = tuple((s[2], s[5], s[3]) for s in segments if s[0] == _LOAD)
    tables = {s[1]: s for s in sections}
    table = tables.get(_SYMTAB, tables.get(_DYNSYM))
    if table is None or table[6] >= len(sections):
        return Elf(load)
    end = table[4] + table[5] // _SYMBOL.size * _SYMBOL.size
    strings = raw[sections[table[6]][4] :]
    functions = [
        (value, value + size, _string(strings, name))
        for name, info, _, section, value, size in _SYMBOL.iter_unpack(raw[table[4] : end])
        if info & 15 in _FUNCTIONS and section and size
    ]
    return Elf(load, tuple(sorted(functions)))


def _string(strings: bytes, start: int) -> str:
    return strings[start : strings.find(b"\0", start)].decode(errors="replace")
