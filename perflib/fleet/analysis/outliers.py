"""What stands out in a farm: claims as data, and findings made of the farm's comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from perflib.fleet.analysis.comparisons import ALPHA, Farm
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.sentences import capital
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import Interval

_MOST_OPEN: Final = 20  # cores of one model that are named though nothing is certain
_NEAR: Final = 0.05  # p of those

_REASONS: Mapping[str, str] = {
    "discovered": "Of all that is reported like this, at most one in twenty is false, over the "
    "{claims} comparisons of this farm (p = {p:.2g}, false discovery rate {q:.2g}).",
    "not_discovered": "By itself it would be supported, but it does not survive among the "
    "{claims} comparisons of this farm (p = {p:.2g}, false discovery rate {q:.2g}): measure again.",
    "wider": "The threshold is {threshold:.2g} %, for so much the others differ without a fault.",
    "once": "It was measured on one occasion only: a second day excludes interference.",
    "few_nodes": "With {units} nodes of this model no one can say which is the odd one: it takes "
    "five.",
    "few_cores": "It takes four cores or more, and twelve of all nodes of the model.",
    "few_units": "Too few nodes for an interval ({units}): it takes four, of a group three and "
    "three without.",
    "few_days": "It takes four days with these hours and four without ({units} now).",
    "same": "The same nodes share {same:list} as well: nothing here distinguishes these.",
    "association": "They have it in common; it need not be the cause, for whatever else "
    "they share would look the same.",
    "separates": "A node with it is slower than one without in {separation:.0%} of the pairs.",
    "sibling": "{sibling} shows it too, half of the cpu numbers away: often two threads of one "
    "physical core.",
    "all_nodes": "Measured on {units} nodes.",
}


def _claim(name: str, subject: str, what: str, quantity: str, **more: str) -> Claim:
    """``what`` begins a sentence that continues with *is slower*."""
    first, others = capital(what), capital(more["others"])
    return Claim(
        name=name,
        kind="anomaly",
        subject=subject,
        quantity=quantity,
        exact=f"{{label}}{what} is more than {{threshold:.3g}} % slower than {more['than']} in "
        "{experiment}",
        plain={
            "supported": f"{{label}}{first} is slower than {more['than']} in {{experiment}}: "
            "{estimate}",
            "refuted": f"{{label}}{first} is not slower than {more['than']} in {{experiment}}: "
            "{estimate}",
            "inconclusive": f"{{label}}Whether {what} is slower than {more['than']} in "
            "{experiment} is not decided: {estimate}",
        },
        together={
            "refuted": f"{{label}}{others} as fast as the others ({{count}} comparisons, "
            "widest interval {widest})",
            "inconclusive": f"{{label}}Whether any of {{count}} {more['many']} is slower stays "
            "open",
        },
        reasons=_REASONS,
    )


CLAIMS: Mapping[str, Claim] = {
    "position": _claim(
        "position_slower",
        "{name} of every {model} ({experiment})",
        "{name} of every node of {model}",
        "slowdown of a core's position compared with the node's other cores, over the nodes",
        than="the other cores",
        others="positions are",
        many="positions",
    ),
    "group": _claim(
        "group_slower",
        "{name} of {model} ({experiment})",
        "a node of {model} with {name}",
        "slowdown of the nodes with an attribute compared with the other nodes of the model",
        than="one without",
        others="groups of nodes with an attribute are",
        many="groups of nodes",
    ),
    "hours": _claim(
        "hours_slower",
        "{name} h ({experiment})",
        "{name} h UTC",
        "slowdown of a rack at these hours, beyond what the other racks show then",
        than="the other hours",
        others="hours of the day are, within racks,",
        many="hours of racks",
    ),
    "node": _claim(
        "node_slower",
        "{name} ({experiment})",
        "{name}",
        "slowdown compared with the median of the nodes of the model",
        than="the other nodes of {model}",
        others="nodes are",
        many="nodes",
    ),
    "core": _claim(
        "core_slower",
        "{name} ({experiment})",
        "{name}",
        "slowdown of a core of one node, beyond what its position shows on all nodes",
        than="the other cores there",
        others="cores are",
        many="cores",
    ),
}  # the widest finding first: what explains many comes before the single ones


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
    others = cores[(cores["p"] < _NEAR) & ~(cores["q"] < ALPHA)].sort_values("p")
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
