"""The measured kernels' code, for a notebook that shows it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from perflib.model.errors import MeasurementError


def built(kernel: str, *, program: bool = False, **define: int) -> Path:
    """The library of a kernel, compiled as experiments compile it, or the kernel as a program.

    Parameters
    ----------
    kernel
        Its name: ``code_segment``.
    program
        Whether it shall be a program with a ``main`` of its own.
    define
        Macros: ``FUNCTIONS=64``.

    Raises
    ------
    UserError
        There is no such kernel.
    MeasurementError
        It cannot be compiled here.
    """
    from perflib.kernels import build

    return build(kernel, define=define, executable=program).library


def disassembly(path: Path, function: str) -> pd.DataFrame:
    """A function's machine code: ``address`` and ``instruction``; the reason where none is seen."""
    from perflib.instruments.profile.disassembly import instructions

    try:
        return instructions(path, function)
    except MeasurementError as error:  # no objdump
        return pd.DataFrame([{"address": "", "instruction": str(error)}])
