"""The figure of pairs: a matrix for each resource, framed where the kernel says that it is one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from perflib.experiments.core_pairs.sharing.analyse import tables
from perflib.model.run import Run

_TITLES = {
    "ports": "Execution ports", "l1": "First-level cache", "l2": "Second-level cache",
    "l3": "Third-level cache", "memory": "Memory bandwidth",
}  # fmt: skip
_LEAST_PERCENT = 50.0  # of the colours: or noise would look like a pattern
_MOST_WRITTEN, _MOST_LABELS, _MOST_ACROSS = 10, 24, 3


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    table = tables(run)["pairs"]()
    return {"pairs": lambda: _matrices(table)} if len(table) else {}


def _matrices(table: pd.DataFrame) -> Figure:
    """A panel for each resource; what is not known is hatched."""
    resources = list(dict.fromkeys(table["resource"]))
    cpus = sorted(set(table["a_cpu"]) | set(table["b_cpu"]))
    side = 3.2 if len(cpus) <= _MOST_WRITTEN else 5.0
    across, down = min(len(resources), _MOST_ACROSS), -(-len(resources) // _MOST_ACROSS)
    figure = Figure(figsize=(side * across + 1.6, side * down + 1.2), layout="constrained")
    most = max(_LEAST_PERCENT, float(table["slower_percent"].max()))
    step = -(-len(cpus) // _MOST_LABELS)
    for place, resource in enumerate(resources):
        axes = figure.add_subplot(down, across, place + 1)
        mine = table[table["resource"] == resource]
        values = np.full(2 * [len(cpus)], np.nan)
        for a, b, slower, kernel in zip(
            mine["a_cpu"], mine["b_cpu"], mine["slower_percent"], mine["kernel"], strict=True
        ):
            x, y = cpus.index(a), cpus.index(b)
            values[x, y] = values[y, x] = slower
            if kernel == "one":
                for corner in ((x, y), (y, x)):
                    frame = Rectangle(corner, 1, 1, fill=False, ec="C3", lw=2, zorder=3)
                    axes.add_patch(frame)
        axes.patch.set(facecolor="0.93", edgecolor="0.7", hatch="////")
        written = np.round(values) + 0.0 if len(cpus) <= _MOST_WRITTEN else False
        last = place == len(resources) - 1
        bar = {"label": "slower while the other is busy (%)"} if last else None
        sns.heatmap(
            pd.DataFrame(values, cpus, cpus), square=True, vmin=0, vmax=most, cmap="viridis",
            annot=written, fmt=".0f", cbar=last, cbar_kws=bar, xticklabels=step, yticklabels=step,
            ax=axes,
        )  # fmt: skip
        axes.grid(visible=False)
        axes.set(xlabel="CPU" if last else "", ylabel="CPU" if place % across == 0 else "")
        axes.set_title(_TITLES.get(resource, resource), fontsize="medium")
    figure.suptitle("Which CPUs feel each other?")
    handles = [
        Patch(facecolor="none", edgecolor="C3", lw=2, label="one, says the kernel"),
        Patch(facecolor="0.93", edgecolor="0.7", hatch="////", label="not known"),
    ]
    figure.legend(handles=handles, fontsize="small", ncols=2, loc="outside lower left")
    return figure
