"""Small jobs in C whose waits are known: how many, for which lock, who ends them."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from perflib.kernels import compiler

TURNS = 4
_SOURCES = Path(__file__).parent


def compiled(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """A program of this text, or a library."""
    out = folder / name
    line = [compiler()[0], "-D_GNU_SOURCE", "-O1", "-g", f"-I{_SOURCES}"]
    line += ["-x", "c", "-", "-x", "none", "-o", str(out), *flags, "-lpthread", "-ldl"]
    subprocess.run(line, input=source, text=True, check=True)
    return out


@functools.cache
def program(name: str) -> Path:
    """A program next to this file, compiled into a folder that lasts as long as this process."""
    flags = ["-w", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
    source = (_SOURCES / f"{name}.c").read_text()
    return compiled(Path(_folder().name), source, *flags, name=name)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
