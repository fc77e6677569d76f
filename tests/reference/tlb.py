"""What qemu_counters.c is to compute: misses of a TLB, and 4K aliases, of a recorded trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Access:
    address: int
    position: int  # number of the instruction
    size: int
    is_store: bool

    def low(self) -> set[int]:
        """The bytes that it touches, modulo 4096."""
        return {byte % 4096 for byte in self.whole()}

    def whole(self) -> range:
        return range(self.address, self.address + self.size)


def tlb_misses(pages: Sequence[int], entries: int, ways: int) -> list[bool]:
    """Set-associative; in each set the least recently used page makes room."""
    sets: list[list[int]] = [[] for _ in range(entries // ways)]  # the oldest first
    missed = []
    for page in pages:
        held = sets[page % len(sets)]
        missed.append(page not in held)
        if page in held:
            held.remove(page)
        elif len(held) == ways:
            held.pop(0)
        held.append(page)
    return missed


def aliased(accesses: Sequence[Access], stores: int, window: int = 0) -> list[bool]:
    """The youngest store that overlaps in the low 12 bits decides; an instruction counts once.

    Parts of one instruction's store that lie side by side are one store.
    """
    buffer: list[Access] = []  # the youngest first
    counted: set[int] = set()
    result = []
    for access in accesses:
        alias = False
        if access.is_store:
            last = buffer[0] if buffer else None
            if last and last.position == access.position and last.whole().stop == access.address:
                buffer[0] = Access(last.address, last.position, last.size + access.size, True)
            else:
                buffer = [access, *buffer][:stores]
        else:
            young = [s for s in buffer if not window or access.position - s.position <= window]
            met = next((store for store in young if store.low() & access.low()), None)
            alias = met is not None and not set(met.whole()) & set(access.whole())
            alias = alias and access.position not in counted
            if alias:
                counted.add(access.position)
        result.append(alias)
    return result
