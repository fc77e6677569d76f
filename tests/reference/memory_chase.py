"""The orders in which memory_chase.c visits the lines of its array."""

from __future__ import annotations

from collections.abc import Iterator

from tests.reference.words import shuffled, splitmix

PAGE, LINE = 4096, 64
WINDOW_PAGES = 32


def reversed_bits(n: int) -> list[int]:
    """The numbers below n, in the order of their bits read backwards."""
    bits = (n - 1).bit_length()
    backwards = (int(f"{k:0{bits}b}"[::-1], 2) if bits else 0 for k in range(2**bits))
    return [number for number in backwards if number < n]


def _visits(order: str, lines: int, in_page: int, random: Iterator[int]) -> list[int]:
    if order in ("random", "spread"):
        return shuffled(lines, random)
    if order == "sequential":
        return list(range(lines))
    if order == "lmbench" and lines % in_page:
        return reversed_bits(lines)
    in_block = WINDOW_PAGES * in_page if order == "window" else in_page
    blocks = shuffled(-(-lines // in_block), random)
    if order == "lmbench":
        words = reversed_bits(in_page)
        return [
            page * in_page + words[(i + lap) % in_page]
            for lap in range(in_page)
            for i, page in enumerate(blocks)
        ]
    return [
        block * in_block + line
        for block in blocks
        for line in shuffled(min(in_block, lines - block * in_block), random)
    ]


def visits(order: str, lines: int, line_bytes: int, seed: int, span_bytes: int = 0) -> list[int]:
    """Where the lines lie, in bytes from the array's begin, in the order they are loaded in."""
    random = splitmix(seed)
    if order == "spread":
        return [
            line * line_bytes + line * LINE % line_bytes
            for line in _visits(order, lines, 1, random)
        ]
    pages = -(-max(lines * line_bytes, span_bytes) // PAGE)
    places = shuffled(pages, random) if span_bytes > lines * line_bytes else range(pages)
    offsets = (line * line_bytes for line in _visits(order, lines, PAGE // line_bytes, random))
    return [places[offset // PAGE] * PAGE + offset % PAGE for offset in offsets]
