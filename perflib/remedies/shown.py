"""The remedies for 4K aliasing shown at work on one function: aliases simulated, time measured."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.addresses import PERIOD_BYTES
from perflib.experiments.aliasing.offsets import called
from perflib.experiments.aliasing.offsets.arguments import check_arrays
from perflib.experiments.aliasing.offsets.source import CFunction
from perflib.experiments.aliasing.offsets.sweep import OffsetSweep, sweep_offsets, sweeper
from perflib.instruments.simulators.models import HASWELL_STORES
from perflib.instruments.simulators.qemu import qemu_counts
from perflib.machine.libraries.blas import ONE_THREAD
from perflib.machine.scratch import scratch
from perflib.model.errors import MeasurementError, UserError
from perflib.remedies.allocator import alias_free_allocator
from perflib.remedies.arrays import alias_free
from perflib.remedies.tuner import BestOffset, best_offset
from perflib.stats.decide import decide
from perflib.stats.interval import Interval, columns

AS_THEY_ARE, AT_PAGES = "as they are", "both at a page"
_SIDE_BY_SIDE = 2
_NO_CHANGE = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class RemediesShown:
    """What each remedy does to a function of two arrays.

    Parameters
    ----------
    name
        The function's.
    distances
        In bytes, by what places the arrays: ``as they are``, ``both at a page`` (as large
        allocations are), and three remedies.
    simulated
        4K aliases a call by distance, counted under an emulator; empty where there is none.
    sweep
        Samples at these distances.
    best
        What ``best_offset`` found.
    threshold_percent
        From where on a remedy counts as saving time.
    problems
        What could not be done, in words.
    """

    name: str
    distances: dict[str, int]
    simulated: dict[int, int]
    sweep: OffsetSweep
    best: BestOffset
    threshold_percent: float
    problems: list[str] = field(default_factory=list)

    def saves(self, placed: str) -> Interval:
        """How much less time a call takes than with the arrays as they are, in percent of that."""
        here, there = self.distances[AS_THEY_ARE], self.distances[placed]
        if here == there:
            return _NO_CHANGE
        longer = self.sweep.table.difference(there, here)
        return Interval(-longer.effect, -longer.high, -longer.low)

    def table(self) -> pd.DataFrame:
        """A row for each way to place the arrays.

        Columns: ``placed``; ``distance_bytes`` of what is written from what is read, modulo 4096;
        ``simulated_aliases`` a call; ``saves_percent`` of a call's time with its 95 % interval,
        ``saves_percent_low`` and ``saves_percent_high``; ``verdict`` on "saves more than
        ``threshold_percent``".
        """
        rows = []
        for placed, distance in self.distances.items():
            saved = self.saves(placed)
            decided = decide(saved, self.threshold_percent).verdict
            rows.append(
                {
                    "placed": placed,
                    "distance_bytes": distance,
                    "simulated_aliases": self.simulated.get(distance),
                    **columns("saves_percent", saved),
                    "verdict": "" if placed == AS_THEY_ARE else decided,
                }
            )
        return pd.DataFrame(rows).astype({"simulated_aliases": "Int64"})

    def __repr__(self) -> str:
        lines = [f"{self.name}: 4K aliases a call (simulated: {HASWELL_STORES}), and time saved"]
        lines.append(self.table().round(1).to_string(index=False))
        return "\n".join([*lines, str(self.best), *self.problems])


def show_remedies(
    function: Callable[..., Any] | str | CFunction,
    *arguments: Any,
    move: int | None = None,
    budget_s: float = 20.0,
    threshold_percent: float = 1.0,
    **settings: Any,
) -> RemediesShown:
    """Place a function's two arrays by each remedy: do aliases vanish, and is time saved?

    The remedies really place arrays of these shapes; their distance, modulo 4096, is what counts.
    At each distance the function is *timed* in another process (``sweep_offsets``), and *simulated*
    under QEMU with a store buffer of Haswell's. Simulated aliases show the mechanism; only times
    show whether this processor minds.

    Parameters
    ----------
    function, arguments, move
        As for ``sweep_offsets``; two arrays, one read and one written to.
    budget_s
        For timing: half for ``best_offset``, half for the comparison. Simulating takes some
        seconds a distance, and longer for a function that computes long.
    threshold_percent
        How much time must be saved for a remedy to be called better.
    settings
        Passed on to ``sweep_offsets``: ``precision_percent``, ``sample_ms``, ``cpu`` ...

    Returns
    -------
    A record that prints its table; see ``RemediesShown.table``.

    Raises
    ------
    UserError, MeasurementError
        As of ``sweep_offsets``; more than two arrays. Without QEMU nothing is simulated, which is
        one of ``problems``.

    Examples
    --------
    >>> a, out = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    >>> show_remedies(np.copyto, out, a, move=0)  # doctest: +SKIP
    """
    stays, moves = check_arrays(arguments, move)
    if (count := sum(isinstance(one, np.ndarray) for one in arguments)) != 2:
        msg = (
            f"the remedies are shown for two arrays, one read and one written to; there are "
            f"{count}. best_offset() and alias_free() take more"
        )
        raise UserError(msg)
    read, written = arguments[stays], arguments[moves]
    best = best_offset(
        function, *arguments, move=move, budget_s=budget_s / 2,
        threshold_percent=threshold_percent, **settings,
    )  # fmt: skip
    with alias_free_allocator():
        hooked = np.empty_like(read), np.empty_like(written)
    distances = {
        AS_THEY_ARE: _distance(read, written),
        AT_PAGES: 0,
        "alias_free": _distance(*alias_free(read, written)),
        "alias_free_allocator": _distance(*hooked),
        "best_offset": best.candidate_bytes,
    }
    sweep = sweep_offsets(
        function, *arguments, move=move, offsets=set(distances.values()), budget_s=budget_s / 2,
        threshold_percent=threshold_percent, **settings,
    )  # fmt: skip
    problems = [*sweep.problems]
    try:
        simulated = _simulated(function, arguments, move, set(distances.values()))
    except (UserError, MeasurementError) as error:
        simulated = {}
        problems.append(f"4K aliases are not simulated: {error}")
    return RemediesShown(sweep.name, distances, simulated, sweep, best, threshold_percent, problems)


def _distance(read: NDArray[Any], written: NDArray[Any]) -> int:
    return int(written.ctypes.data - read.ctypes.data) % PERIOD_BYTES


def _simulated(
    function: Any, arguments: tuple[Any, ...], move: int | None, distances: Iterable[int]
) -> dict[int, int]:
    """4K aliases of one call at each distance.

    Two calls are compared with one, which leaves out the start, the first call and the filling of
    the arrays. A C function's aliases are those in its library; around a Python function some of
    the interpreter's own remain.
    """
    one = sweeper(function, arguments, move)
    environment = {**os.environ, **ONE_THREAD, "PYTHONHASHSEED": "0"}  # the same counts each time
    library = Path(one.function["library"]).name if one.function["kind"] == "c" else None

    def counted(distance: int, calls: int) -> int:
        table = qemu_counts(
            [sys.executable, "-P", called.__file__, str(described), str(distance), str(calls)],
            store_buffer=HASWELL_STORES, by="symbol", environment=environment,
        )  # fmt: skip
        found = table[table["counter"] == "4K aliases"]
        if library is not None:
            found = found[found["object"] == library]
        return int(found["simulated_count"].sum())

    with scratch() as folder, ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        described = folder / "called.pickle"
        described.write_bytes(pickle.dumps(one.described))
        twice = {at: threads.submit(counted, at, 2) for at in distances}
        once = {at: threads.submit(counted, at, 1) for at in distances}
        return {at: twice[at].result() - once[at].result() for at in distances}
