"""Lists of CPUs as the kernel and its users write them: ``0-3,8``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from perflib.model.errors import UserError

_PART = re.compile(r"(\d+)(?:-(\d+))?")
_MAX_CPUS = 1 << 16  # a list longer than this is a slip of the pen, not a machine


def parse_cpus(words: str) -> list[int]:
    """The CPU numbers of a list, sorted, each once; an empty list for an empty text.

    Raises
    ------
    UserError
        The text is no such list; the message names the part that is wrong.

    >>> parse_cpus("8,0-3")
    [0, 1, 2, 3, 8]
    """
    cpus: set[int] = set()
    if not words.strip():
        return []
    for part in words.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            msg = (
                f"{part.strip()!r} in the CPU list {words.strip()!r} is no CPU number and no "
                "range: write CPUs as '0,2,8-11'"
            )
            raise UserError(msg)
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if last < first:
            msg = f"the range {part.strip()!r} in the CPU list {words.strip()!r} runs backwards"
            raise UserError(msg)
        if last >= _MAX_CPUS:
            msg = f"CPU {last} in the CPU list {words.strip()!r}: no machine has as many CPUs"
            raise UserError(msg)
        cpus.update(range(first, last + 1))
    return sorted(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """The shortest list that names these CPUs.

    >>> format_cpus([8, 0, 1, 2, 3])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
