"""Small jobs in C whose waits are known: how many, for which lock, who ends them."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

TURNS = 4


@functools.cache
def compiled(program: str, *, strip: bool = False) -> Path:
    """A program, compiled into a folder that lasts as long as this process."""
    source = Path(__file__).with_name(f"{program}.c")
    out = Path(_folder().name) / (f"{program}-stripped" if strip else program)
    flags = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]
    subprocess.run(["gcc", "-w", *flags, *(["-s"] if strip else []), "-o", out, source], check=True)
    return out


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
