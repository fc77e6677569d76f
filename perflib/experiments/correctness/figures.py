"""The figure: at most how often each class is wrong on each core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from perflib.experiments.correctness import CLASSES
from perflib.experiments.correctness.analyse import tables
from perflib.experiments.correctness.table import PER
from perflib.framework.plots import panel
from perflib.model.run import Run

_MOST_LABELS = 32


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {"limits": lambda: _limits(made["limits"]())}


def _limits(table: pd.DataFrame) -> Figure:
    """Upper limits in colours; where results were wrong, their share in a frame."""
    names = [one for one in CLASSES if one in set(table["class"])]
    limit = table.assign(limit=-np.log10(table["rate_per_1e9_high"] / PER))
    matrix = limit.pivot_table(index="cpu", columns="class", values="limit")[names]
    bad = table.pivot_table(index="cpu", columns="class", values="bad")[names].fillna(0) > 0
    figure, axes = panel(9, min(2.8 + 0.3 * len(matrix), 12))
    sns.heatmap(
        matrix, ax=axes, cmap="viridis", linewidths=0.5,
        yticklabels=max(1, len(matrix) // _MOST_LABELS),
        cbar_kws={"label": "x: at most one wrong\nresult in 10ˣ (95 %)"},
    )  # fmt: skip
    for row, column in np.argwhere(bad.to_numpy()):
        axes.text(
            column + 0.5, row + 0.5, "✗", color="red", ha="center", va="center",
            fontweight="bold", fontsize="large",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        )  # fmt: skip
    axes.set_xlabel("class of instructions")
    axes.set_ylabel("core (cpu)")
    axes.tick_params(axis="y", rotation=0)
    marked = "; ✗: some were wrong" if bad.to_numpy().any() else ""
    axes.set_title(f"How rare wrong results are at least{marked}")
    return figure
