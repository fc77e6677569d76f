"""The mainboard's firmware and its memory modules, as SMBIOS lists them.

Two machines of one model may differ in nothing else: a BIOS of last year, a channel left empty.
Serial numbers are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from perflib.machine.files import text

_MEMORY_DEVICE = 17
_TYPES = {0x18: "DDR3", 0x1A: "DDR4", 0x1E: "LPDDR4", 0x20: "HBM", 0x22: "DDR5", 0x23: "LPDDR5"}
_HEADER = 4  # bytes: type, length, handle


def firmware(root: Path = Path("/")) -> dict[str, str | None]:
    """Product, board, BIOS version and date, and the memory modules; ``None``: cannot be seen.

    ``memory_modules``: how many of which size, type and configured speed (in megatransfers per
    second), and how many slots are empty: ``"8 x 32 GiB DDR5 4800 MT/s, 8 empty"``. Only root may
    read it. Source: DMTF DSP0134 (SMBIOS), 7.18.
    """
    place = root / "sys/class/dmi/id"
    return {
        "product": text(place / "product_name"),
        "board": text(place / "board_name"),
        "bios_version": text(place / "bios_version"),
        "bios_date": text(place / "bios_date"),
        "memory_modules": _memory_modules(root / "sys/firmware/dmi/tables/DMI"),
    }


def _memory_modules(path: Path) -> str | None:
    try:
        table = path.read_bytes()
    except OSError:
        return None
    found = Counter(_module(one) for kind, one in _structures(table) if kind == _MEMORY_DEVICE)
    empty = found.pop("", 0)
    listed = [f"{count} x {module}" for module, count in sorted(found.items())]
    return ", ".join([*listed, *([f"{empty} empty"] if empty else [])]) or None


def _structures(table: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and formatted part of each structure; its texts, which end in two zeros, are skipped."""
    start = 0
    while start + _HEADER <= len(table) and (length := table[start + 1]) >= _HEADER:
        yield table[start], table[start : start + length]
        end = table.find(b"\0\0", start + length)
        if end < 0:
            return
        start = end + 2


def _module(structure: bytes) -> str:
    """Size, type and speed of a memory device; empty: nothing is in its slot."""

    def number(offset: int, size: int) -> int:
        field = structure[offset : offset + size]
        return int.from_bytes(field, "little") if len(field) == size else 0

    size = number(0x0C, 2)
    if size == 0:
        return ""
    if size == 0xFFFF:
        return "module of unknown size"
    if size == 0x7FFF:
        mib = number(0x1C, 4) & 0x7FFFFFFF
    else:
        mib = (size & 0x7FFF) // 1024 if size & 0x8000 else size
    shown = f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"
    speed = number(0x20, 2) or number(0x15, 2)  # as configured, else as built
    speeds = f" {speed} MT/s" if speed not in (0, 0xFFFF) else ""
    return f"{shown} {_TYPES.get(number(0x12, 1), 'memory')}{speeds}"
