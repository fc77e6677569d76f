"""Levels of an architecture: of x86-64 the four that its ABI names, of aarch64 three.

A level is what a compiler may use. ``baseline`` is what every processor of the architecture has:
no flag is added to a kernel's own. The others add ``-march=x86-64-v2`` (SSE4.2), ``-v3`` (AVX2,
FMA) or ``-v4`` (AVX-512); ``-march=armv8-a+lse`` (atomic operations as instructions) or
``+lse+sve`` (vectors of the processor's own length).
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from perflib.model.errors import UserError, choose

BASELINE = "baseline"
# What each level adds to the one before it, as /proc/cpuinfo calls it (x86-64 psABI, table 3.1;
# Linux, Documentation/arch/arm64/elf_hwcaps.rst).
_ADDED = {
    "x86_64": {
        "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
        "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
        "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
    },
    "aarch64": {"armv8-a+lse": "atomics", "armv8-a+lse+sve": "sve"},
}
LEVELS = (BASELINE, *(level for added in _ADDED.values() for level in added))


def flags_of(level: str) -> tuple[str, ...]:
    """The compiler's flags of a level."""
    return () if level == BASELINE else (f"-march={level}",)


def levels_here() -> list[str]:
    """The levels that this processor has, the best one last; each includes those before it."""
    present = _cpu_flags()
    found = [BASELINE]
    for level, added in _ADDED.get(os.uname().machine, {}).items():
        if not present.issuperset(added.split()):
            break
        found.append(level)
    return found


@functools.cache
def _cpu_flags() -> frozenset[str]:
    """What /proc/cpuinfo reports of the first processor: its ``flags``, or ``Features``."""
    with Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            name, _, words = line.partition(":")
            if name.strip() in ("flags", "Features"):
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
    here = os.uname().machine
    mine = (BASELINE, *_ADDED.get(here, {}))
    if level not in mine:
        (other,) = [name for name, added in _ADDED.items() if level in added]
        msg = f"{level} is a level of {other}; of {here} there is {', '.join(mine)}"
        raise UserError(msg)
    return level
