"""From the levels of a farm to one number a run and core, and to halves of a node's days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.stats.intervals import against_others, medians

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_NODES = 5  # of a model, before one of them can be the odd one


@dataclass
class Stratum:
    """One experiment on one model: ``level[run]`` and ``core[run, cpu]`` in logs."""

    experiment: str
    model: str
    node_names: NDArray[np.object_]
    cpus: Ints
    node: Ints  # of each run
    start: pd.Series[Any]
    values: Floats
    quantum: float
    level: Floats = field(init=False)
    measured: Floats = field(init=False)  # the level with what days did to all nodes
    core: Floats = field(init=False)
    occasion: Ints = field(init=False)
    days: bool = field(init=False)

    def __post_init__(self) -> None:
        self.core = against_others(self.values)
        profile = self._profile()
        with_profile = self.values - profile
        self.measured = _middle(with_profile)
        self.occasion, self.days = _occasions(self.node, self.start)
        self.level = self._without_days(self.measured)

    def _profile(self) -> Floats:
        """What each position shows on all nodes, by which a run with missing cores is compared."""
        if len(self.node_names) < LEAST_NODES:
            return np.zeros(self.cpus.size)
        by_node = medians_by(self.node, self.core)
        return np.nan_to_num(medians(by_node))

    def _without_days(self, level: Floats) -> Floats:
        """Days on which most nodes were measured: what the day did to all of them is taken out."""
        if not self.days:
            return level
        day = pd.factorize(self.start.dt.floor("D"), sort=True)[0]
        found = level.copy()
        for one in np.unique(day[day >= 0]):
            mine = day == one
            if np.unique(self.node[mine]).size >= max(LEAST_NODES, len(self.node_names) / 2):
                found[mine] -= np.nanmedian(level[mine]) - np.nanmedian(level)
        return found


def strata(levels: pd.DataFrame) -> Iterator[Stratum]:
    """One of each experiment and model; levels that are no positive number are left out."""
    value = pd.to_numeric(levels["value"], errors="coerce").to_numpy(float)
    good = np.isfinite(value) & (value > 0) & levels[["node", "model", "run"]].notna().all(axis=1)
    rows = levels.loc[good, ["experiment", "model", "node", "run", "cpu", "setting", "start"]]
    rows = rows.assign(y=np.log(value[good]))
    for (experiment, model), mine in rows.groupby(["experiment", "model"], sort=True):
        setting = pd.factorize(mine["setting"])[0]
        y = mine["y"] - mine.groupby(setting)["y"].transform("median")
        run, names = pd.factorize(
            pd.MultiIndex.from_arrays([mine["node"].astype(str), mine["run"].astype(str)])
        )
        cpu, cpus = pd.factorize(mine["cpu"].astype(int), sort=True)
        cell = pd.Series(y.to_numpy()).groupby(run * len(cpus) + cpu).mean()
        values = np.full(len(names) * len(cpus), np.nan)
        values[cell.index.to_numpy()] = cell.to_numpy()
        node, node_names = pd.factorize(names.get_level_values(0), sort=True)
        start = mine["start"].groupby(run).min()
        yield Stratum(
            str(experiment),
            str(model),
            np.asarray(node_names, dtype=object),
            np.asarray(cpus, dtype=np.int64),
            node.astype(np.int64),
            pd.to_datetime(start.reset_index(drop=True), utc=True),
            values.reshape(len(names), len(cpus)),
            _quantum(cell.to_numpy()),
        )


def _quantum(values: Floats) -> float:
    """The step of values most of which are equal to another one; 0: they are not."""
    distinct = np.unique(np.round(values, 9))
    if distinct.size < 2 or distinct.size > values.size / 2:
        return 0.0
    return float(np.median(np.diff(distinct)))


def _occasions(node: Ints, start: pd.Series[Any]) -> tuple[Ints, bool]:
    """A number a run, ascending in time: the day, or the run where no node has two days."""
    day = start.dt.floor("D")
    days = pd.DataFrame({"node": node, "day": day}).groupby("node")["day"].nunique()
    in_days = bool((days > 1).any())
    key = day if in_days else start
    order = np.lexsort((np.arange(len(node)), key.astype("int64").to_numpy()))
    place = np.empty(len(node), dtype=np.int64)
    place[order] = np.arange(len(node))
    if in_days:
        codes = pd.factorize(day, sort=True)[0]
        place = np.where(codes >= 0, codes, len(node) + place)
    return place, in_days


def _middle(values: Floats) -> Floats:
    """The mean of each row without the quarter at either end: of times in coarse steps, too."""
    ordered = np.sort(values, axis=1)
    count = np.isfinite(values).sum(axis=1)[:, None]
    place = np.arange(values.shape[1])
    inner = (place >= count // 4) & (place < count - count // 4)
    total = np.where(inner, ordered, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / inner.sum(axis=1))


def medians_by(codes: Ints, values: Floats) -> Floats:
    """The median of each column over the rows of each code from 0 on."""
    return pd.DataFrame(values).groupby(codes).median().to_numpy(float)


@dataclass(frozen=True)
class Halves:
    """``first`` and ``second`` half of each node's occasions: ``[node, ...]``; one only: NaN."""

    first: Floats
    second: Floats
    occasions: Ints
    own: Floats  # the standard error of each node's mean, from its occasions

    @property
    def mean(self) -> Floats:
        """Of both halves, or the first one."""
        both = (self.first + self.second) / 2
        return np.asarray(np.where(np.isfinite(self.second), both, self.first))

    @property
    def noise(self) -> Floats:
        """Half of what the halves differ by, which is as uncertain as their mean."""
        return (self.first - self.second) / 2


def halves(one: Stratum, values: Floats) -> Halves:
    """Medians over the runs of an occasion, then over the occasions of each half."""
    keys = pd.MultiIndex.from_arrays([one.node, one.occasion])
    codes, pairs = pd.factorize(keys, sort=True)
    each = medians_by(codes, values.reshape(len(values), -1))
    node = np.asarray(pairs.get_level_values(0), dtype=np.int64)
    count = np.bincount(node, minlength=len(one.node_names))
    place = np.arange(node.size) - np.concatenate([[0], np.cumsum(count)[:-1]])[node]
    later = place >= (count[node] + 1) // 2
    shape = (len(one.node_names), each.shape[1])
    halves = [np.full(shape, np.nan), np.full(shape, np.nan)]
    for half, mine in zip(halves, (~later, later), strict=True):
        if mine.any():
            seen = np.unique(node[mine])
            half[seen] = medians_by(np.searchsorted(seen, node[mine]), each[mine])
    spread = pd.DataFrame(each).groupby(node).var().to_numpy(float)
    own = np.sqrt(spread / np.maximum(count, 1)[:, None])
    squeezed = (*halves, own)
    if values.ndim == 1:
        squeezed = tuple(part[:, 0] for part in squeezed)
    return Halves(squeezed[0], squeezed[1], count, squeezed[2])
