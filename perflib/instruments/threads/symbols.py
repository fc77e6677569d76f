"""The names of a process's addresses: from its mappings and the symbol tables of its files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.libraries.elf import Elf, read_elf

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
class _Module:
    """A file at a place in memory."""

    path: str
    base: int
    start: int
    end: int
    file: Elf


def _base(file: Elf, mapping: Mapping) -> int | None:
    """Where address 0 of a file is in memory, if this is the mapping of its first segment."""
    if not file.segments:
        return None
    first = file.segments[0]
    if mapping.offset != first.offset // _PAGE * _PAGE:
        return None
    return mapping.start - first.address // _PAGE * _PAGE


class Symbols:
    """Names of addresses of one process.

    Parameters
    ----------
    mappings
        What was mapped where, earlier ones first: where two overlap, the later counts.
        Rows of ``/proc/PID/maps`` read at several times can follow one another.

    Examples
    --------
    >>> maps = Path("/proc/self/maps").read_text()
    >>> Symbols.from_maps(maps).name(16)
    '0x10'
    """

    def __init__(self, mappings: Iterable[Mapping]) -> None:
        rows = {(row.start, row.end, row.offset, row.path): row for row in mappings}
        newest_first = list(rows.values())[::-1]
        self._mappings = newest_first
        self._modules: list[_Module] = []
        self._names: dict[int, str] = {}
        for row in newest_first:
            if not row.path.startswith("/") or row.path.endswith(_DELETED):
                continue  # another file may have the deleted one's name by now
            file = read_elf(Path(row.path))
            base = _base(file, row)
            if base is not None:
                low = min(segment.address for segment in file.segments) // _PAGE * _PAGE
                high = max(segment.address + segment.memory_bytes for segment in file.segments)
                high = -(-high // _PAGE) * _PAGE  # with what the file has no bytes of
                self._modules.append(_Module(row.path, base, base + low, base + high, file))

    @classmethod
    def from_maps(cls, *texts: str) -> Symbols:
        """Of the texts of ``/proc/PID/maps``, read one after the other."""
        return cls(row for text in texts for row in read_maps(text))

    def name(self, address: int) -> str:
        """The function that contains an address, else ``file+0x...``, else the address itself."""
        if address not in self._names:
            self._names[address] = self._name(address)
        return self._names[address]

    def object_at(self, address: int) -> tuple[str, int] | None:
        """The variable that contains an address, and the address's offset in it."""
        module = self._module(address)
        return module.file.data.at(address - module.base) if module is not None else None

    def objects_within(self, begin: int, end: int) -> list[str]:
        """The variables with a byte from an address on, before another; by address."""
        module = self._module(begin)
        if module is None:
            return []
        return module.file.data.within(begin - module.base, end - module.base)

    def _row(self, address: int) -> Mapping | None:
        rows = (row for row in self._mappings if row.start <= address < row.end)
        return next(rows, None)

    def _module(self, address: int) -> _Module | None:
        """The file that an address belongs to, also in the part that its file has no bytes of."""
        row = self._row(address)
        named = row.path if row is not None else ""
        for module in self._modules:
            # Text that was copied onto huge pages, and zeroed variables, are anonymous.
            if module.start <= address < module.end and named in ("", module.path):
                return module
        return None

    def _name(self, address: int) -> str:
        module = self._module(address)
        if module is not None:
            place = address - module.base
            found = module.file.code.at(place)
            return found[0] if found is not None else f"{Path(module.path).name}+{place:#x}"
        row = self._row(address)
        if row is None or not row.path:
            return f"{address:#x}"
        place = address - row.start + row.offset
        return f"{Path(row.path.removesuffix(_DELETED)).name}+{place:#x}"
