"""The farm that a node is compared with: a plan's runs, the store's, or runs from elsewhere."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflib.fleet import nodes as lists
from perflib.fleet.analysis.strata import LEAST_NODES
from perflib.fleet.analysis.table import attributes_of, farm_table
from perflib.fleet.job import same_host
from perflib.model.errors import UserError, choose
from perflib.stats.decide import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE = "store"  # the word for all saved runs
CLOCK = "clock"  # in place of an experiment: each core's clock over the others', of kv_per_core
_MOST_SHARE = 0.75  # of a model's nodes have what is usual
_ANONYMOUS = re.compile(r"host-\d+")  # as `perflib.store.export` names hosts
_RUNS = """
    SELECT run, experiment, model AS processor, params,
        provenance ->> '$.machine.architecture' AS architecture,
        provenance ->> '$.machine.hostname' AS host
    FROM runs"""
_CLOCKS = """
    SELECT run, CAST(about ->> '$.cpu' AS BIGINT) AS cpu, 1 + effect / 100 AS value FROM findings
    WHERE experiment = 'kv_per_core' AND claim = 'clock' AND effect > -99"""


@dataclass(frozen=True)
class Reference:
    """A farm's levels and nodes (`perflib.fleet.analysis.table.farm_table`), and its runs.

    ``runs``: ``run, experiment, processor, params, architecture, host, node, model``; empty of a
    farm that is given as tables. ``weaker``: why it says less than a farm of one's own.
    """

    name: str
    levels: pd.DataFrame
    nodes: pd.DataFrame
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    plan: Path | None = None
    weaker: tuple[Reason, ...] = ()

    def model_of(self, node: str, machine: Mapping[str, Any], asked: str | None) -> str:
        """The model of a node: the one asked for, the farm's own word, or that of its processor.

        Raises
        ------
        UserError
            The farm has no such model, several or none of this processor, or one of another
            architecture.
        """
        models = sorted(map(str, self.nodes["model"].unique()))
        known = self.nodes.loc[self.nodes["node"] == node, "model"]
        if asked is not None:
            if asked not in models:
                raise UserError(choose("model", asked, models))
            model = asked
        elif len(known):
            return str(known.iloc[0])
        else:
            mine = self.runs[self.runs["processor"] == machine.get("processor")]
            of_processor = sorted(map(str, mine["model"].unique()))
            if len(of_processor) != 1:
                what = f"{len(of_processor)} models" if of_processor else "no node"
                msg = (
                    f"{self.name} has {what} with this processor ({machine.get('processor')}): "
                    f"name its model with --model (all: {', '.join(of_processor or models)})"
                )
                raise UserError(msg)
            model = of_processor[0]
        if self.runs.empty:
            return model
        built = set(self.runs.loc[self.runs["model"] == model, "architecture"].dropna())
        here = machine.get("architecture")
        if built and here and here not in built:
            msg = f"{model} is {' and '.join(sorted(built))}, and this node is {here}"
            raise UserError(msg)
        return model

    def params_of(self, experiment: str, model: str) -> dict[str, Any] | None:
        """The parameters of most of a model's runs; ``None``: there are none."""
        mine = self.runs
        if not mine.empty:
            mine = mine[(mine["experiment"] == experiment) & (mine["model"] == model)]
        if mine.empty:
            return None
        texts = Counter(mine["params"].dropna().map(_without_seed))
        return dict(json.loads(texts.most_common(1)[0][0])) if texts else None

    def unlike(
        self, node: str, model: str, here: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Attributes in which a node differs from most others of its model, the most first.

        Each with ``name``, ``mine``, ``theirs``, and how ``many`` ``of`` those that are known have
        it: three in four or more. ``here``: the machine's record; without it, what the farm has.
        """
        nodes = self.nodes.drop_duplicates("node").set_index("node")
        mine = attributes_of(here or {})
        if here is None and node in nodes.index:
            mine = {str(name): str(value) for name, value in nodes.loc[node].dropna().items()}
        others = nodes[(nodes["model"] == model) & (nodes.index != node)]
        found = []
        for name in sorted(set(mine) & set(others) - {"model"}):
            counts = others[name].dropna().astype(str).value_counts()
            of = int(counts.sum())
            if of < LEAST_NODES or counts.iloc[0] < _MOST_SHARE * of:
                continue
            if mine[name] != (theirs := str(counts.index[0])):
                many = int(counts.iloc[0])
                found.append({"name": name, "mine": mine[name], "theirs": theirs,
                              "many": many, "of": of})  # fmt: skip
        return sorted(found, key=lambda one: -one["many"] / one["of"])

    def this_node(self, host: str) -> str:
        """What the farm calls the node on which this runs."""
        if scheduled := os.environ.get("SLURMD_NODENAME"):
            return scheduled
        if self.plan is not None:
            for one in lists.read(self.plan / "nodes.csv"):
                if same_host(one.hostname, host):
                    return one.name
        return next((one for one in self.nodes["node"] if same_host(str(one), host)), host)


def _without_seed(params: str) -> str:
    return json.dumps({**json.loads(params), "seed": None}, sort_keys=True)


def open_reference(against: Any) -> Reference:
    """Open a plan that was collected, all saved runs (``"store"``), or a folder of exported ones.

    Two tables, levels and nodes, as a simulated farm has them, are taken as they are.

    Raises
    ------
    UserError
        There is nothing, or no level of a core in it.
    """
    if isinstance(against, tuple):
        return Reference("the farm", *against[:2])
    text = str(against)
    plan, folder = _place(text)
    levels, nodes = farm_table(plan, folder)
    if levels.empty:
        msg = f"the runs of {text} have no levels: 'perflib import' of this version finds them"
        raise UserError(msg)
    from perflib.store.query import query

    place = levels.drop_duplicates("run").set_index("run")[["node", "model", "start"]]
    runs = query(_RUNS, folder=folder).join(place, on="run", how="inner")
    clocks = query(_CLOCKS, folder=folder).join(place, on="run", how="inner")
    clocks = clocks.assign(experiment=CLOCK, setting=CLOCK)
    weaker = []
    if folder is not None:
        hidden = runs["host"].dropna().map(lambda host: bool(_ANONYMOUS.fullmatch(host))).all()
        weaker.append(Reason("anonymous" if hidden else "elsewhere"))
    name = "the store" if text == STORE else text
    every = pd.concat([levels, clocks], ignore_index=True)
    return Reference(name, every, nodes, runs, plan, tuple(weaker))


def _place(text: str) -> tuple[Path | None, Path | None]:
    """The folder of a plan, or one of runs; neither: the store."""
    if text == STORE:
        return None, None
    path = Path(text)
    wanted = "give a plan that was collected, 'store', or a folder of exported runs"
    try:
        names = [one.name for one in path.iterdir()]
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}): {wanted}"
        raise UserError(msg) from error
    if "plan.json" in names:
        return path, None
    if not any(name.endswith(".parquet") for name in names):
        msg = f"there are no runs in {path}: {wanted}"
        raise UserError(msg)
    return None, path
