"""The loop in C that reads counters tick by tick, and the buffers it fills."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.instruments.counters.readings import kernel, new_readings
from perflib.kernels import record

FULL, STOPPED, PROCESS_ENDED = 0, 1, 2
_READINGS_IN_BUFFER = 1 << 16

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Ticks:
    """What was read: per tick its times, the set that was on, and the cumulative readings.

    ``clock`` is ``[tick, clock]``, ``readings`` is ``[tick, counter of the set]``; sets with fewer
    counters than others leave the end of a row empty.
    """

    ticks: NDArray[Any]
    clock: NDArray[Any]
    readings: NDArray[Any]


class _Buffer:
    LEAST_TICKS = 64

    def __init__(self, ffi: Any, stride: int) -> None:
        self.capacity = max(self.LEAST_TICKS, _READINGS_IN_BUFFER // stride)
        self.ticks = np.zeros(self.capacity, dtype=record(kernel().build, "counter_tick"))
        self.readings = new_readings((self.capacity, stride))
        self.written = ffi.new("int64_t *", 0)


class CounterFollower:
    """Reads sets of counters at a period; several sets are rotated.

    The sets, their leaders and the clocks are descriptors, opened by others and closed by them
    when `run` has returned. The clocks are on; of the sets the first in the order is.

    Parameters
    ----------
    sets, leaders
        For each set its counters, and the leaders that switch it.
    clock
        Counters that are read with every set.
    order
        Sets in the order in which they are on, over and over.
    period_ns
        Length of a tick.
    start_ns
        When the first tick began (CLOCK_MONOTONIC).
    stop, process
        Descriptors: the end is when one is readable; -1 for none.
    """

    def __init__(
        self,
        sets: Sequence[Ints],
        leaders: Sequence[Ints],
        clock: Ints,
        order: Ints,
        *,
        period_ns: int,
        start_ns: int,
        stop: int,
        process: int,
    ) -> None:
        loaded = kernel()
        self._lib, self._ffi = loaded.lib, loaded.ffi
        self._clocks = clock.size
        self._stride = clock.size + max(one.size for one in sets)
        self._buffers = [_Buffer(self._ffi, self._stride)]
        arrays = {
            "first_counter": _starts(sets),
            "counters": np.concatenate(sets),
            "first_leader": _starts(leaders),
            "leaders": np.concatenate(leaders),
            "clock": clock,
            "order": order,
        }
        # kept: the plan has only their addresses
        self._arrays = {
            name: self._ffi.from_buffer("int32_t[]", np.ascontiguousarray(array, dtype=np.int32))
            for name, array in arrays.items()
        }
        numbers = {
            "period_ns": period_ns,
            "start_ns": start_ns,
            "set": int(order[0]),
            "sets": len(sets),
            "clocks": clock.size,
            "order_length": order.size,
            "stop": stop,
            "process": process,
        }
        self._plan = self._ffi.new("counter_plan *", {**numbers, **self._arrays})

    @property
    def ticks_due(self) -> int:
        """How many ticks have been due so far, the missed ones among them."""
        return int(self._plan.ticks_due)

    @property
    def ticks_made(self) -> int:
        """How many of them were read in time; the reading at the end was not due."""
        return sum(
            int((buffer.ticks["due_ns"][: buffer.written[0]] > 0).sum())
            for buffer in list(self._buffers)
        )

    def run(self) -> int:
        """Follow until the end: `STOPPED` or `PROCESS_ENDED`.

        Raises
        ------
        OSError
            A counter could not be read or switched.
        """
        while True:
            buffer = self._buffers[-1]
            answer = int(
                self._lib.counter_follow(
                    self._plan,
                    self._ffi.from_buffer("counter_tick[]", buffer.ticks),
                    self._ffi.from_buffer("counter_reading[]", buffer.readings),
                    self._stride,
                    buffer.capacity,
                    buffer.written,
                )
            )
            if answer < 0:
                raise OSError(-answer, os.strerror(-answer))
            if answer != FULL:
                return answer
            self._buffers.append(_Buffer(self._ffi, self._stride))

    def read(self) -> Ticks:
        """What was read so far; also while `run` works in another thread."""
        parts = [(buffer, int(buffer.written[0])) for buffer in list(self._buffers)]
        readings = np.concatenate([buffer.readings[:count] for buffer, count in parts])
        return Ticks(
            ticks=np.concatenate([buffer.ticks[:count] for buffer, count in parts]),
            clock=readings[:, : self._clocks],
            readings=readings[:, self._clocks :],
        )


def _starts(parts: Sequence[Ints]) -> Ints:
    return np.cumsum([0, *(part.size for part in parts)]).astype(np.int32)
