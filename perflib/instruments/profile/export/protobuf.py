"""Protocol buffers' wire format, as far as writing needs it.

A message is the concatenation of its fields: https://protobuf.dev/programming-guides/encoding.
A message within a message is a field of bytes, so that `text` and `message` are all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterable


def varint(value: int) -> bytes:
    """A number in groups of seven bits; negative ones as 64-bit two's complement."""
    if value < 0:
        value += 1 << 64
    if value < 0x80:
        return _SMALL[value]
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_SMALL = [bytes([value]) for value in range(0x80)]


def number(field: int, value: int) -> bytes:
    """A field that is an integer, an enumeration or a boolean."""
    return varint(field << 3) + varint(value)


def numbers(field: int, values: Iterable[int]) -> bytes:
    """A repeated field of integers, packed."""
    return message(field, b"".join(map(varint, values)))


def message(field: int, content: bytes) -> bytes:
    """A field that is a message, already written, or bytes."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field of text; what is no character becomes a question mark."""
    return message(field, value.encode("utf-8", "replace"))
