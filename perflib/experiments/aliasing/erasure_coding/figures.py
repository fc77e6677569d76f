"""The figures of erasure coding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perflib.experiments.aliasing.erasure_coding.table import ErasureTable
from perflib.stats.interval import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["layout_cost", "speed"]

_LAYOUTS = {
    "aligned": "aligned: all begin at a page",
    "staggered": "staggered: no two agree in the low 12 bits",
    "chasing": "chasing: loads follow stores to the same low 12 bits",
    "moved": "moved: as staggered, all moved together (null test)",
}
_COLOURS = {"aligned": "C3", "staggered": "C0", "chasing": "C1", "moved": "0.45"}
_MARKERS = {"aligned": "o", "staggered": "s", "chasing": "^", "moved": "x"}
_LINEAR_PERCENT = 20.0


def speed(table: ErasureTable) -> Figure:
    """MB/s of data by implementation and layout, the mean of the cores."""
    figure, axes = _empty(table)
    _points(axes, table, table.layouts, table.speed)
    axes.set_ylim(0, None)
    axes.set_ylabel("data encoded (MB/s, 10⁶ B/s)")
    axes.set_title(f"Speed of encoding, one thread{_of_cores(table)}")
    return figure


def layout_cost(table: ErasureTable, threshold: float) -> Figure:
    """How much longer each layout takes than the staggered one."""
    figure, axes = _empty(table)
    axes.axhspan(-threshold, threshold, color="0.88", label=f"below {threshold:g} %", zorder=0)
    axes.axhline(0, color="0.3", lw=0.8)
    _points(axes, table, table.compared, table.effect)
    low, high = axes.get_ylim()
    if max(-low, high) > _LINEAR_PERCENT:
        axes.set_yscale("symlog", linthresh=_LINEAR_PERCENT)
        axes.yaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    axes.set_ylabel("extra time over staggered blocks (%)")
    axes.set_title(f"What the place of the blocks costs{_of_cores(table)}")
    return figure


def _of_cores(table: ErasureTable) -> str:
    count = len(table.cores)
    return f", cpu{table.cores[0]}" if count == 1 else f", mean of {count} cores"


def _empty(table: ErasureTable) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.5, 2.5 + 1.1 * len(table.implementations)), 5.2))
    axes = figure.subplots()
    axes.set_xticks(
        range(len(table.implementations)),
        [name.replace("_", "\n", 1) for name in table.implementations],
    )
    axes.set_xlim(-0.6, len(table.implementations) - 0.4)
    axes.grid(visible=False, axis="x")
    return figure, axes


def _points(
    axes: Axes,
    table: ErasureTable,
    layouts: Sequence[str],
    value: Callable[[str, str], Interval],
) -> None:
    """A point with its interval for each implementation and layout, side by side."""
    for number, layout in enumerate(layouts):
        found = np.array([value(name, layout) for name in table.implementations])
        # From a single block of time there is no interval, and none is drawn.
        reach = np.array([found[:, 0] - found[:, 1], found[:, 2] - found[:, 0]])
        axes.errorbar(
            np.arange(len(found)) + 0.16 * (number - (len(layouts) - 1) / 2), found[:, 0],
            yerr=np.abs(reach), fmt=_MARKERS.get(layout, "d"), ms=6, capsize=3,
            color=_COLOURS.get(layout, f"C{number + 4}"), label=_LAYOUTS.get(layout, layout),
        )  # fmt: skip
    axes.legend(
        fontsize="small", title="95 % intervals", loc="upper center", bbox_to_anchor=(0.5, -0.14)
    )
