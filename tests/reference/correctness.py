"""What ``kernels_c/correctness.c`` has to compute, from Python's whole numbers and its own tables.

``python -m tests.reference.correctness`` prints the table of checksums that is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from perflib.experiments.correctness import CLASSES
from perflib.experiments.correctness.measure import TABLED
from tests.reference.words import GOLDEN, WORD, carryless, mixed, remainder, rotated, rotated_sum

OPERATIONS = 1024
_LOW = (1 << 32) - 1
_TABLE_WORDS, _CROSSED_BYTES = 4096, 128 << 10


def splitmix(counter: int) -> int:
    return mixed((counter + 1) * GOLDEN & WORD)


def table_word(block: int, place: int) -> int:
    return splitmix((block << 32) + (1 << 31) + place & WORD)


def word(block: int, i: int, which: int) -> int:
    """An input: a walking one or zero, a regular word, or a random one."""
    kind, even = (i + 3 * which) % 8, i & 8 == 0
    walking = 1 << i // 8 % 64
    return {
        0: walking,
        1: WORD ^ walking,
        2: WORD if even else 0,
        3: 0xAAAAAAAAAAAAAAAA if even else 0x5555555555555555,
    }.get(kind, splitmix((block << 32) + 4 * i + which & WORD))


def signed(value: int, width: int = 64) -> int:
    value &= (1 << width) - 1
    return value - (value >> width - 1 << width)


def small(value: int, bits: int) -> int:
    return (value & (1 << bits) - 1) - (1 << bits - 1)


def in_table(block: int, at: int) -> int:
    """Eight bytes of a block's table, from any byte on."""
    low, high = (table_word(block, at // 8 + n) for n in range(2))
    return (high << 64 | low) >> 8 * (at % 8) & WORD


# --- doubles: exact, by fractions ----------------------------------------------------------------


def bits(value: Fraction) -> int:
    """Of the double that equals the value."""
    number = float(value)
    assert Fraction(number) == value
    return int(np.float64(number).view(np.uint64))


def exact_sum(a: int, b: int, c: int) -> tuple[Fraction, Fraction, Fraction]:
    kind = (a >> 40) % 8
    first = {0: -1074, 1: 900}.get(kind, (a >> 44) % 600 - 300)
    second = (b >> 40) % 60 if kind < 2 else (b >> 44) % 600 - 300
    x, y = Fraction(small(a, 26)) * Fraction(2) ** first, Fraction(small(b, 26) | 1)
    y *= Fraction(2) ** second
    return x, y, Fraction(small(c, 52)) * Fraction(2) ** (first + second)


def residue(a: int, b: int) -> int:
    x = Fraction(a >> 11 | 1 << 52) * Fraction(2) ** ((a & 2047) % 400 - 200)
    y = Fraction(b >> 11 | 1 << 52) * Fraction(2) ** ((b & 2047) % 400 - 200)
    return bits(x * y - Fraction(float(x) * float(y)))


# --- single operations ---------------------------------------------------------------------------


def crc32c(crc: int, data: int) -> int:
    for byte in data.to_bytes(8, "little"):
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc


def _times(a: int, b: int) -> int:
    """In AES's field."""
    return remainder(carryless(a, b), 0x11B)


def _s_box() -> list[int]:
    """By powers of the generator 3, whose inverses run the other way round."""
    powers = [1]
    while len(powers) < 255:
        powers.append(_times(powers[-1], 3))
    inverse = {0: 0} | {one: powers[-place % 255] for place, one in enumerate(powers)}
    turns = {n: [rotated(inverse[n], by, 8) for by in range(5)] for n in range(256)}
    return [0x63 ^ t[0] ^ t[1] ^ t[2] ^ t[3] ^ t[4] for _, t in sorted(turns.items())]


_S_BOX = _s_box()


def aes_round(state: int, key: int) -> int:
    data = state.to_bytes(16, "little")
    out = bytearray()
    for column in range(4):
        s = [_S_BOX[data[4 * ((column + row) % 4) + row]] for row in range(4)]
        for row in range(4):
            a, b, c, d = (s[(row + n) % 4] for n in range(4))
            out.append(_times(a, 2) ^ _times(b, 3) ^ c ^ d)
    return int.from_bytes(out, "little") ^ key


def sha_rounds(cdgh: int, abef: int, keys: int) -> int:
    (f, e, b, a), (h, g, d, c) = ([x >> 32 * n & _LOW for n in range(4)] for x in (abef, cdgh))

    def sigma(x: int, turns: Iterable[int]) -> int:
        one, two, three = (rotated(x, 32 - turn, 32) for turn in turns)
        return one ^ two ^ three

    for n in range(2):
        first = (e & f ^ ~e & g) + sigma(e, (6, 11, 25)) + (keys >> 32 * n & _LOW) + h
        second = (a & b ^ a & c ^ b & c) + sigma(a, (2, 13, 22))
        a, b, c, d, e, f, g, h = first + second & _LOW, a, b, c, d + first & _LOW, e, f, g
    return a << 96 | b << 64 | e << 32 | f


def lane(a: int, b: int) -> int:
    mixed = (a + b & WORD) ^ (a & _LOW) * (b & _LOW) ^ (a << (b & 63) & WORD) ^ b >> (a & 63)
    return int.from_bytes(mixed.to_bytes(8, "little"), "big")


def dot(a: int, b: int, c: int) -> int:
    found = 0
    for half in range(2):
        total = c >> 32 * half & _LOW
        for i in range(4 * half, 4 * half + 4):
            total += (a >> 8 * i & 255) * signed(b >> 8 * i, 8)
        found |= (total & _LOW) << 32 * half
    return found


def shifts(a: int, b: int, c: int) -> int:
    by, turn = b & 63, c & 63
    scans = (64 - (a | 1).bit_length()) << 8 ^ ((b & -b).bit_length() - 1 if b else 63) << 16
    return (a << by & WORD) ^ b >> by ^ (signed(c) >> by & WORD) ^ rotated(a, turn) ^ scans


def walk(a: int, b: int, s: int) -> int:
    for i in range(8):
        s = s + b & WORD if a >> i & 1 else s ^ a
        which = b >> 2 * i & 3
        s = [s + a & WORD, s ^ a, s ^ WORD, rotated(s, 7)][which]
    return s


def quotients(a: int, d: int) -> int:
    quotient, rest = divmod(a, d)
    return quotient ^ rotated(rest, 32) ^ rotated((a & _LOW) // (d & _LOW | 1), 16)


def x87(a: int, b: int, c: int) -> int:
    x = small(a, 31)
    return (x * (small(b, 31) | 1) + small(c, 62) ^ x) & WORD


def string(block: int, i: int, a: int, b: int) -> int:
    if i % 4 == 3:
        filled = (a & 255) * 0x0101010101010101
        return filled ^ rotated(filled, 1)
    at, last = a % 1024, 1 + (b >> 3) % 120
    return in_table(block, at) ^ rotated(in_table(block, at + last), 1)


def crossing(block: int, i: int, a: int, b: int) -> int:
    if i % 2:
        return b
    step = 4096 if i % 4 == 0 else 64
    border = step * (1 + (a >> 8) % (_CROSSED_BYTES // step - 1))
    return in_table(block, border - 1 - (a >> 40) % 7)


# --- blocks --------------------------------------------------------------------------------------


def expected(name: str, block: int) -> list[int]:
    """All results of a class."""
    a, b, c = ([word(block, i, which) for i in range(OPERATIONS)] for which in range(3))
    if name == "atomic":
        return atomics(a, c[0])
    if name in ("aes", "sha", "clmul"):
        return pairs(name, a, b, c)

    def one(i: int, a_: int, b_: int, c_: int) -> int:
        if name == "integer":
            return ((a_ + b_ & WORD ^ a_ - c_ & WORD) + (a_ & b_ | ~b_ & c_) - (a_ ^ c_)) & WORD
        if name == "multiply":
            return a_ * b_ & WORD ^ a_ * b_ >> 64
        if name == "divide":
            return quotients(a_, b_ >> (c_ & 63) | 1)
        if name in ("shift", "branch", "x87", "vnni"):
            return {"shift": shifts, "branch": walk, "x87": x87, "vnni": dot}[name](a_, b_, c_)
        if name in ("string", "crossing"):
            return {"string": string, "crossing": crossing}[name](block, i, a_, b_)
        if name in ("cache", "memory"):
            return a_
        if name == "crc32":
            return crc32c(c_ & _LOW, a_) | crc32c(c_ >> 32, b_) << 32
        if name in ("avx2", "avx512"):
            other = i ^ (3 if name == "avx2" else 7)
            return lane(a[other], b[other])
        if name == "gather":
            return table_word(block, a_ % _TABLE_WORDS)
        if name in ("fma", "fma512") and i % 2:
            return residue(a_, b_)
        x, y, z = exact_sum(a_, b_, c_)
        return bits(x * y + z) ^ (bits(x) if name == "sse_neon" else 0)

    return [one(i, a[i], b[i], c[i]) for i in range(OPERATIONS)]


def atomics(a: Sequence[int], cell: int) -> list[int]:
    found = []
    for i, value in enumerate(a):
        before = cell
        cell = {0: cell + value & WORD, 3: cell ^ value}.get(i % 4, value)
        found.append(before ^ rotated(cell, 1))
    return found


def pairs(name: str, a: Sequence[int], b: Sequence[int], c: Sequence[int]) -> list[int]:
    found = []
    for i in range(0, OPERATIONS, 2):
        first, second = (x[i + 1] << 64 | x[i] for x in (a, b))
        if name == "aes":
            result = aes_round(first, second)
        elif name == "sha":
            result = sha_rounds(first, second, c[i])
        else:
            result = carryless(a[i], b[i + 1])
        found += [result & WORD, result >> 64]
    return found


def checksum(results: Iterable[int]) -> int:
    return splitmix(rotated_sum(results))


def main() -> None:
    """Print the table."""
    print("# Checksums of what each class has to give, of the first blocks of inputs; made by")
    print("# 'python -m tests.reference.correctness', without the kernel.")
    for name in CLASSES:
        sums = [f'  "{checksum(expected(name, block)):016x}",' for block in range(TABLED)]
        print(f"{name} = [", *sums, "]", sep="\n")


if __name__ == "__main__":
    main()
