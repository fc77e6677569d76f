"""The figure of responses: how much longer the job takes, dose by dose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.sensitivity.analyse import tables
from perflib.experiments.sensitivity.table import AMOUNTS
from perflib.framework.plots import dots
from perflib.model.run import Run

_JOB = "o", "C0", "the job, without what the dose does to the control job"
_CONTROL = "s", "0.55", "the control job"
_KNOWN = "^", "C3", "our own job that is bound by the dose"
_AXIS = {
    "nt_write": "others write to memory (GB/s)",
    "write": "others write through the caches (GB/s)",
    "read": "others read memory (GB/s)",
    "occupied": "others keep cache (MiB)",
}
_TITLES = {"traffic": "Memory traffic", "occupied": "Last-level cache"}
_SINGLE = {"small_pages": "4 KiB pages", "alone": "busy cores", "sibling": "busy sibling"}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    table = tables(run)["doses"]()
    if table.empty:
        return {}
    return {"doses": lambda: _doses(table, run.params)}


def _doses(table: pd.DataFrame, params: Mapping[str, Any]) -> Figure:
    """A panel for each dose with levels, and one for the others."""
    threshold = params["threshold_percent"]
    curves = [one for one in AMOUNTS if (table["dose"] == one).any()]
    figure = Figure(figsize=(2.2 + 3.2 * (len(curves) + 1), 4.4))
    panels = figure.subplots(1, len(curves) + 1, sharey=True, squeeze=False)[0]
    for axes, dose in zip(panels, curves, strict=False):
        mine = table[table["dose"] == dose]
        x = mine["amount"].to_numpy(np.float64)
        _points(axes, x, mine, 0.012 * float(x.max()), threshold)
        axes.plot([0, *x], [0, *mine["longer_percent"]], color="C0", lw=0.8)
        axes.set_xlim(0, 1.1 * float(x.max()) or 1.0)
        axes.set_xlabel(_AXIS[params["traffic_kind"] if dose == "traffic" else dose])
        axes.set_title(_TITLES[dose], fontsize="medium")
    single = table[table["dose"].isin(list(_SINGLE))]
    place = np.arange(len(single), dtype=np.float64)
    _points(panels[-1], place, single, 0.08, threshold)
    panels[-1].set_xticks(place, single["dose"].map(_SINGLE))
    panels[-1].set_xlim(-0.6, len(single) - 0.4)
    panels[-1].set_title("The core and its pages", fontsize="medium")
    panels[0].set_ylabel("longer by (%), 95 % intervals")
    figure.suptitle("What is the job bound by? Its slow-down by dose")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize="small", ncols=2, loc="outside lower center")
    return figure


def _points(axes: Axes, x: np.ndarray, mine: pd.DataFrame, apart: float, threshold: float) -> None:
    axes.axhline(0, color="0.3", lw=0.8)
    axes.axhline(
        threshold, color="0.5", ls="--", lw=1, label=f"bound from here on: {threshold:g} %"
    )
    dots(axes, x, mine, "longer_percent", _JOB, horizontal=False)
    dots(axes, x - apart, mine, "control_percent", _CONTROL, horizontal=False)
    dots(axes, x + apart, mine, "known_percent", _KNOWN, horizontal=False)
