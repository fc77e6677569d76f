"""Who encodes, what, and where the blocks begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PAGE_BYTES, LINE_BYTES = 4096, 64
REFERENCE = "staggered"
LAYOUTS = ("aligned", REFERENCE, "chasing", "shifted")
OURS = "erasure_coding"
_SHIFTED_BYTES = 2048


class Implementation(NamedTuple):
    """A kernel, which of its methods, and what to install where it does not compile."""

    kernel: str
    method: int
    library: str = ""
    package: str = ""


_ISAL = ("ISA-L", "'apt-get install libisal-dev' (Debian, Ubuntu)")
_JERASURE = ("Jerasure", "'apt-get install libjerasure-dev' (Debian, Ubuntu)")
IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "ours_table": Implementation(OURS, 0),
    "ours_simd": Implementation(OURS, 1),
    "isal": Implementation("erasure_isal", 0, *_ISAL),
    "isal_avx2": Implementation("erasure_isal", 1, *_ISAL),
    "jerasure_vandermonde": Implementation("erasure_jerasure", 0, *_JERASURE),
    "jerasure_cauchy": Implementation("erasure_jerasure", 1, *_JERASURE),
}


class Code(NamedTuple):
    """What is encoded: so many blocks of data, so many of parity, of so many bytes."""

    data: int
    parity: int
    block_bytes: int

    @property
    def blocks(self) -> int:
        """All of them."""
        return self.data + self.parity


class Configuration(NamedTuple):
    """What one trial measures, in every layout: ``core`` counts the run's cores from 0."""

    core: int
    implementation: str


# --- where the blocks begin ----------------------------------------------------------------------


def layout_offsets(layout: str, data: int, parity: int) -> list[int]:
    """Where each block begins, in bytes after the beginning of a page; data first.

    ``aligned``: at the page, all of them. ``staggered``: evenly spread over a page, so that no two
    agree in the low 12 bits of their addresses; parity lowest, so that a block's load is far from
    following a store to the same low bits. ``chasing``: the data as in ``staggered``, but each
    block of parity one cache line ahead of a block of data, whose next load then agrees in its low
    12 bits with a store just made. ``shifted``: as ``staggered``, all shifted by half a page.

    >>> layout_offsets("staggered", 2, 2)
    [2048, 3072, 0, 1024]
    >>> layout_offsets("chasing", 2, 2)
    [2048, 3072, 2112, 3136]
    """
    if layout == "aligned":
        return [0] * (data + parity)
    room = PAGE_BYTES // (data + parity)
    step = room // LINE_BYTES * LINE_BYTES or (32 if room >= 32 else 16)
    of_data = [step * (parity + i) for i in range(data)]
    if layout == "chasing":
        ahead = [of_data[i % data] + LINE_BYTES * (1 + i // data) for i in range(parity)]
        return of_data + [offset % PAGE_BYTES for offset in ahead]
    shift = _SHIFTED_BYTES if layout == "shifted" else 0
    return [shift + offset for offset in (*of_data, *(step * i for i in range(parity)))]
