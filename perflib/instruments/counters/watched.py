"""What counters are opened on: a program and what it starts, a thread, CPUs, a control group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.processes import family
from perflib.model.errors import UserError


@dataclass(frozen=True)
class CounterTarget:
    """One thread on whatever CPU (``cpu`` -1), or one CPU whatever it runs (``tid`` -1).

    With the folder of a control group: what that runs on the CPU.
    """

    tid: int
    cpu: int = -1
    cgroup: Path | None = None


@dataclass(frozen=True)
class Watched:
    """What counters are opened on, in words and as targets (none: it is gone)."""

    what: str
    targets: tuple[CounterTarget, ...]
    inherit: bool
    pid: int | None = None


def watch(
    *,
    pid: int | None = None,
    tid: int | None = None,
    cpus: Iterable[int] | None = None,
    cgroup: Path | None = None,
    inherit: bool = True,
) -> Watched:
    """Name what is to be counted: a process, a thread, CPUs; this thread by default.

    Parameters
    ----------
    pid
        A process: all threads and descendants that it has now and, with ``inherit``, those to come.
    tid
        One thread alone, 0 for the one that calls.
    cpus
        Whole CPUs, whatever they run.
    cgroup
        The folder of a control group, counted on these CPUs; the caller's rights must suffice for
        whole CPUs.
    inherit
        For a process: count also the threads and children that are made later.

    Raises
    ------
    UserError
        More than one of them, or none of the CPUs.
    """
    if (pid is not None) + (tid is not None) + (cpus is not None) > 1:
        msg = "counters are opened on a process (pid), a thread (tid) or CPUs: name one of them"
        raise UserError(msg)
    if cpus is not None:
        wanted = sorted(set(cpus))
        if not wanted:
            msg = "no CPU to count on: name at least one, as in cpus=[0]"
            raise UserError(msg)
        words = f"CPU {', '.join(map(str, wanted))}" if cgroup is None else str(cgroup)
        targets = tuple(CounterTarget(-1, cpu, cgroup) for cpu in wanted)
        return Watched(words, targets, inherit=False)
    if pid is not None:
        if pid < 1:
            msg = f"{pid} is no process id; for the calling thread give tid=0"
            raise UserError(msg)
        tids = [tid for process in family(pid) for tid in _threads(process)]
        return Watched(f"process {pid}", tuple(map(CounterTarget, tids)), inherit, pid)
    what = f"thread {tid}" if tid else "this thread"
    return Watched(what, (CounterTarget(tid or 0),), inherit=False)


def _threads(pid: int) -> list[int]:
    try:
        return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
