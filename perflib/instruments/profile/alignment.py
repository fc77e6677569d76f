"""Which instruction of one build is which of another?

Addresses say nothing: an inserted instruction shifts all that follow. So the texts are aligned, as
a program that compares files does: first what is equal but for addresses, then, between those, what
has the same opcode, then what stands in the same place of a gap of equal length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

_SYMBOL = re.compile(r"\b(?:0x)?[0-9a-f]+ <(.+?)(?:_\d{4,5})?(?:\+0x[0-9a-f]+)?>$")
_RELATIVE = re.compile(r"-?0x[0-9a-f]+\(%rip\)")
_COMMENT = re.compile(r"\s+(?:#|//) .*$")
_MAX_INSTRUCTIONS = 4000  # of longer functions texts that come often are not compared first

Pair = tuple[int | None, int | None]


def normalised(instruction: str) -> str:
    """An instruction without what depends on where its code and data are placed.

    >>> normalised("jne    1136 <work+0x16>"), normalised("call 1030 <log@plt>")
    ('jne <work>', 'call <log@plt>')
    >>> normalised("movsd  0xe9d(%rip),%xmm1        # 2010 <_IO_stdin_used+0x10>")
    'movsd (%rip),%xmm1'
    """
    text = _RELATIVE.sub("(%rip)", _COMMENT.sub("", " ".join(instruction.split())))
    return _SYMBOL.sub(r"<\1>", text)


def align(first: Sequence[str], second: Sequence[str]) -> list[Pair]:
    """The pairs of positions of two functions' instructions, in the order of both.

    Each position occurs once; ``None`` stands where the other has no such instruction.

    Examples
    --------
    >>> align(["push %rbp", "add $1,%eax", "ret"], ["push %rbp", "nop", "add $1,%eax", "ret"])
    [(0, 0), (None, 1), (1, 2), (2, 3)]
    """
    texts = [[normalised(text) for text in side] for side in (first, second)]
    opcodes = [[text.partition(" ")[0] for text in side] for side in texts]

    def by_place(here: range, there: range) -> list[Pair]:
        if len(here) == len(there):
            return list(zip(here, there, strict=True))
        return [(i, None) for i in here] + [(None, j) for j in there]

    def by_opcode(here: range, there: range) -> list[Pair]:
        return _matched(opcodes, here, there, by_place)

    return _matched(texts, range(len(first)), range(len(second)), by_opcode)


def _matched(
    words: Sequence[Sequence[str]],
    here: range,
    there: range,
    between: Callable[[range, range], list[Pair]],
) -> list[Pair]:
    """Pairs of equal words; what is between them is paired by another rule."""
    first, second = words[0][here.start : here.stop], words[1][there.start : there.stop]
    long = max(len(first), len(second)) > _MAX_INSTRUCTIONS
    matcher = SequenceMatcher(None, first, second, autojunk=long)
    pairs: list[Pair] = []
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        left = range(here.start + i, here.start + i_end)
        right = range(there.start + j, there.start + j_end)
        if kind == "equal":
            pairs += zip(left, right, strict=True)
        else:
            pairs += between(left, right)
    return pairs
