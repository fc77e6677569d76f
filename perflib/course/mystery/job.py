"""The job of a mystery: the program ``tracking``, whose first argument says what is wrong with it.

The argument is a number whose bits are scrambled, as ``kernels_c/tracking.c`` reads it: whoever
sees the command line learns nothing from it.
"""

from __future__ import annotations

import shlex

from perflib import kernels
from perflib.course.mystery.draw import Trouble

NEVER, ALWAYS = 1, 2  # of the buffer: whether it aliases, whatever the addresses are
REPORTS = 128  # next to the kind: the job reports how long its threads waited for each lock
_KINDS = {"function": 1, "code": 2, "buffer": 3, "lock": 4}
_WORD = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of splitmix64


def number(trouble: Trouble, seed: int, *, flags: int = 0, which: int | None = None) -> int:
    """The job's argument; the seed is in it, too, so that equal troubles look different.

    Parameters
    ----------
    trouble
        What is wrong; nothing with the job where its cause is elsewhere.
    seed
        Any number.
    flags
        ``REPORTS`` or 0.
    which
        In place of the trouble's own.
    """
    kind = _KINDS.get(trouble.cause, 0)
    parts = (kind | flags, trouble.which if which is None else which, trouble.cpu)
    packed = parts[0] | parts[1] << 8 | parts[2] << 16 | trouble.thousandths << 32
    return _scrambled(packed | (seed * 40503 + 1 & 0xFFFF) << 48)


def _scrambled(packed: int) -> int:
    """The number of which the job makes this one: the steps of its reader, backwards."""
    z = packed ^ packed >> 31 ^ packed >> 62
    z = z * pow(_SECOND, -1, 2**64) & _WORD
    z = z ^ z >> 27 ^ z >> 54
    z = z * pow(_FIRST, -1, 2**64) & _WORD
    return z ^ z >> 30 ^ z >> 60


def command(argument: int) -> str:
    """The job's command line, with placeholders as ``job_command`` has them; it is compiled.

    Raises
    ------
    UserError
        There is no compiler, and no bundle that has the job.
    """
    program = kernels.build("tracking", executable=True).library
    return f"{shlex.quote(str(program))} {argument:016x} {{first}} {{events}} {{seed}}"
