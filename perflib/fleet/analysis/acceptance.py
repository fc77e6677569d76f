"""One node compared with the nodes of its model: what one more healthy node would show.

A level of a node is the mean over settings and cores of the log of each level over the model's
median, as `perflib.fleet.analysis.strata` makes it; a core's is that against the node's other
cores, beyond what its position shows on all nodes. Both have a prediction interval for one new
node, measured once on one occasion. Its variance is put together of nested means, none of which
can be negative (Satterthwaite 1946, doi:10.2307/3002019, has its degrees of freedom):

    between nodes + (1 - 1/days) between a node's days + (1 - 1/runs) between a day's runs

and, where most nodes were measured on the same days, what these days did to all of them. Heavy
tails of the noise count as few degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.fleet.analysis.effects import LEAST_SCALE, POOLED_FREEDOM
from perflib.fleet.analysis.strata import LEAST_NODES, Stratum, strata
from perflib.stats.discoveries import centre, scale, tail_freedom
from perflib.stats.intervals import against_others, medians

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHA = 0.01  # of one test of a healthy node, both sides of the interval together
_NEW = ""  # the node that is judged: no farm has one of this name
_MANY_FREEDOM = 20.0  # from here on a scatter is that of most values, and outliers do not count
_ROBUST_PART = 0.37  # of the values, as many count for a scatter that is taken from a median
_LEAST_TAIL, _FEW_TAIL = 30, 5.0  # of fewer values no tail is seen: it may be heavy
_OF_MEDIAN = math.pi / 2  # a median's variance over a mean's
_TAIL_PART, _LEAST_VALUES = 0.3, 10  # of a tail: its part of all values; how many it needs
_MOST_SHAPE = 0.5  # of a tail that has a variance
_COLUMNS = ("experiment", "kind", "cpu", "effect", "half", "nodes", "days", "freedom", "why")


class _Part(NamedTuple):
    """A part of a variance, its degrees of freedom, and those of the weight of its tails."""

    square: float
    freedom: float
    tail: float = math.inf

    @property
    def both(self) -> float:
        """The degrees of freedom of an interval."""
        return min(self.freedom, self.tail)


def compare_node(levels: pd.DataFrame, new: pd.DataFrame, alpha: float = ALPHA) -> pd.DataFrame:
    """Compare a node with those of its model.

    Parameters
    ----------
    levels
        Of all other nodes of the model, as `perflib.fleet.analysis.table.farm_table` has them.
    new
        Of the node, the same columns without ``node`` and ``model``; one run of each experiment.
    alpha
        How often one test finds a healthy node outside, on either side.

    Returns
    -------
    One row a comparison: ``experiment``, ``kind`` (node, core), ``cpu`` (-1: all), ``effect`` (log;
    larger is slower) and ``half``, the half-width of what one more healthy node would show, around
    0; ``nodes`` and ``days`` that say so; ``freedom``; ``why``: the code of what prevents a
    comparison (``not_measured``, ``few_nodes``, ``not_common``), else empty.
    """
    rows: list[dict[str, Any]] = []
    for experiment, mine in new.groupby("experiment", sort=False):
        of_farm = levels[levels["experiment"] == experiment]
        common = of_farm.merge(mine[["cpu", "setting"]].drop_duplicates(), on=["cpu", "setting"])
        counts = common.groupby(["cpu", "setting"])["node"].nunique()
        enough = pd.MultiIndex.from_tuples(
            counts.index[counts >= LEAST_NODES], names=counts.index.names
        )
        kept = [
            part[pd.MultiIndex.from_frame(part[["cpu", "setting"]]).isin(enough)]
            for part in (common, mine)
        ]
        nodes = int(of_farm["node"].nunique())
        one = {"experiment": experiment, "kind": "node", "cpu": -1, "nodes": nodes}
        if kept[1].empty:
            why = "not_measured" if not nodes else "few_nodes"
            rows.append({**one, "why": "not_common" if nodes >= LEAST_NODES else why})
            continue
        judged = kept[1].assign(node=_NEW, model="", run="new")
        both = pd.concat([kept[0].assign(model=""), judged], ignore_index=True)
        rows += [{**one, **row} for stratum in strata(both) for row in _compared(stratum, alpha)]
    found = pd.DataFrame(rows, columns=[*_COLUMNS])
    found["why"] = found["why"].astype(object).where(found["why"].notna(), "")
    return found.astype({"effect": float, "half": float, "freedom": float})


def _compared(one: Stratum, alpha: float) -> Iterator[dict[str, Any]]:
    """The node as a whole, then each of its cores."""
    mine = np.flatnonzero(one.node_names[one.node] == _NEW)
    others = np.flatnonzero(one.node_names[one.node] != _NEW)
    days = int(one.start.iloc[others].dt.floor("D").nunique())
    about = {"nodes": len(np.unique(one.node[others])), "days": days}
    level, new = one.level[others], float(np.nanmean(one.level[mine]))
    by_node, parts = _parts(level[:, None], one.node[others], one.occasion[others])
    parts.append(_of_days(one, others))
    middle = centre(by_node[:, 0])
    spread = _joined(parts, one.quantum)
    half = _reach(alpha, spread.both) * math.sqrt(spread.square + middle.error**2)
    effect = new - middle.value
    yield {**about, "kind": "node", "effect": effect, "half": half, "freedom": spread.both}
    yield from ({**about, **row} for row in _cores(one, mine, others, alpha))


def _cores(one: Stratum, mine: Ints, others: Ints, alpha: float) -> Iterator[dict[str, Any]]:
    columns = np.flatnonzero(one.cpus >= 0)  # others are of no core, or of all together
    if columns.size < 2:
        return
    core = against_others(one.values[:, columns])
    by_node, parts = _parts(core[others], one.node[others], one.occasion[others])
    profile = medians(by_node)
    noise = core[others] - profile
    spread = _joined(parts, one.quantum)
    own = np.nanvar(by_node, axis=0, ddof=1)
    nodes = np.isfinite(by_node).sum(axis=0)
    # A core whose few nodes happen to agree scatters no less than the others.
    moderated = (POOLED_FREEDOM * spread.square + (nodes - 1) * own) / (POOLED_FREEDOM + nodes - 1)
    square = np.maximum(spread.square, moderated) * (1 + _OF_MEDIAN / nodes)
    most = max(_largest(noise, alpha), one.quantum, LEAST_SCALE)
    half = np.minimum(_reach(alpha / columns.size, spread.both) * np.sqrt(square), most)
    effect = np.nanmean(core[mine] - profile, axis=0)
    for place, column in enumerate(columns):
        if np.isfinite(effect[place]) and np.isfinite(half[place]):
            yield {
                "kind": "core", "cpu": int(one.cpus[column]), "effect": float(effect[place]),
                "half": float(half[place]), "freedom": spread.both,
            }  # fmt: skip


def _largest(noise: Floats, alpha: float) -> float:
    """What any one core of a new node may show, from how far cores of the farm were off.

    Beyond the largest of them a generalised Pareto distribution is followed, by its weighted
    moments (Hosking and Wallis 1987, doi:10.1080/00401706.1987.10488243). It needs no model of what
    is in between; its tail is at least as heavy as that of few values.
    """
    falling = np.sort(noise[np.isfinite(noise)])[::-1]
    count = int(_TAIL_PART * len(falling))
    if count < _LEAST_VALUES:
        return math.inf
    beyond = falling[:count] - falling[count]
    mean, weighted = float(beyond.mean()), float(np.mean(beyond * np.arange(count) / (count - 1)))
    if not mean > 0:
        return float(falling[0])
    shape = min(max(2 - mean / (mean - 2 * weighted), 1 / _FEW_TAIL), _MOST_SHAPE)
    further = count / len(falling) / (alpha / 2 / noise.shape[1])
    return float(falling[count] + mean * (1 - shape) * (further**shape - 1) / shape)


def _parts(values: Floats, node: Ints, occasion: Ints) -> tuple[Floats, list[_Part]]:
    """The mean of each node, and what nested means scatter by; values are ``[run, column]``."""
    runs = pd.DataFrame(values)
    keys = pd.MultiIndex.from_arrays([node, occasion])
    by_day = runs.groupby([node, occasion]).mean()
    of_day = by_day.index.get_level_values(0)
    by_node = by_day.groupby(of_day).mean()
    codes, known = pd.factorize(keys)
    days = by_day.reindex(known).to_numpy()[codes]
    nodes = by_node.reindex(of_day).to_numpy()
    per_day = runs.groupby([node, occasion]).size().to_numpy()
    per_node = by_day.groupby(of_day).size().to_numpy()
    middle = np.array([centre(column).value for column in by_node.to_numpy().T])
    layers = (
        (by_node.to_numpy() - middle, 1, 1.0),
        (by_day.to_numpy() - nodes, len(by_node), 1 - np.mean(1 / per_node)),
        (values - days, len(by_day), 1 - np.mean(1 / per_day)),
    )
    return by_node.to_numpy(), [_part(*one) for one in layers]


def _part(rest: Floats, means: int, weight: float) -> _Part:
    """A weighted square of what is left once so many means a column are taken off."""
    known = np.isfinite(rest)
    freedom = float(np.maximum(known.sum(axis=0) - means, 0).sum())
    if not freedom or not weight:
        return _Part(0.0, math.inf)
    wider = math.sqrt(known.sum() / freedom)
    tail = tail_freedom(rest) if known.sum() >= _LEAST_TAIL else _FEW_TAIL
    if freedom < _MANY_FREEDOM:
        return _Part(weight * float(np.nanmean((wider * rest) ** 2)), freedom, tail)
    return _Part(weight * scale(wider * rest) ** 2, _ROBUST_PART * freedom, tail)


def _of_days(one: Stratum, runs: Ints) -> _Part:
    """What days did to all nodes: a new day does something else."""
    shift = pd.Series(one.measured[runs] - one.level[runs])
    day = one.start.iloc[runs].dt.floor("D").reset_index(drop=True)
    by_day = shift.groupby(day).median().to_numpy()
    if len(by_day) < 2 or not by_day.any():
        return _Part(0.0, math.inf)
    return _Part(float(by_day.var(ddof=1)) * (1 + 1 / len(by_day)), len(by_day) - 1.0)


def _joined(parts: Sequence[_Part], quantum: float) -> _Part:
    """The sum of parts, with the degrees of freedom of Satterthwaite."""
    square = sum(part.square for part in parts)
    below = sum(part.square**2 / part.freedom for part in parts)
    freedom = square**2 / below if below > 0 else math.inf
    tail = min(part.tail for part in parts)
    return _Part(max(square, quantum**2 / 12, LEAST_SCALE**2), freedom, tail)


def _reach(alpha: float, freedom: float) -> float:
    """Of an interval, in standard deviations."""
    return float(distributions.t.isf(alpha / 2, freedom))
