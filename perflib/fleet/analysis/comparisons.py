"""Many machines compared: which nodes, cores, core positions, groups and hours are slower.

Each number is the log of a level over the median of its model at the same experiment and setting,
averaged over the settings: one number a run and core. From there the experiments stay apart, for
what slows one need not slow another. Within a model,

- a **node** is compared with the model's nodes,
- a **core** with the other cores of its node, beyond what its position shows on all nodes,
- a **position** (a cpu number, a socket) with the other positions, over the model's nodes,
- a **group** of nodes (a rack, a BIOS version, any recorded attribute) with the other nodes,
- **hours** of the day with the others, within a rack and beyond the other racks.

What repeats is the evidence. A node's days are two halves, and both must show it; how much the
halves differ says how large and how heavy in the tails the noise is, whatever it is made of. The
units of a position and of a group are nodes, those of hours are days. All claims are one-sided,
about more than a threshold, and judged together (`perflib.stats.discoveries`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.fleet.analysis.effects import (
    LEAST_SCALE,
    POOLED_FREEDOM,
    about_units,
    compare_groups,
    compare_hours,
)
from perflib.fleet.analysis.strata import LEAST_NODES, Halves, Stratum, halves, strata
from perflib.stats.discoveries import centre, discoveries, scale, tail_freedom
from perflib.stats.intervals import medians

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHA = 0.05  # of what is reported, the share that may be false
THRESHOLD_PERCENT = 1.0

_LEAST_CORES = 4  # of a node
_LEAST_CELLS = 12
_COLUMNS = (
    "kind", "experiment", "model", "name", "node", "cpu", "effect", "effect_low", "effect_high",
    "threshold", "asked", "p", "units", "occasions", "separation", "same", "why",
)  # fmt: skip


@dataclass(frozen=True)
class Farm:
    """What comparing a farm gives; all numbers are percent by which something is slower.

    Parameters
    ----------
    effects
        One row a comparison: ``kind`` (node, core, position, group, hours), ``experiment``,
        ``model``, ``name``, ``node``, ``cpu``, ``effect``, ``effect_low``, ``effect_high`` (95 %),
        ``threshold``, ``p`` (of no more than the threshold), ``q`` (the false discovery rate, over
        the farm), ``units`` (nodes, or days, that were compared), ``occasions``, ``separation``
        (of a group: how often one of its nodes is slower than one outside), ``same`` (attributes
        that make the same group), ``why`` (the code of what prevents a verdict, else empty).
    nodes
        ``experiment``, ``model``, ``node``, ``percent``, ``runs``, ``occasions``.
    cores
        ``experiment``, ``model``, ``node``, ``cpu``, ``percent``: against the node's other cores.
    hours
        ``experiment``, ``rack``, ``hour``, ``percent``, ``nodes``: against the node's median.
    """

    effects: pd.DataFrame
    nodes: pd.DataFrame
    cores: pd.DataFrame
    hours: pd.DataFrame


def compare_farm(
    levels: pd.DataFrame, nodes: pd.DataFrame, threshold_percent: float = THRESHOLD_PERCENT
) -> Farm:
    """Compare the nodes of a farm.

    Parameters
    ----------
    levels
        One row a run, core and setting: ``node``, ``model``, ``cpu`` (-1: of no core), ``start``
        (UTC), ``experiment``, ``setting``, ``value`` (positive, larger is slower), ``run``; and,
        where it is known, ``socket``. Values that are no positive number are left out.
    nodes
        One row a node: ``node``, ``model``, ``rack`` and any further attribute.
    threshold_percent
        The least slowdown that matters.

    Returns
    -------
    All comparisons; those that the data cannot decide have a code in ``why``.
    """
    threshold = math.log1p(threshold_percent / 100)
    known = nodes.drop_duplicates("node").set_index("node")
    rows: list[dict[str, Any]] = []
    tables: dict[str, list[pd.DataFrame]] = {"nodes": [], "cores": [], "hours": []}
    parts = list(strata(levels))
    for experiment in dict.fromkeys(one.experiment for one in parts):
        mine = [one for one in parts if one.experiment == experiment]
        found, by_hour = compare_hours(mine, known, threshold)
        rows += [{"experiment": experiment, "model": "", **row} for row in found]
        if len(by_hour):
            tables["hours"].append(by_hour.assign(experiment=experiment))
        for one in mine:
            _compare(one, known, threshold, levels, rows, tables)
    effects = pd.DataFrame(rows, columns=[*_COLUMNS])
    for column in ("effect", "effect_low", "effect_high", "threshold", "p", "separation"):
        effects[column] = effects[column].astype(float)
    for column in ("effect", "effect_low", "effect_high", "threshold"):
        effects[column] = 100 * np.expm1(effects[column].clip(upper=50.0))
    effects["asked"] = threshold_percent
    effects["why"] = effects["why"].fillna("")
    effects["q"] = discoveries(effects["p"].to_numpy(), effects["kind"].to_numpy(object))
    columns = {
        "nodes": ["experiment", "model", "node", "percent", "runs", "occasions"],
        "cores": ["experiment", "model", "node", "cpu", "percent"],
        "hours": ["experiment", "rack", "hour", "percent", "nodes"],
    }
    joined = {
        name: pd.concat(some, ignore_index=True) if some else pd.DataFrame(columns=columns[name])
        for name, some in tables.items()
    }
    return Farm(effects, **joined)


# --- the comparisons -----------------------------------------------------------------------------


def _compare(
    one: Stratum,
    known: pd.DataFrame,
    threshold: float,
    levels: pd.DataFrame,
    rows: list[dict[str, Any]],
    tables: dict[str, list[pd.DataFrame]],
) -> None:
    level, core = halves(one, one.level), halves(one, one.core)
    of = {"experiment": one.experiment, "model": one.model}
    groups, shared = compare_groups(one, known, level, threshold)
    rows += [{**of, **row} for row in groups]
    rows += [{**of, **row} for row in _nodes(one, level, shared, threshold)]
    positions, profile = _positions(one, core, threshold, _sockets(levels, one))
    rows += [{**of, **row} for row in positions]
    rows += [{**of, **row} for row in _cores(one, core, profile, threshold)]
    runs = np.bincount(one.node, minlength=len(one.node_names))
    tables["nodes"].append(
        pd.DataFrame(
            {
                **of,
                "node": one.node_names,
                "percent": 100 * np.expm1(level.mean),
                "runs": runs,
                "occasions": level.occasions,
            }
        )
    )
    if one.cpus.size > 1:
        tables["cores"].append(
            pd.DataFrame(
                {
                    **of,
                    "node": np.repeat(one.node_names, one.cpus.size),
                    "cpu": np.tile(one.cpus, len(one.node_names)),
                    "percent": 100 * np.expm1(core.mean.ravel()),
                }
            ).dropna()
        )


@dataclass(frozen=True)
class _Outliers:
    """Each of many compared with all: logs and p values."""

    effect: Floats
    error: Floats
    p: Floats
    threshold: float
    freedom: float


def _outliers(
    first: Floats, second: Floats, own: Floats, threshold: float, quantum: float
) -> _Outliers:
    """Which of many are beyond the threshold, and beyond the scatter of all.

    Both halves have to be there; were they noise, that would be as improbable as both together.
    """
    mean, noise = (first + second) / 2, (first - second) / 2
    count = int(np.isfinite(mean).sum())
    pooled = scale(noise)
    freedom = tail_freedom(noise)
    if count:
        around = np.abs(mean - np.nanmedian(mean))
        scatter = float(np.nanmedian(around)) * 1.4826
        lasting = math.sqrt(max(0.0, scatter**2 - pooled**2))  # what they differ by, every day
        reach = float(distributions.norm.isf(ALPHA / count))
        threshold = max(threshold, lasting * reach)
        pooled = max(pooled, scatter)
    pooled = max(pooled, quantum / math.sqrt(12), LEAST_SCALE)
    error = np.fmax(pooled, own)
    standard = (np.minimum(first, second) - threshold) / (math.sqrt(2) * error)
    p = distributions.t.sf(standard, freedom) ** 2
    return _Outliers(mean, error, np.where(np.isfinite(mean), p, np.nan), threshold, freedom)


def _moderated(own: Floats, occasions: Ints, noise: Floats) -> Floats:
    """A node's own error, pulled towards the others': few occasions say little of it."""
    pooled = scale(noise)
    freedom = np.maximum(occasions - 1, 0)
    square = POOLED_FREEDOM * pooled**2 + freedom * np.nan_to_num(own) ** 2
    return np.asarray(np.sqrt(square / (POOLED_FREEDOM + freedom)))


def _nodes(
    one: Stratum, level: Halves, shared: Floats, threshold: float
) -> Iterator[dict[str, Any]]:
    """``shared``: what a node's group explains, which is no fault of the node."""
    rest = level.mean - shared
    shared = shared + (np.nanmedian(rest) if np.isfinite(rest).any() else 0.0)
    enough = len(one.node_names) >= LEAST_NODES
    own = _moderated(level.own, level.occasions, level.noise)
    found = _outliers(level.first - shared, level.second - shared, own, threshold, one.quantum)
    reach = float(distributions.t.ppf(0.975, found.freedom))
    for place, name in enumerate(one.node_names):
        twice = bool(np.isfinite(found.effect[place]))
        why = "" if enough and twice else "once" if enough else "few_nodes"
        effect = level.mean[place] - shared[place]
        half = reach * found.error[place] if not why else math.nan
        yield {
            "kind": "node", "name": name, "node": name, "effect": effect,
            "effect_low": effect - half, "effect_high": effect + half, "threshold": found.threshold,
            "p": math.nan if why else found.p[place], "units": len(one.node_names),
            "occasions": int(level.occasions[place]), "why": why,
        }  # fmt: skip


