"""A monitor: sets of counters followed over time, rotated by perflib or by the kernel.

The loop that reads is C in a thread of this process: cffi gives Python's lock away while it runs,
so a busy notebook does not delay it, it takes no time from the notebook, and no second process is
needed. Between readings it sleeps. What a reading costs the program that is followed (an
interrupt a counter while it runs on another CPU) is measured in `benchmarks/counting_cost.py`.

A clock, an event that never happens, is always on: it says how long the program ran, also in the
slices in which a set was off.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self

import numpy as np
import pandas as pd

from perflib.instruments.counters.follower import PROCESS_ENDED, CounterFollower, Ticks
from perflib.instruments.counters.groups import (
    CLOCK,
    CounterGroup,
    Opener,
    Requested,
    open_counter,
)
from perflib.instruments.counters.multiplexing import rotation, scale_slices
from perflib.instruments.counters.readings import count_rows, kernel_slice_ns, since
from perflib.instruments.counters.watched import Watched
from perflib.model.errors import UserError, choose

LEAST_PERIOD_S = 0.01
_ORDERS = ("random", "kernel")
_ROUNDS = 1000  # of the rotation, drawn in advance; then the order begins again
_SEEN_ALL = 0.999  # the clock and a counter are not read at the same instant


class Monitor:
    """Follow a process, a thread or CPUs with one or more sets of counters.

    Start it once, or use it in a ``with`` statement; the series stays when it has stopped.

    Parameters
    ----------
    sets
        Name of each set to its events. The events of a set are counted together.
    watched
        What to follow: see `watched.watch`.
    period_s
        Time between two readings, 0.01 or more: in the random order a set's slice.
    order
        How several sets rotate. ``random``: one set at a time, each once in a round, the order of
        each round drawn anew, so that a program with a rhythm of its own cannot keep step with it;
        the slices are known, and with them the uncertainty. ``kernel``: all sets are on, and where
        they do not fit the kernel rotates them, in a fixed order.
    seed
        Of the random order.
    opener
        What opens one counter; tests put another in its place.

    Raises
    ------
    UserError
        No set, an empty one, a period below 10 ms, or no such order.

    Examples
    --------
    >>> with Monitor(sets, watch(pid=4711), period_s=0.1) as monitor:  # doctest: +SKIP
    ...     monitor.wait(10)
    >>> totals(monitor.series())  # doctest: +SKIP
    """

    def __init__(
        self,
        sets: Mapping[str, Sequence[Requested]],
        watched: Watched,
        *,
        period_s: float = 0.1,
        order: Literal["random", "kernel"] = "random",
        seed: int = 0,
        opener: Opener = open_counter,
    ) -> None:
        if not sets or not all(sets.values()):
            empty = ", ".join(repr(name) for name, events in sets.items() if not events)
            msg = f"no events in set {empty}" if sets else "a monitor needs at least one set"
            raise UserError(msg)
        if not LEAST_PERIOD_S <= period_s < float("inf"):
            msg = f"a period of {period_s:g} s cannot be kept: {LEAST_PERIOD_S:g} s or more"
            raise UserError(msg)
        if order not in _ORDERS:
            raise UserError(choose("order of the sets", order, _ORDERS))
        self.watched = watched
        self.period_s = period_s
        self._one_at_a_time = order == "random"
        self._generator = np.random.default_rng(seed)
        self._ended = ""
        self._closed = False
        self._start_ns = 0
        self._follower: CounterFollower | None = None
        self._thread: threading.Thread | None = None
        with contextlib.ExitStack() as stack:
            self._process = _process_descriptor(watched, stack)
            self._groups = [
                stack.enter_context(CounterGroup(events, watched, name=name, opener=opener))
                for name, events in sets.items()
            ]
            self._clock = stack.enter_context(CounterGroup([CLOCK], watched, opener=opener))
            self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            stack.callback(os.close, self._stop)
            # What is waited for instead of the thread or a lock: Ctrl-C can leave a lock taken for
            # ever, and lets Python 3.11's Thread.join() take a thread for ended that still reads.
            self._done = os.eventfd(0, os.EFD_CLOEXEC)
            stack.callback(os.close, self._done)
            self._open = stack.pop_all()
        self._counting = [group for group in self._groups if group.counters.size]
        self._shapes = [group.counters.shape for group in self._counting]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Switch the counters on and follow, until `stop` or the end of the process.

        Raises
        ------
        UserError
            The monitor was started before.
        """
        if self._start_ns:
            msg = "this monitor was started before: make a new one"
            raise UserError(msg)
        self._start_ns = time.monotonic_ns()
        if not self._counting or not self._clock.counters.size:
            gone = not self._clock.counters.size and self._clock.refused["clock"]
            self._ended = gone or "nothing of this can be counted; the rows say why"
            return
        flat = [group.counters.ravel() for group in self._counting]
        leaders = [group.leaders for group in self._counting]
        order = np.zeros(1, dtype=np.int32)
        if self._one_at_a_time:
            order = rotation(len(flat), _ROUNDS, self._generator)
        else:
            flat, leaders = [np.concatenate(flat)], [np.concatenate(leaders)]
        for group in [self._counting[order[0]]] if self._one_at_a_time else self._counting:
            group.enable()
        self._clock.enable()  # last, and read first: what is always on is not taken for scaled
        self._follower = CounterFollower(
            flat,
            leaders,
            self._clock.counters.ravel(),
            order,
            period_ns=round(1e9 * self.period_s),
            start_ns=self._start_ns,
            stop=self._stop,
            process=self._process,
        )
        self._thread = threading.Thread(
            target=self._follow, args=(self._follower,), name="perflib monitor", daemon=True
        )
        self._thread.start()

    def _follow(self, follower: CounterFollower) -> None:
        try:
            end = follower.run()
        except OSError as error:
            self._ended = f"the counters failed: {error.strerror}"
        else:
            self._ended = f"{self.watched.what} has ended" if end == PROCESS_ENDED else "stopped"
        finally:
            os.eventfd_write(self._done, 1)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the process, at most so long; says whether the monitor has ended."""
        if self._thread is not None and not self._closed:
            done = select.poll()
            done.register(self._done, select.POLLIN)
            done.poll(None if timeout_s is None else 1000 * timeout_s)
        return bool(self._ended)

    def stop(self) -> None:
        """End the monitor and give its counters back; what was read stays."""
        if self._closed:
            return
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self.wait()
        self._closed = True
        self._open.close()
        if self._thread is not None:
            self._thread.join()

    @property
    def ended(self) -> str:
        """Why the monitor has ended, in words; empty while it runs."""
        return self._ended

    @property
    def samples(self) -> tuple[int, int]:
        """How many readings were made, and how many were due."""
        if self._follower is None:
            return 0, 0
        made = self._follower.ticks_made
        return made, max(made, self._follower.ticks_due)

    def series(self) -> pd.DataFrame:
        """What was read so far, also while the monitor runs.

        Returns
        -------
        One row a reading and event: ``time_ns`` (CLOCK_MONOTONIC, when it was read),
        ``elapsed_ns`` (since the reading before), ``set``, ``event``, ``value`` (counted in that
        time), ``enabled_ns``, ``running_ns``, ``scaled``, ``scaled_error``, ``status`` (as of
        `CounterGroup.read`), ``clock_ns`` (how long what is followed ran in that time, summed over
        threads or CPUs), ``missed`` (ticks that went by unread in that time). Events that cannot
        be counted have one row each, at the start.
        """
        lacking = pd.DataFrame(
            [
                {"time_ns": self._start_ns, "set": group.name, "event": name, "status": reason}
                for group in self._groups
                for name, reason in group.refused.items()
            ],
            columns=_COLUMNS,
        )
        parts = [lacking] if len(lacking) else []
        if self._follower is not None:
            parts += self._rows(self._follower.read())
        if not parts:
            return lacking.astype(_DTYPES)
        table = pd.concat([part.astype(_DTYPES) for part in parts], ignore_index=True)
        return table.sort_values("time_ns", kind="stable", ignore_index=True)[_COLUMNS]

    def _rows(self, read: Ticks) -> Iterator[pd.DataFrame]:
        times = read.ticks["time_ns"]
        clock = read.clock["enabled_ns"].sum(axis=1, dtype=np.int64)
        per_tick = {
            "time_ns": times,
            "elapsed_ns": np.diff(times, prepend=self._start_ns),
            "clock_ns": np.diff(clock, prepend=0),
            "missed": read.ticks["missed"],
        }
        offset = 0
        for index, (group, shape) in enumerate(zip(self._counting, self._shapes, strict=True)):
            count = shape[0] * shape[1]
            mine = np.full(len(times), True)
            if self._one_at_a_time:
                mine = read.ticks["set"] == index
            here = read.readings[mine, offset : offset + count].reshape(-1, *shape)
            before = np.roll(here, 1, axis=0)
            before[:1] = np.zeros((), dtype=here.dtype)  # counters begin at zero, switched off
            table = count_rows(since(here, before), slice_ns=kernel_slice_ns())
            table["set"] = group.name
            table["event"] = np.tile([event.name for event in group.events], len(here))
            for name, values in per_tick.items():
                table[name] = np.repeat(values[mine], shape[1])
            yield table
            if not self._one_at_a_time:
                offset += count


_DTYPES: dict[str, str] = {
    "time_ns": "int64",
    "elapsed_ns": "float64",
    "set": "str",
    "event": "str",
    "value": "float64",
    "enabled_ns": "float64",
    "running_ns": "float64",
    "scaled": "float64",
    "scaled_error": "float64",
    "status": "str",
    "clock_ns": "float64",
    "missed": "float64",
}
_COLUMNS = list(_DTYPES)


# Opened before the counters: they can then not be those of another process of the same number
# whose end nobody would notice.
def _process_descriptor(watched: Watched, stack: contextlib.ExitStack) -> int:
    if watched.pid is None:
        return -1
    try:
        descriptor = os.pidfd_open(watched.pid)
    except OSError:  # gone, as the groups say; or a kernel before 5.3, which reports no end
        return -1
    stack.callback(os.close, descriptor)
    return descriptor


def totals(series: pd.DataFrame) -> pd.DataFrame:
    """Each event's total over a series, or a part of one, with its standard uncertainty.

    Parameters
    ----------
    series
        Rows of `Monitor.series`; choose those of a window of time for that window's totals.

    Returns
    -------
    One row a set and event: ``event``, ``set``, ``value`` (seen), ``enabled_ns``, ``running_ns``,
    ``scaled`` (the estimate for the whole time that the program ran), ``scaled_error`` and
    ``freedom`` (see `multiplexing.scale_slices`), ``samples`` (readings in which it was counted),
    ``collected_percent`` (of those due in its slices) and ``status``.
    """
    ran = series.dropna(subset=["clock_ns"])
    all_ns = float(ran.drop_duplicates("time_ns")["clock_ns"].sum())
    rows = []
    for (name, event), part in series.groupby(["set", "event"], sort=False):
        due = part.dropna(subset=["clock_ns"])
        seen = due[due["running_ns"] > 0]
        running_ns = float(seen["running_ns"].sum())
        whole_ns = running_ns if running_ns >= _SEEN_ALL * all_ns else all_ns
        estimate = scale_slices(seen["value"], seen["running_ns"], whole_ns)
        made = int((due["status"] != "not counted").sum())
        wanted = len(due) + float(due["missed"].sum())
        rows.append(
            {
                "event": event,
                "set": name,
                "value": seen["value"].sum() if len(seen) else np.nan,
                "enabled_ns": due["enabled_ns"].sum(),
                "running_ns": running_ns,
                "scaled": estimate.value,
                "scaled_error": estimate.error,
                "freedom": estimate.freedom,
                "samples": made,
                "collected_percent": 100 * made / wanted if wanted else np.nan,
                "status": _status(part, len(seen), whole_ns > running_ns),
            }
        )
    return pd.DataFrame(rows, columns=_TOTALS)


_TOTALS = [
    "event", "set", "value", "enabled_ns", "running_ns", "scaled", "scaled_error", "freedom",
    "samples", "collected_percent", "status",
]  # fmt: skip


def _status(part: pd.DataFrame, seen: int, scaled: bool) -> str:
    if seen:
        return "scaled" if scaled else "counted"
    words = part["status"]
    return "not counted" if (words == "not counted").any() else str(words.iloc[0])
