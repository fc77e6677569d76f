"""The figures of the store-load map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflib.experiments.aliasing.map.analyse import AliasMapTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["by_distance", "maps"]

_PAGE = 4096


def _title(region: int) -> str:
    words = {0: "the same place", 2048: "2048 B on (control)", 3072: "3072 B on (null)"}
    return words.get(region, f"{region} B on")


def maps(table: AliasMapTable) -> Figure:
    """Time a pair by the offsets of store and load, one panel a region."""
    from matplotlib.figure import Figure

    count = len(table.regions)
    columns = min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(3.3 * columns + 1.0, 3.2 * rows + 0.7))
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    half = np.diff(table.stores).min() / 2 if len(table.stores) > 1 else 4
    extent = (
        table.loads[0] - half, table.loads[-1] + half,
        table.stores[0] - half, table.stores[-1] + half,
    )  # fmt: skip
    low, high = float(np.nanmin(table.map_ns)), float(np.nanmax(table.map_ns))
    for place, (axes, region) in enumerate(zip(panels, table.regions, strict=False)):
        image = axes.imshow(
            table.map_ns[place], origin="lower", extent=extent, aspect="equal", vmin=low,
            vmax=high, cmap="viridis", interpolation="nearest",
        )  # fmt: skip
        axes.grid(visible=False)
        axes.set_title(_title(region), fontsize="medium")
        if region % _PAGE == 0:
            for side in (-half, half):
                line = np.array(table.loads)
                axes.plot(line, line - side, color="C3", lw=1, ls="--", clip_on=True)
            axes.set_xlim(extent[:2])
            axes.set_ylim(extent[2:])
        if place % columns == 0:
            axes.set_ylabel("store's offset (B)")
        if place >= count - columns:
            axes.set_xlabel("load's offset (B)")
            axes.tick_params(labelbottom=True)
    for axes in panels[count:]:
        axes.set_axis_off()
    if len(panels) > count:
        panels[-1].plot([], [], color="C3", ls="--", label="predicted: low\n12 bits agree")
        panels[-1].legend(loc="center", fontsize="small")
    figure.colorbar(image, ax=panels.tolist(), label="time per pair (ns)", shrink=0.8)
    figure.suptitle("A store, then a load: time per pair", x=0.02, ha="left", fontweight="bold")
    return figure


def by_distance(table: AliasMapTable, control: int) -> Figure:
    """Time a pair against the distance of store and load, one line a region."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2))
    axes = figure.subplots()
    x = np.array(table.distances())
    for place, region in enumerate(table.regions):
        y = np.array([tuple(one) for one in table.by_distance(region)])
        reach = np.abs(np.nan_to_num([y[:, 0] - y[:, 1], y[:, 2] - y[:, 0]]))
        axes.errorbar(
            x, y[:, 0], yerr=reach, marker="osv^D"[place % 5], ms=4, capsize=2, color=f"C{place}",
            ls="--" if region == control else "-", label=_title(region),
        )  # fmt: skip
    axes.axvline(0, color="0.6", lw=0.8, zorder=0)
    axes.set_ylim(0, None)
    axes.set_xlabel("load's address minus store's, beyond the region (B)")
    axes.set_ylabel("time per pair (ns)")
    axes.set_title("Only where the low 12 bits agree?")
    axes.legend(fontsize="small", title="95 % intervals", loc="upper left", bbox_to_anchor=(1, 1))
    return figure
