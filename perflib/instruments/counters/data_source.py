"""Where the data of a sampled memory access came from: the bits that perf records, in words.

``union perf_mem_data_src`` (linux/perf_event.h, lowest bit first)::

    bits  0- 4  operation     1 not known, 2 load, 4 store, 8 prefetch, 16 code
    bits  5-18  level         1 not known, 2 hit, 4 miss, then one bit each: L1, line fill buffer,
                              L2, L3, local RAM, remote RAM 1 and 2 hops off, remote cache 1 and 2
                              hops off, I/O, uncached
    bits 19-23  snoop         1 not known, 2 none, 4 hit, 8 miss, 16 hit modified
    bits 24-25  lock          1 not known, 2 locked
    bits 26-32  TLB           1 not known, 2 hit, 4 miss, 8 L1, 16 L2, 32 walker, 64 fault
    bits 33-36  level number  1-4 L1-L4, 5 L2 miss buffer, 6 memory-side cache, 7 L0, 8 uncached,
                              9 CXL, 10 I/O, 11 any cache, 12 line fill buffer, 13 RAM,
                              14 persistent memory, 15 not known
    bit  37     remote
    bits 38-39  more of snoop 1 forwarded, 2 from a peer
    bits 40-42  blocked by    1 not known, 2 data, 4 address
    bits 43-45  hops          1 other core, 2 other node, 3 other socket, 4 other board

The level number, which newer kernels give, goes before the level's bits. What stands above bit 45
in newer kernels is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["DataSource", "decode"]


@dataclass(frozen=True)
class DataSource:
    """A decoded ``perf_mem_data_src``, in words; ``not known`` where the hardware does not say.

    ``level`` is where the data was found (``hit``) or was not (``miss``); ``hit`` tells which.
    """

    op: str
    level: str
    hit: str
    snoop: str
    tlb: str
    lock: str
    blocked: str


_UNKNOWN = "not known"
_OPERATIONS = ("load", "store", "prefetch", "code")
_LEVELS = (
    *("L1", "line fill buffer", "L2", "L3", "local RAM", "remote RAM", "remote RAM"),
    *("remote cache", "remote cache", "I/O", "uncached"),
)
_LEVEL_NUMBERS = {
    1: "L1",
    2: "L2",
    3: "L3",
    4: "L4",
    5: "L2 miss buffer",
    6: "memory-side cache",
    7: "L0",
    8: "uncached",
    9: "CXL",
    10: "I/O",
    11: "cache",
    12: "line fill buffer",
    13: "RAM",
    14: "persistent memory",
}
_SNOOPS = ("none", "hit", "miss", "hit modified")
_TLBS = ("L1", "L2", "walker", "fault")


def decode(data_src: int) -> DataSource:
    """Decode the number, whose layout the module's docstring has.

    Examples
    --------
    >>> decode(0x68100142)
    DataSource(op='load', level='L1', hit='hit', snoop='none', tlb='L1 or L2 hit', lock='no', blocked='not known')
    """  # noqa: E501
    level = data_src >> 5 & 0x3FFF
    tlb = data_src >> 26 & 0x7F
    extra = data_src >> 38 & 3
    lock = data_src >> 24 & 3
    snoops = [*_bits(data_src >> 19 & 0x1F, _SNOOPS), *_bits(extra << 1, ("forwarded", "peer"))]
    return DataSource(
        op=_words(_bits(data_src & 0x1F, _OPERATIONS)),
        level=_level(data_src, level),
        hit=_outcome(level) or _UNKNOWN,
        snoop=_words(snoops),
        tlb=" ".join(filter(None, (" or ".join(_bits(tlb >> 2, _TLBS)), _outcome(tlb))))
        or _UNKNOWN,
        lock=_UNKNOWN if lock & 1 else ("no", "yes")[lock >> 1],
        blocked=_words(_bits(data_src >> 40 & 7, ("data", "address"))),
    )


def _bits(value: int, names: Sequence[str]) -> list[str]:
    """The names of the bits that are set, the lowest bit of all (not known) left out."""
    found = [name for place, name in enumerate(names, 1) if value >> place & 1]
    return list(dict.fromkeys(found))


def _words(found: Sequence[str]) -> str:
    return " or ".join(found) or _UNKNOWN


def _outcome(level: int) -> str:
    return "hit" if level & 2 else "miss" if level & 4 else ""


def _level(data_src: int, level: int) -> str:
    number = data_src >> 33 & 0xF
    remote = bool(data_src >> 37 & 1)
    hops = data_src >> 43 & 7
    if number in (0, 0xF):
        return _words(_bits(level >> 2, _LEVELS))
    name = _LEVEL_NUMBERS[number]
    if name == "RAM":
        return "remote RAM" if remote else "local RAM"
    if not remote:
        return name
    if name in ("L1", "L2", "L3", "L4", "cache"):
        return "cache of another core" if hops == 1 else "remote cache"
    return f"remote {name}"
