"""Which other tasks used a core: the CPU time of every task, by where it ran last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.files import text

__all__ = ["TaskTime", "busiest_tasks", "task_times"]

_NAMED = 3
_LEAST_PERCENT = 0.5
_POLICIES = {0: "normal", 1: "fifo", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}


@dataclass(frozen=True)
class TaskTime:
    """A task's CPU time so far, where it ran last, and when this was read (s, any clock)."""

    pid: int
    name: str
    cpu_ns: int
    cpu: int
    policy: str
    read_s: float


def task_times(root: Path = Path("/")) -> dict[int, TaskTime]:
    """Every task there is now, by its number, kernel threads among them."""
    found = {}
    up_s = float((text(root / "proc/uptime") or "0").split()[0])
    for path in (root / "proc").glob("[0-9]*/task/[0-9]*"):
        # "tid (comm) state ppid ...": comm may itself have blanks and parentheses
        head, _, rest = (text(path / "stat") or "").rpartition(")")
        words, times = rest.split(), (text(path / "schedstat") or "").split()
        if len(words) > 38 and times:
            name = head.partition("(")[2]
            policy = _POLICIES.get(int(words[38]), "unknown")
            pid = int(path.parent.parent.name)
            found[int(path.name)] = TaskTime(pid, name, int(times[0]), int(words[36]), policy, up_s)
    return found


def busiest_tasks(
    before: Mapping[int, TaskTime], after: Mapping[int, TaskTime], cpu: int
) -> list[dict[str, Any]]:
    """The tasks that used most CPU time between two readings, of those that ended up on a core.

    Tasks that moved between cores count where they were last; one that began and ended in between
    is not seen. This process is left out.

    Returns
    -------
    At most three, the busiest first: ``name``, ``pid``, ``percent`` of one core's time, ``policy``.
    """
    found: list[tuple[float, TaskTime]] = []
    for tid, task in after.items():
        if task.cpu != cpu or task.pid == os.getpid():
            continue
        earlier = before.get(tid)
        begun_ns = earlier.cpu_ns if earlier is not None else 0
        since_s = task.read_s - min((one.read_s for one in before.values()), default=0.0)
        percent = 1e-7 * (task.cpu_ns - begun_ns) / since_s if since_s > 0 else 0.0
        if percent >= _LEAST_PERCENT:
            found.append((percent, task))
    found.sort(key=lambda one: -one[0])
    return [
        {"name": task.name, "pid": task.pid, "percent": round(percent, 2), "policy": task.policy}
        for percent, task in found[:_NAMED]
    ]
