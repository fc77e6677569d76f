"""What code_segment.c and random_calls.c are to compute, and what is to be in a ring of jumps."""

from __future__ import annotations

from dataclasses import dataclass

WORD = 2**64
PAGE = 4096
LINE = 64


@dataclass(frozen=True)
class Sample:
    first: int  # of the units that ran, bytes from the begin of the text
    last: int
    checksum: int


def opcodes(seed: int, n: int, count: int) -> list[int]:
    """The first numbers of the generator."""
    found = []
    x = seed
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) % WORD
        found.append((x >> 32) * n >> 32)
    return found


def place(opcode: int, unit_bytes: int) -> int:
    """Which of the units in its page stands for an opcode of the pattern "page"."""
    return (opcode + opcode // 32) % (PAGE // unit_bytes)


def unit(pattern: str, opcode: int, unit_bytes: int) -> int:
    """The number of the case, or function, that runs."""
    if pattern == "page":
        return opcode * PAGE // unit_bytes + place(opcode, unit_bytes)
    return opcode


def rotate_left(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) % WORD


def run(pattern: str, seed: int, n: int, warm: int, steps: int, unit_bytes: int) -> Sample:
    """The timed part, after the warm steps."""
    units = [unit(pattern, k, unit_bytes) for k in opcodes(seed, n, warm + steps)[warm:]]
    checksum = 0
    for number in units:
        checksum = rotate_left(checksum, 5) ^ number
    return Sample(min(units) * unit_bytes, max(units) * unit_bytes, checksum)


def ring(code: bytes, entry: int) -> list[int]:
    """Where the jumps of a ring lie, from its entry on, in the order in which they are taken."""
    assert code[entry : entry + 8] == bytes.fromhex("48ffc6 48ffcf 0f85")  # inc, dec, jnz
    assert code[entry + 12 : entry + 16] == bytes.fromhex("4889f0 c3")  # mov, ret
    found = [entry]
    at = entry + 12 + distance(code, entry + 8)
    while at != entry:
        assert code[at] == 0xE9, f"no jump at {at:#x}"
        found.append(at)
        assert len(found) <= len(code) // LINE, "the entry is not reached again"
        at += 5 + distance(code, at + 1)
    return found


def distance(code: bytes, at: int) -> int:
    return int.from_bytes(code[at : at + 4], "little", signed=True)
