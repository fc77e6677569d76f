"""What samples of ``allocators`` say, before anything is claimed: shares of pairs, and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.addresses import PERIOD_BYTES, aliasing
from perflib.experiments.aliasing.allocators.claims import BY_STATE
from perflib.experiments.aliasing.alone import ALONE, State, log_times
from perflib.framework.samples import round_starts, usable
from perflib.stats.interval import Interval, percent, percent_of
from perflib.stats.intervals import robust_mean, t_interval, time_batches, wilson

# The numbers by which the kernel knows what is timed.
FUNCTIONS: Mapping[str, int] = {"convolution": 0, "copy": 1}
# Where the second buffer is: as malloc gave it; a mapping of ours, at that distance or far.
PLACES = ("given", "same", "far")
TIMED = "timed"  # the state of pairs on which functions are timed
_ITEM_BYTES = 4
_SEGMENTS = 3
_TIMES = {"function", "place", "calls", "time_ns"}


@dataclass(frozen=True)
class Share:
    """How many pairs share their low 12 bits, in percent with Wilson's interval.

    ``near``: of those, and of those of which the second buffer is up to 127 bytes above, modulo
    4096, in another page.
    """

    percent: Interval
    pairs: int
    equal: int
    near: int
    processes: int


@dataclass(frozen=True)
class Cost:
    """What one function's second buffer costs where an allocator puts it, all in percent.

    ``distance``: by its distance from the first alone; ``other``: whatever else differs between
    that buffer and one of ours at the same distance. ``segments``: of ``distance``, thirds of the
    run. ``element_ns``: time an element, with malloc's own pair. ``aliasing``: percent of processes
    in which the distance is one that is predicted to alias.
    """

    distance: Interval
    other: Interval
    segments: tuple[float, ...]
    element_ns: Interval
    aliasing: float


class AllocatorTable:
    """The samples by allocator, size and function.

    Parameters
    ----------
    samples
        Rows with ``round``, ``allocator``, ``state``, ``size_bytes``, ``first_address``,
        ``second_address``; of those that are timed ``function``, ``place``, ``calls``, ``time_ns``.
    state
        Of the core, where probes show it: times in another one are left out.

    Raises
    ------
    UserError
        No row is usable.
    """

    def __init__(self, samples: pd.DataFrame, state: State = ALONE) -> None:
        kept = usable(samples).copy()
        self.allocators = list(dict.fromkeys(kept["allocator"].sort_values(kind="stable")))
        distance = (kept["second_address"] - kept["first_address"]).to_numpy(np.int64)
        kept["equal"] = distance % PERIOD_BYTES == 0
        # Two that are side by side in one page do not look alike: they are what they seem.
        kept["near"] = aliasing(distance)[0] & (np.abs(distance) >= PERIOD_BYTES)
        kept["process"] = kept["round"].astype(str)
        if "cpu" in kept:
            kept["process"] += "/" + kept["cpu"].astype(str)
        self.pairs = kept[kept["state"].isin(list(BY_STATE))]
        timed = kept[kept["state"] == TIMED] if set(kept) >= _TIMES else kept.iloc[:0]
        timed = timed.dropna(subset=[name for name in ("time_ns", "calls") if name in timed])
        if len(timed):
            logs = log_times(timed, state, configuration=["function", "size_bytes"])
            timed = timed.assign(log_ns=logs - np.log(timed["calls"].to_numpy(np.float64)))
        self.timed = timed
        if "glibc" in self.allocators:  # what everything is compared with comes first
            self.allocators = ["glibc", *(one for one in self.allocators if one != "glibc")]

    # --- addresses -------------------------------------------------------------------------------

    @property
    def sizes(self) -> list[int]:
        """All sizes of which pairs were allocated to see their addresses."""
        return sorted(set(self.pairs["size_bytes"]))

    def share(
        self, allocator: str, state: str, least_bytes: int = 0, most_bytes: int | None = None
    ) -> Share | None:
        """Pairs of these sizes that share their low 12 bits; ``None`` where there are none.

        A process counts as one observation: an allocator that places one pair so places the next
        one so.
        """
        sizes = self.pairs["size_bytes"]
        mine = self.pairs[
            (self.pairs["allocator"] == allocator)
            & (self.pairs["state"] == state)
            & (sizes >= least_bytes)
            & (sizes <= (math.inf if most_bytes is None else most_bytes))
        ]
        if mine.empty:
            return None
        processes = mine["process"].nunique()
        share = float(mine["equal"].mean())
        ends = map(float, wilson(share, processes))
        return Share(
            Interval(*(100 * value for value in (share, *ends))),
            len(mine), int(mine["equal"].sum()), int(mine["near"].sum()), processes,
        )  # fmt: skip

    def shares(self) -> pd.DataFrame:
        """Of each allocator, state and size: how many pairs share their low 12 bits."""
        columns = ["allocator", "state", "size_bytes", "equal_percent", "equal_percent_low"]
        columns += ["equal_percent_high", "pairs", "equal", "near", "processes"]
        rows = [
            (allocator, state, size, *share.percent, share.pairs, share.equal, share.near,
             share.processes)
            for state in BY_STATE
            for allocator in self.allocators
            for size in self.sizes
            if (share := self.share(allocator, state, size, size)) is not None
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    # --- times -----------------------------------------------------------------------------------

    @cached_property
    def cells(self) -> list[tuple[str, str, int]]:
        """Allocator, function and size of all that is timed."""
        if self.timed.empty:
            return []
        found = {
            (str(allocator), str(function), int(size))
            for allocator, function, size in zip(
                self.timed["allocator"], self.timed["function"], self.timed["size_bytes"],
                strict=True,
            )
        }  # fmt: skip
        functions = [*FUNCTIONS, *sorted({function for _, function, _ in found} - {*FUNCTIONS})]

        def order(cell: tuple[str, str, int]) -> tuple[int, int, int]:
            return functions.index(cell[1]), cell[2], self.allocators.index(cell[0])

        return sorted(found, key=order)

    def cost(self, allocator: str, function: str, size: int) -> Cost:
        """One cell: places compared within each process, uncertainty from batches."""
        mine = self._by_cell[allocator, function, size]
        medians = mine.groupby(["round", "process", "place"])["log_ns"].median()
        by_process = medians.unstack("place").reindex(columns=list(PLACES))
        ratios = pd.DataFrame(
            {
                "distance": by_process["same"] - by_process["far"],
                "other": by_process["given"] - by_process["same"],
                "given": by_process["given"],
            }
        )
        by_round = ratios.groupby(level="round").mean()
        starts = round_starts(mine, by_round.index)
        numbers = time_batches(starts, len(by_round))
        values = by_round.to_numpy(np.float64)
        blocks = np.array([robust_mean(values[numbers == block]) for block in np.unique(numbers)])
        thirds = [robust_mean(part)[0] for part in np.array_split(blocks, _SEGMENTS) if len(part)]
        given = mine[mine["place"] == "given"]
        near = given.groupby("process")["near"].max()
        elements = size // _ITEM_BYTES
        call_ns = (1 + value / 100 for value in percent(t_interval(blocks[:, 2])))
        return Cost(
            percent(t_interval(blocks[:, 0])),
            percent(t_interval(blocks[:, 1])),
            tuple(percent_of(float(part)) for part in thirds),
            Interval(*(ns / elements for ns in call_ns)),
            100 * float(near.mean()) if len(near) else math.nan,
        )

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str, int], pd.DataFrame]:
        by_cell = self.timed.groupby(["allocator", "function", "size_bytes"])
        return {cell: by_cell.get_group(cell) for cell in self.cells}

    @cached_property
    def costs(self) -> dict[tuple[str, str, int], Cost]:
        """Of all cells."""
        return {cell: self.cost(*cell) for cell in self.cells}
