"""Samples of contention as arrays: time from one operation to the next, and each core's share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.contention import DISTANCES
from perflib.framework.samples import round_starts, usable
from perflib.framework.schema import check_cells
from perflib.machine.cpulist import parse_cpus
from perflib.stats.interval import NO_INTERVAL, Interval, exp, percent, widest
from perflib.stats.intervals import Floats, batch_means, t_interval, time_batches

_TRIAL = ["round", "kind", "cpus"]
_SAMPLE = [*_TRIAL, "repeat"]
_APART, _DELAY = 0.05, 0.05  # of a sample's time: threads begin and end so near, wait so little


class ContentionTable:
    """The samples of one run.

    A sample is valid where every thread had its core all the time. What a trial's repeats say is
    their median. Kinds are compared within batches of some rounds, not within rounds: next to other
    programs few rounds have a valid sample of both. Intervals are those of batches, too (see
    ``perflib.stats.intervals``).

    Parameters
    ----------
    samples
        Rows as the experiment makes them; of a user's, the required columns are enough.

    Attributes
    ----------
    sets
        The sets of cores, by their names: the smallest first, the nearest of equally many.
    kinds
        What was measured.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        rows = usable(samples)
        if "repeat" not in rows:
            rows = rows.assign(repeat=0)
        self.rounds = np.array(sorted(set(rows["round"])))
        configurations = len(rows[["kind", "cpus"]].drop_duplicates())
        check_cells({"rounds": len(self.rounds), "configurations": configurations}, len(rows))
        self.blocks = time_batches(round_starts(rows, self.rounds), len(self.rounds))
        self.rows = rows.assign(valid=valid(rows))
        known = rows["distance"].astype(str) if "distance" in rows else "unknown"
        distances = rows.assign(distance=known).groupby("cpus", sort=False)["distance"].first()
        self.distance = {str(name): str(far) for name, far in distances.items()}
        self.cpus = {name: parse_cpus(name) for name in self.distance}
        self.sets = sorted(self.cpus, key=self._place)
        self.kinds = list(dict.fromkeys(rows["kind"].astype(str)))

    def _place(self, name: str) -> tuple[int, int, list[int]]:
        far = self.distance[name]
        at = DISTANCES.index(far) if far in DISTANCES else len(DISTANCES)
        return len(self.cpus[name]), at, self.cpus[name]

    # --- the sets ---------------------------------------------------------------------------------

    @property
    def all(self) -> str | None:
        """The largest set; ``None``: one core alone is all there is."""
        return self.sets[-1] if len(self.cpus[self.sets[-1]]) > 1 else None

    @property
    def alone(self) -> str | None:
        """The set of one core."""
        return self.sets[0] if len(self.cpus[self.sets[0]]) == 1 else None

    @property
    def pairs(self) -> list[str]:
        """The sets of two cores, and the largest."""
        return [name for name in self.sets if len(self.cpus[name]) == 2 or name == self.all]

    # --- what an operation takes ------------------------------------------------------------------

    @cached_property
    def _gaps(self) -> dict[tuple[str, str], Floats]:
        """``[round]``: log ns from one operation to the next, of all cores of a set together."""
        rows = self.rows[self.rows["valid"]]
        rate = rows["operations"] / rows["time_ns"]
        rates = rows.assign(rate=rate).groupby(_SAMPLE)["rate"].sum()
        with np.errstate(divide="ignore"):
            gaps = -np.log(rates[rates > 0])
        medians = gaps.groupby(_TRIAL).median()
        return {
            (str(kind), str(cpus)): mine.droplevel(["kind", "cpus"])
            .reindex(self.rounds)
            .to_numpy(np.float64)
            for (kind, cpus), mine in medians.groupby(["kind", "cpus"])
        }

    def _of(self, kind: str, cpus: str | None) -> Floats | None:
        return None if cpus is None else self._gaps.get((kind, cpus))

    def gap_ns(self, kind: str, cpus: str | None) -> Interval:
        """Wall time from one operation to the next, of all cores of a set together."""
        found = self._of(kind, cpus)
        if found is None:
            return NO_INTERVAL
        return exp(t_interval(self._means(found)))

    def operation_ns(self, kind: str, cpus: str) -> Interval:
        """What an operation takes a core of the set: as many times the gap as there are cores."""
        return Interval(*(len(self.cpus[cpus]) * value for value in self.gap_ns(kind, cpus)))

    def more(
        self, kind: str, cpus: str | None, over: str, over_cpus: str | None, cores: float = 1.0
    ) -> Interval:
        """How much longer the gap is than another, within batches, in percent.

        Parameters
        ----------
        cores
            By how much the ratio is multiplied first: with the number of cores it is one of what
            an operation takes a core.
        """
        mine, other = self._of(kind, cpus), self._of(over, over_cpus)
        if mine is None or other is None:
            return NO_INTERVAL
        return percent(t_interval(self._means(mine) - self._means(other) + math.log(cores)))

    def valid_percent(self, kind: str, cpus: str | None) -> float:
        """Of the samples of a kind and set, how many are valid."""
        mine = self.rows[(self.rows["kind"] == kind) & (self.rows["cpus"] == cpus)]
        return 100 * float(mine["valid"].mean()) if len(mine) else 0.0

    def _means(self, values: Floats) -> Floats:
        return batch_means(values[:, None], self.blocks)[:, 0]

    # --- who gets how much ------------------------------------------------------------------------

    def _less(self, kind: str, cpus: str) -> Floats:
        """``[block, core]``: how much less than an even share each core gets, in percent."""
        rows = self.rows
        rows = rows[rows["valid"] & (rows["kind"] == kind) & (rows["cpus"] == cpus)]
        done = rows.groupby(["round", "cpu"])["operations"].sum().unstack("cpu")
        done = done.reindex(index=self.rounds, columns=self.cpus[cpus])
        wide = done.to_numpy(np.float64)
        even = wide.mean(axis=1, keepdims=True)
        even[even == 0] = np.nan
        return batch_means(100 * (1 - wide / even), self.blocks)

    def shares(self, kind: str, cpus: str) -> dict[int, Interval]:
        """Of each core, how much less than an even share it gets, in percent.

        The intervals hold for all cores together. Of one core alone there is none.
        """
        return self._by_core(self._less(kind, cpus), cpus)

    def beyond_own_lines(self, kind: str, cpus: str) -> dict[int, Interval]:
        """The same, less what it is on lines of one's own: there, a core gets what it can do."""
        return self._by_core(self._less(kind, cpus) - self._less("own_lines", cpus), cpus)

    def _by_core(self, means: Floats, cpus: str) -> dict[int, Interval]:
        members = self.cpus[cpus]
        if len(members) < 2:
            return {}
        confidence = 1 - 0.05 / len(members)
        return {cpu: t_interval(means[:, place], confidence) for place, cpu in enumerate(members)}

    def first_slower(self, kind: str) -> Interval:
        """How much longer an operation takes the core that was also alone, in percent.

        While all others do the same, compared with itself alone: others may be slower anyway.
        """
        if self.all is None or self.alone is None:
            return NO_INTERVAL
        (first,) = self.cpus[self.alone]
        rows = self.rows
        rows = rows[rows["valid"] & (rows["kind"] == kind) & (rows["cpu"] == first)]
        rows = rows[(rows["operations"] > 0) & rows["cpus"].isin([self.all, self.alone])]
        rows = rows.assign(log_ns=np.log(rows["time_ns"] / rows["operations"]))
        wide = rows.groupby(["round", "cpus"])["log_ns"].median().unstack("cpus")
        wide = wide.reindex(index=self.rounds, columns=[self.all, self.alone])
        both = batch_means(wide.to_numpy(np.float64), self.blocks)
        return percent(t_interval(both[:, 0] - both[:, 1]))

    # --- precision --------------------------------------------------------------------------------

    @property
    def half_width(self) -> float:
        """That of false sharing with all cores; the widest of what was measured in its place.

        Infinite where nothing is compared: then there is no precision to reach.
        """
        over = "own_lines" if "own_lines" in self.kinds else self.kinds[0]
        widths = [
            self.more(kind, self.all, over, self.all).half_width
            for kind in _first(self.kinds, ("one_line", "fetch_add", "cas"))
            if kind != over
        ]
        return widest(widths, default=math.inf)


def _first(kinds: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The first of the wanted kinds that there is, else all."""
    return next(([kind] for kind in wanted if kind in kinds), list(kinds))


def valid(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether all threads of a row's sample had their cores, from its beginning to its end."""
    good = np.ones(len(rows), dtype=np.bool_)
    if "involuntary_switches" in rows:
        good &= ~(rows["involuntary_switches"] > 0).to_numpy()
    if "run_delay_ns" in rows:
        good &= ~(rows["run_delay_ns"] > _DELAY * rows["time_ns"]).to_numpy()
    keys = [name for name in _SAMPLE if name in rows]
    if "start_ns" in rows:
        end_ns = rows["start_ns"] + rows["time_ns"]
        by_sample = rows.assign(end_ns=end_ns).groupby(keys)
        begin, end = by_sample["start_ns"], by_sample["end_ns"]
        apart = (begin.transform("max") - begin.transform("min")) + (
            end.transform("max") - end.transform("min")
        )
        good &= ~(apart > 2 * _APART * rows["time_ns"]).to_numpy()
    together = rows.assign(good=good).groupby(keys)["good"].transform("all")
    found: NDArray[np.bool_] = together.to_numpy(dtype=np.bool_)
    return found
