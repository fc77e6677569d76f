"""The figures of the store-load map, each drawn from the table of its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from perflib.experiments.aliasing.alone import SHARED
from perflib.experiments.aliasing.map.analyse import tables
from perflib.experiments.aliasing.map.claims import CONTROL_BYTES
from perflib.framework.plots import MARKS, intervals
from perflib.model.run import Run

_PAGE = 4096
_SHOWN = [0.005, 0.995]  # of the cells' times: a few that something hit must not take the colours
_FAINT = 0.35  # what was measured next to a busy sibling


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {"map": lambda: _maps(made["map"]()), "distance": lambda: _distance(made["distance"]())}


def _title(region: int) -> str:
    words = {0: "the same place", 2048: "2048 B on (control)", 3072: "3072 B on (null)"}
    return words.get(region, f"{region} B on")


def _maps(pairs: pd.DataFrame) -> Figure:
    """Time a pair by the offsets of store and load, one panel a region."""
    regions = sorted(pairs["region_bytes"].unique())
    columns = min(3, len(regions))
    rows = -(-len(regions) // columns)
    figure = Figure(figsize=(3.3 * columns + 1.0, 3.2 * rows + 0.7), layout="compressed")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    low, high = pairs["pair_ns"].quantile(_SHOWN)
    for place, (axes, region) in enumerate(zip(panels, regions, strict=False)):
        mine = pairs[pairs["region_bytes"] == region]
        times = mine.pivot(index="store_bytes", columns="load_bytes", values="pair_ns")
        every = max(1, len(times) // 4)
        sns.heatmap(
            times, cmap="viridis", vmin=low, vmax=high, square=True, cbar=False,
            xticklabels=every, yticklabels=every, rasterized=True, ax=axes,
        )  # fmt: skip
        axes.grid(visible=False)
        axes.tick_params(rotation=0)
        axes.set(title=_title(region), xlabel="", ylabel="")
        if region % _PAGE == 0:
            x = np.arange(len(times.columns)) + 0.5
            y = np.interp(times.columns, times.index, np.arange(len(times)) + 0.5)
            for side in (-0.5, 0.5):
                axes.plot(x, y + side, color="C3", lw=1, ls="--")
        if place % columns == 0:
            axes.set_ylabel("store's offset (B)")
        if place >= len(regions) - columns:
            axes.set_xlabel("load's offset (B)")
            axes.tick_params(labelbottom=True)
    panels[0].invert_yaxis()
    for axes in panels[len(regions) :]:
        axes.set_axis_off()
    if len(panels) > len(regions):
        panels[-1].plot([], [], color="C3", ls="--", label="predicted: low\n12 bits agree")
        panels[-1].legend(loc="center", fontsize="small")
    bar = figure.colorbar(panels[0].collections[0], ax=panels.tolist(), shrink=0.8, extend="both")
    bar.set_label("time per pair (ns)")
    figure.suptitle("A store, then a load: time per pair", x=0.02, ha="left", fontweight="bold")
    return figure


def _distance(pairs: pd.DataFrame) -> Figure:
    """Time a pair against the distance of store and load, one line a region and state."""
    figure = Figure(figsize=(8, 4.2))
    axes = figure.subplots()
    regions = sorted(pairs["region_bytes"].unique())
    for state, (place, region) in itertools.product(pairs["state"].unique(), enumerate(regions)):
        mine = pairs[(pairs["state"] == state) & (pairs["region_bytes"] == region)]
        beside = state == SHARED
        intervals(
            axes, mine["distance_bytes"], mine["pair_ns"], mine["pair_ns_low"],
            mine["pair_ns_high"], fmt=MARKS[place % len(MARKS)], color=f"C{place}", capsize=2,
            ls="--" if region == CONTROL_BYTES else "-", alpha=_FAINT if beside else 1.0,
            label=_title(region) + ", sibling busy" * beside,
        )  # fmt: skip
    axes.axvline(0, color="0.6", lw=0.8, zorder=0)
    # What was rarely seen has long intervals: they may leave the panel.
    axes.set_ylim(0, 1.25 * float(pairs["pair_ns"].max()))
    axes.set_xlabel("load's address minus store's, beyond the region (B)")
    axes.set_ylabel("time per pair (ns)")
    axes.set_title("Only where the low 12 bits agree?")
    axes.legend(fontsize="small", title="95 % intervals", loc="upper left", bbox_to_anchor=(1, 1))
    return figure
