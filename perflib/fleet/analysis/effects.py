"""What slow nodes of a farm have in common: a rack, a version, hours of the day."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.fleet.analysis.strata import LEAST_NODES, Halves, Stratum, halves
from perflib.stats.discoveries import Centre, centre, difference, scale, tail_freedom
from perflib.stats.groups import NodeGroup, groups_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = ("00–06", "06–12", "12–18", "18–24")  # hours UTC
LEAST_SCALE = 1e-5  # of any noise, in logs
POOLED_FREEDOM = 4.0  # what the pooled noise counts for, next to a node's

_ALPHA = 0.01  # of explaining what nodes share before they are compared
_LEAST_UNITS = 4  # nodes of a position
LEAST_GROUP = 3  # nodes of a group, and outside it
_LEAST_DAYS = 4  # of hours, and outside them


def about_units(found: Centre, units: int, threshold: float, quantum: float) -> dict[str, Any]:
    """Effect, interval and p value of a centre over nodes or days."""
    enough = units >= _LEAST_UNITS and math.isfinite(found.error)
    error = max(found.error, quantum / math.sqrt(12 * max(units, 1)), LEAST_SCALE)
    half = float(distributions.t.ppf(0.975, found.freedom)) * error if enough else math.nan
    p = float(distributions.t.sf((found.value - threshold) / error, found.freedom))
    return {
        "effect": found.value, "effect_low": found.value - half, "effect_high": found.value + half,
        "threshold": threshold, "p": p if enough else math.nan, "units": units,
        "why": "" if enough else "few_units",
    }  # fmt: skip


def compare_groups(
    one: Stratum, known: pd.DataFrame, level: Halves, threshold: float
) -> tuple[list[dict[str, Any]], Floats]:
    """Rows of racks and attribute values; and what the groups that stand out explain of a node."""
    attributes = known.reindex(one.node_names)
    groups = groups_of(attributes, LEAST_GROUP)
    racks = attributes.get("rack")
    between = _rack_scatter(racks, level.mean)
    shared = np.zeros(len(one.node_names))
    rows = []
    for group in groups:
        row = _group(group, racks, level, threshold, between, one.quantum)
        rows.append(row)
        explains = row["p"] * len(groups) < _ALPHA and row["effect_low"] > threshold
        if explains:
            mine = group.inside
            shared[mine] = np.fmax(shared[mine], row["effect"])
    return rows, shared


def _rack_scatter(racks: pd.Series[Any] | None, mean: Floats) -> float:
    """By how much whole racks differ, in most of them; 0 where there are too few to know."""
    if racks is None:
        return 0.0
    by_rack = pd.Series(mean, index=racks.index).groupby(racks).median()
    if len(by_rack) < LEAST_NODES:
        return 0.0
    return 1.4826 * float((by_rack - by_rack.median()).abs().median())


def _group(
    group: NodeGroup,
    racks: pd.Series[Any] | None,
    level: Halves,
    threshold: float,
    between: float,
    quantum: float,
) -> dict[str, Any]:
    mean = level.mean
    inside, outside = group.inside & np.isfinite(mean), group.outside & np.isfinite(mean)
    units = _units(group, racks)
    least = between if group.name.startswith("rack ") else 0.0

    def compared(values: Floats) -> Centre:
        first, second = (_by_unit(values, units, mine) for mine in (inside, outside))
        found = difference(centre(first), centre(second))
        error = max(found.error, least, quantum / math.sqrt(12 * min(len(first), len(second))))
        return Centre(found.value, max(error, LEAST_SCALE), found.freedom)

    whole = compared(mean)
    both = [compared(half) for half in (level.first, level.second)]
    tested = [whole, *(half for half in both if math.isfinite(half.error))]
    finite = math.isfinite(whole.error) and whole.freedom > 0
    p = max(float(distributions.t.sf((one.value - threshold) / one.error, one.freedom))
            for one in tested) if finite else math.nan  # fmt: skip
    half = float(distributions.t.ppf(0.975, whole.freedom)) * whole.error if finite else math.nan
    return {
        "kind": "group", "name": group.name, "effect": whole.value,
        "effect_low": whole.value - half, "effect_high": whole.value + half,
        "threshold": threshold, "p": p, "units": int(inside.sum()),
        "separation": _separation(mean[inside], mean[outside]), "same": group.same,
        "why": "" if finite else "few_units",
    }  # fmt: skip


def _units(group: NodeGroup, racks: pd.Series[Any] | None) -> Ints | None:
    """The rack of each node, where the attribute follows the racks, and several racks have it.

    Then a rack's nodes are no independent witnesses of the attribute. ``None``: nodes are.
    """
    if racks is None or racks.isna().any():
        return None
    codes = pd.factorize(racks)[0].astype(np.int64)
    inside, outside = set(codes[group.inside]), set(codes[group.outside])
    if inside & outside or min(len(inside), len(outside)) < LEAST_GROUP:
        return None
    return codes


def _by_unit(values: Floats, units: Ints | None, mine: NDArray[np.bool_]) -> Floats:
    if units is None:
        return values[mine]
    return np.asarray(pd.Series(values[mine]).groupby(units[mine]).median(), dtype=float)


def _separation(inside: Floats, outside: Floats) -> float:
    """How often one inside is slower than one outside: 0.5 says nothing, 1 separates all."""
    if not inside.size or not outside.size:
        return math.nan
    ranks = distributions.rankdata(np.concatenate([inside, outside]))
    above = ranks[: inside.size].sum() - inside.size * (inside.size + 1) / 2
    return float(above / (inside.size * outside.size))


# --- hours of the day ----------------------------------------------------------------------------


def compare_hours(
    parts: Sequence[Stratum], known: pd.DataFrame, threshold: float
) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """Within racks: six hours of the day compared with the others, beyond the other racks.

    Rows, and the table ``rack, hour, percent, nodes``, of all models of one experiment. What warm
    hours explain is taken out of the levels, lest a node be named for when it was measured.
    """
    tables = [] if "rack" not in known else [_beside_own(one, known) for one in parts]
    runs = pd.concat(tables) if tables else pd.DataFrame()
    timed = runs.dropna() if len(runs) else runs
    if timed.empty:
        return [], pd.DataFrame()
    by_hour = timed.groupby(["rack", "hour"], as_index=False).agg(
        y=("y", "median"), nodes=("node", "nunique")
    )
    by_hour["percent"] = 100 * np.expm1(by_hour.pop("y"))
    quantum = max(one.quantum for one in parts)
    rows: list[dict[str, Any]] = []
    for place in range(len(BINS)):
        rows += _hours_of_racks(_beside_other_hours(timed, place), place, threshold, quantum)
    warm = {
        row["name"]: row["effect"]
        for row in rows
        if not row["why"] and row["effect_low"] > threshold and row["p"] * len(rows) < _ALPHA
    }
    for one, table in zip(parts, tables, strict=True):
        hours = table["bin"].map(dict(enumerate(BINS)))
        for head in ("all racks", "rack " + table["rack"].astype(str)):
            one.level -= (head + ", " + hours).map(warm).fillna(0.0).to_numpy(float)
    return rows, by_hour


def _beside_own(one: Stratum, known: pd.DataFrame) -> pd.DataFrame:
    """One row a run: its rack, day and hours, and its level against its node's."""
    rack = known["rack"].reindex(one.node_names).to_numpy(object)[one.node]
    hour = one.start.dt.hour
    columns = {
        "rack": rack,
        "day": one.start.dt.floor("D"),
        "hour": hour,
        "bin": hour // 6,
        "node": one.node_names[one.node],
        "level": one.level,
        "y": one.level - halves(one, one.level).mean[one.node],
    }
    return pd.DataFrame(columns)


