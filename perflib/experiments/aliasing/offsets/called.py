"""A user's function and its arrays in a process of its own, the arrays placed anew.

It needs numpy, and cffi for a C function, and nothing of perflib: as a program it runs under an
emulator, where importing perflib would take a minute. ``called.py FILE OFFSET CALLS`` calls what
FILE describes (pickled fields of ``Placed``) so often, with the array that moves OFFSET bytes above
a page.
"""

from __future__ import annotations

import mmap
import os
import pickle
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PAGE = 4096
_MOST_OFFSET = 1 << 20
_KEPT: list[Any] = []


def call_of(described: Mapping[str, Any]) -> Callable[..., Any]:
    """The function again, as ``portable`` described it."""
    if described["kind"] == "import":
        return pkgutil.resolve_name(described["path"])  # type: ignore[no-any-return]
    if described["kind"] == "source":
        namespace: dict[str, Any] = {"__name__": "swept"}
        exec(compile(described["source"], "<the swept function>", "exec"), namespace)  # noqa: S102
        return namespace[described["name"]]  # type: ignore[no-any-return]
    import cffi

    ffi = cffi.FFI()
    types = ", ".join(described["types"])
    ffi.cdef(f"void {described['name']}({types});")  # whatever it returns is ignored
    _KEPT.append(ffi.dlopen(described["library"]))  # its functions crash once it is let go
    return getattr(_KEPT[-1], described["name"])  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Placed:
    """A function and its arguments, whose arrays are placed in memory mapped anew.

    Parameters
    ----------
    function
        As ``portable`` describes it.
    arguments
        In order.
    read_only, moves
        Places of arrays among the arguments: those that are not written to, and the one that moves.
    path
        Where modules are searched for.
    """

    function: dict[str, Any]
    arguments: list[Any]
    read_only: list[int]
    moves: int
    path: list[str]

    @property
    def described(self) -> dict[str, Any]:
        """What this program is given: the fields, by name."""
        return {one.name: getattr(self, one.name) for one in fields(Placed)}

    @cached_property
    def _arrays(self) -> dict[int, NDArray[Any]]:
        given = enumerate(self.arguments)
        return {place: one for place, one in given if isinstance(one, np.ndarray)}

    @cached_property
    def _call(self) -> Any:
        sys.path += [entry for entry in self.path if entry not in sys.path]
        return call_of(self.function)

    def run(self, arguments: Sequence[Any], calls: int) -> None:
        """Call the function so often."""
        function = self._call
        for _ in repeat(None, calls):
            function(*arguments)

    def map(self) -> tuple[mmap.mmap, dict[int, int]]:
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

    def placed(
        self, memory: mmap.mmap, begins: dict[int, int], offset: int
    ) -> tuple[list[Any], dict[int, int]]:
        """Arguments for the function, and the arrays' addresses.

        The array that moves begins ``offset`` bytes above a page, and has its values again.
        """
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


if __name__ == "__main__":
    _file, _offset, _calls = sys.argv[1:]
    _one = Placed(**pickle.loads(Path(_file).read_bytes()))  # noqa: S301 (written by show_remedies)
    _memory, _begins = _one.map()
    _one.run(_one.placed(_memory, _begins, int(_offset))[0], int(_calls))
    os._exit(0)  # the library is still mapped, so that the emulator can name it
