"""The figures of ``allocators``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.allocators.measure import AGAIN, NEW
from perflib.experiments.aliasing.allocators.table import AllocatorTable
from perflib.stats.interval import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["addresses", "cost", "time"]

_KIB, _MIB = 1 << 10, 1 << 20
_TITLES = {NEW: "new pairs: nothing was freed before", AGAIN: "pairs after others were freed"}
_MOST_SHOWN = 2.5  # times the median: an interval may leave the panel
_MOSTLY = 50.0
_STRAIGHT = 10.0  # percent: beyond, the axis is logarithmic
_DARK = 55.0  # percent from which on a cell's text is white


def size_text(size: int) -> str:
    """A size with its unit: ``64 B``, ``5 KiB``, ``4.5 MiB``.

    >>> size_text(5120)
    '5 KiB'
    """
    for unit, name in ((_MIB, "MiB"), (_KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def addresses(table: AllocatorTable) -> Figure:
    """Allocator by size: how many of the pairs share their low 12 bits."""
    from matplotlib.figure import Figure

    states = [state for state in _TITLES if (table.pairs["state"] == state).any()]
    rows, columns = len(table.allocators), len(table.sizes)
    figure = Figure(figsize=(0.72 * columns + 2.6, len(states) * (0.5 * rows + 0.75) + 0.9))
    panels = figure.subplots(len(states), 1, squeeze=False, sharex=True)[:, 0]
    for axes, state in zip(panels, states, strict=True):
        share = np.full((rows, columns), np.nan)
        for i, allocator in enumerate(table.allocators):
            for j, size in enumerate(table.sizes):
                found = table.share(allocator, state, size, size)
                if found is None:
                    continue
                share[i, j] = found.percent.effect
                text = f"{share[i, j]:.0f}"
                if found.near > found.equal:
                    text += f"\n+{100 * (found.near - found.equal) / found.pairs:.0f}"
                colour = "white" if share[i, j] > _DARK else "black"
                axes.text(j, i, text, ha="center", va="center", color=colour, fontsize="small")
        image = axes.imshow(share, cmap="Reds", vmin=0, vmax=100, aspect="auto")
        axes.grid(visible=False)
        axes.set_yticks(range(rows), table.allocators)
        axes.set_title(_TITLES[state], fontsize="medium")
    panels[-1].set_xticks(
        range(columns), [size_text(size) for size in table.sizes], rotation=45, ha="right"
    )
    panels[-1].set_xlabel("size of each buffer (+: further pairs, the second up to 127 B above)")
    figure.colorbar(image, ax=panels.tolist(), label="pairs with equal low 12 bits (%)")
    figure.suptitle(
        "Pairs of equal buffers that alias", x=0.02, ha="left", fontweight="bold"
    )  # fmt: skip
    return figure


def cost(table: AllocatorTable) -> Figure:
    """What the distance costs, and what else the allocator's buffer does, with intervals."""
    from matplotlib.figure import Figure

    names = [
        f"{allocator}, {function}, {size_text(size)}" for allocator, function, size in table.cells
    ]
    figure = Figure(figsize=(8.2, 0.27 * len(names) + 1.9))
    axes = figure.subplots()
    costs = list(table.costs.values())
    near = np.array([one.aliasing > _MOSTLY for one in costs])
    y = np.arange(len(costs))
    _bars(axes, [one.distance for one in costs], y - 0.14, "o", "C0", "the distance")
    _bars(axes, [one.other for one in costs], y + 0.14, "s", "C1", "all else of that buffer")
    centre = np.array([one.distance.effect for one in costs])
    axes.plot(
        centre[near], y[near] - 0.14, "o", ms=5, color="C0", ls="none", zorder=5,
        label="the distance, predicted to alias",
    )  # fmt: skip
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_yticks(y, names, fontsize="small")
    axes.set_ylim(len(names) - 0.4, -0.6)
    ends = [end for one in costs for part in (one.distance, one.other) for end in part]
    reach = 1.15 * float(np.max(np.abs([end for end in ends if np.isfinite(end)] + [1.0])))
    label = "longer (%)"
    if reach > 1.5 * _STRAIGHT:
        axes.set_xscale("symlog", linthresh=_STRAIGHT)
        axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
        label += f", straight up to {_STRAIGHT:g} and logarithmic beyond"
    axes.set_xlim(max(-reach, -100.0), min(reach, 1000.0))
    axes.set_xlabel(label)
    axes.set_title("What the place of malloc's second buffer costs")
    figure.legend(
        loc="outside lower center", ncols=3, fontsize="small", title="95 % intervals",
        title_fontsize="small",
    )  # fmt: skip
    return figure


def _bars(
    axes: Axes,
    intervals: list[Interval],
    y: NDArray[np.floating[Any]],
    marker: str,
    colour: str,
    label: str,
) -> None:
    x = np.array([one.effect for one in intervals])
    ends = np.array([[one.low, one.high] for one in intervals])
    reach = np.nan_to_num(np.abs(ends.T - x), posinf=0.0)
    axes.errorbar(
        x, y, xerr=reach, fmt=marker, ms=5, mfc="white", capsize=2, lw=1, color=colour, label=label
    )


def time(table: AllocatorTable) -> Figure:
    """Time an element on each allocator's own pair."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys((function, size) for _, function, size in table.cells))
    functions, sizes = (list(dict.fromkeys(part)) for part in zip(*kinds, strict=True))
    figure = Figure(figsize=(2.9 * len(sizes) + 0.6, 2.4 * len(functions) + 0.8))
    panels = figure.subplots(len(functions), len(sizes), squeeze=False)
    for kind in kinds:
        axes = panels[functions.index(kind[0]), sizes.index(kind[1])]
        mine = {cell[0]: one for cell, one in table.costs.items() if cell[1:] == kind}
        y = np.array([one.element_ns.effect for one in mine.values()])
        ends = np.array([[one.element_ns.low, one.element_ns.high] for one in mine.values()])
        reach = np.nan_to_num(np.abs(ends.T - y), posinf=0.0)
        axes.errorbar(range(len(mine)), y, yerr=reach, fmt="o", ms=5, capsize=3, lw=1)
        axes.set_xticks(range(len(mine)), list(mine), rotation=30, ha="right", fontsize="small")
        axes.set_xlim(-0.5, len(mine) - 0.5)
        top = float(np.nanmax(np.where(np.isfinite(ends), ends, y[:, None])))
        axes.set_ylim(0, 1.15 * min(top, _MOST_SHOWN * float(np.median(y))))
        axes.set_title(f"{kind[0]}, {size_text(kind[1])}", fontsize="medium")
        if kind[1] == sizes[0]:
            axes.set_ylabel("time per element (ns)", fontsize="small")
    figure.suptitle(
        "On malloc's own pair, with 95 % intervals", x=0.02, ha="left", fontweight="bold"
    )
    return figure
