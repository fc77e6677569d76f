"""Which pairs of cores decide what the groups are: so many fewer than all, round by round.

A round over all pairs of many cores shows groups that are far from each other: each core's cells
are many. What it hides is within these groups, whose cells are few. So only they are visited
again, and each group only until it can hide no difference that counts, and is no half of another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.core_pairs.cells import Cells, PairColumns
from perflib.experiments.core_pairs.coherence.plan import Pair, What
from perflib.experiments.core_pairs.coherence.table import COLUMNS
from perflib.measure.schedule import frame_of

_ROUNDS_BETWEEN = 4  # for which one decision holds, but for the first ones
_ROUNDS_BETWEEN_WHOLE = 160  # a long run of few pairs would leave its matrix nearly empty


def undecided(cells: Cells, least: float, settled: dict[tuple[int, ...], bool]) -> set[Pair]:
    """The pairs within groups that need more samples, and within neighbours that may be one group.

    A group needs no more once two rounds or more show that the cores of no half are nearer to each
    other than to the other half by a log ratio of ``least``. A group and the one nearest to it need
    no more once their own pairs show the same two: the partition of many cores that explains most
    sometimes cuts one of its groups in halves, by noise. ``settled`` keeps what cores showed, by
    their number of samples, CPUs and groups: most have no new samples.
    """
    from_, to, _ = cells.columns.names
    found = cells.groups(least=least)
    sets: set[tuple[int, ...]] = {(number,) for number in range(found.count)}
    if len(cells.rounds) > 1 and found.count > 1:
        sets |= {(min(two), max(two)) for two in enumerate(_nearest(cells.matrix, found.labels))}
    waiting: set[Pair] = set()
    for numbers in sorted(sets):
        places = np.flatnonzero(np.isin(found.labels, numbers))
        cpus, labels = [cells.cpus[place] for place in places], found.labels[places]
        inside = cells.samples[cells.samples[from_].isin(cpus) & cells.samples[to].isin(cpus)]
        key = len(inside), *cpus, *(labels == labels[0]).tolist()
        if len(cells.rounds) > 1 and key not in settled:
            settled[key] = len(cpus) < 3 or _shows(inside, cells.columns, labels, least)
        if not settled.get(key, False):
            waiting.update(itertools.permutations(cpus, 2))
    return waiting


def _shows(
    samples: pd.DataFrame, columns: PairColumns, labels: NDArray[np.int64], least: float
) -> bool:
    """Whether these samples alone, in batches of their own rounds, show these groups."""
    if samples["round"].nunique() < 2:
        return False
    found = Cells(samples, columns).groups(least=least)
    if labels.min() == labels.max():
        return found.count == 1 and found.bound < least
    if found.labels.shape != labels.shape:
        return False  # no sample of a core is left
    same, expected = (one[:, None] == one for one in (found.labels, labels))
    return bool((same == expected).all())


def _nearest(latency: NDArray[np.float64], labels: NDArray[np.int64]) -> list[int]:
    """The group that is nearest to each, by its mean."""
    member = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
    seen = np.isfinite(latency)
    sums = member.T @ np.where(seen, latency, 0.0) @ member
    counts = member.T @ seen @ member
    mean = (sums + sums.T) / np.maximum(counts + counts.T, 1)
    mean[(counts + counts.T == 0) | np.eye(len(mean), dtype=bool)] = np.inf
    return [int(number) for number in np.argmin(mean, axis=1)]


class Deciding:
    """The pairs of each round: all in the first (and rarely later), then those that are undecided.

    Parameters
    ----------
    trials
        All that were taken, as the journal has them: a run that is resumed decides the same again.
    what
        Whose matrix shows the groups.
    always
        Pairs of which everything is measured, in each round after which it is decided.
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
        self._known: dict[int, set[Pair] | None] = {}
        self._settled: dict[tuple[int, ...], bool] = {}

    def of_round(self, round_: int, pairs: Sequence[Pair]) -> list[Pair]:
        """Those of the pairs that are visited in a round."""
        if round_ % _ROUNDS_BETWEEN_WHOLE == 0:
            return list(pairs)
        waiting = self._after(_decided(round_ - 1))
        always = self._whole(round_)
        return [pair for pair in pairs if waiting is None or pair in waiting or pair in always]

    def batches(
        self, round_: int, pairs: Sequence[Pair], whats: Sequence[What]
    ) -> list[tuple[list[Pair], Sequence[What]]]:
        """What is measured of which: everything of a few pairs, of the others what shows groups."""
        visited = self.of_round(round_, pairs)
        whole = self._whole(round_)
        few = [pair for pair in visited if pair in whole]
        others = [pair for pair in visited if pair not in whole]
        shown = [what for what in whats if what.name == self._what]
        return [(these, those) for these, those in ((few, whats), (others, shown)) if these]

    def _whole(self, round_: int) -> frozenset[Pair]:
        """Of which pairs everything is measured, which takes far longer than later rounds do."""
        return self._always if _decided(round_) == round_ else frozenset()

    def half_width(self, samples: pd.DataFrame) -> float:
        """0 once every group is decided; before that infinite."""
        waiting = self._after(_decided(int(samples["round"].max())))
        return math.inf if waiting is None or waiting else 0.0

    def _after(self, round_: int) -> set[Pair] | None:
        """The pairs that are undecided after this round; ``None``: nothing could be used yet."""
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