def _positions(
    one: Stratum, core: Halves, threshold: float, sockets: Ints | None
) -> tuple[list[dict[str, Any]], Floats]:
    """The positions' rows, and each cpu's profile: what its position shows on all nodes."""
    profile = np.zeros(one.cpus.size)
    if one.cpus.size < 2:
        return [], profile
    mean = core.mean
    rows = []
    for place, cpu in enumerate(one.cpus):
        found = centre(mean[:, place])
        row = about_units(found, int(np.isfinite(mean[:, place]).sum()), threshold, one.quantum)
        rows.append({"kind": "position", "name": f"cpu{cpu}", "cpu": int(cpu), **row})
        if not row["why"] and len(one.node_names) >= LEAST_NODES:
            profile[place] = found.value
    for socket in [] if sockets is None else np.unique(sockets[sockets >= 0]):
        inside = sockets == socket
        if inside.all() or not inside.any():
            continue
        contrast = medians(mean[:, inside].T) - medians(mean[:, ~inside].T)
        row = about_units(
            centre(contrast), int(np.isfinite(contrast).sum()), threshold, one.quantum
        )
        rows.append({"kind": "position", "name": f"socket{socket}", **row})
    return rows, profile


def _sockets(levels: pd.DataFrame, one: Stratum) -> Ints | None:
    """The socket of each cpu of a model, -1 where it is not known."""
    if "socket" not in levels:
        return None
    mine = levels.loc[levels["model"] == one.model, ["cpu", "socket"]].dropna()
    by_cpu = mine.drop_duplicates().groupby("cpu")["socket"].agg(["first", "size"])
    found = by_cpu.loc[by_cpu["size"] == 1, "first"].reindex(one.cpus).fillna(-1)
    return found.to_numpy().astype(np.int64)


