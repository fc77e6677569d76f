"""The CPU time of a machine during a measurement: the engine's processes, and all others.

CPU times are the kernel's own accounts, read before and after; nothing is watched in between.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.files import text

_TICKS = os.sysconf("SC_CLK_TCK")
_ENGINES = {"snakemake", "perflib", "srun"}  # as a word of a command line
_BUSY = (0, 1, 2, 5, 6)  # of the first line of /proc/stat: user, nice, system, irq, softirq


@dataclass(frozen=True)
class _Process:
    parent: int
    start: int
    cpu_s: float


class CpuUse:
    """Read it before a measurement; `report` says what was used since.

    What this process's children use is the measurement itself, once they are waited for.
    """

    def __init__(self) -> None:
        self._engine = engine_of(os.getpid())
        self._before = _read(self._engine)
        self._busy_s, self._children_s = _busy_s(), _children_s()

    def report(self) -> dict[str, float]:
        """CPU seconds: ``measured_cpu_s``, ``engine_cpu_s`` and ``others_cpu_s``."""
        measured = _children_s() - self._children_s
        engine = sum(
            one.cpu_s - self._before[pid].cpu_s
            for pid, one in _read(self._engine).items()
            if pid in self._before and one.start == self._before[pid].start
        )
        others = _busy_s() - self._busy_s - measured - engine
        return {
            "measured_cpu_s": round(measured, 2),
            "engine_cpu_s": round(engine, 2),
            "others_cpu_s": round(max(0.0, others), 2),
        }


def engine_of(pid: int) -> list[int]:
    """A job's process and those that started it, up to the engine; the engine's of the same job.

    Slurm starts a job's steps as siblings: they are known by the job's number.
    """
    chain = [pid]
    while (parent := _process(chain[-1])) is not None and parent.parent > 1:
        chain.append(parent.parent)
    last = max((number for number, one in enumerate(chain) if _is_engine(one)), default=0)
    found = dict.fromkeys(chain[: last + 1])
    if job := os.environ.get("SLURM_JOB_ID"):
        mark = b"SLURM_JOB_ID=" + job.encode()
        for path in Path("/proc").glob("[0-9]*"):
            other = int(path.name)
            if other not in found and _is_engine(other) and mark in _environment(path):
                found[other] = None
    return list(found)


def _is_engine(pid: int) -> bool:
    words = (text(f"/proc/{pid}/cmdline") or "").split("\0")
    return any(word.rpartition("/")[2] in _ENGINES for word in words)


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or it is gone
        return []


def _process(pid: int) -> _Process | None:
    # "pid (comm) state ppid ...": comm may itself have blanks and parentheses
    after = (text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(after) < 20:
        return None
    return _Process(int(after[1]), int(after[19]), (int(after[11]) + int(after[12])) / _TICKS)


def _read(pids: Iterable[int]) -> dict[int, _Process]:
    return {pid: one for pid in pids if (one := _process(pid)) is not None}


def _busy_s() -> float:
    numbers = (text("/proc/stat") or "cpu 0 0 0 0 0 0 0").split("\n")[0].split()[1:]
    return sum(int(numbers[one]) for one in _BUSY) / _TICKS


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
