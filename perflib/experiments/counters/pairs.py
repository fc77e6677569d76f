"""What counting costs our simulation: short segments of it, in turn with and without counting.

Two runs of a job on a busy machine differ by more than any counter costs. So one process simulates
the same events again and again, for some 12 ms each time, and the counters are switched on for one
of two successive segments. Both are cut into slices, each between two probes: the slices of one
name do the same work, and those are compared that had their core for themselves.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns
from perflib.kernels import build, record
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

SLICE_COLUMNS = (
    *("pair", "counted", "cpu", "job_event", "slice", "start_ns", "time_ns"),
    *(column.name for column in BRACKET_COLUMNS),
)
_SEGMENT_MS, _SLICE_US = 12.0, 300.0
_PILOT_EVENTS = 40
_TIMEOUT_S = 120.0
_PAIRS = 8  # of segments, in each trial

Switch = Callable[[], contextlib.AbstractContextManager[object]]


def segment_of(copies: int, conditions: Conditions, cores: Sequence[int], seed: int) -> list[int]:
    """How many events make a segment, and how many steps a slice: ``[events, steps]``."""
    with Segments(copies, conditions, cores, seed) as segments:
        segments.run(1, 10**9)  # warms up
        events, _ = segments.run(_PILOT_EVENTS, 10**9)
    steps = np.maximum(events["steps"], 1)
    step_us = max(1e-3, float(np.median(events["time_ns"] / steps)) / 1e3)
    times_ms = np.cumsum(steps) * step_us / 1e3
    wanted = 1 + int(np.argmin(np.abs(np.log(times_ms / _SEGMENT_MS))))
    return [wanted, max(1, round(_SLICE_US / step_us))]


class Segments:
    """Our simulation as a kernel, in one process on any of the cores."""

    def __init__(
        self, copies: int, conditions: Conditions, cores: Sequence[int], seed: int
    ) -> None:
        kernel = build("kv", copies=copies)
        self._event, self._slice = record(kernel, "kv_event"), record(kernel, "kv_slice")
        self._worker = Worker(kernel, conditions)
        self._cores = cores
        self._seed = seed

    def __enter__(self) -> Self:
        self._worker.start()
        os.sched_setaffinity(self.pid, self._cores)
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.kill()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._worker.pid is not None, "it has not been started"
        return self._worker.pid

    def run(self, events: int, slice_steps: int) -> tuple[Any, Any]:
        """Simulate the first events; arrays of the kernel's records: events and slices."""
        wanted = np.arange(events, dtype=np.int64)
        most = 300 + events
        count, (done, slices) = self._worker.call(
            "kv_run_slices",
            self._seed,
            wanted,
            events,
            slice_steps,
            Out(self._event, events),
            Out(self._slice, most),
            most,
            timeout_s=_TIMEOUT_S,
        )
        if count < 0:
            msg = f"kv_run_slices() returns {count} for the first {events} events"
            raise MeasurementError(msg)
        return done, slices[: min(count, most)]

    def pairs(self, switched_on: Switch, segment: Sequence[int], seed: str) -> list[Columns]:
        """Segments with and without counting, which of the two is first drawn for each pair.

        ``switched_on()`` counts for as long as a ``with`` statement lasts. Returned are the slices
        of each, as columns by the names of ``SLICE_COLUMNS``.
        """
        draw = random.Random(seed)
        parts = []
        for pair in range(_PAIRS):
            first = draw.random() < 0.5
            for on in (first, not first):
                with switched_on() if on else contextlib.nullcontext():
                    _, slices = self.run(*segment)
                parts.append(_columns(slices, pair, on))
        return parts


def _columns(slices: Any, pair: int, on: bool) -> Columns:
    samples = slices["sample"]
    return {
        "pair": [pair] * len(slices),
        "counted": [int(on)] * len(slices),
        "cpu": slices["cpu"].tolist(),
        "job_event": slices["event"].tolist(),
        "slice": slices["slice"].tolist(),
        "start_ns": samples["start_ns"].tolist(),
        "time_ns": samples["time_ns"].tolist(),
        **bracket_columns(samples),
    }
