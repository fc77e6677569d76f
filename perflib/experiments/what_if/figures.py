"""The figures of gains: against the speed-up, and compared with what a profile suggests."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.what_if.analyse import tables
from perflib.framework.plots import dots
from perflib.model.run import Run

_COLUMNS = 3
_MUTED = "0.55"
_GAIN = "o", "C0", "predicted (delays)"
_REAL = "s", "C3", "really made cheaper"  # the truth is known of our own job alone
_KINDS = {"function": "function", "lock": "lock", "lock_taken_in": "lock"}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = {name: make() for name, make in tables(run).items()}
    if made["gains"].empty:
        return {}
    return {
        "gains": lambda: _gains(made["gains"]),
        "targets": lambda: _targets(made["targets"]),
    }


def _gains(table: pd.DataFrame) -> Figure:
    """A panel a target: gain against speed-up."""
    targets = list(table.groupby(["kind", "target"], sort=False))
    columns = min(_COLUMNS, len(targets))
    rows = -(-len(targets) // columns)
    figure = Figure(figsize=(1.2 + 2.9 * columns, 1.6 + 2.5 * rows))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, ((kind, name), mine) in zip(panels.ravel(), targets, strict=False):
        _panel(axes, mine)
        axes.set_title(f"{name} ({_KINDS[str(kind)]})", fontsize="medium")
    for axes in panels.ravel()[len(targets) :]:
        axes.set_visible(False)
    low, high = _limits(table)
    panels[0, 0].set_ylim(low, high)
    panels[0, 0].set_xlim(0, 105)
    panels[0, 0].set_xticks([0, 25, 50, 75, 100])
    for axes in panels.ravel()[len(targets) - columns : len(targets)]:  # the last of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("the target is faster by (%)")  # a figure's label is below the legend
    figure.supylabel("the job takes less time by (%)", fontsize="medium")
    figure.suptitle("What if it were faster? 95 % intervals")
    drawn = {
        label: handle
        for axes in panels.ravel()
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        drawn.values(), drawn.keys(), fontsize="small", ncols=3, loc="outside lower center"
    )
    return figure


def _panel(axes: Axes, mine: pd.DataFrame) -> None:
    x = mine["speedup_percent"].to_numpy(np.float64)
    axes.axhline(0, color="0.3", lw=0.8)
    slope = float((mine["profile_percent"] / mine["speedup_percent"]).mean())
    axes.plot([0, 100], [0, 100 * slope], color=_MUTED, ls="--", label="share of CPU time")
    dots(axes, x - 1.2, mine, "gain_percent", _GAIN, horizontal=False)
    dots(axes, x + 1.2, mine, "real_percent", _REAL, horizontal=False)


def _targets(table: pd.DataFrame) -> Figure:
    """A row a target: three answers to what it gains."""
    figure = Figure(figsize=(8, 2.0 + 0.5 * len(table)))
    axes = figure.subplots()
    place = np.arange(len(table))[::-1]
    axes.axvline(0, color="0.3", lw=0.8)
    axes.barh(
        place, table["profile_percent"].fillna(0.0), color=_MUTED, alpha=0.45, height=0.66,
        label="by its share of CPU time",
    )  # fmt: skip
    dots(axes, place + 0.13, table, "gain_percent", _GAIN)
    dots(axes, place - 0.13, table, "real_percent", _REAL)
    kinds = table["kind"].map(_KINDS)
    named = zip(table["target"], kinds, table["speedup_percent"], strict=True)
    axes.set_yticks(place, [f"{name} ({kind}), {percent:g} %" for name, kind, percent in named])
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlim(*_limits(table))
    axes.set_xlabel("the job takes less time by (%), 95 % intervals")
    axes.set_title("What each target would gain, if it were faster by so much")
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


def _limits(table: pd.DataFrame) -> tuple[float, float]:
    """By the points: the interval of a few rounds may be many times as long."""
    columns = ["gain_percent", "real_percent", "profile_percent"]
    values = table[columns].to_numpy(np.float64).ravel()
    values = values[np.isfinite(values)]
    low, high = float(min(values, default=0.0)), float(max(values, default=0.0))
    width = max(high, 5.0) - min(low, 0.0)
    low, high = min(low, 0.0) - 0.15 * width, max(high, 5.0) + 0.15 * width
    return (low, high) if math.isfinite(high - low) else (-5.0, 100.0)
