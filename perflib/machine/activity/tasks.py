"""Which other tasks used a core: their CPU time, by where they were when it was read."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.files import text

_NAMED = 3
_MIN_PERCENT = 0.5
_MIN_READING_RATIO = 50  # times what a reading takes
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
    nice: int = 0
    parent: int = 0


def task_times(root: Path = Path("/")) -> dict[int, TaskTime]:
    """Every task there is now, by its number, kernel threads among them."""
    found: dict[int, TaskTime] = {}
    try:
        up_s = float((text(root / "proc/uptime") or "0").split()[0])
    except ValueError:
        return found
    for path in (root / "proc").glob("[0-9]*/task/[0-9]*"):
        # "tid (comm) state ppid ...": comm may itself have blanks and parentheses
        head, _, rest = (text(path / "stat") or "").rpartition(")")
        words, times = rest.split(), (text(path / "schedstat") or "").split()
        if len(words) > 38 and times:
            name = head.partition("(")[2]
            try:
                ran_ns, nice = int(times[0]), int(words[16])
                parent, cpu, policy_number = (int(words[at]) for at in (1, 36, 38))
            except ValueError:  # no kernel writes it so
                continue
            policy = _POLICIES.get(policy_number, "unknown")
            pid = int(path.parent.parent.name)
            found[int(path.name)] = TaskTime(
                pid,
                name,
                ran_ns,
                cpu,
                policy,
                up_s,
                nice=nice,
                parent=parent,
            )
    return found


class TaskWatch:
    """What other tasks used of each core, from readings every few seconds.

    Between two readings a task's CPU time counts where it was at the second. One that began and
    ended in between is not seen. This process, and those that it started, are left out.

    Parameters
    ----------
    every_s
        How far readings that ``look`` makes are apart, at least; so far that they take 2 % of the
        time at most, too, where there are thousands of tasks.
    read, affinity
        What lists the tasks, and where one may run.
    """

    def __init__(
        self,
        every_s: float = 2.0,
        read: Callable[[], Mapping[int, TaskTime]] = task_times,
        affinity: Callable[[int], set[int]] | None = None,
    ) -> None:
        self._every_s, self._read = every_s, read
        self._affinity = affinity or os.sched_getaffinity
        self._last = read()
        self._begin_s = self._end_s = _read_s(self._last)
        self._looked_s = time.monotonic()
        self._used_ns: Counter[tuple[int, int]] = Counter()  # by task and core
        self._tasks: dict[int, TaskTime] = {}
        self._free: set[int] = set()  # those that were seen to be allowed elsewhere

    def look(self, *, now: bool = False) -> None:
        """Read again, if it is time (or ``now``)."""
        if not now and time.monotonic() - self._looked_s < self._every_s:
            return
        begin_s = time.monotonic()
        found = self._read()
        self._looked_s = time.monotonic()
        self._every_s = max(self._every_s, _MIN_READING_RATIO * (self._looked_s - begin_s))
        ours = _descendants(found, os.getpid())
        for tid, task in found.items():
            earlier = self._last.get(tid)
            used_ns = task.cpu_ns - (earlier.cpu_ns if earlier is not None else 0)
            if used_ns <= 0 or task.pid in ours:
                continue
            self._used_ns[tid, task.cpu] += used_ns
            self._tasks[tid] = task
            if not self._is_bound(tid, task.cpu):
                self._free.add(tid)
        self._last = found
        self._end_s = _read_s(found) or self._end_s

    def _is_bound(self, tid: int, cpu: int) -> bool:
        try:
            return self._affinity(tid) == {cpu}
        except OSError:  # it has ended
            return True  # as far as is known

    def busiest(self, cpu: int) -> list[dict[str, Any]]:
        """The tasks that used most of a core.

        Returns
        -------
        At most three, the busiest first: ``name``, ``pid``, ``percent`` of the core's time,
        ``policy``, ``nice``, and whether it is ``bound`` to that core: was never seen elsewhere,
        nor allowed to be.
        """
        since_s = self._end_s - self._begin_s
        if since_s <= 0:
            return []
        places = Counter(tid for tid, _ in self._used_ns)
        found = [
            (1e-7 * used_ns / since_s, tid)
            for (tid, where), used_ns in self._used_ns.items()
            if where == cpu and 1e-7 * used_ns / since_s >= _MIN_PERCENT
        ]
        return [
            {
                "name": self._tasks[tid].name,
                "pid": self._tasks[tid].pid,
                "percent": round(percent, 2),
                "policy": self._tasks[tid].policy,
                "nice": self._tasks[tid].nice,
                "bound": places[tid] == 1 and tid not in self._free,
            }
            for percent, tid in sorted(found, reverse=True)[:_NAMED]
        ]


def _read_s(tasks: Mapping[int, TaskTime]) -> float:
    return next((task.read_s for task in tasks.values()), 0.0)


def _descendants(tasks: Mapping[int, TaskTime], pid: int) -> set[int]:
    """A process and all that it, or what it started, started."""
    children: dict[int, set[int]] = {}
    for task in tasks.values():
        children.setdefault(task.parent, set()).add(task.pid)
    found, left = set(), [pid]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(children.get(one, ()))
    return found
