"""Which pairs of cores decide what the groups are: so many fewer than all, round by round.

A round over all pairs of many cores shows groups that are far from each other: each core's cells
are many. What it hides lies within these groups, whose cells are few. So only they are visited
again, and each group only until it can hide no difference that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.coherence.plan import Pair, What
from perflib.experiments.core_pairs.coherence.table import COLUMNS
from perflib.measure.schedule import frame_of

__all__ = ["Deciding", "undecided"]

_ROUNDS_BETWEEN = 4  # for which one decision holds, but for the first ones


def undecided(cells: Cells, least: float, settled: dict[tuple[int, ...], bool]) -> dict[int, int]:
    """The group of each core, by its CPU, but for groups that need no more samples.

    Those were seen in two rounds or more, and have two cores or showed this: the cores of no half
    are nearer to each other than to the other half by a log ratio of ``least``. ``settled`` keeps
    what groups showed, by their number of samples and CPUs: most have no new ones.
    """
    from_, to, _ = cells.columns.names
    found = cells.groups(least=least)
    waiting: dict[int, int] = {}
    for number in range(found.count):
        cpus = [cells.cpus[core] for core in np.flatnonzero(found.labels == number)]
        inside = cells.samples[from_].isin(cpus) & cells.samples[to].isin(cpus)
        key = int(inside.sum()), *cpus
        if len(cells.rounds) > 1 and len(cpus) > 2 and key not in settled:
            # Alone, so that its batches are of the rounds that visit it.
            alone = Cells(cells.samples[inside], cells.columns)
            seen = alone.groups(least=least)
            settled[key] = len(alone.rounds) > 1 and seen.count == 1 and seen.bound < least
        if len(cells.rounds) < 2 or not settled.get(key, True):
            waiting |= dict.fromkeys(cpus, number)
    return waiting


class Deciding:
    """The pairs of each round: all in the first, then those within a group that is undecided.

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
        self._known: dict[int, dict[int, int] | None] = {}
        self._settled: dict[tuple[int, ...], bool] = {}

    def of_round(self, round_: int, pairs: Sequence[Pair]) -> list[Pair]:
        """Those of the pairs that are visited in a round."""
        if not round_:
            return list(pairs)
        group = self._after(_decided(round_ - 1))
        if group is None:
            return list(pairs)
        return [
            (one, other)
            for one, other in pairs
            if (one, other) in self._always or (one in group and group[one] == group.get(other))
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
        """0 once every group is decided; before that infinite."""
        waiting = self._after(_decided(int(samples["round"].max())))
        return 0.0 if waiting == {} else math.inf

    def _after(self, round_: int) -> dict[int, int] | None:
        """The groups that are undecided after this round; ``None``: nothing could be used yet."""
        if round_ not in self._known:
            taken = [one for one in self._trials if one["round"] <= round_ and "columns" in one]
            samples = frame_of(taken)
            mine = samples[(samples["what"] == self._what) & (samples["control"] == "")]
            some = bool(mine["ok"].any())
            self._known[round_] = (
                undecided(Cells(mine, COLUMNS), self._threshold, self._settled) if some else None
            )
        return self._known[round_]


def _decided(round_: int) -> int:
    """The last round up to this one after which it was decided: 0, 1, 2, 3, 4, 8, 12 ..."""
    return round_ if round_ < _ROUNDS_BETWEEN else round_ // _ROUNDS_BETWEEN * _ROUNDS_BETWEEN
