"""A file through a C kernel piece by piece: what the readers of perf's data and text share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import FileIO
from typing import Any

Feed = Callable[[Any, int, bool], tuple[int, bool]]
_ENDS = 1 << 12


def fed(
    file: FileIO, ffi: Any, feed: Feed, piece_bytes: int, most: int = 1 << 62
) -> Iterator[None]:
    """Feed a file to a kernel; what it left comes again, in front of what follows.

    Parameters
    ----------
    file
        Read from where it stands.
    feed
        Called with the address of some bytes, how many, and whether they are the last; says how
        many it took, and whether it has to be called again before more is read.
    piece_bytes
        The memory for a piece: more than the kernel leaves.
    most
        How many bytes to read.

    Yields
    ------
    After each call.
    """
    piece = bytearray(piece_bytes)
    at = ffi.from_buffer(piece, require_writable=True)
    filled, last = 0, False
    while not last:
        read = file.readinto(memoryview(piece)[filled : filled + most]) or 0
        last = not read
        most -= read
        filled += read
        taken, again = 0, True
        while again:
            used, again = feed(at + taken, filled - taken, last)
            taken += used
            yield
        piece[: filled - taken] = piece[taken:filled]
        filled -= taken


def strings(ffi: Any, numbers: range, read: Callable[[int, Any, int, Any, int], int]) -> list[str]:
    """Strings that a kernel keeps by number; bytes that are no UTF-8 are replaced.

    ``read`` is called with the first number, a buffer and its size, and where to write each
    string's end in it and for how many there is room; it says how many it wrote.
    """
    found: list[str] = []
    room = 1 << 16
    if numbers:  # mostly there are none
        ends = ffi.new("int64_t[]", _ENDS)
    while len(found) < len(numbers):
        buffer = ffi.new("char[]", room)
        written = read(numbers[len(found)], buffer, room, ends, _ENDS)
        if not written:  # one that is longer than the buffer
            room *= 4
        begin = 0
        for end in ends[0:written]:
            found.append(bytes(ffi.buffer(buffer + begin, end - begin)).decode(errors="replace"))
            begin = end
    return found
