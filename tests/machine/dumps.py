"""CPUID answers of real machines: what the decoders are held to."""

from __future__ import annotations

from pathlib import Path

from perflib.machine.hardware.cpuid import Leaves, Registers

# Files of lines "leaf.subleaf: eax ebx ecx edx", and whose they are.
_DUMPS = Path(__file__).parents[1] / "data" / "cpuid"


def dump(name: str) -> Leaves:
    found: dict[tuple[int, int], Registers] = {}
    for line in (_DUMPS / f"{name}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        place, _, words = line.partition(": ")
        leaf, _, subleaf = place.partition(".")
        eax, ebx, ecx, edx = (int(word, 16) for word in words.split())
        found[int(leaf, 16), int(subleaf)] = (eax, ebx, ecx, edx)
    return found
