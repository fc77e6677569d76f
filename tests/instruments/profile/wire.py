"""Protocol buffers read without a schema: what was written is compared with it field by field."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Message = dict[int, list[Any]]  # int, or bytes


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def decode(data: bytes | int) -> Message:
    """Every field's values, in their order: numbers, and bytes of texts and messages."""
    assert isinstance(data, bytes)
    found: Message = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            found[key >> 3].append(value)
        else:
            assert kind in {1, 2}, f"wire type {kind}"
            size, at = (8, at) if kind == 1 else _varint(data, at)
            assert at + size <= len(data)
            taken = data[at : at + size]
            found[key >> 3].append(int.from_bytes(taken, "little") if kind == 1 else taken)
            at += size
    return found


def packed(data: bytes | int) -> list[int]:
    """The numbers of a packed field."""
    assert isinstance(data, bytes)
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
    return values
