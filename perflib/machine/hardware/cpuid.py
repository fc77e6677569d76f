"""What the processor says about itself, and how to read the parts that sysfs does not show.

Leaves are read through the kernel ``cpuid``; decoding is made of pure functions on a mapping
``(leaf, subleaf) -> (eax, ebx, ecx, edx)``, so that a dump from any other machine serves as well.
Where there is no compiler or no x86 there are no leaves, and everything else still works.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CPUID; AMD64
Architecture Programmer's Manual, volume 3, appendix E.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perflib import kernels
from perflib.machine.files import fields
from perflib.model.errors import MeasurementError, PerflibError

Registers = tuple[int, int, int, int]
Leaves = Mapping[tuple[int, int], Registers]

_BASIC = (0x0, 0x1, 0x2, 0x6, 0x7, 0xA, 0xF, 0x10, 0x15, 0x18, 0x1C)
_EXTENDED = (
    *(0x80000000, 0x80000001, 0x80000005, 0x80000006, 0x80000007, 0x80000008),
    *(0x80000019, 0x8000001B, 0x8000001F, 0x80000021, 0x80000022),
)
_HYPERVISOR = (0x40000000, 0x40000001)
_HYPERVISOR_BIT = 1 << 31  # leaf 1, ecx


@dataclass(frozen=True)
class Signature:
    """Vendor, family, model and stepping; ``None``: not known.

    Of an ARM core its MIDR: implementer, part, and revision (0x31: r3p1).
    """

    vendor: str
    family: int | None
    model: int | None
    stepping: int | None


@functools.cache
def leaves() -> Leaves:
    """The leaves of the core that this call runs on, as far as this package decodes them.

    Raises
    ------
    PerflibError
        There is no compiler, or the processor has no CPUID instruction; the message says which.
    """
    kernel = kernels.load("cpuid")
    registers = kernel.ffi.new("uint32_t[4]")

    def query(leaf: int, subleaf: int) -> Registers:
        if kernel.lib.cpuid_leaf(leaf, subleaf, registers) < 0:
            msg = "this processor has no CPUID instruction (it is no x86)"
            raise MeasurementError(msg)
        return (registers[0], registers[1], registers[2], registers[3])

    return read_leaves(query)


def read_leaves(query: Callable[[int, int], Registers]) -> Leaves:
    """Read each leaf that exists, no further than the processor says it goes."""
    found: dict[tuple[int, int], Registers] = {}
    last_basic = query(0x0, 0)[0]
    last_extended = query(0x80000000, 0)[0]
    hypervisor = bool(query(0x1, 0)[2] & _HYPERVISOR_BIT) if last_basic >= 1 else False
    for leaf in _BASIC:
        if leaf <= last_basic:
            found[leaf, 0] = query(leaf, 0)
            for subleaf in range(1, last_subleaf(leaf, found[leaf, 0]) + 1):
                found[leaf, subleaf] = query(leaf, subleaf)
    for leaf in _HYPERVISOR if hypervisor else ():
        found[leaf, 0] = query(leaf, 0)
    for leaf in _EXTENDED:
        if leaf <= last_extended:
            found[leaf, 0] = query(leaf, 0)
    return found


def last_subleaf(leaf: int, main: Registers) -> int:
    """The last subleaf that is decoded here, by what subleaf 0 says; 0: there are no others."""
    if leaf == 0x7:  # features; the number of subleaves
        return min(main[0], 1)
    if leaf == 0xF:  # monitoring; a bit for that of the L3
        return main[3] >> 1 & 1
    if leaf == 0x18:  # TLBs; the number of subleaves
        return min(main[0], 64)
    return 0


def xcr0() -> int | None:
    """The register states that the system saves for each thread; ``None``: XSAVE is not enabled.

    Bits 1, 2, 5 to 7 and 17 to 18 stand for the registers of SSE, AVX, AVX-512 and AMX: where a
    bit is clear, instructions on those registers are invalid although CPUID offers them.

    Raises
    ------
    PerflibError
        There is no compiler.
    """
    found = int(kernels.load("cpuid").lib.cpuid_xcr0())
    return None if found < 0 else found


def signature(root: Path = Path("/"), known: Leaves | None = None) -> Signature:
    """Who made this processor and which it is, from CPUID or else from /proc/cpuinfo."""
    if known and (0x1, 0) in known:
        return _signature_of(known)
    cpuinfo = fields(root / "proc/cpuinfo")
    if "CPU implementer" in cpuinfo:
        return Signature(
            vendor=f"ARM implementer {_number(cpuinfo['CPU implementer']) or 0:#04x}",
            family=_number(cpuinfo["CPU implementer"]),
            model=_number(cpuinfo.get("CPU part")),
            stepping=16 * (_number(cpuinfo.get("CPU variant")) or 0)
            + (_number(cpuinfo.get("CPU revision")) or 0),
        )
    return Signature(
        vendor=cpuinfo.get("vendor_id", "unknown vendor"),
        family=_number(cpuinfo.get("cpu family")),
        model=_number(cpuinfo.get("model")),
        stepping=_number(cpuinfo.get("stepping")),
    )


def _signature_of(known: Leaves) -> Signature:
    _, ebx, ecx, edx = known[0x0, 0]
    eax = known[0x1, 0][0]
    family, model = eax >> 8 & 0xF, eax >> 4 & 0xF
    if family in (0x6, 0xF):
        model |= eax >> 12 & 0xF0
    if family == 0xF:
        family += eax >> 20 & 0xFF
    return Signature(ascii_of(ebx, edx, ecx), family, model, eax & 0xF)


def ascii_of(*registers: int) -> str:
    """The text that registers hold, four characters each."""
    raw = struct.pack(f"<{len(registers)}I", *registers)
    return raw.decode("ascii", errors="replace").strip("\0 ")


def _number(word: str | None) -> int | None:
    try:
        return int(word or "", 0)
    except ValueError:
        return None


def leaves_or_reason() -> tuple[Leaves, str]:
    """The leaves, or none and the reason why there are none."""
    try:
        return leaves(), ""
    except (PerflibError, OSError) as error:
        return {}, str(error)
