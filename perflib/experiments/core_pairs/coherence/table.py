"""The samples of cache coherence, before anything is claimed."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view

from perflib.experiments.core_pairs.cells import Cells, PairColumns
from perflib.experiments.core_pairs.coherence.names import (
    ACCESSES,
    ALONE,
    CHASED,
    LAYOUT_CONTROL,
    LAYOUTS,
    PROTOCOLS,
    STATES,
    main_of,
    way_of,
)
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.stats.interval import NO_INTERVAL, Interval, columns, exp, widest
from perflib.stats.intervals import Floats, batch_means, t_interval, time_batches

COLUMNS = PairColumns("owner", "requester", "ns")
_MEDIAN = tuple(columns("median_ns", NO_INTERVAL))
_LEGS = {"round trip": 2}
_PART = 3  # batches, of which the median leaves out one
_FOLLOWED = ("modified load", "invalid load")  # in addition to the protocols, in the course of time


class CoherenceTable:
    """The samples of one run as log latencies, ``[round, pair]`` of each ``what``.

    A pair is (owner, requester). Rows whose ``ok`` is false are left out. What is compared is
    compared within rounds and pairs, and uncertainty comes from the scatter of batch means.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples)
        samples = samples.assign(
            what=samples["what"].astype(str), control=samples.get("control", "")
        )
        if "round" not in samples:
            place = ["owner_cpu", "requester_cpu", "what", "control"]
            samples = samples.assign(round=samples.groupby(place).cumcount())
        self.samples = samples
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self._batches = time_batches(self.start_s, len(self.rounds))
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
        return main_of(self.whats)

    @property
    def states(self) -> list[tuple[str, str]]:
        """The states that were measured, each with an access."""
        found = [(state, access) for access in ACCESSES for state in STATES]
        return [one for one in found if " ".join(one) in self.whats]

    def cells(self, what: str) -> Cells:
        """The matrix, owner by requester."""
        if what not in self._cells:
            self._cells[what] = Cells(self._main(what), COLUMNS)
        return self._cells[what]

    def _main(self, what: str) -> pd.DataFrame:
        """The rows of a ``what``, without those of controls."""
        return self.samples[(self.samples["what"] == what) & (self.samples["control"] == "")]

    def logs(self, what: str, control: str = "") -> Floats:
        """``[round, pair]``: log of the latency in ns; NaN where there is none."""
        if (what, control) not in self._logs:
            mine = self.samples
            mine = mine[(mine["what"] == what) & (mine["control"] == control)]
            place = {pair: column for column, pair in enumerate(self.pairs)}
            places = [
                place[int(owner), int(requester)]
                for owner, requester in zip(mine["owner_cpu"], mine["requester_cpu"], strict=True)
            ]
            found = np.full((len(self.rounds), len(self.pairs)), np.nan)
            found[np.searchsorted(self.rounds, mine["round"]), places] = np.log(
                mine["latency_ns"].to_numpy(np.float64)
            )
            self._logs[what, control] = found
        return self._logs[what, control]

    # --- one number for all pairs -----------------------------------------------------------------

    def typical(self, what: str) -> Interval:
        """The median over pairs and over batches, in ns.

        Batches need not have the same pairs: each counts by how far its pairs are from their usual
        latencies. The interval is that of the batches' mean (Student's t), or extends to the median
        where that is beyond: if a host migrates virtual cores, batches are of several distances.
        """
        batches = _followed(batch_means(self.logs(what), self._batches))
        mean = t_interval(batches)
        middle = float(np.median(batches[np.isfinite(batches)]))
        return exp(Interval(middle, min(mean.low, middle), max(mean.high, middle)))

    def latencies(self) -> pd.DataFrame:
        """Of each ``what`` its way, the median over pairs with its interval, and the extremes.

        ``median_ns`` with its ends: see ``typical``; ``median_cycles``: in core cycles
        of the requester; ``one_way_ns``: of a round trip, half; ``mean_ns``: the mean of *all* that
        was sampled, of one pair or another, which a few preempted exchanges can move anywhere;
        ``nearest_ns``, ``farthest_ns``: the extreme pairs; ``pairs``: how many were measured, each
        direction for itself.
        """
        rows = []
        for what in self.whats:
            mine, way = self._main(what), way_of(what)
            middle, matrix = self.typical(what), self.cells(what).matrix
            mhz = mine["core_mhz"].median() if "core_mhz" in mine else math.nan
            rows.append(
                {
                    "what": what,
                    "way": way,
                    **columns("median_ns", middle),
                    "median_cycles": middle.effect * mhz / 1e3,
                    "one_way_ns": middle.effect / _LEGS.get(way, 1),
                    "mean_ns": mine["mean_ns"].mean() if "mean_ns" in mine else math.nan,
                    "nearest_ns": float(np.nanmin(matrix)),
                    "farthest_ns": float(np.nanmax(matrix)),
                    "pairs": int(np.isfinite(matrix).sum()),
                }
            )
        return pd.DataFrame(rows)

    def state_latencies(self) -> pd.DataFrame:
        """Of each state and access, the median over pairs with its interval, and the extremes."""
        shown = [*_MEDIAN, "nearest_ns", "farthest_ns"]
        mine = self.latencies().set_index("what").loc[[" ".join(one) for one in self.states]]
        rows = mine[shown].reset_index(drop=True)
        rows.insert(0, "state", [state for state, _ in self.states])
        rows.insert(1, "access", [access for _, access in self.states])
        return rows

    def distributions(self) -> pd.DataFrame:
        """Of each protocol, quantiles of all rows, and the median and the mean of all samples."""
        shown = ["what", "way", *_MEDIAN, "mean_ns"]
        rows = self.latencies()
        rows = rows[rows["what"].isin(self.protocols)][shown].reset_index(drop=True)
        shares = [0.01, 0.25, 0.75, 0.99]
        found = [self._main(what)["latency_ns"].quantile(shares) for what in rows["what"]]
        names = [f"quantile_{share:g}_ns" for share in shares]
        return rows.join(pd.DataFrame(np.array(found), columns=names))

    # --- in the course of time --------------------------------------------------------------------

    def followed(self) -> pd.DataFrame:
        """Round by round, latencies of the same pairs, by how far each is from usual."""
        whats = [*self.protocols, *(name for name in _FOLLOWED if name in self.whats)]
        start_s = np.full(len(self.rounds), np.nan) if self.start_s is None else self.start_s
        parts = [
            pd.DataFrame(
                {
                    "what": what,
                    "way": way_of(what),
                    "round": self.rounds,
                    "start_s": start_s,
                    "latency_ns": np.exp(_followed(self.logs(what))),
                }
            )
            for what in whats
        ]
        names = ["what", "way", "round", "start_s", "latency_ns"]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)

    def over_time(self, what: str) -> Floats:
        """``[batch]``: latency in ns, by how far that batch's pairs are from usual."""
        return np.asarray(np.exp(_followed(batch_means(self.logs(what), self._batches))))

    def range_over_time(self, what: str) -> float:
        """Log ratio of the slowest part of the run to the fastest, of the same pair: the median.

        A part is the median of three successive batches, which one wrong sample does not change.
        """
        ranges = []
        for batches in batch_means(self.logs(what), self._batches).T:
            known = batches[np.isfinite(batches)]
            if known.size > _PART:
                parts = np.median(sliding_window_view(known, _PART), axis=1)
                ranges.append(float(np.ptp(parts)))
        return float(np.median(ranges)) if ranges else math.nan

    # --- one against another ----------------------------------------------------------------------

    def ratio(self, one: str, other: str) -> Interval:
        """Log of the latency of ``one`` over that of ``other``, on the same pairs and rounds."""
        return self._within(self.logs(one) - self.logs(other))

    def layout_typical(self, name: str) -> Interval:
        """Latency of the control's lines in a layout, in ns."""
        batches = batch_means(self.logs(f"{CHASED}, {name}", LAYOUT_CONTROL), self._batches)
        return exp(t_interval(mean_of_known(batches)))

    def layout_latencies(self) -> pd.DataFrame:
        """The control: latency of the same lines in each layout, and between which cores."""
        mine = self.samples[self.samples["control"] == LAYOUT_CONTROL]
        first = {
            name: mine[name].iloc[0]
            for name in ("lines", "owner_cpu", "requester_cpu")
            if name in mine
        }
        rows = [
            {"layout": name, **columns("latency_ns", self.layout_typical(name))}
            for name in self.layouts
        ]
        return pd.DataFrame(rows).assign(**first)

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
        per_round = mean_of_known(difference)
        return t_interval(batch_means(per_round, self._batches))

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
        return widest(widths)


def _followed(logs: Floats) -> Floats:
    """One value a row: the usual of all columns, and how far this row's are from theirs."""
    known = logs[:, np.isfinite(logs).any(axis=0)]
    if not known.size:
        return np.full(len(logs), np.nan)
    middle = np.nanmedian(known, axis=0)
    return np.asarray(np.median(middle) + mean_of_known(known - middle))
