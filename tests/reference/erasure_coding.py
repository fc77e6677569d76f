"""What erasure_coding.c computes, written plainly: the field, the matrix, the parity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.reference.words import carryless, remainder

WORD = 2**64
MODULUS = 0x11D  # x^8 + x^4 + x^3 + x^2 + 1

Matrix = list[list[int]]


def product(a: int, b: int) -> int:
    """Of two elements of GF(2^8)."""
    return remainder(carryless(a, b), MODULUS)


PRODUCTS = np.array([[product(a, b) for b in range(256)] for a in range(256)], dtype=np.uint8)
INVERSE = [0] + [int(np.flatnonzero(PRODUCTS[a] == 1)[0]) for a in range(1, 256)]


def cauchy(data: int, parity: int) -> Matrix:
    return [[INVERSE[(data + i) ^ j] for j in range(data)] for i in range(parity)]


def times(rows: Sequence[Sequence[int]], blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A matrix times blocks, ``[row, byte]``."""
    out = np.zeros((len(rows), blocks.shape[1]), dtype=np.uint8)
    for i, row in enumerate(rows):
        for factor, block in zip(row, blocks, strict=True):
            out[i] ^= PRODUCTS[factor][block]
    return out


def encode(matrix: Matrix, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate([data, times(matrix, data)])


# --- blocks for a measurement --------------------------------------------------------------------


def filled(seed: int, block: int, block_bytes: int) -> NDArray[np.uint8]:
    """The content of a block of data."""
    count = np.arange(1, block_bytes // 8 + 1, dtype=np.uint64) + np.uint64(block << 32)
    z = np.uint64(seed) + count * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (z ^ z >> np.uint64(31)).astype("<u8").view(np.uint8)


def checksum(block: NDArray[np.uint8]) -> int:
    words = block.view("<u8")
    return int((words * np.arange(1, 2 * len(words), 2, dtype=np.uint64)).sum(dtype=np.uint64))


def parity_checksum(parity: NDArray[np.uint8]) -> int:
    total = 0
    for block in parity:
        total = (31 * total + checksum(block)) % WORD
    return total