def _beside_other_hours(runs: pd.DataFrame, place: int) -> pd.DataFrame:
    """With ``y``: each run's level against its node's at other hours; without nodes that have none.

    A node that was measured only then says nothing of the hours.
    """
    others = runs[runs["bin"] != place].groupby("node")["level"].median()
    return runs.assign(y=runs["level"] - runs["node"].map(others)).dropna(subset="y")


def _hours_of_racks(
    runs: pd.DataFrame, place: int, threshold: float, quantum: float
) -> Iterator[dict[str, Any]]:
    if runs.empty:
        return
    hall = _blocks(runs, ["day", "bin"])
    yield from _hours_of("all racks", hall, place, *_block_noise(hall, ["bin"]), threshold, quantum)
    blocks = _blocks(runs, ["rack", "day", "bin"])
    if blocks["rack"].nunique() < LEAST_GROUP:
        return
    of_racks = blocks.groupby(["rack", "bin"])["y"].median()
    blocks["y"] -= blocks["bin"].map(of_racks.groupby("bin").median())
    noise = _block_noise(blocks, ["rack", "bin"])
    for name, mine in blocks.groupby("rack"):
        yield from _hours_of(f"rack {name}", mine, place, *noise, threshold, quantum)


def _block_noise(blocks: pd.DataFrame, keys: list[str]) -> tuple[float, float]:
    """How much days differ at the same hours: the scale, and the weight of its tails."""
    ordered = blocks.sort_values([*keys, "day"])
    between = ordered.groupby(keys)["y"].diff().to_numpy(float) / math.sqrt(2)
    return scale(between), tail_freedom(between)


def _blocks(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return runs.groupby(keys)["y"].median().reset_index()


def _hours_of(
    name: str,
    blocks: pd.DataFrame,
    place: int,
    noise: float,
    freedom: float,
    threshold: float,
    quantum: float,
) -> Iterator[dict[str, Any]]:
    """Both halves of the days have to show it, as of a node: one hot afternoon is no finding."""
    blocks = blocks.sort_values("day", kind="stable")
    bins, y = blocks["bin"].to_numpy(), blocks["y"].to_numpy(float)
    inside, outside = y[bins == place], y[bins != place]
    units = min(inside.size, outside.size)
    if not units:
        return
    reference = centre(outside)
    found = difference(centre(inside), reference)
    row = {
        "kind": "hours", "name": f"{name}, {BINS[place]}", "units": units, "threshold": threshold,
        "effect": found.value,
    }  # fmt: skip
    if units < _LEAST_DAYS:
        yield {**row, "why": "few_days"}
        return
    own = found.error / math.sqrt(1 / inside.size + 1 / outside.size)
    each = max(_pulled(own, units, noise), quantum / math.sqrt(12), LEAST_SCALE)
    middle = (inside.size + 1) // 2
    both = [float(np.median(half)) for half in (inside[:middle], inside[middle:])]
    of_half = each * math.sqrt(2 / inside.size + 1 / outside.size)
    p = float(distributions.t.sf((min(both) - reference.value - threshold) / of_half, freedom)) ** 2
    error = each * math.sqrt(1 / inside.size + 1 / outside.size)
    reach = float(distributions.t.ppf(0.975, freedom)) * error
    low, high = found.value - reach, found.value + reach
    yield {**row, "effect_low": low, "effect_high": high, "p": p, "why": ""}


def _pulled(own: float, units: int, pooled: float) -> float:
    """One error, pulled towards the pooled one: few units say little of it."""
    square = POOLED_FREEDOM * pooled**2 + (units - 1) * own**2
    return math.sqrt(square / (POOLED_FREEDOM + units - 1))
