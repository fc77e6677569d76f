"""What a recording of threads is made of: states, events, and the records of its files.

Times are nanoseconds of the recording's clock (CLOCK_MONOTONIC), spans include their start and not
their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.kernels.records import record


class State(IntEnum):
    """What a thread does, by its number in an interval.

    READY: it could run, and is in the run queue. WAITING: for a lock, which is any wait for a
    futex. SLEEPING: blocked otherwise (a timer, input and output). SPINNING: running, but only to
    try a lock again and again. UNKNOWN: not recorded.
    """

    RUNNING = 0
    READY = 1
    WAITING = 2
    SLEEPING = 3
    SPINNING = 4
    UNKNOWN = 5


STATES = tuple(state.name.lower() for state in State)
"""The states' names, in the order of their numbers."""


class Flag(IntEnum):
    """What is uncertain about an interval (bits)."""

    LOST = 1  # touched by lost events
    SAMPLED = 2  # its ends are from sampled states, not stamped


class Event(IntEnum):
    """What happened, by its number in an event; ``tid`` and ``pid`` are whose it is.

    SWITCH: ``tid`` leaves the CPU and ``a`` comes; ``b``: the bits of the state it leaves in (0: it
    was runnable). WAKING: ``a`` is woken by ``tid`` (0: an interrupt). FUTEX_WAIT: of the address
    ``a``, with the operation ``b``. FUTEX_EXIT: with the result ``a``. SAMPLE: of ``a`` ns of CPU
    time. FORK: ``tid`` of ``pid`` is born to ``b`` of the process ``a``. EXIT. COMM: its name is
    number ``a`` now, by exec where ``b`` is 1. LOST: ``a`` events of this CPU between ``b`` and
    ``time_ns``.
    """

    SWITCH = 1
    WAKING = 2
    FUTEX_WAIT = 3
    FUTEX_EXIT = 4
    SAMPLE = 5
    FORK = 6
    EXIT = 7
    COMM = 8
    LOST = 9


EVENT = record("thread_states", "thread_event")
"""One event; ``stack`` is the number of a stack, -1 for none."""

INTERVAL = record("thread_states", "thread_interval")
"""A thread in one state.

``lock``: number of the lock that it waits for, or that it waited for before it was ready; -1: none.
``other``: row of the thread that held the lock or woke this one; -1: not known.
``stack``: where it waits; -1: not known.
"""

SAMPLE = record("thread_states", "thread_sample")
"""A thread (its row) on a CPU, with the CPU time that the sample stands for."""

LOST = record("thread_states", "thread_lost")
"""So many events of a CPU between two times are missing."""

THREAD = np.dtype(
    [("tid", "i4"), ("pid", "i4"), ("start_ns", "i8"), ("end_ns", "i8"), ("intervals", "i8")],
    align=True,
)
"""A thread in the file; ``intervals``: how many it has."""

LOCK_KINDS = ("mutex", "condition", "rwlock", "semaphore", "barrier", "join", "other")

Rows = Sequence[int] | npt.NDArray[np.integer[Any]]
"""Threads, by their numbers in a recording."""


@dataclass(frozen=True)
class Selection:
    """A part of a recording: a span of time (ns, of its clock), threads, locks, a function.

    ``rows`` are the threads' rows, ``locks`` the locks' numbers. ``function`` is a regular
    expression that is looked for in each frame of a stack. What is None, or no expression, is not
    restricted. Locks and a function select waits, wake-ups and samples; of what has neither (how
    long threads were in each state, how many ran at once, the critical path) they select nothing.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    rows: Rows | None = None
    locks: Rows | None = None
    function: str = ""


ALL = Selection()

FORMAT = 1
"""Of the files; raised when what is written could be misread by what reads it now."""

META: dict[str, Any] = {
    "backend": "",
    "clock": "CLOCK_MONOTONIC",
    "start_ns": 0,
    "end_ns": 0,
    "job_pid": 0,
    "cpus": 1,
    "sample_period_ns": 0,
    "remarks": [],
    "lost": {"events": 0, "samples": 0},
    "cut": "",
    "others_busy_ns": 0,
}
"""Metadata of every recording, with the values of what its backend does not give."""


@dataclass(frozen=True)
class Lock:
    """What threads wait for: its name, its kind (``LOCK_KINDS``), its address in its process.

    ``next to``: which other variables are on its line of 64 bytes, by the symbol table.
    """

    name: str
    kind: str
    address: int
    pid: int
    beside: tuple[str, ...] = ()
