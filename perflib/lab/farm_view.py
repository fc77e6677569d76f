"""A farm to look into: zoom to some rows or to a node, and open its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as widgets

from perflib.lab.interface import load
from perflib.lab.markup import escape
from perflib.lab.tables import STYLE, verdicts
from perflib.lab.theme import png
from perflib.model.errors import PerflibError

if TYPE_CHECKING:
    from perflib.lab.farm import FarmView

_WIDE = widgets.Layout(width="40em", max_width="100%")
_IMAGE = widgets.Layout(max_width="100%")
_CHOOSE = "choose a run"


class View(widgets.VBox):
    """What ``farm.view()`` shows. ``experiment``, ``rows``, ``node`` and ``run`` may be set."""

    def __init__(self, farm: FarmView) -> None:
        self.farm = farm
        self.experiment = widgets.Dropdown(options=farm.experiments, description="experiment")
        self.rows = widgets.IntRangeSlider(
            description="rows", min=0, max=1, continuous_update=False, layout=_WIDE
        )
        self.node = widgets.Dropdown(description="node", layout=_WIDE)
        self.run = widgets.Dropdown(description="run", layout=_WIDE)
        self._map = widgets.Image(format="png", layout=_IMAGE)
        self._among = widgets.Image(format="png", layout=_IMAGE)
        self._said = widgets.HTML()
        self._opened = widgets.HTML()
        super().__init__(
            [
                widgets.HTML(f"<style>{STYLE}</style><b>{escape(repr(farm)[1:-1])}</b>"),
                self.experiment,
                self.rows,
                self._map,
                self.node,
                self._among,
                self._said,
                self.run,
                self._opened,
            ]
        )
        self.experiment.observe(lambda _change: self._choose_experiment(), "value")
        self.rows.observe(lambda _change: self._draw_map(), "value")
        self.node.observe(lambda _change: self._choose_node(), "value")
        self.run.observe(lambda _change: self._open(), "value")
        self._choose_experiment()

    def _choose_experiment(self) -> None:
        nodes = self.farm.table("nodes", self.experiment.value)
        most = int(nodes.groupby("model")["node"].size().max())
        self.rows.max = most
        self.rows.value = (0, most)
        self._draw_map()
        names = self.farm.slowest(self.experiment.value)
        self.node.options = names
        self.node.value = names[0]
        self._choose_node()

    def _draw_map(self) -> None:
        figure = self.farm.heatmap(self.experiment.value, rows=self.rows.value)
        self._map.value = png(figure)

    def _choose_node(self) -> None:
        node = self.node.value
        if node is None:
            return
        self._among.value = png(self.farm.node(node, self.experiment.value))
        mine = self.farm.findings.where(node=node)
        self._said.value = verdicts(mine).html() if mine else ""
        self.run.options = [_CHOOSE, *self.farm.runs(node)]
        self.run.value = _CHOOSE

    def _open(self) -> None:
        name = self.run.value
        if name in (None, _CHOOSE):
            self._opened.value = ""
            return
        try:
            opened = load(name)
            lines = [f"pl.load({name!r})", *opened.summary()]
        except PerflibError as error:
            lines = [f"{self.farm.label}{error}"]
        self._opened.value = "<br>".join(map(escape, lines))
