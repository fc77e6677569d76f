"""Numbers that teach by moving: a TLB's pages, two addresses, a cache's sets; plain ipywidgets.

What each shows comes from a function without a widget; `slider` puts sliders in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from perflib.experiments.aliasing.addresses import PERIOD_BYTES, aliasing
from perflib.model.errors import UserError, choose

if TYPE_CHECKING:
    from perflib.course.widgets import Slider

_KIB = 1024
_MOST_STEPS = 1024


def tlb(entries: int, pages: int, page_kib: int = 4) -> dict[str, Any]:
    """How far a TLB reaches, and which share of accesses to so many pages miss it.

    Any entry holds any page, and the least recently used one is replaced.

    Parameters
    ----------
    entries
        Of the TLB.
    pages
        That are visited, each equally often.
    page_kib
        Size of a page.

    Returns
    -------
    ``reach``, ``data`` in KiB, and the shares of misses, in percent, ``at random`` and ``in a
    ring``, where the pages are visited in the same order again and again.
    """
    return {
        "the TLB reaches, KiB": entries * page_kib,
        "the data take, KiB": pages * page_kib,
        "misses at random, %": round(100 * max(0.0, 1 - entries / pages), 1),
        "misses in a ring, %": 100.0 if pages > entries else 0.0,
    }


def waits(store: int, load: int, size_bytes: int = 4) -> str:
    """Whether a load waits for an earlier store that is still in the store buffer.

    Parameters
    ----------
    store, load
        Addresses of their first bytes.
    size_bytes
        Of both.

    Returns
    -------
    ``true dependence`` (they share a byte), ``false dependence`` (only their low 12 bits do), or
    ``no``.
    """
    if abs(load - store) < size_bytes:
        return "true dependence"
    apart = (load - store) % PERIOD_BYTES
    return "false dependence" if min(apart, PERIOD_BYTES - apart) < size_bytes else "no"


def alias(offset_bytes: int, pages_apart: int = 1, item_bytes: int = 4) -> dict[str, Any]:
    """A loop that loads ``in[i]`` and stores ``out[i]``, with ``out`` so far above ``in``.

    Parameters
    ----------
    offset_bytes
        Of ``out`` from ``in``, modulo 4096.
    pages_apart
        Whole pages between them, besides.
    item_bytes
        Of one element.

    Returns
    -------
    The two addresses and their low 12 bits; which step's load meets the store of step 0, and
    whether notebook 10 predicts a cost.
    """
    first = 0x7F0000000000
    second = first + pages_apart * PERIOD_BYTES + offset_bytes
    ahead = -(-(offset_bytes % PERIOD_BYTES) // item_bytes)  # first load that is not below
    met = waits(second, first + ahead * item_bytes, item_bytes)
    return {
        "in begins at": f"{first:#x}",
        "out begins at": f"{second:#x}",
        "low 12 bits of in": f"{first % PERIOD_BYTES:#05x}",
        "low 12 bits of out": f"{second % PERIOD_BYTES:#05x}",
        "the store of step 0 meets the load of step": ahead if ahead < _MOST_STEPS else 0,
        "that is a": met,
        "soon enough to cost time": "yes" if bool(aliasing([offset_bytes])[0][0]) else "no",
    }


def cache(
    size_kib: int, stride_bytes: int, array_kib: int, ways: int = 8, line_bytes: int = 64
) -> dict[str, Any]:
    """An array is walked by a stride, again and again: what does a cache of that size keep?

    The least recently used line of a set is replaced. The array begins at a line.

    Parameters
    ----------
    size_kib, ways, line_bytes
        Of the cache; its number of sets follows.
    stride_bytes
        From one load to the next.
    array_kib
        How long the array is.

    Returns
    -------
    Lines touched, sets used of how many, the most lines in one set, and the share of loads that
    miss from the second lap on, in percent.
    """
    sets = max(1, size_kib * _KIB // (ways * line_bytes))
    loads = [at // line_bytes for at in range(0, array_kib * _KIB, stride_bytes)]
    lines = list(dict.fromkeys(loads))
    crowd: dict[int, int] = {}
    for line in lines:
        crowd[line % sets] = crowd.get(line % sets, 0) + 1
    missed = sum(1 for line in lines if crowd[line % sets] > ways)
    return {
        "lines touched": len(lines),
        "they take, KiB": len(lines) * line_bytes / _KIB,
        "sets used": f"{len(crowd)} of {sets}",
        "most lines in one set": f"{max(crowd.values())} for {ways} ways",
        "loads that miss, %": round(100 * missed / len(loads), 1),
    }


_OFFSETS = [*range(0, 128, 4), *range(128, 4096, 64)]
_POWERS = [1 << bit for bit in range(16)]
# Of each: what it computes, and for each of its arguments the words, the choices and the first.
_SHOWN: Mapping[str, tuple[Callable[..., dict[str, Any]], dict[str, tuple[str, list[int], int]]]]
_SHOWN = {
    "tlb": (
        tlb,
        {
            "entries": ("entries of the TLB", [16, 32, 64, 96, 128, 256, 512, 1536, 2048], 64),
            "pages": ("pages visited", sorted({*_POWERS, 48, 65, 72, 80, 96, 192, 384}), 80),
            "page_kib": ("size of a page, KiB", [4, 64, 2048], 4),
        },
    ),
    "alias": (
        alias,
        {
            "offset_bytes": ("out − in modulo 4096, B", _OFFSETS, 4),
            "pages_apart": ("whole pages between", [0, 1, 2, 16, 256], 1),
            "item_bytes": ("size of an element, B", [4, 8], 4),
        },
    ),
    "cache": (
        cache,
        {
            "size_kib": ("size of the cache, KiB", [16, 32, 48, 64, 512, 1024, 2048], 32),
            "stride_bytes": ("stride, B", [one for one in _POWERS if 4 <= one <= 16384], 64),
            "array_kib": ("array, KiB", [8, 16, 24, 32, 40, 48, 64, 128, 256, 1024], 32),
            "ways": ("ways", [1, 2, 4, 8, 12, 16], 8),
        },
    ),
}  # fmt: skip


def slider(name: str) -> Slider:
    """Sliders and what follows from them: ``tlb``, ``alias`` or ``cache``.

    Raises
    ------
    UserError
        There are no such sliders; the nearest name is given.
    """
    if name not in _SHOWN:
        raise UserError(choose("slider", name, _SHOWN))
    from perflib.course.widgets import Slider

    computed, controls = _SHOWN[name]
    return Slider(name, computed, controls)
