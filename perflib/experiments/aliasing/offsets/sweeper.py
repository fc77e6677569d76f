"""The process in which a user's function is swept: ``python -m ...worker FOLDER``.

The folder holds ``job.json`` and the arrays. A line of standard input is an order of offsets; the
answer is a line of JSON with a sample of each. What the function prints goes to standard error.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import mmap
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.offsets.source import call_of
from perflib.kernels import open_library

__all__ = ["Sweeper"]

_PAGE = 4096
_MOST_OFFSET = 1 << 20
_TRIALS = 3
_QUIET_OFFSET = 2048


def _others_ns() -> int:
    """CPU time of other threads; the clocks are read in turn, so the least of some."""
    return min(-time.thread_time_ns() + time.process_time_ns() for _ in range(3))


class Sweeper:
    """A function with its arguments, timed at one offset of the moved array after the other."""

    def __init__(self, job: dict[str, Any], arrays: dict[int, NDArray[Any]]) -> None:
        self._c = job["function"]["kind"] == "c"
        self._function: Callable[..., Any] = call_of(job["function"])
        self._plain: dict[int, Any] = {int(place): value for place, value in job["plain"].items()}
        self._arrays = arrays
        self._read_only: list[int] = job["read_only"]
        self._stays, self._moves = job["stays"], job["moves"]
        self._sample_ns = job["sample_ns"]
        self._kernel, _ = open_library(*job["kernel"])
        self._calls = 0

    def sweep(self, offsets: Sequence[int]) -> list[dict[str, Any]]:
        """One sample at each offset; the arrays are mapped anew, the moved one laid at each."""
        memory, places = self._lay()
        if not self._calls:
            self._calibrate(memory, places)
        before_mhz = self._kernel.offsets_core_mhz()
        samples = []
        for offset in offsets:
            arguments, addresses = self._arguments(memory, places, offset)
            warm = max(1, self._calls // 10)
            self._timed(arguments, warm)
            cpu, others_ns = os.sched_getaffinity(0), _others_ns()
            begin_ns, time_ns = self._timed(arguments, self._calls)
            others_ns = _others_ns() - others_ns
            after_mhz = self._kernel.offsets_core_mhz()
            samples.append(
                {
                    "offset_bytes": offset,
                    "calls": self._calls,
                    "time_ns": time_ns,
                    "start_ns": begin_ns,
                    "first_address": addresses[self._stays],
                    "second_address": addresses[self._moves],
                    "core_mhz": (before_mhz + after_mhz) / 2,
                    "others_ns": others_ns,
                    "pinned": len(cpu) == 1,
                }
            )
            before_mhz = after_mhz
        return samples

    def _lay(self) -> tuple[mmap.mmap, dict[int, int]]:
        """A new mapping with all arrays but the moved one, each from a page on; and where."""
        places: dict[int, int] = {}
        end = 0
        for place, array in self._arrays.items():
            places[place] = end
            end += -(-array.nbytes // _PAGE) * _PAGE
            end += _MOST_OFFSET + _PAGE if place == self._moves else _PAGE
        memory = mmap.mmap(-1, end)
        for begin in range(0, end, _PAGE):  # no sample finds a page absent
            memory[begin] = 0
        for place, array in self._arrays.items():
            self._view(memory, array, places[place])[...] = array
        return memory, places

    def _view(self, memory: mmap.mmap, array: NDArray[Any], begin: int) -> NDArray[Any]:
        order: Any = "C" if array.flags.c_contiguous else "F"
        return np.ndarray(array.shape, array.dtype, buffer=memory, offset=begin, order=order)

    def _arguments(
        self, memory: mmap.mmap, places: dict[int, int], offset: int
    ) -> tuple[list[Any], dict[int, int]]:
        views = {
            place: self._view(
                memory, array, places[place] + (offset if place == self._moves else 0)
            )
            for place, array in self._arrays.items()
        }
        views[self._moves][...] = self._arrays[self._moves]
        for place in self._read_only:
            views[place].flags.writeable = False
        addresses = {place: int(view.ctypes.data) for place, view in views.items()}
        given = {**self._plain, **views}
        if self._c:
            import cffi

            ffi = cffi.FFI()
            given |= {place: ffi.cast("void *", at) for place, at in addresses.items()}
        return [given[place] for place in sorted(given)], addresses

    def _timed(self, arguments: Sequence[Any], calls: int) -> tuple[int, int]:
        function = self._function
        begin_ns = time.monotonic_ns()
        for _ in repeat(None, calls):
            function(*arguments)
        return begin_ns, time.monotonic_ns() - begin_ns

    def _calibrate(self, memory: mmap.mmap, places: dict[int, int]) -> None:
        arguments, _ = self._arguments(memory, places, _QUIET_OFFSET)
        self._timed(arguments, 1)
        each_ns = min(self._timed(arguments, 1)[1] for _ in range(_TRIALS))
        self._calls = max(1, round(self._sample_ns / max(each_ns, 1)))


def _raised(error: Exception) -> dict[str, Any]:
    """What the function raised, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) != Path(__file__)]
    where = f", in line {own[-1].lineno} of {own[-1].name}()" if own else ""
    return {"raised": f"{type(error).__name__}: {error}{where}"}


def main() -> None:
    """Serve sweeps until the other end closes."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    sys.path += [entry for entry in job["path"] if entry not in sys.path]
    arrays = {place: np.load(folder / f"{place}.npy") for place in job["arrays"]}
    sweeper = None
    gc.disable()
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in requests:
        try:
            sweeper = sweeper or Sweeper(job, arrays)
            answer: dict[str, Any] = {"samples": sweeper.sweep(json.loads(line))}
        except Exception as error:  # noqa: BLE001 (told to the parent, who raises it)
            answer = _raised(error)
        print(json.dumps(answer), file=answers, flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
