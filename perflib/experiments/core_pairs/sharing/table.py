"""Log ratios of pairs and of halvings, round by round; where they changed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.sharing.claims import RESOURCES
from perflib.framework.samples import in_order, round_starts, usable
from perflib.machine.cpulist import parse_cpus
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import Floats, batch_means, t_interval, t_intervals, time_batches

Pair = tuple[int, int]
_MIN_PART = 4  # rounds: of fewer an interval decides nothing
_MIN_ROUNDS = 3  # of two, one pair of hundreds would agree by chance
_FAR = 4.0  # robust standard deviations
_MIN_HALVINGS = 5
_MOST_LOG = 1.0  # a halving that shows more counts as this: one odd trial names nobody


def pair_of(one: int, other: int) -> Pair:
    """Both directions are one pair."""
    return min(one, other), max(one, other)


def felt(signs: Floats, logs: Floats) -> Floats:
    """``[trial, cpu]``: the log ratio, with the sign of the half that the CPU was in.

    Its mean is what the CPU does to the listener; of all others it is zero, since they are in the
    sibling's half as often as not.
    """
    return signs * np.clip(logs, -_MOST_LOG, _MOST_LOG)[:, None]


class SharingTable:
    """Slow-downs of pairs by resource.

    Parameters
    ----------
    samples
        One row a trial and resource.

    Raises
    ------
    UserError
        No row is usable, or a list of CPUs is none.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        rows = usable(samples)
        lists = {text: parse_cpus(text) for text in rows["busy_cpus"].unique()}
        if "else_cpus" not in rows:
            rows = rows.assign(else_cpus="")
        rows = rows.assign(
            log=np.log(rows["ratio"].to_numpy(np.float64)),
            else_cpus=rows["else_cpus"].fillna("").astype(str),
        )
        direct = (rows["else_cpus"].str.strip() == "") & (
            rows["busy_cpus"].map(lambda text: len(lists[text])) == 1
        )
        self._first_ns = float(rows["start_ns"].min()) if "start_ns" in rows else 0.0
        self._halvings = rows[~direct & (rows["else_cpus"].str.strip() != "")]
        rows = rows[direct]
        other = rows["busy_cpus"].map(lambda text: lists[text][0]).to_numpy(np.int64)
        mine = rows["listener_cpu"].to_numpy(np.int64)
        rows = rows.assign(a=np.minimum(mine, other), b=np.maximum(mine, other))
        self.rows = rows[mine != other]

    @cached_property
    def pairs(self) -> list[tuple[Pair, str]]:
        """Which pairs were tried for which resource, resource by resource."""
        named = self.rows[["a", "b", "resource"]].drop_duplicates()
        known = in_order(named["resource"], RESOURCES)
        found = [((int(a), int(b)), str(what)) for a, b, what in named.itertuples(index=False)]
        return sorted(found, key=lambda one: (known.index(one[1]), one[0]))

    @cached_property
    def listeners(self) -> list[int]:
        """The CPUs that were tried with halves of the others."""
        return sorted(map(int, self._halvings["listener_cpu"].unique()))

    def slower(self, pair: Pair, resource: str) -> Interval:
        """By how many percent the one is slower while the other is busy."""
        return percent(self._interval(pair, resource, "log"))

    def beyond_clock(self, pair: Pair, resource: str) -> Interval:
        """The same log ratio without that of dependent additions; as it is where that is unknown.

        Only as far as the additions explain it: they feel a sibling, too, but far less.
        """
        return self._interval(pair, resource, "beyond")

    @cached_property
    def _by_pair(self) -> dict[tuple[Pair, str], pd.DataFrame]:
        rows = self.rows
        clock = rows["clock_ratio"] if "clock_ratio" in rows else pd.Series(1.0, rows.index)
        clock = clock.astype(np.float64).fillna(1.0).clip(lower=1e-6)
        rows = rows.assign(beyond=rows["log"] - np.log(clock))
        grouped = rows.groupby(["a", "b", "resource"])
        return {((int(a), int(b)), str(what)): mine for (a, b, what), mine in grouped}

    def course(self, pair: Pair, resource: str, name: str = "log") -> tuple[Floats, Floats | None]:
        """The log ratio of each round, and when that began (s; ``None``: not known)."""
        mine = self._by_pair[pair, resource]
        by_round = mine.groupby("round")[name].mean().sort_index()
        rounds = by_round.index.to_numpy()
        return by_round.to_numpy(np.float64), round_starts(mine, rounds)

    def began_s(self, pair: Pair) -> float:
        """How long after the run's first trial the first one of this pair began; 0: not known."""
        if "start_ns" not in self.rows:
            return 0.0
        mine = self._by_pair[pair, "ports"]["start_ns"].min()
        begun = (float(mine) - self._first_ns) / 1e9
        return begun if np.isfinite(begun) else 0.0

    def _interval(self, pair: Pair, resource: str, name: str) -> Interval:
        values, starts = self.course(pair, resource, name)
        if len(values) < _MIN_ROUNDS:
            return NO_INTERVAL
        batches = time_batches(starts, len(values))
        return t_interval(batch_means(values[:, None], batches)[:, 0])

    def changes(self, pair: Pair, resource: str, threshold: float) -> list[int]:
        """The rounds (by place) with which the slow-down passed the threshold (a log ratio)."""
        values, _ = self.course(pair, resource)
        return _changes(values, threshold, confidence=1 - 0.05 / max(1, len(values)))

    def alone(self, cpu: int) -> tuple[Interval, int, int]:
        """What the CPU felt most does to this one, in percent; which, and of how many.

        The interval is as wide as it takes for the most of so many.
        """
        mine = self._halvings[self._halvings["listener_cpu"] == cpu]
        halves = [
            (parse_cpus(busy), parse_cpus(rest))
            for busy, rest in mine[["busy_cpus", "else_cpus"]].itertuples(index=False)
        ]
        others = sorted({one for both in halves for half in both for one in half} - {cpu})
        signs = np.array(
            [[(one in busy) - (one in rest) for one in others] for busy, rest in halves]
        )
        if len(mine) < _MIN_HALVINGS:
            return NO_INTERVAL, -1, len(others)
        by_cpu = felt(signs.astype(np.float64), mine["log"].to_numpy(np.float64))
        found = t_intervals(by_cpu, confidence=1 - 0.05 / len(others))
        most = int(np.argmax([one.effect for one in found]))
        return percent(found[most]), others[most], len(others)


