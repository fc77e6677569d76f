"""A profile as a flame graph, zoomable in the notebook and static in a report; or two, compared.

See `perflib.framework.figures` for what widths and colours mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import pandas as pd
import traitlets
from matplotlib.figure import Figure

from perflib.framework import figures as flames
from perflib.framework.figures import INK, Orientation
from perflib.instruments.profile.views import Weight
from perflib.lab.theme import themed

__all__ = ["INK", "FlameGraph", "flame_figure", "flame_graph"]


class FlameGraph(anywidget.AnyWidget):
    """The widget that ``flame_graph`` makes; ``orientation`` may be set at any time."""

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    data = traitlets.Dict().tag(sync=True)
    orientation = traitlets.Enum(["flame", "icicle"], "flame").tag(sync=True)


def flame_graph(
    samples: pd.DataFrame,
    base: pd.DataFrame | None = None,
    *,
    weight: Weight = "samples",
    orientation: Orientation = "flame",
    minimum_percent: float = 0.01,
) -> FlameGraph:
    """A zoomable flame graph for the notebook.

    A click zooms into a frame, a click on a caller or *Reset* goes back; the search highlights
    functions and shows which percentage of the samples is in them or below.

    Parameters
    ----------
    samples
        The table that ``perfscript.read`` makes, or a part of it (``views.select``).
    base
        A second profile to compare with. Widths are still those of ``samples``.
    weight
        ``"samples"`` or ``"period"``.
    orientation
        ``"flame"``: callees above; ``"icicle"``: callees below. The graph has a button for it.
    minimum_percent
        Frames with a smaller share of all samples are left out, and the graph reports how many.

    Raises
    ------
    UserError
        There are no samples, or no periods.

    Examples
    --------
    ``flame_graph(merge_copies(select(profile.samples, thread="kv")))``
    """
    flames.check(orientation)
    data = flames.placed(samples, base, weight, minimum_percent)
    return FlameGraph(data=data, orientation=orientation)


def flame_figure(samples: pd.DataFrame, base: pd.DataFrame | None = None, **options: Any) -> Figure:
    """The same graph as a static figure, for reports; see `perflib.framework.figures`."""
    with themed():
        return flames.flame_figure(samples, base, **options)
