"""How much memory there is to be had."""

from __future__ import annotations

from pathlib import Path

from perflib.machine.files import fields
from perflib.machine.hardware import cgroup

__all__ = ["free_bytes"]


def free_bytes(root: Path = Path("/")) -> int | None:
    """The memory that this process may still take: the machine's, or a control group's limit.

    ``None``: neither says.
    """
    words = fields(root / "proc/meminfo").get("MemAvailable", "").split()
    known = [int(words[0]) * 1024 if words else None, cgroup.limits(root).memory_bytes]
    return min((size for size in known if size is not None), default=None)
