"""Counts of a job, of CPUs or of a control group, interval after interval, for as long as it takes.

Each interval is read, put on disk (`on_disk`) and added to a series of bounded length (`series`),
so memory does not grow with time. Sets of counters that do not fit together take turns: one set an
interval, each once in a round, in an order drawn anew; what was on for a part of the time
is scaled, and its completeness is that part.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perflib.instruments.counters.groups import (
    CLOCK,
    CounterGroup,
    Opener,
    Requested,
    open_counter,
)
from perflib.instruments.counters.kernel_names import SOFTWARE
from perflib.instruments.counters.on_disk import RECORD, CountFiles
from perflib.instruments.counters.readings import since
from perflib.instruments.counters.series import Series
from perflib.instruments.counters.system_counts import MISSING, SYSTEM_COUNTS, SystemCounts
from perflib.instruments.counters.watched import Watched, watch

_CPUS_EVERY_S = 1.0
_UNITS = {"task-clock": "ns", "cpu-clock": "ns"}
SYSTEM = "kernel"  # the set of what the kernel counts itself


@dataclass(frozen=True)
class Counted:
    """One counter: its event, the set with which it is on, its unit, and its CPU (-1: of all)."""

    event: str
    set: str
    unit: str
    cpu: int = -1


class Counting:
    """Count in intervals; close it, or use it in a ``with`` statement.

    Parameters
    ----------
    sets
        Name of each set to its events, as `perflib.instruments.counters.sets` gives them.
    system
        Names of `SYSTEM_COUNTS`.
    watched
        What to count.
    folder, most_bytes
        Where the intervals go, and how many bytes they may take.
    cgroup
        For the counts of a control group.
    per_cpu
        Where CPUs are watched: each by itself; else their sum.
    seed
        Of the order in which sets take turns.
    one_at_a_time
        Sets take turns; else all are on, and where they do not fit the kernel rotates them.
    online
        The CPUs that are there now, where CPUs are watched: those that come are counted, too.
    opener, root
        What opens a counter, and where /proc is; tests put others in their places.

    Attributes
    ----------
    counters
        What is counted, in the order of the records' numbers.
    refused
        What is not, with the reason.
    remarks
        What happened meanwhile: CPUs that came or went, files that vanished.
    series
        All intervals so far, as a series of bounded length.
    """

    def __init__(
        self,
        sets: Mapping[str, Sequence[Requested]],
        system: Sequence[str],
        watched: Watched,
        folder: Path,
        *,
        most_bytes: int,
        cgroup: str | None = None,
        per_cpu: bool = False,
        seed: int = 0,
        one_at_a_time: bool = True,
        online: Callable[[], Sequence[int]] | None = None,
        opener: Opener = open_counter,
        root: Path = Path("/"),
    ) -> None:
        self.watched = watched
        self.refused: dict[str, str] = {}
        self.remarks: list[str] = []
        self._sets, self._opener, self._online = sets, opener, online
        self._order = np.random.default_rng(seed)
        self._one_at_a_time = one_at_a_time
        self._turns: list[int] = []
        self._on, self._last_ns = 0, 0
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._per_cpu = per_cpu and all(one.cpu >= 0 for one in watched.targets)
            cpus = [one.cpu for one in watched.targets] if self._per_cpu else []
            self._kernel = stack.enter_context(
                SystemCounts(system, cpus=cpus, pid=watched.pid, cgroup=cgroup, root=root)
            )
            self.refused |= self._kernel.lacking
            self._kernel_before = self._kernel.read()
            self._opened = stack.enter_context(contextlib.ExitStack())
            self._open_groups()
            self.files = CountFiles(folder, most_bytes)
            stack.callback(self.files.close)
            here = [
                Counted(one.name, group.name, _UNITS.get(one.name, ""), cpu)
                for group in self._groups
                for one in group.events
                for cpu in (cpus or [-1])
            ]
            here += [
                Counted(name, SYSTEM, SYSTEM_COUNTS[name].unit, cpu)
                for name, cpu in self._kernel.columns
            ]
            said = self.files.names([*map(str, astuple(one))] for one in here)
            self.counters = [Counted(one, name, unit, int(cpu)) for one, name, unit, cpu in said]
            self._number = {
                (one.set, one.event, one.cpu): at for at, one in enumerate(self.counters)
            }
            self.series = Series(len(self.counters))
            for rows in self.files.rows():  # what was counted before this process
                self.series.replay(rows)
            self._open = stack.pop_all()
        self._checked_s = time.monotonic()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the counters back; what was counted stays on disk."""
        self._open.close()

    # --- reading -------------------------------------------------------------------------------

    def tick(self) -> None:
        """End an interval: read, write, and let the next set count.

        Raises
        ------
        MeasurementError
            The counters or the disk failed; what was counted before is kept.
        """
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        elapsed_ns = now_ns - self._last_ns
        if elapsed_ns <= 0:
            return
        resting: list[CounterGroup] = []
        if len(self._rotating) > 1:
            # The next set counts while the last one is read and written: none of the time is lost.
            last = self._rotating[self._on]
            last.disable()
            self._on = self._turn()
            self._rotating[self._on].enable()
            resting = [group for group in self._rotating if group is not last]
        rows = [*self._of_sets(resting), *self._of_kernel(elapsed_ns)]
        record = np.zeros(len(rows), dtype=RECORD)
        for place, (number, value, on_ns, all_ns) in enumerate(rows):
            record[place] = (wall_ns, elapsed_ns, number, value, on_ns, all_ns)
        self.files.append(record)
        self.series.add(record)
        self._last_ns = now_ns
        if self._online is not None and time.monotonic() - self._checked_s > _CPUS_EVERY_S:
            self._check_cpus()

    def _of_sets(self, resting: Sequence[CounterGroup]) -> list[tuple[int, float, float, float]]:
        """Of each counter: what it counted, how long it was on, how long it should have been.

        Of those that were resting nothing, although one of them counts by now.
        """
        if not self._groups:
            return []
        clock = self._change(self._clock)["enabled_ns"][:, 0].astype(np.float64)
        found = []
        for group in self._groups:
            before = self._before[id(group)]
            change = since(before, before) if group in resting else self._change(group)
            for at, event in enumerate(group.events):
                values, running = change["value"][:, at], change["running_ns"][:, at]
                for cpu, targets in self._targets(len(values)):
                    number = self._number.get((group.name, event.name, cpu))
                    if number is None:  # it could not be counted when the recording began
                        continue
                    all_ns = float(clock[targets].sum()) if len(clock) == len(values) else np.nan
                    on_ns = float(running[targets].sum(dtype=np.float64))
                    value = float(values[targets].sum(dtype=np.float64))
                    found.append((number, value, min(on_ns, all_ns), all_ns))
        return found

    def _targets(self, count: int) -> list[tuple[int, slice]]:
        """The counters of each CPU, or of all together."""
        if not self._per_cpu:
            return [(-1, slice(None))]
        return [(one.cpu, slice(at, at + 1)) for at, one in enumerate(self.watched.targets[:count])]

    def _change(self, group: CounterGroup) -> NDArray[Any]:
        now, before = group.raw(), self._before[id(group)]
        self._before[id(group)] = now
        return since(now, before)

    def _of_kernel(self, elapsed_ns: int) -> list[tuple[int, float, float, float]]:
        now = self._kernel.read()
        before, self._kernel_before = self._kernel_before, now
        found = []
        for (name, cpu), value, last in zip(self._kernel.columns, now, before, strict=True):
            known = MISSING not in (value, last)
            number = self._number.get((SYSTEM, name, cpu))
            if number is None:
                continue
            counted = float(value - last) if known else np.nan
            found.append((number, counted, float(elapsed_ns * known), float(elapsed_ns)))
        return found

    # --- what is watched -------------------------------------------------------------------------

    def _open_groups(self) -> None:
        groups = [
            self._opened.enter_context(
                CounterGroup(events, self.watched, name=name, opener=self._opener)
            )
            for name, events in self._sets.items()
        ]
        for group in groups:
            self.refused |= group.refused
        self._groups = [group for group in groups if group.counters.size]
        # What the kernel counts itself needs no counter of the processor, and no turn.
        self._rotating = [
            group
            for group in self._groups
            if self._one_at_a_time and any(event.type != SOFTWARE for event in group.events)
        ]
        self._clock = self._opened.enter_context(
            CounterGroup([CLOCK], self.watched, opener=self._opener)
        )

    def _start(self) -> None:
        self._before: dict[int, NDArray[Any]] = {}
        self._kernel_before = self._kernel.read()
        if self._groups:
            if self._rotating:
                self._on = self._turn()
                self._rotating[self._on].enable()
            for group in self._groups:
                if group not in self._rotating:
                    group.enable()
            self._clock.enable()
            for group in (*self._groups, self._clock):
                self._before[id(group)] = group.raw()
        self._last_ns = time.monotonic_ns()

    def _turn(self) -> int:
        if not self._turns:
            self._turns = [int(at) for at in self._order.permutation(len(self._rotating))]
        return self._turns.pop()

    def _check_cpus(self) -> None:
        """Counters of a CPU that went end with it, and one that came has none: open them anew."""
        assert self._online is not None
        self._checked_s = time.monotonic()
        now, before = set(self._online()), {target.cpu for target in self.watched.targets}
        if now == before or not now:
            return
        came, went = (", ".join(map(str, sorted(one))) for one in (now - before, before - now))
        words = [f"CPU {went} went" if went else "", f"CPU {came} came" if came else ""]
        self.remarks.append(" and ".join(filter(None, words)))
        self._opened.close()
        self.watched = watch(cpus=now)
        self._turns = []
        self._open_groups()
        self._start()
