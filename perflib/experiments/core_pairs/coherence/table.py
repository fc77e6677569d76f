"""What samples of cache coherence say, before anything is claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.core_pairs.cells import Cells
from perflib.framework.samples import round_starts, usable
from perflib.stats.interval import Interval
from perflib.stats.intervals import block_means, t_interval, time_blocks

__all__ = [
    "ACCESSES",
    "ALONE",
    "CHASED",
    "LAYOUTS",
    "LAYOUT_CONTROL",
    "PROTOCOLS",
    "STATES",
    "CoherenceTable",
    "way_of",
]

Floats = NDArray[np.float64]
# The order of each is the kernel's, whose numbers they are.
STATES = (
    "local", "modified", "exclusive", "shared", "forward", "owned", "invalid", "shared_here",
    "owned_here",
)  # fmt: skip
ACCESSES = ("load", "write")
LAYOUTS = ("spread shuffled", "neighbours shuffled", "spread ascending", "neighbours ascending")
PROTOCOLS: Mapping[str, str] = {
    "cas_one_line": "round trip",
    "write_read_two_lines": "round trip",
    "one_way_message": "one way",
}
# What rows are for that are no part of the matrices.
LAYOUT_CONTROL, ALONE = "layout", "alone"
CHASED = "modified load"  # what the layouts are the control of
_LEGS = {"round trip": 2}
_FALLBACK = ("modified load", "modified write")


def way_of(what: str) -> str:
    """What one latency is of: a round trip, one way, or one line that is taken."""
    state, _, access = what.partition(" ")
    return PROTOCOLS.get(what, "one line" if state in STATES and access in ACCESSES else "")


class CoherenceTable:
    """The samples of one run as log latencies, ``[round, pair]`` of each ``what``.

    A pair is (owner, requester). Rows whose ``ok`` is false are left out. What is compared is
    compared within rounds and pairs, and uncertainty comes from the scatter of blocks of time.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples, ["latency_ns"])
        samples = samples.assign(
            what=samples["what"].astype(str), control=samples.get("control", "")
        )
        if "round" not in samples:
            place = ["owner_cpu", "requester_cpu", "what", "control"]
            samples = samples.assign(round=samples.groupby(place).cumcount())
        self.samples = samples
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_blocks(self.start_s, len(self.rounds))
        main = samples[samples["control"] == ""]
        found = set(main["what"])
        known = [*PROTOCOLS, *(f"{state} {access}" for access in ACCESSES for state in STATES)]
        self.whats = [name for name in known if name in found] + sorted(found - set(known))
        pairs = zip(samples["owner_cpu"], samples["requester_cpu"], strict=True)
        self.pairs = sorted({(int(owner), int(requester)) for owner, requester in pairs})
        self._cells: dict[str, Cells] = {}
        self._logs: dict[tuple[str, str], Floats] = {}

    @property
    def protocols(self) -> list[str]:
        """The protocols that were measured."""
        return [name for name in self.whats if name in PROTOCOLS]

    @property
    def main(self) -> str | None:
        """The ``what`` whose matrix stands for all: ``cas_one_line``, or the next best."""
        return next(
            (name for name in (*self.protocols, *_FALLBACK, *self.whats) if name in self.whats),
            None,
        )

    def states(self, access: str) -> list[str]:
        """The states that were measured with an access."""
        return [state for state in STATES if f"{state} {access}" in self.whats]

    def cells(self, what: str) -> Cells:
        """The matrix, owner by requester."""
        if what not in self._cells:
            mine = self.samples[(self.samples["what"] == what) & (self.samples["control"] == "")]
            self._cells[what] = Cells(mine, "owner_cpu", "requester_cpu", "latency_ns")
        return self._cells[what]

    def logs(self, what: str, control: str = "") -> Floats:
        """``[round, pair]``: log of the latency in ns; NaN where there is none."""
        if (what, control) not in self._logs:
            mine = self.samples
            mine = mine[(mine["what"] == what) & (mine["control"] == control)]
            place = {pair: column for column, pair in enumerate(self.pairs)}
            columns = [
                place[int(owner), int(requester)]
                for owner, requester in zip(mine["owner_cpu"], mine["requester_cpu"], strict=True)
            ]
            found = np.full((len(self.rounds), len(self.pairs)), np.nan)
            found[np.searchsorted(self.rounds, mine["round"]), columns] = np.log(
                mine["latency_ns"].to_numpy(np.float64)
            )
            self._logs[what, control] = found
        return self._logs[what, control]

    # --- one number for all pairs -----------------------------------------------------------------

    def typical(self, what: str) -> Interval:
        """The median over pairs and over blocks of time, in ns.

        Blocks need not have the same pairs: each counts by how far its pairs are from their usual
        latencies. The interval is that of the blocks' mean (Student's t), or reaches to the median
        where that lies beyond: if a host moves virtual cores, blocks are of several distances.
        """
        blocks = _followed(block_means(self.logs(what), self.blocks))
        mean = t_interval(blocks)
        middle = float(np.median(blocks[np.isfinite(blocks)]))
        ends = middle, min(mean.low, middle), max(mean.high, middle)
        return Interval(*(math.exp(end) for end in ends))

    def latencies(self) -> pd.DataFrame:
        """Of each ``what`` its way, the median over pairs with its interval, and the extremes.

        ``median_ns`` [``low_ns``, ``high_ns``]: see ``typical``; ``median_cycles``: in core cycles
        of the requester; ``one_way_ns``: of a round trip, half; ``mean_ns``: the mean of *all* that
        was sampled, of one pair or another, which a few preempted exchanges can move anywhere;
        ``nearest_ns``, ``farthest_ns``: the extreme pairs; ``pairs``: how many were measured, each
        direction for itself.
        """
        rows = []
        for what in self.whats:
            mine = self.samples[(self.samples["what"] == what) & (self.samples["control"] == "")]
            middle, matrix, way = self.typical(what), self.cells(what).matrix, way_of(what)
            mhz = mine["core_mhz"].median() if "core_mhz" in mine else math.nan
            rows.append(
                {
                    "what": what,
                    "way": way,
                    "median_ns": middle.effect,
                    "low_ns": middle.low,
                    "high_ns": middle.high,
                    "median_cycles": middle.effect * mhz / 1e3,
                    "one_way_ns": middle.effect / _LEGS.get(way, 1),
                    "mean_ns": mine["mean_ns"].mean() if "mean_ns" in mine else math.nan,
                    "nearest_ns": float(np.nanmin(matrix)),
                    "farthest_ns": float(np.nanmax(matrix)),
                    "pairs": int(np.isfinite(matrix).sum()),
                }
            )
        return pd.DataFrame(rows)

    # --- in the course of time --------------------------------------------------------------------

    def by_round(self, what: str) -> Floats:
        """``[round]``: log latency in ns, by how far that round's pairs are from usual."""
        return _followed(self.logs(what))

    def over_time(self, what: str) -> Floats:
        """``[block]``: latency in ns, by how far that block's pairs are from usual."""
        return np.asarray(np.exp(_followed(block_means(self.logs(what), self.blocks))))

    def range_over_time(self, what: str) -> float:
        """Log ratio of the slowest block of time to the fastest, of the same pair: the median."""
        blocks = block_means(self.logs(what), self.blocks)
        several = np.isfinite(blocks).sum(axis=0) > 1
        if not several.any():
            return math.nan
        chosen = blocks[:, several]
        return float(np.median(np.nanmax(chosen, axis=0) - np.nanmin(chosen, axis=0)))

    # --- one against another ----------------------------------------------------------------------

    def ratio(self, one: str, other: str) -> Interval:
        """Log of the latency of ``one`` over that of ``other``, on the same pairs and rounds."""
        return self._within(self.logs(one) - self.logs(other))

    def layout(self, name: str) -> Floats:
        """``[block]``: log latency of the control's lines in a layout; NaN where there is none."""
        return _mean(block_means(self.logs(f"{CHASED}, {name}", LAYOUT_CONTROL), self.blocks))

    def layout_ratio(self, one: str, other: str) -> Interval:
        """Log of the latency in layout ``one`` over that in ``other``, within rounds."""
        values = [self.logs(f"{CHASED}, {name}", LAYOUT_CONTROL) for name in (one, other)]
        return self._within(values[0] - values[1])

    @property
    def layouts(self) -> list[str]:
        """The layouts of the control that were measured."""
        found = set(self.samples.loc[self.samples["control"] == LAYOUT_CONTROL, "what"])
        return [name for name in LAYOUTS if f"{CHASED}, {name}" in found]

    def together(self) -> Interval:
        """Log of the latency with other pairs at the same time over that alone, within rounds."""
        shifts = [self.logs(what) - self.logs(what, ALONE) for what in self.whats]
        return self._within(np.concatenate(shifts, axis=1))

    def _within(self, difference: Floats) -> Interval:
        """The mean over pairs of what differs in the same round."""
        per_round = _mean(difference)
        return t_interval(block_means(per_round, self.blocks))

    # --- how precise ------------------------------------------------------------------------------

    @cached_property
    def half_width(self) -> float:
        """Percent: the widest half interval of a ``what``, and of the main matrix's cells."""
        widths: list[float] = []
        if self.main is not None:
            widths.append(self.cells(self.main).half_width)
        for what in self.whats:
            middle = self.typical(what)
            widths.append(100 * math.log(middle.high / middle.low) / 2)
        return max((width if math.isfinite(width) else math.inf for width in widths), default=0.0)


def _followed(logs: Floats) -> Floats:
    """One value a row: the usual of all columns, and how far this row's are from theirs."""
    known = logs[:, np.isfinite(logs).any(axis=0)]
    if not known.size:
        return np.full(len(logs), np.nan)
    middle = np.nanmedian(known, axis=0)
    return np.asarray(np.median(middle) + _mean(known - middle))


def _mean(values: Floats) -> Floats:
    """The mean of each row's known values; NaN where there are none."""
    seen = np.isfinite(values)
    total = np.where(seen, values, 0.0).sum(axis=1)
    count = seen.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
