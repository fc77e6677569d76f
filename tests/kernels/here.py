"""The processors that a test may use, and programs that it starts on them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

CPUS = sorted(os.sched_getaffinity(0))
needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="two processors are needed")


# A process that asks for a kernel in a folder, and prints where its library is.
ASK = """
import sys
from pathlib import Path
from perflib import kernels
from perflib.store import paths
paths.kernels_dir = lambda: Path(sys.argv[1])
kernel = kernels.load(sys.argv[2])
print(kernel.build.library)
"""


def threads() -> int:
    """How many threads this process has, also such as C started."""
    return len(list(Path("/proc/self/task").iterdir()))


def launched(
    *words: str | Path, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with what it printed."""
    return subprocess.run(words, capture_output=True, text=True, check=check, **options)
