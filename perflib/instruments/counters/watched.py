"""What counters are opened on: a program with its threads and children, one thread, or CPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.processes import family
from perflib.model.errors import UserError

__all__ = ["Target", "Watched", "watch"]


@dataclass(frozen=True)
class Target:
    """One thread on whatever CPU (``cpu`` -1), or one CPU whatever it runs (``tid`` -1)."""

    tid: int
    cpu: int = -1


@dataclass(frozen=True)
class Watched:
    """What counters are opened on, in words and as targets (none: it is gone)."""

    what: str
    targets: tuple[Target, ...]
    inherit: bool
    pid: int | None = None


def watch(
    *,
    pid: int | None = None,
    tid: int | None = None,
    cpus: Iterable[int] | None = None,
    inherit: bool = True,
) -> Watched:
    """Name what is to be counted: one of a process, a thread, or CPUs; this thread by default.

    Parameters
    ----------
    pid
        A process: all threads and descendants that it has now and, with ``inherit``, those to come.
    tid
        One thread alone, 0 for the one that calls.
    cpus
        Whole CPUs, whatever they run.
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
        words = f"CPU {', '.join(map(str, wanted))}"
        return Watched(words, tuple(Target(-1, cpu) for cpu in wanted), inherit=False)
    if pid is not None:
        if pid < 1:
            msg = f"{pid} is no process id; for the calling thread give tid=0"
            raise UserError(msg)
        tids = [tid for process in family(pid) for tid in _threads(process)]
        return Watched(f"process {pid}", tuple(map(Target, tids)), inherit, pid)
    what = f"thread {tid}" if tid else "this thread"
    return Watched(what, (Target(tid or 0),), inherit=False)


def _threads(pid: int) -> list[int]:
    try:
        return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
