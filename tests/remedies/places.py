"""Where in a page arrays begin, and how far from each other."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

PAGE = 4096
Array = NDArray[Any]


def place(array: Array) -> int:
    return int(array.ctypes.data) % PAGE


def apart(one: Array, other: Array) -> int:
    """How far two arrays begin from each other in a page, the shorter way round."""
    ahead = (place(one) - place(other)) % PAGE
    return min(ahead, PAGE - ahead)


def nearest(arrays: list[Array] | tuple[Array, ...]) -> int:
    return min(apart(one, other) for i, one in enumerate(arrays) for other in arrays[:i])
