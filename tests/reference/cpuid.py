"""What cpuid.c is to return: the sum of the registers; and the kernel's own reading of leaf 1."""

from __future__ import annotations

from pathlib import Path

# /proc/cpuinfo's flags that stand for a bit of leaf 1, and that no kernel option hides
FLAGS_EDX = {"fpu": 0, "tsc": 4, "cx8": 8, "cmov": 15, "mmx": 23, "fxsr": 24, "sse": 25, "sse2": 26}
FLAGS_ECX = {"ssse3": 9, "cx16": 13, "sse4_1": 19, "sse4_2": 20, "hypervisor": 31}


def checksum(registers: tuple[int, int, int, int]) -> int:
    return sum(registers)


def cpuinfo() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
