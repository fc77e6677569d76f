"""Reading counters, and the rows that readings become."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.instruments.counters.multiplexing import KERNEL_SLICE_NS, scale_totals
from perflib.kernels import Kernel, load, record
from perflib.machine.files import integer
from perflib.model.errors import MeasurementError


@functools.cache  # finding it in the cache of kernels costs more than opening a counter
def kernel() -> Kernel:
    """The compiled kernel ``perf_counters``."""
    return load("perf_counters")


def checked(answer: int, what: str) -> int:
    """The answer of a call into the kernel ``perf_counters``.

    Raises
    ------
    MeasurementError
        It is negative: an error number.
    """
    if answer < 0:
        msg = f"cannot {what}: {os.strerror(-answer)}"
        raise MeasurementError(msg)
    return answer


def new_readings(shape: int | tuple[int, ...]) -> NDArray[Any]:
    """Zeros of the kernel's struct ``counter_reading``."""
    return np.zeros(shape, dtype=record(kernel().build, "counter_reading"))


def read_counters(counters: NDArray[np.int32]) -> NDArray[Any]:
    """Read descriptors of any shape; the readings have the same shape."""
    flat = np.ascontiguousarray(counters).ravel()
    readings = new_readings(flat.size)
    if flat.size:
        loaded = kernel()
        out = loaded.ffi.from_buffer("counter_reading[]", readings, require_writable=True)
        pointer = loaded.ffi.from_buffer("int32_t[]", flat)
        checked(loaded.lib.counter_read(pointer, flat.size, out), "read counters")
    return readings.reshape(counters.shape)


def since(now: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """Readings as differences to earlier ones."""
    change = now.copy()
    for field in ("value", "enabled_ns", "running_ns"):
        change[field] -= before[field]
    return change


def count_rows(change: NDArray[Any], *, slice_ns: float | None = None) -> pd.DataFrame:
    """Counts summed over targets, scaled target by target, one row an event.

    Parameters
    ----------
    change
        Readings ``[..., target, event]`` as differences.
    slice_ns
        The length of a slice of the kernel's rotation; the kernel's own by default.

    Returns
    -------
    ``value``, ``enabled_ns``, ``running_ns``, ``scaled``, ``scaled_error``, ``status``, in the
    order of ``[..., event]``. A target that was enabled but never counted is taken to be like the
    others; where no target counted, the event is ``not counted`` or, when no target ran at all,
    ``did not run``.
    """
    slice_ns = kernel_slice_ns() if slice_ns is None else slice_ns
    estimate, error = scale_totals(
        change["value"], change["enabled_ns"], change["running_ns"], slice_ns=slice_ns
    )
    counted = change["running_ns"] > 0
    enabled = change["enabled_ns"].sum(axis=-2, dtype=np.float64)
    covered = np.where(counted, change["enabled_ns"], 0).sum(axis=-2, dtype=np.float64)
    some = counted.any(axis=-2)
    uncovered = np.where(some, enabled / np.where(covered > 0, covered, 1.0), np.nan)
    running = change["running_ns"].sum(axis=-2, dtype=np.float64)
    scaled = np.where(some, np.nansum(estimate, axis=-2) * uncovered, np.nan)
    spread = np.where(some, np.sqrt(np.nansum(error**2, axis=-2)) * uncovered, np.nan)
    # what was not counted on some targets is as uncertain as it is large
    spread = np.hypot(spread, scaled * (1 - 1 / np.where(some, uncovered, 1.0)))
    status = np.select(
        [some & (running >= enabled), some, enabled > 0],
        ["counted", "scaled", "not counted"],
        "did not run",
    )
    return pd.DataFrame(
        {
            "value": np.where(some, change["value"].sum(axis=-2, dtype=np.float64), np.nan).ravel(),
            "enabled_ns": enabled.ravel(),
            "running_ns": running.ravel(),
            "scaled": scaled.ravel(),
            "scaled_error": spread.ravel(),
            "status": status.ravel(),
        }
    )


def kernel_slice_ns() -> float:
    """How long the kernel lets one group count before it rotates."""
    devices = Path("/sys/bus/event_source/devices")
    for name in ("cpu", "cpu_core", "armv?_*"):
        for file in sorted(devices.glob(f"{name}/perf_event_mux_interval_ms")):
            if found := integer(file):
                return 1e6 * found
    return float(KERNEL_SLICE_NS)
