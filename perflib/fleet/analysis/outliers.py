"""What stands out in a farm: claims as data, and findings made of the farm's comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from perflib.fleet.analysis.comparisons import ALPHA, Farm
from perflib.model.claim import Claim, read_claims
from perflib.model.finding import Finding
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import Interval

_MOST_OPEN: Final = 20  # cores of one model that are named though nothing is certain
_NEAR: Final = 0.05  # p of those

_KINDS = ("position", "group", "hours", "node", "core")  # the widest finding first
_CLAIMS = read_claims(__file__)
CLAIMS: Mapping[str, Claim] = {kind: _CLAIMS[f"{kind}_slower"] for kind in _KINDS}


def findings(farm: Farm, label: str = "") -> list[Finding]:
    """The findings of a farm, all of kind ``anomaly``.

    Parameters
    ----------
    farm
        What `perflib.fleet.analysis.comparisons.compare_farm` gave.
    label
        What every sentence begins with, as ``"simulated: "``.

    Returns
    -------
    One for each position, group (what separates slow nodes best comes first), hours and node; of
    cores those that stand out, and of the others
    the few that come nearest: a farm has fifty thousand.
    """
    effects = farm.effects
    claims = int(effects["p"].notna().sum())
    siblings = _siblings(farm)
    found = []
    for kind, claim in CLAIMS.items():
        mine = effects[effects["kind"] == kind]
        if kind == "core":
            mine = _near(mine)
        if kind == "group":
            mine = mine.sort_values("separation", ascending=False, kind="stable")
        rows: list[dict[Any, Any]] = mine.to_dict("records")
        found += [_finding(claim, row, claims, siblings, label) for row in rows]
    return found


def _near(cores: pd.DataFrame) -> pd.DataFrame:
    found = cores[cores["q"] < ALPHA]
    others = cores[(cores["p"] < _NEAR) & ~(cores["q"] < ALPHA)].sort_values("p", kind="stable")
    return pd.concat([found, others.groupby(["experiment", "model"]).head(_MOST_OPEN)])


def _siblings(farm: Farm) -> dict[tuple[str, str, str], str]:
    """Of a position that stands out the one half of the cpus away, where it stands out too."""
    effects = farm.effects
    cpus = farm.cores.groupby(["experiment", "model"])["cpu"].max().to_dict()
    shown = effects[(effects["kind"] == "position") & (effects["q"] < ALPHA)].dropna(subset="cpu")
    found = {}
    for (experiment, model), mine in shown.groupby(["experiment", "model"]):
        half, odd = divmod(int(cpus[experiment, model]) + 1, 2)
        there = set(mine["cpu"].astype(int))
        for cpu in there if not odd else ():
            other = (cpu + half) % (2 * half)
            if other in there:
                found[str(experiment), str(model), f"cpu{cpu}"] = f"cpu{other}"
    return found


def _finding(
    claim: Claim,
    row: Mapping[str, Any],
    claims: int,
    siblings: Mapping[tuple[str, str, str], str],
    label: str,
) -> Finding:
    about: dict[str, Any] = {key: row[key] for key in ("experiment", "model", "name")}
    if isinstance(row["node"], str):
        about["node"] = row["node"]
    if row["cpu"] == row["cpu"]:
        about["cpu"] = int(row["cpu"])
    numbers = {"claims": claims, "p": row["p"], "q": row["q"]}
    prevented = Reason(row["why"], {"units": row["units"]}) if row["why"] else None
    witness = Witness(
        bool(row["q"] < ALPHA), Reason("not_discovered", numbers), Reason("discovered", numbers)
    )
    sibling = siblings.get((row["experiment"], row["model"], row["name"]))
    return claim.decided(
        Interval(row["effect"], row["effect_low"], row["effect_high"]),
        row["threshold"],
        about=about,
        facts={"label": label},
        evidence={key: row[key] for key in ("p", "q", "units", "occasions", "separation")},
        prevented=prevented,
        to_support=[witness],
        remarks=list(_remarks(row, sibling)),
    )


def _remarks(row: Mapping[str, Any], sibling: str | None) -> Iterator[Reason]:
    if row["kind"] == "position":
        yield Reason("all_nodes", {"units": row["units"]})
        if sibling:
            yield Reason("sibling", {"sibling": sibling})
    if row["kind"] == "group" and not row["why"]:
        yield Reason("separates", {"separation": row["separation"]})
        if row["same"]:
            yield Reason("same", {"same": row["same"]})
        yield Reason("association")
    if row["kind"] in ("node", "core") and row["threshold"] > row["asked"] * (1 + 1e-9):
        yield Reason("wider", {"threshold": row["threshold"]})


def overview(farm: Farm) -> pd.DataFrame:
    """One row a kind of comparison, experiment and model: what was compared, and what came of it.

    ``compared`` (with a p value), ``slower`` (supported), ``cannot_tell`` (the data do not allow a
    verdict), ``largest_percent``.
    """
    effects = farm.effects
    slower = (effects["q"] < ALPHA) & (effects["effect_low"] > effects["threshold"])
    table = effects.assign(slower=slower, cannot_tell=effects["why"] != "")
    found = table.groupby(["kind", "experiment", "model"], as_index=False).agg(
        compared=("p", "count"),
        slower=("slower", "sum"),
        cannot_tell=("cannot_tell", "sum"),
        largest_percent=("effect", "max"),
    )
    order = {kind: place for place, kind in enumerate(CLAIMS)}
    return found.sort_values("kind", key=lambda kinds: kinds.map(order), kind="stable")
