"""From events of the scheduler and of futexes to what each thread did.

The rules, per thread: it leaves a CPU while runnable: ready; within a wait for a futex: waiting;
else: sleeping. It is woken: ready, and if it was waiting, still for that lock. It comes to a CPU:
running. For a sample in a function that spins, the period of the sample counts as spinning.

A thread that is woken on its way off the CPU (the kernel allows that) was ready all the time. One
that comes to a CPU without having been woken has a flag, because an event is missing. What cannot
be at all (it leaves a CPU that it was not on) makes its state unknown since its last event.

The first event of a thread that was there before shows what it did until then: it leaves a CPU:
running; comes to one: ready; is woken: unknown, as nobody has seen what it waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib import kernels
from perflib.instruments.threads.formats import EVENT, INTERVAL, LOST, SAMPLE, Event
from perflib.kernels.records import record
from perflib.model.errors import MeasurementError
from perflib.model.expressions import Expression

KEY = record("thread_states", "thread_key")
"""A futex: its address in its process, the operation and the stack of the first wait for it."""

_LIFE = record("thread_states", "thread_life")
_CPUS = 1 << 15
_NOTHING = "(?!)"  # an expression that is found nowhere
_IGNORED = 2  # in a COMM event's b: a program that is to be left alone was executed


class Pieces(NamedTuple):
    """What became certain: intervals, the row of the thread of each, and samples."""

    rows: npt.NDArray[np.int32]
    intervals: npt.NDArray[np.void]
    samples: npt.NDArray[np.void]


class StateMachine:
    """Turns events into intervals; its memory grows with threads and futexes, not with events.

    Parameters
    ----------
    start_ns
        When the recording begins. What is earlier (lists of processes) counts as then.
    names
        The text of each number in a COMM event; it may grow until the event is fed.
    stacks
        The text of each number of a stack; likewise.
    spin_functions
        Regular expression: a thread whose innermost frame it is found in spins. Empty: none does.
    cpus
        The CPUs that the job may use (None: all): only there do others take time from it.
    follow
        Whether the processes that the job starts belong to it.
    belongs
        ``belongs(pid, name)``: whether a process that executes a program of this name stays in the
        job. If not, neither do the processes that it starts. None: all stay.

    Examples
    --------
    >>> from perflib.instruments.threads.formats import STATES
    >>> machine = StateMachine(start_ns=0)
    >>> machine.process(7)
    >>> events = np.zeros(2, dtype=EVENT)
    >>> events["kind"], events["tid"] = Event.SWITCH, [7, 0]
    >>> events["time_ns"], events["pid"], events["a"], events["b"] = [10, 30], [7, 0], [0, 7], 1
    >>> pieces = machine.feed(events)
    >>> [(int(one["start_ns"]), STATES[one["state"]]) for one in pieces.intervals]
    [(0, 'running'), (10, 'sleeping')]
    >>> machine.threads["tid"].tolist()
    [7]
    """

    def __init__(
        self,
        *,
        start_ns: int,
        names: Sequence[str] = (),
        stacks: Sequence[str] = (),
        spin_functions: str = "",
        cpus: Collection[int] | None = None,
        follow: bool = True,
        belongs: Callable[[int, str], bool] | None = None,
    ) -> None:
        kernel = kernels.load("thread_states")
        self._lib, self._ffi = kernel.lib, kernel.ffi
        usable = np.ones(_CPUS, dtype=np.uint8)
        if cpus is not None:
            usable[:] = 0
            usable[list(cpus)] = 1
        state = self._lib.thread_states_open(
            start_ns, follow, self._ffi.from_buffer("uint8_t[]", usable), len(usable)
        )
        if not state:
            raise _no_memory()
        self._state = self._ffi.gc(state, self._lib.thread_states_close)
        self._names, self._stacks = names, stacks
        self._spin_functions = Expression(spin_functions or _NOTHING, "spin_functions")
        self._spins = np.zeros(0, dtype=np.uint8)
        self._belongs = belongs

    def process(self, pid: int) -> None:
        """Add a process to the job, whoever starts it."""
        self._check(self._lib.thread_states_process(self._state, pid))

    def feed(self, events: npt.NDArray[np.void]) -> Pieces:
        """Take events, in the order of time; what became certain comes back."""
        events = np.ascontiguousarray(events, dtype=EVENT)
        if self._belongs is not None:
            events = self._without_ignored(events, self._belongs)
        stacks = self._stacks[len(self._spins) :]
        new = self._spin_functions.finds(stack.rpartition(";")[2] for stack in stacks)
        self._spins = np.append(self._spins, np.array(new, dtype=np.uint8))
        self._check(
            self._lib.thread_states_feed(
                self._state,
                self._ffi.from_buffer("thread_event[]", events),
                len(events),
                self._ffi.from_buffer("uint8_t[]", self._spins),
                len(self._spins),
            )
        )
        return self._pieces()

    def finish(self, end_ns: int) -> Pieces:
        """End the recording: every thread that lives is in its state until then."""
        self._check(self._lib.thread_states_finish(self._state, end_ns))
        return self._pieces()

    @property
    def threads(self) -> pd.DataFrame:
        """Every thread so far, by row: tid, pid, name (its last one), start_ns, end_ns."""
        lives = self._copied("threads", _LIFE)
        table = pd.DataFrame({name: lives[name] for name in ("tid", "pid")})
        names = [
            self._names[number] if 0 <= number < len(self._names) else str(tid)
            for number, tid in zip(lives["name"].tolist(), lives["tid"].tolist(), strict=True)
        ]
        table["name"] = pd.Series(names, dtype=object)
        return table.assign(start_ns=lives["start_ns"], end_ns=lives["end_ns"])

    @property
    def keys(self) -> npt.NDArray[np.void]:
        """The futexes that were waited for, records ``KEY``; an interval's lock is one's number."""
        return self._copied("keys", KEY)

    @property
    def lost(self) -> npt.NDArray[np.void]:
        """Where events are missing, records ``LOST``."""
        return self._copied("lost", LOST)

    @property
    def others_busy_ns(self) -> int:
        """CPU time of other processes while a thread of the job was ready."""
        return int(self._found().others_busy_ns)

    @property
    def impossible(self) -> int:
        """How many events could not be after those before them."""
        return int(self._found().impossible)

    def _without_ignored(
        self, events: npt.NDArray[np.void], belongs: Callable[[int, str], bool]
    ) -> npt.NDArray[np.void]:
        executed = np.flatnonzero((events["kind"] == Event.COMM) & (events["b"] == 1))
        ignored = [
            at
            for at in executed.tolist()
            if not belongs(int(events["pid"][at]), self._names[int(events["a"][at])])
        ]
        if ignored:
            events = events.copy()
            events["b"][ignored] = _IGNORED
        return events

    def _found(self) -> Any:
        return self._lib.thread_states_found(self._state)

    def _copied(self, name: str, dtype: np.dtype[Any]) -> npt.NDArray[np.void]:
        found = self._found()
        n = getattr(found, f"n_{name}")
        if n == 0:
            return np.empty(0, dtype=dtype)
        data = self._ffi.buffer(getattr(found, name), n * dtype.itemsize)
        return np.frombuffer(data, dtype=dtype).copy()

    def _pieces(self) -> Pieces:
        found = self._found()
        rows = np.empty(0, dtype=np.int32)
        if found.n_intervals:
            data = self._ffi.buffer(found.rows, found.n_intervals * rows.itemsize)
            rows = np.frombuffer(data, dtype=np.int32).copy()
        return Pieces(rows, self._copied("intervals", INTERVAL), self._copied("samples", SAMPLE))

    def _check(self, status: int) -> None:
        if status < 0:
            raise _no_memory()


def _no_memory() -> MeasurementError:
    msg = "there is not enough memory for the threads of this recording: record a shorter time"
    return MeasurementError(msg)