def _cores(
    one: Stratum, core: Halves, profile: Floats, threshold: float
) -> Iterator[dict[str, Any]]:
    if one.cpus.size < 2:
        return
    first, second = core.first - profile, core.second - profile
    noise = (first - second) / 2
    cells = int(np.isfinite(noise).sum())
    own = np.array([scale(of_node) for of_node in noise])[:, None]  # of all its cores
    found = _outliers(first, second, own, threshold, one.quantum)
    reach = float(distributions.t.ppf(0.975, found.freedom))
    seen = core.mean - profile
    present = np.isfinite(seen)
    cores = present.sum(axis=1)
    for place, cpu in zip(*np.nonzero(present), strict=True):
        twice = np.isfinite(noise[place, cpu])
        enough = cells >= _LEAST_CELLS and cores[place] >= _LEAST_CORES
        why = "" if enough and twice else "once" if not twice else "few_cores"
        effect = seen[place, cpu]
        half = reach * found.error[place, 0] if not why else math.nan
        name = one.node_names[place]
        yield {
            "kind": "core", "name": f"{name} cpu{one.cpus[cpu]}", "node": name,
            "cpu": int(one.cpus[cpu]), "effect": effect, "effect_low": effect - half,
            "effect_high": effect + half, "threshold": found.threshold,
            "p": math.nan if why else found.p[place, cpu], "units": int(cores[place]),
            "occasions": int(core.occasions[place]), "why": why,
        }  # fmt: skip
