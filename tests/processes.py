"""Processes that tests started or watch: whether they are there, and what this one holds open."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 60.0


def soon(true: Callable[[], bool]) -> bool:
    """Whether something comes true before long."""
    limit = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > limit:
            return False
        time.sleep(0.005)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or ends soon: whoever adopts it reaps it when it comes to it."""
    return soon(lambda: not alive(pid))


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))
