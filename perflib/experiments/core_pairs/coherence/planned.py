"""Which pairs of cores decide what the groups are: so many fewer than all, round by round.

A round over all pairs of many cores shows groups that are far from each other: each core's cells
are many. What it hides lies within these groups, whose cells are few. So only they are visited
again, until no group can hide a difference that counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.coherence.plan import Pair, What
from perflib.experiments.core_pairs.coherence.table import COLUMNS
from perflib.measure.schedule import frame_of
from perflib.stats.clusters import find_groups

__all__ = ["Deciding", "Grouped", "grouped"]

_ROUNDS_BETWEEN = 4  # for which one decision holds, but for the first two


@dataclass(frozen=True)
class Grouped:
    """What is known of the groups after some rounds.

    Parameters
    ----------
    group
        The group of each core, by its CPU.
    hidden
        Log ratio by which the cores of two halves of a group could be nearer to each other than to
        the other half: of the group that can hide most. Infinite where it cannot be told.
    """

    group: Mapping[int, int]
    hidden: float


def grouped(cells: Cells, least: float) -> Grouped:
    """The groups of a matrix, and what they can still hide; log ratios below ``least`` are none."""
    found = cells.groups(least=least)
    hidden = 0.0
    for number in range(found.count):
        own = np.flatnonzero(found.labels == number)
        if own.size < 3:
            continue  # of two there is nothing to tell apart
        alone = find_groups(cells.by_batch[:, own][:, :, own], least=least)
        split = alone.count > 1 or math.isnan(alone.bound)
        hidden = max(hidden, math.inf if split else alone.bound)
    return Grouped(dict(zip(cells.cpus, found.labels.tolist(), strict=True)), hidden)


class Deciding:
    """The pairs of each round: all in the first, then those within a group.

    Parameters
    ----------
    trials
        All that were taken, as the journal has them: a run that is resumed decides the same again.
    what
        Whose matrix shows the groups.
    always
        Pairs that are visited in each round, and of which everything is measured.
    threshold_percent
        A smaller difference does not count.
    """

    def __init__(
        self,
        trials: Sequence[dict[str, Any]],
        what: str,
        always: frozenset[Pair],
        threshold_percent: float,
    ) -> None:
        self._trials = trials
        self._what = what
        self._always = always
        self._threshold = math.log1p(threshold_percent / 100)
        self._known: dict[int, Grouped] = {}

    def of_round(self, round_: int, pairs: Sequence[Pair]) -> list[Pair]:
        """Those of the pairs that are visited in a round."""
        if not round_:
            return list(pairs)
        group = self._after(_decided(round_ - 1)).group
        return [
            (one, other)
            for one, other in pairs
            if (one, other) in self._always or group.get(one) == group.get(other)
        ]

    def batches(
        self, round_: int, pairs: Sequence[Pair], whats: Sequence[What]
    ) -> list[tuple[list[Pair], Sequence[What]]]:
        """What is measured of which: everything of a few pairs, of the others what shows groups."""
        visited = self.of_round(round_, pairs)
        few = [pair for pair in visited if pair in self._always]
        others = [pair for pair in visited if pair not in self._always]
        shown = [what for what in whats if what.name == self._what]
        return [(these, those) for these, those in ((few, whats), (others, shown)) if these]

    def half_width(self, samples: pd.DataFrame) -> float:
        """0 once no group can hide a difference that counts; before that infinite."""
        round_ = _decided(int(samples["round"].max()))
        settled = round_ > 0 and self._after(round_).hidden < self._threshold
        return 0.0 if settled else math.inf

    def _after(self, round_: int) -> Grouped:
        """What the rounds up to this one say."""
        if round_ not in self._known:
            taken = [one for one in self._trials if one["round"] <= round_ and "columns" in one]
            samples = frame_of(taken)
            mine = samples[(samples["what"] == self._what) & (samples["control"] == "")]
            nothing = Grouped({}, math.inf)  # then all pairs are visited again
            known = grouped(Cells(mine, COLUMNS), self._threshold) if mine["ok"].any() else nothing
            self._known[round_] = known
        return self._known[round_]


def _decided(round_: int) -> int:
    """The last round up to this one after which it was decided: 0, 1, 4, 8, 12 ..."""
    return round_ // _ROUNDS_BETWEEN * _ROUNDS_BETWEEN or min(round_, 1)
