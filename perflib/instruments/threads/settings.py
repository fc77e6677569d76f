"""What a user can set of a recording of threads."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from perflib.instruments.perf.tool import CallGraph
from perflib.model.errors import UserError, choose
from perflib.model.expressions import Expression

SPIN_FUNCTIONS = r"(?i)(?<!raw_)spin|_mm_pause|cpu_relax"
"""Functions in which a thread that runs does no work but tries a lock again and again.

Not the kernel's ``_raw_spin_...``, at whose ends samples pile up when interrupts come back.
"""


@dataclass(frozen=True)
class Settings:
    """How the threads of a job are recorded.

    Parameters
    ----------
    skip_s
        The first seconds of the job, which are not recorded.
    duration_s
        How long is recorded (None: to the job's end).
    sample_period_us
        CPU time between two samples of a thread's stack.
    call_graph
        How the callers of these samples are found (`perf.tool.CallGraph`). The
        callers of waits are always found from a copy of the stack.
    stack_bytes
        How much of the stack is copied for that.
    threads
        Regular expression; the threads whose names it is found in are kept. Empty: all.
    follow
        Also the processes that the job starts.
    ignore
        Programs left alone, as patterns of file names (``*`` and ``?``): the processes that run
        them, and what those start, are not recorded.
    max_data_mb
        Bound of the data on disk; the recording ends when it is reached.
    spin_functions
        Regular expression; a thread that runs in a function whose name it is found in spins.

    Raises
    ------
    UserError
        A value that cannot be.
    """

    skip_s: float = 0.0
    duration_s: float | None = None
    sample_period_us: float = 1000.0
    call_graph: CallGraph = "fp"
    stack_bytes: int = 2048
    threads: str = ""
    follow: bool = True
    ignore: tuple[str, ...] = ()
    max_data_mb: int = 2048
    spin_functions: str = SPIN_FUNCTIONS

    def __post_init__(self) -> None:
        if self.call_graph not in get_args(CallGraph):
            raise UserError(choose("call_graph", self.call_graph, get_args(CallGraph)))
        for name, least in (("skip_s", 0.0), ("sample_period_us", 10.0), ("max_data_mb", 1)):
            if not getattr(self, name) >= least:
                msg = f"{name}={getattr(self, name)}: it must be at least {least:g}"
                raise UserError(msg)
        if self.duration_s is not None and not self.duration_s > 0:
            msg = f"duration_s={self.duration_s}: it must be above 0"
            raise UserError(msg)
        if self.stack_bytes % 8 or not 256 <= self.stack_bytes <= 65_528:
            msg = f"stack_bytes={self.stack_bytes}: a multiple of 8 from 256 to 65528"
            raise UserError(msg)
        for name in ("threads", "spin_functions"):
            Expression(getattr(self, name), name)

    def keeps(self, names: Iterable[str]) -> list[bool]:
        """Which threads are kept, by their names.

        Raises
        ------
        UserError
            The expression takes too long.
        """
        return Expression(self.threads, "threads").finds(names)


def matches(patterns: Sequence[str], *names: str) -> bool:
    """Whether one of a program's names is one that a pattern of ``Settings.ignore`` names."""
    return any(fnmatch.fnmatchcase(name, one) for name in names for one in patterns)
