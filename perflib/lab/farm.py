"""A farm in a notebook: what stands out, what it has in common, and figures of it."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflib.fleet.analysis import correct, outliers
from perflib.fleet.analysis.comparisons import ALPHA, THRESHOLD_PERCENT, Farm, compare_farm
from perflib.fleet.analysis.simulated import SIMULATED, SimulatedFarm, simulated_farm
from perflib.fleet.analysis.table import farm_table
from perflib.lab.interface import Findings, Sentences
from perflib.lab.notebook import given_names
from perflib.model.errors import UserError, choose
from perflib.model.extras import installed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perflib.lab.farm_view import View
    from perflib.lab.tables import Table
    from perflib.model.finding import Finding

__all__ = ["FarmView", "farm", "farm_question", "simulated_farm"]

_ASKED = ("nodes", "cores", "days", "seed", "plan", "threshold_percent", "recorded")  # notebook's

_LEAST = {"nodes": 40, "cores": 10, "days": 1, "seed": 0}  # with fewer its figures show nothing
_LEVELS = {"node", "model", "cpu", "start", "experiment", "setting", "value", "run"}
_NODES = {"node", "model"}
_ORDER = {kind: place for place, kind in enumerate(outliers.CLAIMS)}


def farm(
    source: SimulatedFarm | tuple[pd.DataFrame, pd.DataFrame] | str | Path | None = None,
    *,
    threshold_percent: float = THRESHOLD_PERCENT,
    wrong: Sequence[Finding] = (),
) -> FarmView:
    """Compare the machines of a farm.

    Parameters
    ----------
    source
        The folder of a plan that was collected; ``None`` or an empty text: all saved runs. Or a
        simulated farm, or two tables, ``levels`` and ``nodes``
        (`perflib.fleet.analysis.comparisons`).
    threshold_percent
        The least slowdown that matters.
    wrong
        With two tables: `perflib.fleet.analysis.correct.all_findings`.

    Raises
    ------
    UserError
        There are no runs, the plan was not collected, or a table lacks a column.
    """
    if threshold_percent <= 0:
        msg = f"threshold_percent: {threshold_percent:g} is no slowdown that matters; 1 is usual"
        raise UserError(msg)
    if source is None or isinstance(source, str | Path):
        plan = Path(source) if source else None
        (levels, nodes), wrong = farm_table(plan), correct.all_findings(plan)
    else:
        levels, nodes = source[:2]
    for name, table, wanted in (("levels", levels, _LEVELS), ("nodes", nodes, _NODES)):
        missing = sorted(wanted - set(table.columns))
        if missing:
            where = "perflib.fleet.analysis.comparisons"
            msg = f"the table of {name} lacks {', '.join(missing)}: see {where}"
            raise UserError(msg)
    return FarmView(levels, nodes, threshold_percent, wrong)


def farm_question(namespace: MutableMapping[str, Any]) -> dict[str, Any]:
    """Validate the parameters cell of the farm's notebook; call it with ``globals()`` right after.

    Raises
    ------
    UserError
        A name is no parameter (the nearest one is given), or a number is too small.
    """
    given_names(namespace, _ASKED)
    asked = {name: namespace[name] for name in _ASKED if name in namespace}
    for name, least in _LEAST.items():
        value = asked.get(name, least)
        if not isinstance(value, int) or value < least:
            msg = f"parameter {name!r}: {value!r}: a whole number from {least} on"
            raise UserError(msg)
    return asked


@dataclass(frozen=True)
class FarmView:
    """A farm that is compared when it is first asked for.

    ``levels`` and ``nodes`` are the tables that were compared. If any level is simulated, every
    sentence and figure says so.
    """

    levels: pd.DataFrame
    nodes: pd.DataFrame
    threshold_percent: float = THRESHOLD_PERCENT
    wrong: Sequence[Finding] = ()

    def __repr__(self) -> str:
        nodes, runs = self.levels["node"].nunique(), self.levels["run"].nunique()
        return f"<{self.label}{nodes} nodes, {runs} runs of {', '.join(self.experiments)}>"

    @cached_property
    def label(self) -> str:
        """``simulated: `` before every sentence, or nothing."""
        return f"{SIMULATED}: " if (self.levels["setting"] == SIMULATED).any() else ""

    @cached_property
    def compared(self) -> Farm:
        """All comparisons, as tables: see `perflib.fleet.analysis.comparisons.Farm`."""
        return compare_farm(self.levels, self.nodes, self.threshold_percent)

    @cached_property
    def experiments(self) -> list[str]:
        """What was measured."""
        return sorted(self.levels["experiment"].astype(str).unique())

    @cached_property
    def findings(self) -> Findings:
        """Wrong results, then what stands out, and what does not; those are corrected together."""
        return Findings([*self.wrong, *outliers.findings(self.compared, self.label)])

    @cached_property
    def found(self) -> Findings:
        """What stands out."""
        return Findings(one for one in self.findings if one.verdict == "supported")

    def summary(self) -> Sentences:
        """What is so, in a few plain sentences."""
        return self.findings.summary()

    def overview(self) -> Table:
        """What was compared, and what came of it."""
        from perflib.lab.tables import table

        words = {"cannot_tell": "cannot tell", "largest_percent": "largest, %"}
        found = outliers.overview(self.compared).round({"largest_percent": 2})
        return table(found.rename(columns=words))

    def in_common(self, most: int = 12) -> Table:
        """Attributes by how well they separate slow nodes from fast ones: an association."""
        from perflib.lab.tables import table

        effects = self.compared.effects
        mine = effects[(effects["kind"] == "group") & (effects["why"] == "")]
        mine = mine.sort_values("separation", ascending=False, kind="stable").head(most)
        names = zip(mine["name"], mine["same"], strict=True)
        return table(
            pd.DataFrame(
                {
                    "attribute": [", ".join([name, *same]) for name, same in names],
                    "model": mine["model"].to_numpy(),
                    "experiment": mine["experiment"].to_numpy(),
                    "nodes": mine["units"].to_numpy(),
                    "slower by, %": mine["effect"].round(2).to_numpy(),
                    "slower by, %, low": mine["effect_low"].round(2).to_numpy(),
                    "slower by, %, high": mine["effect_high"].round(2).to_numpy(),
                    "slower in, % of pairs": (100 * mine["separation"]).round(0).to_numpy(),
                    "false discovery rate": mine["q"].map(lambda q: float(f"{q:.1g}")).to_numpy(),
                }
            )
        )

    def correctness(self) -> Table:
        """How rare wrong results are, by model and class of instructions, over all nodes."""
        from perflib.lab.tables import table

        rows = [row for one in self.wrong for row in one.evidence.get("by_class", [])]
        names = {"most": "at most 1 in", "bad": "nodes that erred", "where": "wrong on"}
        shown = pd.DataFrame([{**row, "where": ", ".join(row["where"])} for row in rows])
        return table(shown.drop(columns="rate", errors="ignore").rename(columns=names))

    def slowest(self, experiment: str | None = None) -> list[str]:
        """The nodes, the slowest first."""
        nodes = self.table("nodes", experiment)
        return list(nodes.sort_values("percent", ascending=False, kind="stable")["node"])

    def table(self, name: str, experiment: str | None = None) -> pd.DataFrame:
        """``nodes``, ``cores``, ``hours`` or ``effects`` of an experiment, the first by default.

        Raises
        ------
        UserError
            There is no such table, or nothing of that experiment.
        """
        tables = vars(self.compared)
        if name not in tables:
            raise UserError(choose("table", name, tables))
        if not self.experiments:
            msg = "the farm has no levels: nothing was measured"
            raise UserError(msg)
        experiment = experiment or self.experiments[0]
        if experiment not in self.experiments:
            raise UserError(choose("experiment", experiment, self.experiments))
        found: pd.DataFrame = tables[name]
        return found[found["experiment"] == experiment]

    # --- figures ---------------------------------------------------------------------------------

    def heatmap(
        self, experiment: str | None = None, *, rows: tuple[int, int] | None = None
    ) -> Figure:
        """Nodes by cores, the slowest nodes on top; ``rows``: only these ranks of each model."""
        with installed():
            from perflib.lab.farm_figures import heatmap_figure

        nodes = self.table("nodes", experiment)
        mine = self._found(experiment)
        shown = mine[mine["kind"] == "position"].dropna(subset="cpu")
        return heatmap_figure(
            self.table("cores", experiment),
            nodes,
            self._title(experiment, "nodes by cores"),
            marked=list(mine["node"].dropna()),
            positions=[(str(model), int(cpu)) for model, cpu in shown[["model", "cpu"]].to_numpy()],
            rows=rows,
        )

    def node(self, node: str, experiment: str | None = None) -> Figure:
        """One node among the nodes of its model.

        Raises
        ------
        UserError
            There is no such node; the nearest name is given.
        """
        with installed():
            from perflib.lab.farm_figures import node_figure

        nodes = self.table("nodes", experiment)
        if node not in set(nodes["node"]):
            raise UserError(choose("node", node, nodes["node"]))
        title = self._title(experiment, f"{node} among the nodes of its model")
        return node_figure(self.table("cores", experiment), nodes, node, title)

    def hours(self, experiment: str | None = None) -> Figure:
        """Racks by the hour of the day.

        Raises
        ------
        UserError
            No rack is known.
        """
        with installed():
            from perflib.lab.farm_figures import hours_figure

        hours = self.table("hours", experiment)
        if hours.empty:
            msg = "no rack is known: a column rack in nodes.csv says it"
            raise UserError(msg)
        return hours_figure(hours, self._title(experiment, "racks by the hour of the day"))

    def view(self) -> View:
        """The figures with a choice of node and rows, and the runs of a node to open."""
        with installed():
            from perflib.lab.farm_view import View

        return View(self)

    def _found(self, experiment: str | None) -> pd.DataFrame:
        mine = self.table("effects", experiment)
        mine = mine[(mine["q"] < ALPHA) & (mine["effect_low"] > mine["threshold"])]
        return mine.sort_values("kind", key=lambda kinds: kinds.map(_ORDER), kind="stable")

    def _title(self, experiment: str | None, what: str) -> str:
        return f"{self.label}{experiment or self.experiments[0]}, {what}"

    def runs(self, node: str) -> Sequence[str]:
        """The runs of a node, the last first."""
        mine = self.levels[self.levels["node"] == node].drop_duplicates("run")
        newest = mine.sort_values("start", ascending=False, kind="stable")
        return newest["run"].map(str).to_list()
