"""The translation look-aside buffers, decoded from CPUID, and how much memory each reaches.

A TLB keeps recent translations from virtual to physical pages. While a program's pages fit, an
access costs nothing extra; beyond the reach (entries times page size) each needs a page walk.

Read with care. Intel's first-level TLBs are divided between two hardware threads of a core, or
shared, in ways that CPUID mentions at best in part; where the optimization manual and CPUID
disagree (Golden Cove's load TLB: 96 entries and 64) these are CPUID's numbers. AMD's code for the
associativity knows few values: Zen 4's second-level data TLB of 3072 entries says "8 ways". In a
virtual machine a miss walks two page tables, and an entry holds the smaller of the two pages.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perflib.machine.hardware.cpuid import Leaves, Registers, signature

K4, M2, M4, G1 = 1 << 12, 1 << 21, 1 << 22, 1 << 30
_PAGES = {"4K": K4, "2M": M2, "4M": M4, "1G": G1}

TlbKind = Literal["data", "load", "store", "instruction", "unified"]

_INTEL_KINDS: dict[int, TlbKind] = {
    1: "data",
    2: "instruction",
    3: "unified",
    4: "load",
    5: "store",
}
_SERVES = {
    "data": ("data", "load", "unified"),
    "instruction": ("instruction", "unified"),
}
# Leaf 8000_0006: the code for the ways; a code stands for "at least as many" where Zen has others.
_AMD_WAYS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 16, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128}
_AMD_FULLY = 0xF
_AMD_HALVES: tuple[tuple[int, TlbKind], ...] = ((0, "instruction"), (16, "data"))
_AMD_TIMES_32 = 1 << 14  # leaf 8000_0021, eax: sizes of the second level are in units of 32
_AMD_ZEN5_FAMILY = 0x1A


@dataclass(frozen=True)
class Tlb:
    """One TLB: its entries each hold a page of any of ``page_bytes``.

    ``ways``: how many entries one page may choose from; equal to ``entries`` where any may hold
    it, ``None`` where the processor does not say.
    """

    level: int
    kind: TlbKind
    page_bytes: tuple[int, ...]
    entries: int
    ways: int | None

    def reach_bytes(self, page_bytes: int) -> int:
        """How much memory it covers in pages of one size; 0 where it holds no such pages."""
        return self.entries * page_bytes if page_bytes in self.page_bytes else 0


def serves(tlb: Tlb, use: Literal["data", "instruction"]) -> bool:
    """Does a TLB translate the addresses of loads, or of code?"""
    return tlb.kind in _SERVES[use]


def reach_bytes(
    tlbs: Iterable[Tlb], use: Literal["data", "instruction"], level: int, page_bytes: int = 4096
) -> int:
    """How much memory the TLBs of one level cover together, for loads or for code.

    0: no TLB of that level is known to hold such pages. A level made of several parts (Intel's
    second level since Golden Cove) counts as their sum.

    >>> itlb = Tlb(1, "instruction", (4096,), 64, 64)
    >>> reach_bytes([itlb], "instruction", level=1)
    262144
    """
    return sum(
        tlb.reach_bytes(page_bytes) for tlb in tlbs if tlb.level == level and serves(tlb, use)
    )


def decode_tlbs(leaves: Leaves) -> tuple[Tlb, ...]:
    """The TLBs that the processor owns up to, by level and kind; none where it says nothing.

    Intel: leaf 18H where it has one, else the descriptors of leaf 2. AMD: leaves 8000_0005,
    8000_0006 and 8000_0019.
    """
    vendor = signature(known=leaves).vendor if (0x1, 0) in leaves else ""
    if vendor == "GenuineIntel":
        found = list(_intel_leaf_18(leaves)) or list(_intel_leaf_2(leaves))
    elif vendor in ("AuthenticAMD", "HygonGenuine"):
        found = list(_amd(leaves))
    else:
        found = []
    return tuple(sorted(found, key=lambda tlb: (tlb.level, tlb.kind, tlb.page_bytes)))


def _intel_leaf_18(leaves: Leaves) -> Iterator[Tlb]:
    for (leaf, _), (_, ebx, sets, edx) in leaves.items():
        kind = _INTEL_KINDS.get(edx & 0x1F)
        ways = ebx >> 16
        if leaf == 0x18 and kind and sets and ways:
            pages = tuple(size for bit, size in enumerate((K4, M2, M4, G1)) if ebx & 1 << bit)
            yield Tlb(edx >> 5 & 0x7, kind, pages, entries=ways * sets, ways=ways)


def _intel_leaf_2(leaves: Leaves) -> Iterator[Tlb]:
    registers = list(leaves.get((0x2, 0), ()))
    if not registers:
        return
    registers[0] &= ~0xFF  # al counts how often to ask, and has been 1 for ever
    for register in registers:
        if register & 1 << 31:  # holds no descriptors
            continue
        for byte in register.to_bytes(4, "little"):
            yield from _descriptors().get(byte, ())


@functools.cache
def _descriptors() -> dict[int, tuple[Tlb, ...]]:
    table = tomllib.loads(Path(__file__).with_name("tlb_descriptors.toml").read_text())
    return {int(byte, 16): listed(rows) for byte, rows in table.items()}


def listed(rows: Iterable[Sequence[Any]]) -> tuple[Tlb, ...]:
    """The TLBs of a table's rows: level, kind, pages (``4K``), entries, ways."""
    return tuple(
        Tlb(level, kind, tuple(_PAGES[page] for page in pages), entries, ways)
        for level, kind, pages, entries, ways in rows
    )


def _amd(leaves: Leaves) -> Iterator[Tlb]:
    nothing: Registers = (0, 0, 0, 0)
    first = leaves.get((0x80000005, 0), nothing)
    second = leaves.get((0x80000006, 0), nothing)
    giant = leaves.get((0x80000019, 0), nothing)
    unit = 32 if _amd_times_32(leaves) else 1
    for register, page in ((first[0], M2), (first[1], K4)):
        for shift, kind in _AMD_HALVES:
            entries, ways = register >> shift & 0xFF, register >> shift + 8 & 0xFF
            if entries:
                yield Tlb(1, kind, (page,), entries, entries if ways == 0xFF else ways or None)
    for level, register, page, factor in (
        (2, second[0], M2, unit),
        (2, second[1], K4, unit),
        (1, giant[0], G1, 1),
        (2, giant[1], G1, unit),
    ):
        for shift, kind in _AMD_HALVES:
            entries, code = register >> shift & 0xFFF, register >> shift + 12 & 0xF
            if entries and code:
                full = entries * factor
                yield Tlb(
                    level, kind, (page,), full, full if code == _AMD_FULLY else _AMD_WAYS.get(code)
                )


def _amd_times_32(leaves: Leaves) -> bool:
    """Since Zen 5 second-level sizes are in units of 32, which a bit says.

    Hypervisors that do not know the bit clear it, so the family decides too. (Linux before 7.4
    ignores it: /proc/cpuinfo says "TLB size: 192 4K pages" where 6144 are meant.)
    """
    bit = leaves.get((0x80000021, 0), (0, 0, 0, 0))[0] & _AMD_TIMES_32
    return bool(bit) or signature(known=leaves).family == _AMD_ZEN5_FAMILY
