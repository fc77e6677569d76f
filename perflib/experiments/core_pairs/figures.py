"""The figures of matrices of cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.core_pairs.cells import Cells
from perflib.stats.clusters import Groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["by_class", "heatmap", "in_groups"]

Floats = NDArray[np.float64]
_MOST_WRITTEN, _MOST_WITH_ENDS = 16, 8
_MOST_LABELS = 24
_LEAST_SPAN = 0.1  # of the colours, either way: or noise of a percent would look like a pattern
_LINES = (("white", "-", 1.8), ("black", "--", 1.2), ("0.3", ":", 1.2))
_MOST_WITH_INTERVALS = 64


def heatmap(
    cells: Cells,
    title: str,
    unit: str,
    from_label: str,
    to_label: str,
    boundaries: Mapping[str, Sequence[float]] | None = None,
    order: Sequence[int] | None = None,
    regions: Sequence[str] = (),
) -> Figure:
    """The matrix in colours, with numbers where there are few cells; missing cells are hatched.

    Parameters
    ----------
    cells
        What is drawn.
    title, unit
        Of the figure, and of its colours ("cycles").
    from_label, to_label
        What the rows are (the CPU that holds), and the columns (the CPU that asks).
    boundaries
        By name, the places between which lines are drawn: 15.5 lies between the sixteenth core and
        the next one in ``order``.
    order
        The CPUs, as rows and columns follow each other; by number if it is not given.
    regions
        What lies between the lines of the first kind of boundary, named along the upper edge.
    """
    figure, axes = _square(len(cells.cpus))
    order = list(order or cells.cpus)
    values = cells.ordered(cells.matrix, order)
    low, high = _colour_range(values)
    drawn = axes.imshow(
        values, cmap="viridis", vmin=low, vmax=high, interpolation="nearest", zorder=1
    )
    below, above = bool(np.nanmin(values) < low), bool(np.nanmax(values) > high)
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    bar = figure.colorbar(drawn, ax=axes, shrink=0.85, extend=extend)
    bar.set_label(f"{unit}{_half_width(cells)}")
    if len(order) <= _MOST_WRITTEN:
        _write(axes, cells, order, math.sqrt(low * high))
    _finish(axes, cells, order, from_label, to_label)
    _boundaries(axes, boundaries or {}, regions, len(order))
    axes.set_title(title, pad=22 if regions else None)
    return figure


def in_groups(
    cells: Cells, groups: Groups, title: str, unit: str, from_label: str, to_label: str
) -> Figure:
    """Which class of distance each pair of cores is of, the cores put together by their groups."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    figure, axes = _square(len(cells.cpus), legend=True)
    levels = [*reversed(groups.hierarchy), groups.labels]
    chosen = sorted(range(len(cells.cpus)), key=lambda place: [level[place] for level in levels])
    order = [cells.cpus[place] for place in chosen]
    kinds = np.where(groups.membership < 0, np.nan, groups.membership)
    number = max(len(groups.classes), 1)
    colours = colormaps["viridis"](np.linspace(0.1, 0.95, number))
    axes.imshow(
        cells.ordered(kinds, order), cmap=ListedColormap(colours), vmin=-0.5, vmax=number - 0.5,
        interpolation="nearest", zorder=1,
    )  # fmt: skip
    _finish(axes, cells, order, from_label, to_label, missing=bool(np.isnan(kinds).any()))
    ordered = groups.labels[chosen]
    edges = [place + 0.5 for place in np.flatnonzero(np.diff(ordered))]
    _boundaries(axes, {"group": edges} if len(edges) < _MOST_LABELS else {}, (), len(order))
    upper = groups.membership[np.triu_indices(len(order), 1)]
    handles = [
        Patch(color=colour, label=f"{_ends(near.effect, near.low, near.high)} {unit}, "
              f"{_pairs(int((upper == place).sum()))}")
        for place, (near, colour) in enumerate(zip(groups.classes, colours, strict=False))
    ]  # fmt: skip
    figure.legend(
        handles=handles,
        title="classes of distance,\n95 % intervals",
        fontsize="small",
        loc="outside right upper",
    )
    axes.set_title(title)
    return figure


