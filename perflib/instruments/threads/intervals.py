"""Sums over the intervals of a recording, by ``kernels_c/readers/thread_bins.c`` or `plain`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib import kernels
from perflib.instruments.threads import plain
from perflib.instruments.threads.formats import ALL, STATES, Selection
from perflib.instruments.threads.recording import Recording
from perflib.kernels.records import record
from perflib.model.errors import MeasurementError, UserError

RETRY_NS = 5_000
"""A thread that runs for less than this between two sleeps for one lock is in one operation.

It was woken, found the lock taken again, and went back to sleep: it never acquired the lock. Only
the job itself can distinguish that from a thread that acquired, released and requested the lock as
quickly.
"""

WAIT = record("thread_bins", "thread_wait")
"""One operation on a lock that was waited for.

``waiting_ns`` asleep and then ``ready_ns`` of run-queue delay, each within the selected span;
``other`` released it (-1: not known), ``stack`` is where the thread waited.
"""


@functools.cache
def load() -> kernels.Kernel:
    """The kernel, compiled and loaded once."""
    return kernels.load("thread_bins")


@functools.cache
def compiled(name: str = "thread_bins") -> bool:
    """Whether a kernel is to be had: recordings are also read where there is no compiler."""
    return sys.platform == "linux" and not kernels.unavailable(name)


def states_in_bins(
    recording: Recording, bins: int, selection: Selection = ALL, *, together: bool = False
) -> npt.NDArray[np.float64]:
    """Nanoseconds of each thread in each bin of time and each state: ``[rows, bins, 6]``.

    Bin b begins at ``start_ns + b * (end_ns - start_ns) // bins``. ``together``: of all these
    threads in one row.

    Raises
    ------
    UserError
        There are no bins, or there is no such row.
    """
    if bins < 1:
        msg = f"bins={bins}: at least one is needed"
        raise UserError(msg)
    wanted, span = recording.rows(selection.rows), recording.span(selection)
    slots = np.zeros_like(wanted) if together else np.arange(len(wanted), dtype=np.int32)
    found = np.zeros((1 if together else len(wanted), bins, len(STATES)))
    if not len(recording.intervals) or span[1] <= span[0]:
        return found
    if compiled():
        lib, ffi = load().lib, load().ffi
        lib.thread_bins(
            *_pointers(ffi, recording, wanted),
            ffi.from_buffer("int32_t[]", slots),
            len(wanted),
            *span,
            bins,
            ffi.from_buffer("double[]", found, require_writable=True),
        )
    else:
        for slot, row in zip(slots, wanted, strict=True):
            found[slot] += plain.bins_of(recording, row, span, bins)
    return found


def levels(
    recording: Recording,
    states: Sequence[int],
    selection: Selection = ALL,
    *,
    awake: npt.NDArray[np.bool_] | None = None,
    most: int = 0,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many threads were in one of some states at once.

    Those who wait for a lock with ``awake[lock]`` count too; ``awake[-1]``, the last one, is for
    waits for no known lock.

    Returns
    -------
    tuple
        For how many ns there were k, for k from 0 to all; and the times at which there came to be
        more than ``most``, and not more, in turn.
    """
    wanted, span = np.unique(recording.rows(selection.rows)), recording.span(selection)
    by_level, times = np.zeros(len(wanted) + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
    if not len(recording.intervals):
        by_level[0] = span[1] - span[0]
        return by_level, times
    wakes = np.zeros(len(recording.locks) + 1, dtype=np.uint8)
    if awake is not None:
        wakes[:] = awake
    if not compiled():
        return plain.levels(recording, wanted, span, list(states), wakes, most)
    lib, ffi = load().lib, load().ffi
    while True:  # the first time they are only counted
        by_level[:] = 0
        n = lib.thread_levels(
            *_pointers(ffi, recording, wanted),
            len(wanted),
            *span,
            sum(1 << state for state in states),
            ffi.from_buffer("uint8_t[]", wakes),
            len(recording.locks),
            most,
            ffi.from_buffer("int64_t[]", by_level, require_writable=True),
            ffi.from_buffer("int64_t[]", times),
            len(times),
        )
        if n < 0:
            msg = f"there is not enough memory for the {len(wanted)} threads of this recording"
            raise MeasurementError(msg)
        if n <= len(times):
            return by_level, times
        times = np.empty(n, dtype=np.int64)


def waits(
    recording: Recording, selection: Selection = ALL, lock: int | None = None
) -> npt.NDArray[np.void]:
    """Every wait for a lock (or for one), as records ``WAIT``, by row and by time."""
    wanted, span = np.unique(recording.rows(selection.rows)), recording.span(selection)
    lib, ffi = load().lib, load().ffi
    found = np.empty(0, dtype=WAIT)
    if not len(recording.intervals):
        return found
    stamped = recording.meta.get("backend") == "preload"  # each operation is known there
    retry_ns = 0 if stamped else RETRY_NS
    for _ in range(2):  # the first time they are only counted
        out = ffi.from_buffer("thread_wait[]", found)
        n = lib.thread_waits(
            *_pointers(ffi, recording, wanted), len(wanted), *span, retry_ns, out, len(found)
        )
        if n > len(found):
            found = np.empty(n, dtype=WAIT)
    recording.check(others=found["other"], stacks=found["stack"], locks=found["lock"])
    return recording.selected(selection, found if lock is None else found[found["lock"] == lock])


def mark_lost(
    intervals: npt.NDArray[np.void], first: npt.NDArray[np.int64], lost: npt.NDArray[np.void]
) -> None:
    """Flag, in place, the intervals that lost events touch.

    Of a thread that ran, those on the CPU concerned (all where it is -1); of one that did not, all:
    it may have run on that CPU meanwhile.
    """
    if len(intervals) and len(lost):
        lib, ffi = load().lib, load().ffi
        lib.thread_mark_lost(
            ffi.from_buffer("thread_interval[]", intervals, require_writable=True),
            ffi.from_buffer("int64_t[]", first),
            len(first) - 1,
            ffi.from_buffer("thread_lost[]", lost),
            len(lost),
        )


def _pointers(ffi: Any, recording: Recording, rows: npt.NDArray[np.int32]) -> tuple[Any, Any, Any]:
    return (
        ffi.from_buffer("thread_interval[]", recording.intervals),
        ffi.from_buffer("int64_t[]", recording.first),
        ffi.from_buffer("int32_t[]", rows),
    )
