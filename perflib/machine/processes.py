"""Processes of this machine: whether one has ended, of what, and what this one may do."""

from __future__ import annotations

import signal
from pathlib import Path

from perflib.machine.files import fields, text

_CAP_SYS_ADMIN, _CAP_PERFMON = 1 << 21, 1 << 38


def is_gone(pid: int, root: Path = Path("/")) -> bool:
    """Whether any process has ended, whether its parent has waited for it or not."""
    return fields(root / f"proc/{pid}/status").get("State", "Z")[:1] in "ZX"


def family(pid: int) -> list[int]:
    """A process and all that descend from it now."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        # "pid (comm) state ppid ...": comm may itself have blanks and parentheses
        after = (text(path / "stat") or "").rpartition(")")[2].split()
        if len(after) > 1:
            children.setdefault(int(after[1]), []).append(int(path.name))
    found = [pid]
    for process in found:  # which grows meanwhile
        found += children.get(process, [])
    return found


def signal_name(number: int) -> str:
    """A signal in words.

    >>> signal_name(9), signal_name(99)
    ('SIGKILL (Killed)', 'signal 99')
    """
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"


def may_count_kernel(root: Path = Path("/")) -> bool:
    """Whether this process may count and sample whatever ``perf_event_paranoid`` says."""
    capabilities = int(fields(root / "proc/self/status").get("CapEff", "0"), 16)
    return bool(capabilities & (_CAP_SYS_ADMIN | _CAP_PERFMON))
