"""The figures: how much longer each piece takes, and all samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from perflib.experiments.bracketed.analyse import tables
from perflib.framework.plots import dots, log_ticks
from perflib.model.run import Run

_LONGER = "o", "C0", "longer than the reference"
_MUTED = "0.7"


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {
        "pieces": lambda: _pieces(made["pieces"]()),
        "samples": lambda: _samples(made["samples"]()),
    }


def _pieces(table: pd.DataFrame) -> Figure:
    others = table[table["name"] != table["against"]]
    figure = Figure(figsize=(8, 2.0 + 0.4 * len(others)))
    axes = figure.subplots()
    place = np.arange(len(others))[::-1]
    axes.axvline(0, color="0.3", lw=0.8)
    dots(axes, place, others, "longer_percent", _LONGER)
    axes.set_yticks(place, others["name"])
    axes.set_ylim(-0.6, max(len(others) - 0.4, 0.6))
    axes.set_xlabel("takes longer by (%), 95 % intervals")
    axes.set_title(f"Pieces compared with {table['against'].iloc[0]}")
    axes.grid(visible=False, axis="y")
    if len(others):
        figure.legend(fontsize="small", loc="outside lower center")
    return figure


def _samples(table: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(8, 4.5))
    axes = figure.subplots()
    other = table[~table["counts"]]
    if len(other):
        axes.plot(
            other["sample"], other["time_us"], ".", ms=3, color=_MUTED, label="left out: not alone"
        )
    for number, (name, mine) in enumerate(table[table["counts"]].groupby("name", sort=False)):
        axes.plot(mine["sample"], mine["time_us"], ".", ms=3, color=f"C{number % 10}", label=name)
    log_ticks(axes.yaxis, 0.9 * table["time_us"].min(), 1.1 * table["time_us"].max())
    axes.set_xlabel("sample, in the order of time")
    axes.set_ylabel("time of a call (µs)")
    axes.set_title("Each sample")
    figure.legend(fontsize="small", ncols=3, markerscale=3, loc="outside lower center")
    return figure
