"""Arrays that loads chase each other through: placed from one core, verified, loaded from any.

One worker holds all arrays of a measurement, each under a key, so that several can be there at once
and be loaded from whichever core is measured. See ``kernels_c/memory_chase.c``.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from perflib.kernels import build, record
from perflib.measure.conditions import Conditions
from perflib.measure.pages import smaps
from perflib.measure.pages.kinds import DATA_BACKINGS
from perflib.measure.pages.placement import misplaced, pages_by_node
from perflib.measure.pages.refusals import explain
from perflib.measure.process import Out, WorkerError
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError, UserError, choose

# The numbers by which the kernel knows the orders of the lines.
ORDERS: Mapping[str, int] = {
    "random": 0, "page": 1, "sequential": 2, "lmbench": 3, "window": 4, "spread": 5,
}  # fmt: skip
LINE_BYTES = 64
SAMPLE = record("memory_chase", "chase_sample")
_ARRAY = record("memory_chase", "chase_array")
_ARGUMENT, _PINNING, _CYCLE = 1, 7, 8  # stages of the kernel's answers
_TIMEOUT_S = 60.0


@dataclass
class _Placed:
    """An array in the worker: the kernel's record of it, and which process it was placed in."""

    array: NDArray[Any]
    pid: int | None
    backing: str


class Arrays(Workers):
    """The arrays of one worker. A key is the caller's name of an array.

    If the worker dies, its arrays are gone: they are placed again when they are needed.
    """

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(build("memory_chase"), [conditions])
        self._arrays: dict[Hashable, _Placed] = {}

    def __contains__(self, key: Hashable) -> bool:
        placed = self._arrays.get(key)
        return placed is not None and placed.pid == self[0].pid

    def place(
        self,
        key: Hashable,
        *,
        order: str,
        bytes_: int,
        backing: str = "4k",
        seed: int = 1,
        cpu: int = -1,
        node: int | None = None,
        span_bytes: int = 0,
        line_bytes: int = LINE_BYTES,
    ) -> str:
        """Place an array, instead of the one of that key if there is one, and verify its pages.

        Parameters
        ----------
        order, bytes_, backing, seed, span_bytes, line_bytes
            See the kernel; ``bytes_`` is a multiple of ``line_bytes``.
        cpu
            The core that touches the pages first; -1: any.
        node
            The NUMA node that they should be on; ``None``: not verified.

        Returns
        -------
        Why the array is not what was requested, or could not be placed; empty: it is.

        Raises
        ------
        UserError
            There is no such order or backing.
        WorkerError
            The worker died, or took too long.
        """
        if order not in ORDERS:
            raise UserError(choose("order", order, ORDERS))
        if backing not in DATA_BACKINGS:
            raise UserError(choose("backing", backing, DATA_BACKINGS))
        self.release(key)
        worker = self[0]
        answer, (array,) = worker.call(
            "chase_lay", ORDERS[order], bytes_, span_bytes, line_bytes, DATA_BACKINGS[backing],
            seed, cpu, Out(_ARRAY, 1), timeout_s=_TIMEOUT_S,
        )  # fmt: skip
        if answer:
            return _explained(backing, int(answer), cpu)
        self._arrays[key] = _Placed(array, worker.pid, backing)
        if cpu >= 0 and int(array["cpu"][0]) != cpu:
            return f"the thread migrated from cpu{cpu} while it touched the pages"
        return self._page_size(key) or ("" if node is None else self._placement(key, node))

    def run(
        self, key: Hashable, cpu: int, warm_loads: int, loads: int, repeats: int
    ) -> tuple[NDArray[Any], str]:
        """Load ``repeats`` times ``loads`` lines, after a warm-up, on a core.

        Returns
        -------
        ``SAMPLE`` of each repeat, and why they are not usable; none and why if the core cannot
        be used (any more).

        Raises
        ------
        WorkerError
            The worker died, or took too long. Its arrays are gone.
        """
        placed = self._arrays[key]
        worker = self[0]
        if worker.pid != placed.pid:
            msg = "the array is gone with its worker"
            raise WorkerError(msg)
        answer, (samples,) = worker.call(
            "chase_run", placed.array, cpu, warm_loads, loads, repeats, Out(SAMPLE, repeats),
            timeout_s=_TIMEOUT_S,
        )  # fmt: skip
        if answer:
            return samples[:0], _explained(placed.backing, int(answer), cpu)
        # The worker had a copy of the record: the next run continues where this one ended.
        placed.array = placed.array.copy()
        placed.array["at"] = placed.array["begin"] + samples["reached_bytes"][-1]
        if (samples["cpu"] != cpu).any():
            return samples, f"the thread migrated from cpu{cpu}"
        return samples, ""

    def nodes(self, key: Hashable) -> dict[int, int]:
        """How many of the array's pages are on each NUMA node (see ``pages_by_node``)."""
        placed = self._arrays[key]
        assert placed.pid is not None
        return pages_by_node(placed.pid, int(placed.array["begin"][0]), int(placed.array["end"][0]))

    def release(self, key: Hashable) -> None:
        """Give an array's memory back; nothing where there is none of that key."""
        here = key in self
        placed = self._arrays.pop(key, None)
        if placed is not None and here:
            self[0].call("chase_release", placed.array, timeout_s=_TIMEOUT_S)

    def page_reach(self, backing: str, seed: int) -> tuple[float, float] | None:
        """Ns a load through one page of the data TLB's reach and many; ``None``: not available.

        See ``kernels_c/common/page_reach.h``.
        """
        worker = self[0]
        answer, (pair, where) = worker.call(
            "chase_page_reach", DATA_BACKINGS[backing], seed, Out("f8", 2), Out("u8", 2),
            timeout_s=_TIMEOUT_S,
        )  # fmt: skip
        if answer or self._violated(backing, int(where[0]), int(where[1])):
            return None
        return float(pair[0]), float(pair[1])

    # --- is it what was requested? ----------------------------------------------------------------

    def _violated(self, backing: str, begin: int, end: int) -> str:
        pid = self[0].pid
        assert pid is not None
        return smaps.violated(backing, smaps.backing_of(smaps.read(pid), begin, end))

    def _page_size(self, key: Hashable) -> str:
        placed = self._arrays[key]
        return self._violated(
            placed.backing, int(placed.array["begin"][0]), int(placed.array["end"][0])
        )

    def _placement(self, key: Hashable, node: int) -> str:
        try:
            return misplaced(self.nodes(key), node)
        except MeasurementError as error:
            said, _, why = str(error).partition("cannot be seen: ")
            self.problems[f"the NUMA node of the arrays cannot be seen: {why or said}"] = None
            return ""


def _explained(backing: str, answer: int, cpu: int) -> str:
    stage, number = divmod(answer, 1 << 16)
    if stage == _PINNING:
        return (
            f"cpu{cpu} cannot be used: it is offline, or this process may not run there (any more)"
        )
    if stage == _CYCLE:
        return "the kernel's own check failed: the lines are not one cycle"
    if stage == _ARGUMENT:
        return f"memory_chase refused its arguments: {os.strerror(number)}"
    return explain(backing, answer)
