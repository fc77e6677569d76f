"""What alias_offsets.c and alias_blas.c compute, and the checksums that they return."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.reference.words import bits, rotated_sum

_TAPS = np.array([0.1, 0.25, 0.3, 0.25, 0.1], dtype=np.float32)
_SAMPLES = 1021


def convolution(n: int) -> NDArray[np.float32]:
    """The output; its first and last two elements are never written."""
    given = copy(n)
    out = np.zeros(n, dtype=np.float32)
    for tap in range(5):  # float32 at each step, in this order, as the C has it
        out[2:-2] = out[2:-2] + given[tap : n - 4 + tap] * _TAPS[tap]
    return out


def copy(n: int) -> NDArray[np.float32]:
    """The output, which is the input."""
    return np.float32(0.5) * (np.arange(n) % 251).astype(np.float32)


def checksum(out: NDArray[np.float32]) -> int:
    inner = out[2:-2].view(np.uint32)
    samples = min(len(inner), _SAMPLES)
    return rotated_sum(int(inner[k * len(inner) // samples]) for k in range(samples))


def dgemv_checksum(n: int) -> int:
    row, column = np.mgrid[:n, :n]
    a = (7 * row + 3 * column) % 17 - 8
    y = a @ (np.arange(n) % 5 - 2)
    return bits(float(((np.arange(n) % 7 + 1) * y).sum()))
