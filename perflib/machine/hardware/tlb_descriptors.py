"""What the one-byte descriptors of Intel's CPUID leaf 2 say about TLBs, from Core 2 onwards.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CPUID, table
"Encoding of CPUID Leaf 2 Descriptors". The table's names "TLB0" and "uTLB" are the first level of
processors that also have a "TLB1" or "DTLB" descriptor, which is then the second.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["DESCRIPTORS", "G1", "K4", "M2", "M4"]

K4, M2, M4, G1 = 1 << 12, 1 << 21, 1 << 22, 1 << 30

_Kind = Literal["data", "instruction", "unified"]
_Row = tuple[int, _Kind, tuple[int, ...], int, int]  # level, kind, pages, entries, ways

DESCRIPTORS: dict[int, tuple[_Row, ...]] = {
    0x01: ((1, "instruction", (K4,), 32, 4),),
    0x02: ((1, "instruction", (M4,), 2, 2),),
    0x03: ((1, "data", (K4,), 64, 4),),
    0x04: ((1, "data", (M4,), 8, 4),),
    0x05: ((2, "data", (M4,), 32, 4),),
    0x0B: ((1, "instruction", (M4,), 4, 4),),
    0x55: ((1, "instruction", (M2, M4), 7, 7),),
    0x56: ((1, "data", (M4,), 16, 4),),
    0x57: ((1, "data", (K4,), 16, 4),),
    0x59: ((1, "data", (K4,), 16, 16),),
    0x5A: ((1, "data", (M2, M4), 32, 4),),
    0x61: ((1, "instruction", (K4,), 48, 48),),
    0x63: ((1, "data", (M2, M4), 32, 4), (1, "data", (G1,), 4, 4)),
    0x64: ((2, "data", (K4,), 512, 4),),
    0x6A: ((1, "data", (K4,), 64, 8),),
    0x6B: ((2, "data", (K4,), 256, 8),),
    0x6C: ((2, "data", (M2, M4), 128, 8),),
    0x6D: ((2, "data", (G1,), 16, 16),),
    0x76: ((1, "instruction", (M2, M4), 8, 8),),
    0xA0: ((1, "data", (K4,), 32, 32),),
    0xB0: ((1, "instruction", (K4,), 128, 4),),
    0xB1: ((1, "instruction", (M2,), 8, 4), (1, "instruction", (M4,), 4, 4)),
    0xB2: ((1, "instruction", (K4,), 64, 4),),
    0xB3: ((2, "data", (K4,), 128, 4),),
    0xB4: ((2, "data", (K4,), 256, 4),),
    0xB5: ((1, "instruction", (K4,), 64, 8),),
    0xB6: ((1, "instruction", (K4,), 128, 8),),
    0xBA: ((2, "data", (K4,), 64, 4),),
    0xC0: ((1, "data", (K4, M4), 8, 4),),
    0xC1: ((2, "unified", (K4, M2), 1024, 8),),
    0xC2: ((1, "data", (K4, M2), 16, 4),),
    0xC3: ((2, "unified", (K4, M2), 1536, 6), (2, "unified", (G1,), 16, 4)),
    0xC4: ((1, "data", (M2, M4), 32, 4),),
    0xCA: ((2, "unified", (K4,), 512, 4),),
}
