"""What ``kernels_c/memory_load.c`` leaves in memory: STREAM's kernels, and others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

KINDS = ("read", "write", "nt_write", "update", "copy", "scale", "add", "triad")
# Arrays that the program reads or writes: STREAM's rule.
ARRAYS_MOVED = dict(zip(KINDS, (1, 1, 1, 2, 2, 2, 3, 3), strict=True))
CHUNK_BYTES = 4096
_SCALAR, _CONSTANT = 3.0, 7.0

Floats = NDArray[np.float64]
_LEAVES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "write": lambda a, _: np.full_like(a, _CONSTANT),
    "nt_write": lambda a, _: np.full_like(a, _CONSTANT),
    "copy": lambda a, _: a,
    "scale": lambda a, _: _SCALAR * a,
    "add": lambda a, b: a + b,
    "triad": lambda a, b: b + _SCALAR * a,
}


def left(kind: str, chunks: int, times: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """The arrays ``a``, ``b``, ``c`` after each chunk was done so many ``times`` (``[chunk]``)."""
    a = np.tile(np.arange(1.0, CHUNK_BYTES // 8 + 1), chunks)
    b, c = 2 * a, np.full_like(a, _CONSTANT)
    each = np.repeat(times, CHUNK_BYTES // 8)
    if kind == "update":
        a = np.where(each % 2 == 1, -a, a)
    elif kind in _LEAVES:
        c = np.where(each > 0, _LEAVES[kind](a, b), c)
    return a, b, c
