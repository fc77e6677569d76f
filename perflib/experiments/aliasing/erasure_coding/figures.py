"""The figures of erasure coding, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.aliasing.alone import ALONE, SHARED
from perflib.experiments.aliasing.erasure_coding.analyse import tables
from perflib.framework.plots import intervals, panel, with_ends
from perflib.model.run import Run

_LAYOUTS = {
    "aligned": "aligned: all begin at a page",
    "staggered": "staggered: no two agree in the low 12 bits",
    "chasing": "chasing: loads follow stores to the same low 12 bits",
    "shifted": "shifted: as staggered, all by half a page (control)",
}
_COLOURS = {"aligned": "C3", "staggered": "C0", "chasing": "C1", "shifted": "0.45"}
_MARKERS = {"aligned": "o", "staggered": "s", "chasing": "^", "shifted": "x"}
_LINEAR_PERCENT = 20.0
_TICKS = (-50, -20, -10, 0, 10, 20, 50, 100, 200, 500, 1000)  # percent
_FAINT = 0.35  # what was measured next to a busy sibling


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    cores = sorted(int(cpu) for cpu in run.samples["cpu"].unique())
    of = f", cpu{cores[0]}" if len(cores) == 1 else f", mean of {len(cores)} cores"
    threshold = run.params["threshold_percent"]
    return {
        "speed": lambda: _speed(made["speed"](), of),
        "layout_cost": lambda: _layout_cost(made["layout_cost"](), of, threshold),
    }


def _speed(speeds: pd.DataFrame, of: str) -> Figure:
    """MB/s of data by implementation, layout and state, the mean of the cores."""
    figure, axes = _points(speeds[speeds["state"] == ALONE], "mb_per_s")
    beside = speeds[speeds["state"] == SHARED]
    if len(beside):
        _add_points(axes, beside, "mb_per_s", alpha=_FAINT)
        axes.plot([], [], "o", color="0.3", alpha=_FAINT, label="the same next to a busy sibling")
        _legend(axes)
    axes.set_ylim(0, None)
    axes.set_ylabel("data encoded (MB/s, 10⁶ B/s)")
    axes.set_title(f"Speed of encoding, one thread{of}")
    return figure


def _layout_cost(costs: pd.DataFrame, of: str, threshold: float) -> Figure:
    """How much longer each layout takes than the staggered one."""
    figure, axes = _points(costs, "cost_percent")
    axes.axhspan(-threshold, threshold, color="0.88", label=f"below {threshold:g} %", zorder=0)
    axes.axhline(0, color="0.3", lw=0.8)
    low, high = axes.get_ylim()
    if max(-low, high) > _LINEAR_PERCENT:
        axes.set_yscale("symlog", linthresh=_LINEAR_PERCENT)
        axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axes.set_ylim(low, high)
    axes.set_ylabel("extra time over staggered blocks (%)")
    axes.set_title(f"What the place of the blocks costs{of}")
    return figure


def _points(values: pd.DataFrame, column: str) -> tuple[Figure, Axes]:
    """A point with its interval for each implementation and layout, side by side."""
    names = list(dict.fromkeys(values["implementation"]))
    figure, axes = panel(max(6.5, 2.5 + 1.1 * len(names)), 5.2)
    axes.set_xticks(range(len(names)), [name.replace("_", "\n", 1) for name in names])
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    _add_points(axes, values, column)
    _legend(axes)
    return figure, axes


def _add_points(axes: Axes, values: pd.DataFrame, column: str, alpha: float = 1.0) -> None:
    names = list(dict.fromkeys(values["implementation"]))
    layouts = list(dict.fromkeys(values["layout"]))
    for number, layout in enumerate(layouts):
        mine = values[values["layout"] == layout].set_index("implementation").reindex(names)
        intervals(
            axes,
            np.arange(len(names)) + 0.16 * (number - (len(layouts) - 1) / 2),
            *with_ends(mine, column),
            fmt=_MARKERS.get(layout, "d"),
            ms=6,
            color=_COLOURS.get(layout, f"C{number + 4}"),
            alpha=alpha,
            label=_LAYOUTS.get(layout, layout) if alpha == 1 else None,
        )


def _legend(axes: Axes) -> None:
    axes.legend(
        fontsize="small", title="95 % intervals", loc="upper center", bbox_to_anchor=(0.5, -0.14)
    )
