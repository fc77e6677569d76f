"""Models of an instruction TLB and of a store buffer, for the simulator to count with."""

from __future__ import annotations

from dataclasses import dataclass

from perflib.machine.hardware import cpuid
from perflib.machine.hardware.tlbs import decode_tlbs
from perflib.model.errors import UserError

_MAX_ENTRIES = 1 << 20


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True)
class TlbModel:
    """A set-associative TLB that replaces the least recently used entry of a set.

    Parameters
    ----------
    entries, ways
        How many pages it holds, and how many places each may choose from.
    page_bytes
        The size of a page: a power of two.
    second_level
        ``(entries, ways)`` of a second level, for what misses the first; none by default.

    Raises
    ------
    UserError
        A page or a number of sets (entries / ways) that is no power of two, or more ways than
        entries.
    """

    entries: int
    ways: int
    page_bytes: int = 4096
    second_level: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not _power_of_two(self.page_bytes):
            msg = f"a page has a power of two of bytes (4096, 2097152), not {self.page_bytes}"
            raise UserError(msg)
        for entries, ways in ((self.entries, self.ways), self.second_level or (1, 1)):
            if not 1 <= ways <= entries <= _MAX_ENTRIES:
                msg = (
                    f"a TLB of {entries} entries in {ways} ways is not possible: "
                    f"1 <= ways <= entries <= {_MAX_ENTRIES}"
                )
                raise UserError(msg)
            if entries % ways or not _power_of_two(entries // ways):
                msg = (
                    f"a TLB of {entries} entries in {ways} ways has {entries / ways:g} sets; the "
                    "number of sets (entries / ways) must be a power of two"
                )
                raise UserError(msg)

    def __str__(self) -> str:
        """In words, for the column ``model``."""
        text = f"TLB of {self.entries} entries, {self.ways} ways, pages of {self.page_bytes} B, LRU"
        if self.second_level:
            text += "; second level {} entries, {} ways".format(*self.second_level)
        return text


@dataclass(frozen=True)
class StoreBufferModel:
    """Which stores a load can still collide with.

    A processor compares the low 12 bits first, and delays the load. The model: among the stores
    still in the buffer the youngest that overlaps the load in the low 12 bits decides; if the whole
    addresses overlap, it forwards its value, and else the load is an alias.

    Parameters
    ----------
    stores
        The last so many stores.
    window_instructions
        And none that is more instructions old than this; ``None``: however old.

    Raises
    ------
    UserError
        No store, or a window of no instruction.
    """

    stores: int
    window_instructions: int | None = None

    def __post_init__(self) -> None:
        window = self.window_instructions
        if not 1 <= self.stores <= _MAX_ENTRIES or (window is not None and window < 1):
            msg = (
                "a store buffer holds at least one store, for at least one instruction; not "
                f"stores={self.stores}, window_instructions={window}"
            )
            raise UserError(msg)

    def __str__(self) -> str:
        """In words, for the column ``model``."""
        text = f"store buffer of {self.stores} stores, low 12 bits compared"
        if self.window_instructions is not None:
            text += f", none older than {self.window_instructions} instructions"
        return text


# Intel 64 and IA-32 Architectures Optimization Reference Manual, on the Haswell microarchitecture:
# the core's buffers (42 stores; Skylake: 56) and its TLBs.
HASWELL_ITLB = TlbModel(128, 4, 4096, (1024, 8))
HASWELL_STORES = StoreBufferModel(42)


def itlb_of_this_machine(page_bytes: int = 4096) -> TlbModel | None:
    """The instruction TLB that this processor reports; ``None`` where it reports none.

    Also where a model with a power of two of sets cannot have its geometry.
    """
    tlbs = decode_tlbs(cpuid.leaves_or_reason()[0])
    levels = {
        tlb.level: (tlb.entries, tlb.ways)
        for tlb in tlbs
        if tlb.kind in ("instruction", "unified") and page_bytes in tlb.page_bytes and tlb.ways
    }
    try:
        return TlbModel(*levels[1], page_bytes, levels.get(2))
    except (KeyError, UserError):
        return None