def by_class(cells: Cells, groups: Groups, title: str, unit: str) -> Figure:
    """Each cell's latency by its class of distance; with its interval where there are few."""
    from matplotlib.figure import Figure

    number = len(groups.classes)
    figure = Figure(figsize=(8, 1.9 + 0.7 * (number + 1)))
    axes = figure.subplots()
    own = np.eye(len(cells.cpus), dtype=bool)
    rows = [(f"class {n + 1}", ~own & (groups.membership == n)) for n in range(number)]
    rows.insert(0, ("own", own))
    rows = [(name, chosen & cells.known()) for name, chosen in rows]
    generator = np.random.default_rng(1)
    few = sum(int(chosen.sum()) for _, chosen in rows) <= _MOST_WITH_INTERVALS
    shown = [(name, chosen) for name, chosen in rows if chosen.any()]
    for place, (name, chosen) in enumerate(shown):
        x = cells.matrix[chosen]
        y = place + (np.linspace(-0.25, 0.25, x.size) if x.size > 1 else np.zeros(1))
        colour = "C0" if name == "own" else "C1"
        if few:
            low, high = (ends[chosen] for ends in cells.intervals)
            reach = np.abs(np.nan_to_num([x - low, high - x]))
            axes.errorbar(x, y, xerr=reach, fmt="o", ms=4, capsize=2, color=colour, lw=1)
        else:
            axes.plot(x, generator.permutation(y), ".", ms=3, color=colour, alpha=0.5)
    names = ["a core and itself" if name == "own" else name for name, _ in shown]
    for place, (name, _) in enumerate(shown):
        near = groups.classes[int(name.split()[1]) - 1] if name != "own" else None
        if near is not None:
            names[place] += f": {_ends(*near)}"
            axes.fill_betweenx(
                [place - 0.4, place + 0.4],
                near.low,
                near.high,
                color="black",
                alpha=0.25 if few else 0.5,  # cells are seen through it, a narrow one is seen
                lw=1,
                zorder=3,
                label="mean, 95 % interval" if name == "class 1" else None,
            )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(f"latency of a cell ({unit}){', with 95 % intervals' if few else ''}")
    axes.set_title(title)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize="small", loc="outside lower right")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _square(cores: int, *, legend: bool = False) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    side = 4.2 if cores <= 4 else 5.2 if cores <= _MOST_WRITTEN // 2 else 7.0
    figure = Figure(figsize=(side + (3.2 if legend else 1.4), side))
    axes = figure.subplots()
    axes.grid(visible=False)
    return figure, axes


def _colour_range(values: Floats) -> tuple[float, float]:
    """Nearly all cells; wide enough that what is alike looks alike."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.005, 0.995])
    middle = math.sqrt(low * high)
    return min(low, middle * (1 - _LEAST_SPAN)), max(high, middle * (1 + _LEAST_SPAN))


def _half_width(cells: Cells) -> str:
    width = cells.half_width
    return f"\n(95 % intervals of cells: ±{width:.1f} %)" if math.isfinite(width) else ""


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def _ends(effect: float, low: float, high: float) -> str:
    if not math.isfinite(low):
        return f"{effect:.0f}"
    return f"{effect:.0f} [{low:.0f}, {high:.0f}]"


def _write(axes: Axes, cells: Cells, order: Sequence[int], middle: float) -> None:
    """Numbers into the cells; also the half-width of their intervals, where there is room."""
    values = cells.ordered(cells.matrix, order)
    ends = len(order) <= _MOST_WITH_ENDS
    low, high = (cells.ordered(end, order) for end in cells.intervals) if ends else (values, values)
    for row, column in np.argwhere(np.isfinite(values)):
        value, reach = values[row, column], (high - low)[row, column] / 2
        text = f"{value:.0f}"
        if ends and math.isfinite(reach):
            text += f"\n±{reach:.{0 if reach >= 1 else 1}f}"
        axes.text(
            column, row, text, ha="center", va="center", zorder=3,
            color="black" if value > middle else "white",
            fontsize="medium" if ends else "x-small",
        )  # fmt: skip


def _finish(
    axes: Axes,
    cells: Cells,
    order: Sequence[int],
    from_label: str,
    to_label: str,
    *,
    missing: bool | None = None,
) -> None:
    """Ticks, labels, and what lies under missing cells."""
    from matplotlib.patches import Patch, Rectangle

    count = len(order)
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, count) if count / n <= _MOST_LABELS)
    places = range(0, count, step)
    names = [str(order[place]) for place in places]
    axes.set_xticks(places, names, rotation=90 if count > _MOST_WRITTEN else 0)
    axes.set_yticks(places, names)
    axes.set_xlabel(to_label)
    axes.set_ylabel(from_label)
    if missing is None:
        missing = not cells.known().all()
    if missing:
        style: dict[str, Any] = {
            "facecolor": "0.93", "edgecolor": "0.7", "hatch": "////", "lw": 0
        }  # fmt: skip
        axes.add_patch(Rectangle((-0.5, -0.5), count, count, zorder=0, **style))
        axes.figure.legend(  # below everything: it must not hide cells
            handles=[Patch(label="not measured", **style)],
            loc="outside lower left",
            fontsize="small",
        )


def _boundaries(
    axes: Axes, boundaries: Mapping[str, Sequence[float]], regions: Sequence[str], count: int
) -> None:
    """Lines through the matrix, and the names of what lies between the first kind of them."""
    for (name, places), (colour, style, width) in zip(boundaries.items(), _LINES, strict=False):
        for number, place in enumerate(places):
            label = f"boundary of a {name}" if number == 0 else None
            axes.axhline(place, color=colour, ls=style, lw=width, label=label, zorder=2)
            axes.axvline(place, color=colour, ls=style, lw=width, zorder=2)
    if regions:
        edges = [-0.5, *next(iter(boundaries.values()), ()), count - 0.5]
        for name, begin, end in zip(regions, edges[:-1], edges[1:], strict=True):
            axes.text(
                (begin + end) / 2, 1.01, name, ha="center", va="bottom", fontsize="small",
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
