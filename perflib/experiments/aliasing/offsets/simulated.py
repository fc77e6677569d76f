"""Simulated 4K aliases of the convolution and the copy at some offsets: the mechanism, plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perflib.experiments.aliasing.offsets.functions import FUNCTIONS
from perflib.instruments.simulators.models import HASWELL_STORES
from perflib.instruments.simulators.qemu import qemu_counts
from perflib.kernels import build

_ELEMENTS = 2048
_CALLS = 8
_SIDE_BY_SIDE = 2


def simulated_aliases(
    builds: Mapping[str, Sequence[str]], offsets: Sequence[int]
) -> dict[str, Any]:
    """Aliases an element, by function, build and offset.

    Two runs of each program, one without a call of the function: their difference leaves the
    program's start and the filling of its buffers out.

    Parameters
    ----------
    builds
        The kernel's variants, by function.
    offsets
        In bytes, multiples of 4.

    Returns
    -------
    ``model`` in words, and ``rows`` of ``function``, ``build``, ``offset_bytes`` and
    ``aliases_per_element``.

    Raises
    ------
    UserError, MeasurementError
        As of ``qemu_counts``: no QEMU, or it failed.
    """
    wanted = [
        (function, name, offset)
        for function, names in builds.items()
        for name in names
        for offset in offsets
    ]
    programs = {
        name: str(build("alias_offsets", variant=name, executable=True).library)
        for name in dict.fromkeys(name for _, name, _ in wanted)
    }

    def count(of: tuple[str, str, int], calls: int) -> int:
        function, name, offset = of
        words = [FUNCTIONS[function], _ELEMENTS, offset, calls]
        argv = [programs[name], *map(str, words)]
        table = qemu_counts(argv, store_buffer=HASWELL_STORES)
        found = table.loc[table["counter"] == "4K aliases", "simulated_count"]
        return int(found.iloc[0])

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        without = {
            (function, name): threads.submit(count, (function, name, offsets[0]), 0)
            for function, name, _ in wanted
        }
        with_ = [threads.submit(count, of, _CALLS) for of in wanted]
        rows = [
            {
                "function": function,
                "build": name,
                "offset_bytes": offset,
                "aliases_per_element": (done.result() - without[function, name].result())
                / (_CALLS * _ELEMENTS),
            }
            for (function, name, offset), done in zip(wanted, with_, strict=True)
        ]
    return {"model": str(HASWELL_STORES), "elements": _ELEMENTS, "rows": rows}
