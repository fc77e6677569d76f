"""The figures of simulated misses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from perflib.experiments.simulate.analyse import tables
from perflib.framework.plots import log_ticks

if TYPE_CHECKING:
    from perflib.model.run import Run

__all__ = ["plots"]

_FUNCTIONS = 12


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {
        "misses": lambda: _misses(made["misses"]()),
        "functions": lambda: _functions(made["functions"](), made["misses"]()),
    }


def _misses(misses: pd.DataFrame) -> Figure:
    """Misses a thousand instructions, a bar a geometry; rare ones show on a logarithmic axis."""
    figure = Figure(figsize=(8, 1.6 + 0.32 * len(misses)))
    axes = figure.subplots()
    axes.set_title("Simulated misses a thousand instructions of the program")
    shown = misses[misses["per_1000"] > 0]
    if shown.empty:
        axes.text(0.5, 0.5, "no miss was simulated", transform=axes.transAxes, ha="center")
        return figure
    geometries = list(dict.fromkeys(misses["geometry"]))
    counters = list(dict.fromkeys(misses["counter"]))
    sns.stripplot(
        shown,
        x="per_1000",
        y="counter",
        hue="geometry",
        order=counters,
        hue_order=geometries,
        dodge=len(geometries) > 1,
        jitter=False,
        size=8,
        palette="colorblind",
        ax=axes,
    )
    axes.grid(axis="y", linestyle=":")
    log_ticks(axes.xaxis, shown["per_1000"].min() / 1.5, shown["per_1000"].max() * 1.5)
    axes.set(xlabel="misses a thousand instructions", ylabel="")
    if (inside := axes.get_legend()) is not None:
        inside.remove()
    figure.legend(title="caches and TLBs of", fontsize="small", loc="outside lower center", ncols=2)
    return figure


def _functions(functions: pd.DataFrame, misses: pd.DataFrame) -> Figure:
    """Each function's share of each counter, for the first geometry: a map of shares."""
    first = misses["geometry"].iloc[0] if len(misses) else ""
    mine = functions[functions["geometry"] == first]
    shares = mine.pivot_table(
        index="symbol", columns="counter", values="share_percent", aggfunc="sum", fill_value=0.0
    )
    order = shares.max(axis=1).sort_values(ascending=False).index[:_FUNCTIONS]
    columns = [name for name in misses["counter"].unique() if name in shares]
    figure = Figure(figsize=(9.5, 2.2 + 0.34 * max(1, len(order))))
    axes = figure.subplots()
    axes.set_title(f"Where the simulated misses are: geometry of {first}")
    if shares.empty:
        axes.text(0.5, 0.5, "no miss was simulated", transform=axes.transAxes, ha="center")
        return figure
    cells = shares.loc[order, columns]
    sns.heatmap(
        cells,
        annot=np.where(cells >= 1, cells.round().astype(int).astype(str), ""),
        fmt="",
        vmin=0,
        vmax=100,
        cmap="Blues",
        cbar_kws={"label": "share of the counter, percent"},
        ax=axes,
    )
    axes.set(xlabel="", ylabel="")
    axes.tick_params(axis="x", rotation=30)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("right")
    return figure
