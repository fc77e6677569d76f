"""In which order dependent loads visit an array, for a notebook that shows it."""

from __future__ import annotations

import pandas as pd

from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import LINE_BYTES, ORDERS, Arrays
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError

_PAGE_BYTES = 4096


def walks(array_kib: int = 256) -> pd.DataFrame:
    """One lap through an array on 4 KiB pages, in each order of its lines.

    It is found by running the kernel's chase one load at a time, so it shows what is measured.

    Returns
    -------
    ``order``, ``load`` (its number), ``line`` and ``page`` (that it goes to, within the array).

    Raises
    ------
    MeasurementError
        The array cannot be placed.
    """
    cpu = topology().allowed_cpus()[0]
    parts = []
    with Arrays(Conditions()) as arrays:
        for order in (name for name in ORDERS if name != "spread"):  # which leaves lines out
            lines = pd.Series(_walk(arrays, order, 1024 * array_kib, cpu))
            part = pd.DataFrame({"order": order, "load": lines.index, "line": lines})
            parts.append(part.assign(page=part["line"] * LINE_BYTES // _PAGE_BYTES))
    return pd.concat(parts, ignore_index=True)


def _walk(arrays: Arrays, order: str, bytes_: int, cpu: int) -> list[int]:
    """The lines of an array in the order in which the chase visits them, of one lap."""
    why = arrays.place("walk", order=order, bytes_=bytes_, cpu=cpu)
    if not why:
        samples, why = arrays.run("walk", cpu, 0, 1, bytes_ // LINE_BYTES)
    if why:
        raise MeasurementError(why)
    arrays.release("walk")
    return [int(place) // LINE_BYTES for place in samples["reached_bytes"]]