def _changes(values: Floats, threshold: float, confidence: float) -> list[int]:
    """Where parts of enough rounds begin that are on the other side of the threshold.

    None where the interval of a part is not on its side: then nothing is known of a change.
    """
    padded = np.concatenate([values[:1], values, values[-1:]])
    around = np.stack([padded[:-2], padded[1:-1], padded[2:]])  # one odd round is no part
    above = np.median(around, axis=0) > threshold
    edges = [0, *(np.flatnonzero(np.diff(above)) + 1), len(values)]
    parts = [begin for begin, end in itertools.pairwise(edges) if end - begin >= _MIN_PART]
    begins = [at for n, at in enumerate(parts) if n == 0 or above[at] != above[parts[n - 1]]]
    for begin, end in itertools.pairwise([0, *begins[1:], len(values)]):
        found = t_interval(_drawn_near(values[begin:end]), confidence)
        if not (found.low > threshold or found.high < threshold):
            return []
    return [int(at) for at in begins[1:]]


def _drawn_near(values: Floats) -> Floats:
    """Values far from the median count as less far: one odd round makes no part uncertain."""
    middle = float(np.median(values))
    reach = _FAR * 1.4826 * float(np.median(np.abs(values - middle)))
    return np.clip(values, middle - reach, middle + reach)


def candidates(signs: Floats, logs: Floats, cpus: Sequence[int], threshold: float) -> list[int]:
    """The CPUs that the listener may share its core with, by the halvings so far.

    All whose halves were the same as that of the one felt most; none where nobody is felt, or where
    too few halvings distinguish them.
    """
    if len(logs) < _MIN_HALVINGS:
        return []
    mean = felt(signs, logs).mean(axis=0)
    most = float(mean.max())
    if most < threshold / 2:
        return []
    near = np.flatnonzero(mean >= most * (1 - 1 / len(logs)))
    return [cpus[int(place)] for place in near] if len(near) <= _MIN_HALVINGS else []
