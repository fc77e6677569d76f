"""Groups of counters: opened on a program, a thread or CPUs, switched together, and read.

The counters of a group are on the processor at the same time or not at all, so that their ratios
mean something. What cannot be counted is no error but a row that says why; the others count on.

A counter is inherited by the threads and children that its thread makes later, and their counts
are part of its own. Threads and children that are there already get counters of their own. One
that is born while the counters are opened (milliseconds) can be missed: where every count matters,
open the group before the program begins its work.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.instruments.counters import pfm
from perflib.instruments.counters.events import CounterEvent
from perflib.instruments.counters.kernel_names import (
    RAW,
    SOFTWARE,
    TRACEPOINT,
    unlisted_on_arm,
)
from perflib.instruments.counters.readings import (
    checked,
    count_rows,
    kernel,
    new_readings,
    read_counters,
    since,
)
from perflib.instruments.counters.watched import CounterTarget, Watched, watch
from perflib.machine.files import integer
from perflib.model.errors import UserError, choose

# PERF_COUNT_SW_DUMMY never happens and is always on: it says how long what is watched ran.
CLOCK = CounterEvent("clock", SOFTWARE, config=9, exclude_kernel=True)
_WITHOUT_USER, _WITHOUT_KERNEL, _INHERIT, _OFF, _CGROUP = 1, 2, 4, 8, 16
_KERNEL_ONLY = (3, 4)  # config of the software events context-switches, cpu-migrations
_FEWEST_COUNTERS = 2  # that a processor with any has: fewer always fit
_DOES_NOT_FIT = (
    "does not fit into the set: the processor has not as many counters, or it is another device's; "
    "count it in a set of its own"
)
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_DOMAINS = {
    "all": ("", False, False),
    "user": (":u", False, True),
    "kernel": (":k", True, False),
}


@dataclasses.dataclass(frozen=True)
class Lacking:
    """An event that this machine has no encoding for, and why: a row that says so."""

    name: str
    reason: str


Requested = CounterEvent | Lacking
Opener = Callable[..., int]


def in_domain(
    events: Iterable[Requested], domain: Literal["all", "user", "kernel"] = "all"
) -> list[Requested]:
    """The same events counted in user space alone (``:u``), in the kernel alone (``:k``), or both.

    Raises
    ------
    UserError
        No such domain.
    """
    if domain not in _DOMAINS:
        raise UserError(choose("domain", domain, _DOMAINS))
    suffix, without_user, without_kernel = _DOMAINS[domain]
    found: list[Requested] = []
    for event in events:
        name = event.name.removesuffix(":u").removesuffix(":k") + suffix
        if isinstance(event, Lacking):
            found.append(Lacking(name, event.reason))
        else:
            found.append(
                dataclasses.replace(
                    event, name=name, exclude_user=without_user, exclude_kernel=without_kernel
                )
            )
    return found


def open_counter(
    event: CounterEvent, target: CounterTarget, leader: int, *, inherit: bool, off: bool
) -> int:
    """Open one counter with perf_event_open(2) and return its descriptor.

    Raises
    ------
    OSError
        The kernel refused; ``why_not`` has its words.
    """
    options = _WITHOUT_USER * event.exclude_user | _WITHOUT_KERNEL * event.exclude_kernel
    options |= _INHERIT * inherit | _OFF * off | _CGROUP * (target.cgroup is not None)
    folder = -1 if target.cgroup is None else os.open(target.cgroup, os.O_RDONLY)
    try:
        answer = int(
            kernel().lib.counter_open(
                event.type,
                event.config,
                event.config1,
                event.config2,
                target.tid if folder < 0 else folder,
                target.cpu,
                leader,
                options,
            )
        )
    finally:
        if folder >= 0:
            os.close(folder)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


def why_not(number: int, event: CounterEvent, target: CounterTarget, paranoid: int | None) -> str:
    """Why a counter could not be opened, and what to do about it.

    Parameters
    ----------
    number
        The error number of perf_event_open.
    event, target
        What was to be counted.
    paranoid
        ``kernel.perf_event_paranoid``; ``None`` where it cannot be read.
    """
    import resource

    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO, errno.EINVAL):
        if event.type == SOFTWARE:
            return "absent: this kernel does not have the event"
        if target.cgroup is not None:
            return "absent: this machine has no such counter, or its kernel none of control groups"
        return "absent: this machine has no such counter, or the hypervisor hides it"
    if number in (errno.EACCES, errno.EPERM):
        level = 2 if event.exclude_kernel else 1
        level = 0 if target.cpu >= 0 else level
        level = -1 if event.type == TRACEPOINT else level
        if paranoid is not None and paranoid > level:
            hint = ""
            if level == 1 and paranoid == 2:
                hint = "count user space alone (domain 'user'), or "
            return (
                f"not allowed: kernel.perf_event_paranoid is {paranoid}; {hint}as root: "
                f"sysctl kernel.perf_event_paranoid={level}"
            )
        return (
            "not allowed: it belongs to another user, or a container's seccomp filter or a "
            "security module forbids it (CAP_PERFMON would do)"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many open files: the limit is {limit}; raise it with 'ulimit -n'"
    if number == errno.ESRCH:
        return "gone"
    if number == errno.EBUSY:
        return "taken: another profiler or the NMI watchdog holds the counter"
    if number == errno.ENOSYS:
        return "this kernel has no perf_event_open"
    return f"perf_event_open failed: {os.strerror(number)}"


class CounterGroup:
    """Counters that count at the same time, on every target of what is watched.

    They are off until `enable`. Close the group, or use it in a ``with`` statement.

    Parameters
    ----------
    events
        What to count; the first that can be opened leads the group.
    watched
        On what: see `watch`. This thread by default.
    name
        The set's name in the rows.
    opener
        What opens one counter; tests put another in its place.

    Attributes
    ----------
    events
        The events that are counted, in the order of the counters.
    refused
        The others: event name to the reason.
    counters, leaders
        Descriptors, ``[target, event]`` and ``[target]``.

    Examples
    --------
    >>> from perflib.instruments.counters.events import event
    >>> with CounterGroup([event("page-faults")]) as group:  # doctest: +SKIP
    ...     group.enable()
    ...     work()
    ...     group.read()
    """

    def __init__(
        self,
        events: Sequence[Requested],
        watched: Watched | None = None,
        *,
        name: str = "",
        opener: Opener = open_counter,
    ) -> None:
        twice = {event.name for event in events if [e.name for e in events].count(event.name) > 1}
        if twice:
            msg = f"set {name!r} names {', '.join(sorted(twice))} more than once"
            raise UserError(msg)
        self.name = name
        self.watched = watched or watch()
        self.requested = tuple(events)
        self.events: tuple[CounterEvent, ...] = ()
        self.refused: dict[str, str] = {}
        self.counters: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)
        self._opener = opener
        self._on = False
        self._open()
        self.reset()

    # The same events stand on every target, or a sum over targets would lack some of it: an event
    # that fails on one is given up, and the others are opened anew without it.
    def _open(self) -> None:
        self.refused = {one.name: why for one in self.requested if (why := _refused_at_once(one))}
        events = [
            one
            for one in self.requested
            if isinstance(one, CounterEvent) and one.name not in self.refused
        ]
        while events:
            rows, failed, reason = self._open_everywhere(events)
            if failed is None:
                if rows:
                    self.events = tuple(events)
                    self.counters = np.array(rows, dtype=np.int32)
                else:
                    gone = f"{self.watched.what} is gone"
                    self.refused |= {event.name: gone for event in events}
                return
            self.refused[failed.name] = reason
            events.remove(failed)

    def _open_everywhere(
        self, events: Sequence[CounterEvent]
    ) -> tuple[list[list[int]], CounterEvent | None, str]:
        rows: list[list[int]] = []
        if (too_many := self._too_many(events)) is not None:
            return rows, too_many, _DOES_NOT_FIT
        for target in self.watched.targets:
            row: list[int] = []
            try:
                for event in events:
                    row.append(self._open_one(event, target, row[0] if row else -1))
            except OSError as error:
                _close(row)
                if error.errno == errno.ESRCH:  # a thread that has ended meanwhile
                    continue
                _close(counter for other in rows for counter in other)
                failed = events[len(row)]
                return [], failed, self._why(error, failed, target, alone=not row)
            rows.append(row)
        return rows, None, ""

    # Arm's driver leaves a leader that is off out of its sum: a set with one event too many opens,
    # and never counts. With the leader on the sum is right; it counts on this thread, unread.
    def _too_many(self, events: Sequence[CounterEvent]) -> CounterEvent | None:
        if sum(event.type != SOFTWARE for event in events) <= _FEWEST_COUNTERS:
            return None
        row: list[int] = []
        try:
            for event in events:
                leader = row[0] if row else -1
                row.append(self._opener(event, CounterTarget(0), leader, inherit=False, off=False))
        except OSError as error:
            return events[len(row)] if row and error.errno == errno.EINVAL else None
        finally:
            _close(row)
        return None

    def _open_one(self, event: CounterEvent, target: CounterTarget, leader: int) -> int:
        return self._opener(event, target, leader, inherit=self.watched.inherit, off=leader == -1)

    def _why(
        self, error: OSError, event: CounterEvent, target: CounterTarget, *, alone: bool
    ) -> str:
        if error.errno == errno.EINVAL and not alone:
            try:
                _close([self._open_one(event, target, -1)])
            except OSError:
                pass
            else:
                return _DOES_NOT_FIT
        return why_not(error.errno or 0, event, target, integer(_PARANOID))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def leaders(self) -> NDArray[np.int32]:
        """One descriptor a target: switching it switches the target's whole group."""
        return self.counters[:, 0] if self.counters.size else np.zeros(0, dtype=np.int32)

    def enable(self) -> None:
        """Let the group count."""
        self._switch(on=True)

    def disable(self) -> None:
        """Let the group stop; its counts stay."""
        self._switch(on=False)

    def _switch(self, *, on: bool) -> None:
        self._on = self._on or on
        leaders = np.ascontiguousarray(self.leaders)
        if leaders.size:
            loaded = kernel()
            pointer = loaded.ffi.from_buffer("int32_t[]", leaders)
            checked(loaded.lib.counter_switch(pointer, leaders.size, on), "switch counters")

    def reset(self) -> None:
        """Count from here on as from zero.

        The kernel's own reset leaves the clocks, and what children have handed over, as they are;
        so the readings until now are remembered and taken off.
        """
        self._zero = read_counters(self.counters) if self.counters.size else None

    def raw(self) -> NDArray[Any]:
        """Readings ``[target, event]`` since the last reset.

        ``id`` is the kernel's number of the counter; ``lost`` the samples it lost, -1 where the
        kernel does not say (before 6.0).
        """
        if self._zero is None:
            return new_readings((0, 0))
        return since(read_counters(self.counters), self._zero)

    def totals(self) -> dict[str, float | None]:
        """Each event's count since the last reset, over all targets; None: it never counted.

        Where the group had the processor for a part of the time, counts are scaled to all of it.
        """
        reading = self.raw()
        enabled = reading["enabled_ns"].sum(axis=0, dtype=np.float64)
        running = reading["running_ns"].sum(axis=0, dtype=np.float64)
        value = reading["value"].sum(axis=0, dtype=np.float64)
        scaled = value * enabled / np.maximum(running, 1)
        counted = zip(self.events, scaled, running > 0, strict=True)
        return {event.name: float(one) if ran else None for event, one, ran in counted}

    def read(self) -> pd.DataFrame:
        """One row an event, in the order in which they were requested.

        Returns
        -------
        A table of ``event``, ``set``, ``value`` (counted), ``enabled_ns``, ``running_ns``,
        ``scaled`` (the estimate for the whole of the enabled time), ``scaled_error`` (its standard
        uncertainty, see `multiplexing.scale_totals`) and ``status``. Times are summed over
        targets. What was not counted is NaN, never zero.
        """
        table = count_rows(self.raw())
        table.insert(0, "event", [event.name for event in self.events])
        if not self._on:
            table["status"] = "never switched on"
        lacking = pd.DataFrame({"event": list(self.refused), "status": list(self.refused.values())})
        rows = pd.concat([table, lacking]) if len(lacking) else table
        rows = rows.set_index("event").loc[[event.name for event in self.requested]].reset_index()
        rows.insert(1, "set", self.name)
        return rows

    def close(self) -> None:
        """Give the counters back."""
        _close(map(int, self.counters.ravel()))
        self.counters = np.zeros((0, 0), dtype=np.int32)
        self._zero = None


def countable(sets: Mapping[str, Sequence[Requested]]) -> tuple[list[str], dict[str, str]]:
    """The sets of which this machine counts something, and of the others why not."""
    found, absent = [], {}
    for name, events in sets.items():
        with CounterGroup(events, watch(), name=name) as group:
            if group.events:
                found.append(name)
            else:
                absent[name] = group.refused[events[0].name]
    return found, absent


def _refused_at_once(event: Requested) -> str:
    """Why this event is not even tried; empty where it is."""
    if isinstance(event, Lacking):
        return event.reason
    if event.exclude_kernel and event.type == SOFTWARE and event.config in _KERNEL_ONLY:
        return "absent in user space: only the kernel makes this event"
    if event.type == RAW and event.config in unlisted_on_arm():
        return "absent: this processor does not list it among those that its counters have"
    mine = "" if pfm.missing() else pfm.this_cpu()
    if event.cpu and event.cpu != mine:
        mine = mine or "one that libpfm4 does not know"
        return f"absent: encoded for {event.cpu}, but this machine is {mine}"
    return ""


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
