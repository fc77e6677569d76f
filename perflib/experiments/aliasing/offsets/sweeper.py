"""A user's function in the worker: timed at one offset of the array that moves after the other."""

from __future__ import annotations

import gc
import mmap
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.offsets.source import call_of
from perflib.framework.brackets import bracket_columns, core_mhz
from perflib.kernels import open_library

__all__ = ["Sweeper"]

_PAGE = 4096
_MOST_OFFSET = 1 << 20


def _others_ns() -> int:
    """CPU time of other threads; the clocks are read in turn, so the least of some."""
    return min(-time.thread_time_ns() + time.process_time_ns() for _ in range(3))


@dataclass(frozen=True)
class Sweeper:
    """A function and its arguments, in the process that made it and in the worker.

    Parameters
    ----------
    function
        As ``portable`` describes it.
    arguments
        In order.
    read_only, stays, moves
        Places of arrays among the arguments.
    kernel
        Library and module whose ``offsets_begin`` and ``offsets_end`` bracket a sample.
    path
        Where modules are searched for.
    """

    function: dict[str, Any]
    arguments: list[Any]
    read_only: list[int]
    stays: int
    moves: int
    kernel: tuple[str, str]
    path: list[str]

    @cached_property
    def _arrays(self) -> dict[int, NDArray[Any]]:
        given = enumerate(self.arguments)
        return {place: one for place, one in given if isinstance(one, np.ndarray)}

    @cached_property
    def _call(self) -> Any:
        sys.path += [entry for entry in self.path if entry not in sys.path]
        return call_of(self.function)

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
        memory, begins = self._map()
        samples = []
        for offset in offsets:
            arguments, addresses = self._arguments(memory, begins, offset)
            self._run(arguments, warm_calls)
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

    def _map(self) -> tuple[mmap.mmap, dict[int, int]]:
        """A new mapping with a copy of each array from a page on, and where; room to move one."""
        begins: dict[int, int] = {}
        end = 0
        for place, array in self._arrays.items():
            begins[place] = end
            end += -(-array.nbytes // _PAGE) * _PAGE + _PAGE
            end += _MOST_OFFSET if place == self.moves else 0
        memory = mmap.mmap(-1, end)
        for begin in range(0, end, _PAGE):  # no sample finds a page absent
            memory[begin] = 0
        for place, begin in begins.items():
            self._view(memory, place, begin)[...] = self._arrays[place]
        return memory, begins

    def _view(self, memory: mmap.mmap, place: int, begin: int) -> NDArray[Any]:
        array = self._arrays[place]
        order: Any = "C" if array.flags.c_contiguous else "F"
        return np.ndarray(array.shape, array.dtype, buffer=memory, offset=begin, order=order)

    def _arguments(
        self, memory: mmap.mmap, begins: dict[int, int], offset: int
    ) -> tuple[list[Any], dict[int, int]]:
        moves = self.moves
        views = {
            place: self._view(memory, place, begin + (offset if place == moves else 0))
            for place, begin in begins.items()
        }
        views[moves][...] = self._arrays[moves]
        for place in self.read_only:
            views[place].flags.writeable = False
        addresses = {place: int(view.ctypes.data) for place, view in views.items()}
        given: dict[int, Any] = dict(views)
        if self.function["kind"] == "c":
            import cffi

            ffi = cffi.FFI()
            given = {place: ffi.cast("void *", address) for place, address in addresses.items()}
        return [given.get(i, plain) for i, plain in enumerate(self.arguments)], addresses

    def _run(self, arguments: Sequence[Any], calls: int) -> None:
        function = self._call
        for _ in repeat(None, calls):
            function(*arguments)

    def _bracketed(self, arguments: Sequence[Any], calls: int) -> NDArray[Any]:
        """A record of type ``bracket`` around so many calls."""
        kernel, timed, out = self._bracket
        kernel.offsets_begin(out)
        self._run(arguments, calls)
        kernel.offsets_end(out)
        return timed


def _raised(error: Exception) -> str:
    """What the function raised, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) != Path(__file__)]
    where = f", in line {own[-1].lineno} of {own[-1].name}()" if own else ""
    return f"{type(error).__name__}: {error}{where}"
