"""What cpuid.c is to return: the sum of the registers; and the kernel's own reading.

XCR0 has no second reader, but its consequence has: the size of the area in which the states that
it switches on are saved.
"""

from __future__ import annotations

from pathlib import Path


def checksum(registers: tuple[int, int, int, int]) -> int:
    return sum(registers)


def saved_bytes(xcr0: int, places: dict[int, tuple[int, int]]) -> int:
    """The area's size by XCR0 and each state's (size, offset): the end of the last state in it.

    The first 576 bytes are there always: x87, SSE and a header.
    """
    ends = [size + offset for bit, (size, offset) in places.items() if bit >= 2 and xcr0 & 1 << bit]
    return max([576, *ends])


def cpuinfo() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
