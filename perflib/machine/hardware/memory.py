"""How much memory is available."""

from __future__ import annotations

from pathlib import Path

from perflib.machine.files import kib_of
from perflib.machine.hardware import cgroup


def free_bytes(root: Path = Path("/")) -> int | None:
    """The memory that this process may still take: the machine's, or a control group's limit.

    ``None``: neither says.
    """
    known = [kib_of(root / "proc/meminfo", "MemAvailable"), cgroup.limits(root).memory_bytes]
    return min((size for size in known if size is not None), default=None)
