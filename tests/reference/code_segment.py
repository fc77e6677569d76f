"""What code_segment.c and random_calls.c are to compute, and what is to be in a ring of jumps."""

from __future__ import annotations

from dataclasses import dataclass

from tests.reference.words import rotated_sum

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


def run(pattern: str, seed: int, n: int, warm: int, steps: int, unit_bytes: int) -> Sample:
    """The timed part, after the warm steps."""
    units = [unit(pattern, k, unit_bytes) for k in opcodes(seed, n, warm + steps)[warm:]]
    return Sample(min(units) * unit_bytes, max(units) * unit_bytes, rotated_sum(units))


@dataclass(frozen=True)
class Jumps:
    """How a processor's ring is written."""

    head: bytes  # of the entry
    tail: bytes  # of the entry
    jump: int  # where the entry's jump is in it
    jump_bytes: int
    entry_bytes: int
    places: int  # of a jump in a line

    def target(self, code: bytes, at: int) -> int:
        """Where the jump at a place goes."""
        if self.jump_bytes == 4:  # aarch64: b, with a distance in words
            word = int.from_bytes(code[at : at + 4], "little")
            assert word >> 26 == 0b000101, f"no jump at {at:#x}"
            return at + 4 * ((word & 0x3FFFFFF) - ((word >> 25 & 1) << 26))
        assert code[at] in (0xE9, 0x85), f"no jump at {at:#x}"
        return at + 5 + int.from_bytes(code[at + 1 : at + 5], "little", signed=True)


# inc %rsi; dec %rdi; jnz ...; mov %rsi, %rax; ret
X86_64 = bytes.fromhex("48ffc6 48ffcf 0f85"), bytes.fromhex("4889f0 c3")
# add x1, x1, #1; subs x0, x0, #1; b.eq over the jump; b ...; mov x0, x1; ret
ARM64 = bytes.fromhex("21040091 000400f1 40000054"), bytes.fromhex("e00301aa c0035fd6")
JUMPS = (Jumps(*X86_64, 7, 5, 16, 60), Jumps(*ARM64, 12, 4, 24, 16))


def entry(code: bytes) -> tuple[int, Jumps]:
    """Where a ring is entered, and how it is written."""
    ((at, jumps),) = [(code.index(one.head), one) for one in JUMPS if one.head in code]
    return at, jumps


def ring(code: bytes) -> list[int]:
    """Where the jumps of a ring lie, from its entry on, in the order in which they are taken."""
    first, jumps = entry(code)
    end = first + jumps.entry_bytes
    assert code[end - len(jumps.tail) : end] == jumps.tail
    found = [first]
    at = jumps.target(code, first + jumps.jump)
    while at != first:
        found.append(at)
        assert len(found) <= len(code) // LINE, "the entry is not reached again"
        at = jumps.target(code, at)
    return found
