"""Words of 64 bits in the kernels: the numbers of splitmix64, and how checksums are folded."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(z: int) -> int:
    """The last steps of splitmix64."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def splitmix(state: int) -> Iterator[int]:
    while True:
        state = (state + GOLDEN) & WORD
        yield mixed(state)


def shuffled(n: int, random: Iterator[int]) -> list[int]:
    numbers = list(range(n))
    for i in range(n, 1, -1):
        j = (next(random) >> 32) * i >> 32
        numbers[i - 1], numbers[j] = numbers[j], numbers[i - 1]
    return numbers


def bits(value: float) -> int:
    """A double's 64 bits."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def fold(checksum: int, word: int) -> int:
    """The checksum after one more word."""
    checksum = (checksum ^ word) * GOLDEN & WORD
    return checksum ^ checksum >> 29


def carryless(a: int, b: int) -> int:
    """The product of polynomials over GF(2)."""
    found = 0
    for bit in range(b.bit_length()):
        found ^= (a << bit) * (b >> bit & 1)
    return found


def remainder(a: int, modulus: int) -> int:
    """What is left of a polynomial."""
    while (more := a.bit_length() - modulus.bit_length()) >= 0:
        a ^= modulus << more
    return a


def rotated(value: int, by: int, width: int = 64) -> int:
    return (value << by | value >> width - by) & (1 << width) - 1


def rotated_sum(words: Iterable[int]) -> int:
    """The checksum of kernels that rotate it before each word."""
    total = 0
    for word in words:
        total = rotated(total, 5) ^ word
    return total
