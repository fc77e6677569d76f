"""The figures of simulated misses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from perflib.experiments.simulate.analyse import OF_LINES, tables
from perflib.framework.plots import instead, log_ticks, panel
from perflib.model.escape import shortened
from perflib.model.run import Run

_FUNCTIONS = 12
_NAME = 48  # letters


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    drawn = {}
    if set(run.samples["part"]) != {"lines"}:
        drawn["misses"] = lambda: _misses(_no_lines(made["misses"]()))
        drawn["functions"] = lambda: _functions(made["functions"](), _no_lines(made["misses"]()))
    if "lines" in made:
        drawn["lines"] = lambda: _lines(made["lines"]())
    return drawn


def _no_lines(misses: pd.DataFrame) -> pd.DataFrame:
    return misses[~misses["counter"].isin(OF_LINES)]


def _lines(lines: pd.DataFrame) -> Figure:
    """How often the lines of each variable move, and how much of it is false sharing."""
    table = lines.drop_duplicates("symbol").head(_FUNCTIONS)
    figure, axes = panel(8.5, 1.8 + 0.34 * max(1, len(table)))
    axes.set_title("Cache lines that threads share", pad=24)
    if table.empty:
        instead(axes, "threads share no line")
        return figure
    rate = table["transfers_per_1000"].to_numpy(np.float64)
    false = table["false_percent"].to_numpy(np.float64)
    names = [shortened(str(name), _NAME) for name in table["symbol"]]
    places = range(len(table))
    axes.barh(places, rate, color="C0", label="of all transfers")
    axes.barh(places, rate * false / 100, color="C1", label="of these, false sharing")
    for place, one in zip(places, rate, strict=True):
        axes.annotate(f"{one:.3g}", (one, place), (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("transfers a thousand instructions, if threads take turns")
    axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    return figure


def _misses(misses: pd.DataFrame) -> Figure:
    """Misses a thousand instructions, a bar a geometry; rare ones show on a logarithmic axis."""
    figure, axes = panel(8, 1.6 + 0.32 * len(misses))
    axes.set_title("Simulated misses a thousand instructions of the program")
    shown = misses[misses["per_1000"] > 0]
    if shown.empty:
        instead(axes, "no miss was simulated")
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
    order = shares.max(axis=1).sort_values(ascending=False, kind="stable").index[:_FUNCTIONS]
    columns = [name for name in misses["counter"].unique() if name in shares]
    figure, axes = panel(9.5, 2.2 + 0.34 * max(1, len(order)))
    axes.set_title(f"Where the simulated misses are: geometry of {first}")
    if shares.empty:
        instead(axes, "no miss was simulated")
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
