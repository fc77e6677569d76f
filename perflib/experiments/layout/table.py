"""Samples of layouts as arrays: centred log times, the levels of each factor, blocks of time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.layout import Layout
from perflib.experiments.layout.factors import CARRIED, COUNTED, FACTORS, Factor
from perflib.framework.samples import round_starts, usable
from perflib.stats.interval import NO_INTERVAL, Interval, percent, percent_of, widest
from perflib.stats.intervals import Floats, t_interval, time_batches
from perflib.stats.layouts import (
    batch_levels,
    largest_difference,
    layout_variance,
    permuted_p,
    shifted_correlations,
    within_rounds,
)

Ints = NDArray[np.int64]
_MUCH = 0.05  # of the variance: what a factor with more does is taken out of the others
_LAYOUTS_A_BLOCK = 6  # at least, on average: else levels are absent from most blocks
_CORE_BLOCKS = 3  # of time, as one: cores are disturbed for seconds on end, and one by one


@dataclass(frozen=True)
class Effect:
    """What a factor does.

    Parameters
    ----------
    factor
        It.
    largest
        The largest difference between two levels, in percent.
    fastest, slowest
        These levels, as they are written.
    p
        Of the permutation test, for all factors together.
    share
        Of the variance of the times, without what chance makes.
    """

    factor: Factor
    largest: Interval
    fastest: str
    slowest: str
    p: float
    share: float


class LayoutTable:
    """The samples of one run; the response is the log of CPU time or of wall time.

    ``simulated``: what `perflib.experiments.layout.simulated` counted, a row a layout.
    """

    def __init__(
        self,
        samples: pd.DataFrame,
        response: str = "cpu",
        simulated: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if "symbol" in samples:  # a row for each of its functions: the first has all of the start
            samples = samples.drop_duplicates(["round", "build", "layout"])
        rows = usable(samples).reset_index(drop=True)
        numbers = np.unique(rows["round"])
        self.rows = rows
        self._simulated = simulated
        self.trials = len(samples)
        self.rounds: Ints = np.searchsorted(numbers, rows["round"]).astype(np.int64)
        self.layouts: Ints = np.asarray(rows["layout"], dtype=np.int64)
        self.is_b: NDArray[np.bool_] = (rows["build"] == "B").to_numpy()
        blocks = time_batches(round_starts(rows, numbers), len(numbers))
        self.blocks: Ints = blocks[self.rounds]
        self.log_time: Floats = np.log(rows[f"{response}_s"].to_numpy(np.float64))
        both = bool(self.is_b.any() and not self.is_b.all())
        self.builds = 2 if both else 1
        # Rounds of each build, numbered apart: a build's time is compared with its own.
        self._group: Ints = np.unique(
            2 * self.rounds + self.is_b.astype(np.int64), return_inverse=True
        )[1].astype(np.int64)
        self.against_round: Floats = within_rounds(self.log_time, self._group)  # of its round
        self.centred: Floats = self.against_round - self._of_core()

    def _of_core(self) -> Floats:
        """What the core of each trial is slower by in the whole run.

        Others on the machine use one core more than another: that is no layout, and is kept out of
        what layout alone does.
        """
        if "cpu" not in self.rows:
            return np.zeros(len(self.rows))
        mean = pd.Series(self.against_round).groupby(self.rows["cpu"]).transform("mean")
        return mean.fillna(0.0).to_numpy(np.float64)

    # --- factors ---------------------------------------------------------------------------------

    @cached_property
    def factors(self) -> list[Factor]:
        """Those of which there are two levels or more."""
        known = (one for one in FACTORS.values() if one.column in self.rows)
        return [one for one in known if self.rows[one.column].nunique() > 1]

    def levels(self, factor: Factor) -> tuple[Ints, list[str]]:
        """Of each trial the number of its level, -1: not known; and how they are written."""
        codes, values = pd.factorize(self.rows[factor.column], sort=True)
        written = (int(one) if isinstance(one, float) else one for one in values)
        return codes.astype(np.int64), [factor.level.format(one) for one in written]

    @cached_property
    def _by_layout(self) -> tuple[Floats, Ints, dict[str, Ints]]:
        """Of each layout the mean of its starts, the block of the first, and its levels.

        Starts of one layout agree in all that it does: each layout counts once.
        """
        _, first, place = np.unique(self.layouts, return_index=True, return_inverse=True)
        mean = np.bincount(place, weights=self.against_round) / np.bincount(place)
        codes = {factor.name: self.levels(factor)[0][first] for factor in self.factors}
        count = int(self.blocks.max()) + 1
        fewer = min(count, max(1, mean.size // _LAYOUTS_A_BLOCK))
        return mean, self.blocks[first] * fewer // count, codes

    @cached_property
    def _fitted(self) -> dict[str, Floats]:
        """Of each factor that does much what its level adds to each layout, fitted together."""
        mean, _, codes = self._by_layout
        large = {one.name for one in self.factors if self._share(one) > _MUCH}
        codes = {name: one for name, one in codes.items() if name in large}
        parts = {name: np.eye(one.max() + 2)[one][:, :-1] for name, one in codes.items()}
        if not parts:
            return {}
        design = np.hstack(list(parts.values()))
        found = np.linalg.lstsq(design, mean, rcond=None)[0]
        ends = np.cumsum([one.shape[1] for one in parts.values()])[:-1]
        fitted = zip(parts.items(), np.split(found, ends), strict=True)
        return {name: part @ effect for (name, part), effect in fitted}

    def by_block(self, factor: Factor) -> Floats:
        """``[block, level]``: mean log time of each level, without what other factors do."""
        mean, blocks, codes = self._by_layout
        others = sum((one for name, one in self._fitted.items() if name != factor.name), 0 * mean)
        mine = codes[factor.name]
        known = mine >= 0
        if factor.name == "cpu":  # what disturbs a core for seconds must fit into a block
            blocks = blocks // _CORE_BLOCKS
        return batch_levels((mean - others)[known], mine[known], blocks[known])

    @cached_property
    def effects(self) -> list[Effect]:
        """What each factor does."""
        every = [self.by_block(factor) for factor in self.factors]
        found = []
        for factor, by_block, p in zip(self.factors, every, permuted_p(every), strict=True):
            largest, (fastest, slowest) = largest_difference(by_block)
            names = self.levels(factor)[1]
            share = self._share(factor)
            ends = percent(largest), names[fastest], names[slowest]
            found.append(Effect(factor, *ends, float(p), share))
        return found

    def _share(self, factor: Factor) -> float:
        """The factor's part of the sum of squares, less what as many random levels would have."""
        mean, _, every = self._by_layout
        codes, names = every[factor.name], self.levels(factor)[1]
        known = codes >= 0
        values, codes = mean[known], codes[known]
        count = np.bincount(codes, minlength=len(names))
        means = np.bincount(codes, weights=values, minlength=len(names)) / np.maximum(count, 1)
        whole = float(((values - values.mean()) ** 2).sum())
        between = float((count * (means - values.mean()) ** 2).sum())
        freedom = np.count_nonzero(count) - 1
        if whole <= 0 or values.size <= freedom + 1:
            return 0.0
        error = (whole - between) / (values.size - freedom - 1)
        return max(0.0, (between - freedom * error) / (whole + error))

    # --- layout alone ----------------------------------------------------------------------------

    @cached_property
    def alone(self) -> Interval:
        """Standard deviation over layouts, in percent, without that between starts of one."""
        group = self._group
        key = 2 * self.layouts + self.is_b
        _, layouts = np.unique(key, return_inverse=True)
        found = layout_variance(self.centred, layouts.astype(np.int64), group, self.blocks)
        if not math.isfinite(found.half_width):
            return NO_INTERVAL
        most = max(found.high, found.half_width)  # below 0 by chance: the layouts hardly differ
        ends = (found.effect, found.low, most)
        return Interval(*(percent_of(math.sqrt(max(0.0, one))) for one in ends))

    @cached_property
    def twice(self) -> pd.DataFrame:
        """A row a layout that was started in two rounds: both centred log times, its block."""
        columns = {
            "layout": self.layouts,
            "build": self.rows["build"],
            "round": self.rounds,
            "block": self.blocks,
            "centred": self.centred,
            "output": self.rows.get("output", ""),
            "aslr": self.rows.get("aslr", ""),
        }
        every = pd.DataFrame(columns).sort_values(["build", "layout", "round"])
        groups = every.groupby(["build", "layout"])
        first, last = groups.first(), groups.last()
        pairs = first.add_suffix("_first").join(last.add_suffix("_again"))
        found: pd.DataFrame = pairs[pairs["round_first"] < pairs["round_again"]].reset_index()
        return found

    @cached_property
    def draws(self) -> Interval:
        """By how much more starts of one layout scatter with ASLR than without, in points."""
        pairs = self.twice
        if pairs.empty or pairs["aslr_first"].nunique() < 2:
            return NO_INTERVAL
        # The mean absolute difference of two normal values is 2 / sqrt(pi) standard deviations.
        size = (pairs["centred_first"] - pairs["centred_again"]).abs() * math.sqrt(math.pi) / 2
        by_block = size.groupby([pairs["block_again"], pairs["aslr_first"]]).mean().unstack()
        difference = (by_block["on"] - by_block["off"]).to_numpy(np.float64)
        return Interval(*(100 * one for one in t_interval(difference)))

    # --- counters --------------------------------------------------------------------------------

    def counters(self) -> pd.DataFrame:
        """What was counted, by how strongly it goes with the time, layout by layout.

        Both are compared with their rounds and averaged over a layout's starts. ``p``: see
        `shifted_correlations`.

        Simulated counts are of layouts without ASLR only, and compared with those layouts' times.

        Returns
        -------
        ``counter``, ``source`` (measured, simulated), ``median`` of the starts, ``correlation``
        (Pearson) and ``p``; the strongest first, NaN where all starts count the same.
        """
        known = {column.name for column in Layout.columns}
        names = [
            name for name in self.rows.columns
            if name not in known and pd.api.types.is_numeric_dtype(self.rows[name])
        ]  # fmt: skip
        measured = self.rows[names].astype(np.float64)
        parts = [self._ranked(measured, "measured")]
        simulated = self._simulated_of_starts()
        if len(simulated) > 1:
            parts.append(self._ranked(simulated, "simulated"))
        table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
        return table.sort_values(
            "correlation", key=abs, ascending=False, ignore_index=True, kind="stable"
        )

    def _ranked(self, counts: pd.DataFrame, source: str) -> pd.DataFrame:
        """Counts of some starts, by their rows' index, with the times of the same starts."""
        at = counts.index.to_numpy()
        group, layouts = self._group[at], self.layouts[at]
        against_mean = counts - counts.groupby(group).transform("mean")
        typical = against_mean.groupby(layouts).mean().to_numpy(np.float64)
        times = pd.Series(self.against_round[at]).groupby(layouts).mean().to_numpy(np.float64)
        begun = pd.Series(self.rounds[at]).groupby(layouts).min().to_numpy()
        order = np.argsort(begun, kind="stable")
        correlation, p = shifted_correlations(typical.T[:, order], times[order])
        return pd.DataFrame(
            {
                "counter": list(counts),
                "source": source,
                "median": counts.median().to_numpy(np.float64),
                "correlation": correlation,
                "p": p,
            }
        )

    def _simulated_of_starts(self) -> pd.DataFrame:
        """Of the starts without ASLR whose layout was simulated: its counts."""
        if self.simulated.empty:
            return pd.DataFrame()
        columns = {name: FACTORS[name].column for name in CARRIED if name in self.simulated}
        keys, names = ["build", *columns.values()], list(COUNTED)
        rows = self.rows
        if "aslr" in rows:
            rows = rows[rows["aslr"] == "off"]
        if not set(keys) <= set(rows):
            return pd.DataFrame()
        counts = self.simulated.rename(columns=columns).set_index(keys)[names]
        found = rows[keys].join(counts, on=keys)[names].dropna()
        return found.rename(columns={name: f"{name} / 1000 instructions" for name in names})

    @cached_property
    def simulated(self) -> pd.DataFrame:
        """A row a simulated layout: its counts in 1000 instructions, its factors."""
        return pd.DataFrame(list(self._simulated))

    # --- two builds ------------------------------------------------------------------------------

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """A row a layout of a round in which both builds were started: log time of B less A's."""
        keys = [self.rounds, self.layouts, self.is_b]
        times = pd.Series(self.log_time).groupby(keys).mean().unstack()
        if self.builds < 2:
            return pd.DataFrame(columns=["round", "layout", "block", "difference"])
        times.index.names = ["round", "layout"]
        found = (times[True] - times[False]).dropna().rename("difference").reset_index()
        block = pd.Series(self.blocks).groupby(self.rounds).first()
        return found.assign(block=found["round"].map(block))

    @cached_property
    def faster(self) -> Interval:
        """By how much less time B takes than A, in percent."""
        by_block = self.pairs.groupby("block")["difference"].mean().to_numpy(np.float64)
        longer = t_interval(by_block)
        return Interval(*(-percent_of(one) for one in (longer.effect, longer.high, longer.low)))

    # --- precision -------------------------------------------------------------------------------

    def half_width(self) -> float:
        """The widest, in points: of two builds their difference's, else of layout and factors."""
        if self.builds == 2:
            widths = [self.faster.half_width]
        else:
            widths = [self.alone.half_width]
            for factor in self.factors:
                widths.append(percent(largest_difference(self.by_block(factor))[0]).half_width)
        return widest(widths)
