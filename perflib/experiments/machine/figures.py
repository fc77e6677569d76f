"""The figure of the machine's noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from perflib.experiments.machine.analyse import tables
from perflib.framework.plots import core_style, instead, log_ticks, panel, slowest
from perflib.model.run import Run


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn."""
    return {"gaps": lambda: _gaps(tables(run)["gaps"]())}


def _gaps(gaps: pd.DataFrame) -> Figure:
    """Gaps per second by length; the cores of which most time is stolen in colour."""
    figure, axes = panel(8, 4.8)
    axes.set_title("Gaps in the clock of a spinning core")
    if gaps.empty:
        instead(axes, "no gap was seen")
        return figure
    shortest, longest = gaps["gap_low_us"].min(), gaps["gap_low_us"].max()
    edges = shortest * 2.0 ** np.arange(round(np.log2(longest / shortest)) + 2)
    columns = {"x": "inside_us", "weights": "gaps_per_s", "bins": list(edges), "ax": axes}
    inside = gaps.assign(inside_us=1.5 * gaps["gap_low_us"])  # of a bin that is an octave wide
    stolen = gaps.groupby("cpu")["stolen_percent"].first()
    coloured = slowest(stolen)
    for cpu in [*stolen.index.difference(coloured), *coloured]:
        mine = inside[inside["cpu"] == cpu]
        style = {"color": "0.8", "linewidth": 0.8}
        if cpu in coloured:
            label = f"cpu{cpu} ({mine['where'].iloc[0]}): {stolen[cpu]:.2f} % stolen"
            style = {"color": core_style(cpu)[0], "label": label}
        sns.histplot(mine, **columns, **style, element="step", fill=False)
    log_ticks(axes.xaxis, edges[0], edges[-1])
    log_ticks(axes.yaxis, gaps["gaps_per_s"].min() / 1.5, gaps["gaps_per_s"].max() * 1.5)
    axes.set(xlabel="length of the gap (µs)", ylabel="gaps per second, in bins that double")
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    return figure
