"""The small programs that are simulated, and a fixture's worth of building them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perflib import kernels
from perflib.instruments.simulators.qemu import QEMU_INSTALL

SOURCES = Path(__file__).parents[2] / "kernels_c"

needs_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="programs in x86 assembly")
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None, reason=f"no qemu-user: {QEMU_INSTALL}"
)
needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="no valgrind: apt-get install valgrind"
)


def assemble(name: str, folder: Path, *flags: str, **defined: int | str) -> str:
    """Build ``tests/kernels_c/NAME.S``, which uses no library; the program's path."""
    program = folder / name
    macros = [f"-D{macro}={value}" for macro, value in defined.items()]
    source = SOURCES / f"{name}.S"
    line = [kernels.compiler()[0], "-nostdlib", "-static", *flags, *macros, str(source)]
    subprocess.run([*line, "-o", str(program)], check=True)
    return str(program)


def fake_tool(folder: Path, name: str, script: str) -> None:
    """A shell script in place of a tool."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
