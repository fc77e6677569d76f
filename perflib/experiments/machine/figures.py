"""The figure of the machine's noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from perflib.experiments.machine.analyse import tables

if TYPE_CHECKING:
    from perflib.model.run import Run

__all__ = ["plots"]


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn."""
    return {"gaps": lambda: _gaps(tables(run)["gaps"]())}


def _gaps(gaps: pd.DataFrame) -> Figure:
    """Gaps per second by length, one line a core."""
    figure = Figure(figsize=(8, 4.5))
    axes = figure.subplots()
    for cpu in sorted(gaps["cpu"].unique()):
        mine = gaps[gaps["cpu"] == cpu]
        first = mine.iloc[0]
        label = f"cpu{cpu} ({first['where']}): {first['stolen_percent']:.2f} % stolen"
        axes.step(
            mine["gap_low_us"], mine["gaps_per_s"], where="post", marker="o", ms=3, label=label
        )
    axes.set(xscale="log", yscale="log", xlabel="length of the gap (µs)")
    axes.set_ylabel("gaps per second, in bins that double")
    axes.set_title("Gaps in the clock of a spinning core")
    axes.legend(fontsize="small")
    return figure
