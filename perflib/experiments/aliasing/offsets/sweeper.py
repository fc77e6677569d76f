"""A user's function in the worker: timed at one offset of the array that moves after the other."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.offsets import called
from perflib.experiments.aliasing.offsets.called import Placed
from perflib.framework.brackets import bracket_columns, core_mhz
from perflib.kernels import open_library


def _others_ns() -> int:
    """CPU time of other threads; the clocks are read in turn, so the least of some."""
    return min(-time.thread_time_ns() + time.process_time_ns() for _ in range(3))


@dataclass(frozen=True)
class Sweeper(Placed):
    """A function and its arguments, in the process that made it and in the worker.

    Parameters
    ----------
    stays
        The place among the arguments of the array that the other's distance is counted from.
    kernel
        Library and module whose ``offsets_begin`` and ``offsets_end`` bracket a sample.
    """

    stays: int
    kernel: tuple[str, str]

    def sweep(self, offsets: Sequence[int], warm_calls: int, calls: int) -> dict[str, Any]:
        """One sample at each offset, by columns; or ``raised``: what the function raised, where.

        The arrays are mapped anew. The one that moves begins at each offset above a page.
        """
        gc.collect()
        gc.disable()
        try:
            samples = self._samples(offsets, warm_calls, calls)
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            return {"raised": _raised(error)}
        return {name: [sample[name] for sample in samples] for name in samples[0]}

    def _samples(self, offsets: Sequence[int], warm_calls: int, calls: int) -> list[dict[str, Any]]:
        memory, begins = self.map()
        samples = []
        for offset in offsets:
            arguments, addresses = self.placed(memory, begins, offset)
            self.run(arguments, warm_calls)
            cpus, others_ns = os.sched_getaffinity(0), _others_ns()
            timed = self._bracketed(arguments, calls)
            others_ns = _others_ns() - others_ns
            samples.append(
                {
                    "offset_bytes": offset,
                    "calls": calls,
                    "time_ns": int(timed["time_ns"][0]),
                    "start_ns": int(timed["start_ns"][0]),
                    "first_address": addresses[self.stays],
                    "second_address": addresses[self.moves],
                    **{name: value for name, (value,) in bracket_columns(timed).items()},
                    "core_mhz": float(core_mhz(timed)[0]),
                    "others_ns": others_ns,
                    "pinned": len(cpus) == 1,
                }
            )
        return samples

    @cached_property
    def _bracket(self) -> tuple[Any, NDArray[Any], Any]:
        """The kernel, a record of type ``bracket``, and a pointer to it."""
        kernel, ffi = open_library(*self.kernel)
        out = ffi.new("bracket *")
        fields = [(name, "i8") for name, _ in ffi.typeof("bracket").fields]
        return kernel, np.frombuffer(ffi.buffer(out), dtype=fields), out

    def _bracketed(self, arguments: Sequence[Any], calls: int) -> NDArray[Any]:
        """A record of type ``bracket`` around so many calls."""
        kernel, timed, out = self._bracket
        kernel.offsets_begin(out)
        self.run(arguments, calls)
        kernel.offsets_end(out)
        return timed


def _raised(error: Exception) -> str:
    """What the function raised, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = {__file__, called.__file__}
    own = [frame for frame in frames if frame.filename not in ours]
    where = f", in line {own[-1].lineno} of {own[-1].name}()" if own else ""
    return f"{type(error).__name__}: {error}{where}"
