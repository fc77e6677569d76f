"""Levels of an architecture: of x86-64 the four that its ABI names, of any other there is one.

A level is what a compiler may use. ``baseline`` is what every processor of the architecture has:
no flag is added to a kernel's own. The others add ``-march=x86-64-v2`` (SSE4.2), ``-v3`` (AVX2,
FMA) or ``-v4`` (AVX-512).
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from perflib.model.errors import UserError, choose

__all__ = ["BASELINE", "LEVELS", "flags_of", "levels_here", "required_level"]

BASELINE = "baseline"
# What each level adds to the one before it, as /proc/cpuinfo calls it (x86-64 psABI, table 3.1).
_ADDED = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
LEVELS = (BASELINE, *_ADDED)  # a later one includes those before it


def flags_of(level: str) -> tuple[str, ...]:
    """The compiler's flags of a level."""
    return () if level == BASELINE else (f"-march={level}",)


def levels_here() -> list[str]:
    """The levels that this processor has, the best one last."""
    if os.uname().machine != "x86_64":
        return [BASELINE]
    present = _cpu_flags()
    found = [BASELINE]
    for level, added in _ADDED.items():
        if not present.issuperset(added.split()):
            break
        found.append(level)
    return found


@functools.cache
def _cpu_flags() -> frozenset[str]:
    """What /proc/cpuinfo reports of the first processor."""
    with Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            name, _, words = line.partition(":")
            if name.strip() == "flags":
                return frozenset(words.split())
    return frozenset()


def required_level(word: str) -> str:
    """The level that a user names; ``native`` is the best that this processor has.

    Raises
    ------
    UserError
        There is no such level, or the architecture does not have it.
    """
    if word not in (known := ["native", *LEVELS]):
        raise UserError(choose("level", word, known))
    level = levels_here()[-1] if word == "native" else word
    if level != BASELINE and os.uname().machine != "x86_64":
        msg = f"{level} is a level of x86-64; of {os.uname().machine} there is {BASELINE} alone"
        raise UserError(msg)
    return level
