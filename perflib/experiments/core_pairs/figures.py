"""The figures of matrices of cores, drawn from the tables of ``tables``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from perflib.experiments.core_pairs.cells import PairColumns
from perflib.framework.plots import intervals

__all__ = ["by_class", "heatmap", "in_groups"]

Floats = NDArray[np.float64]
_MOST_WRITTEN, _MOST_WITH_ENDS = 16, 8
_MOST_LABELS = 24
_LEAST_SPAN = 0.1  # of the colours, either way: or noise of a percent would look like a pattern
_LINES = (("white", "-", 1.8), ("black", "--", 1.2), ("0.3", ":", 1.2))
_MOST_WITH_INTERVALS = 64
_OWN = -1  # instead of a class: a core and itself


def heatmap(
    rows: pd.DataFrame,
    columns: PairColumns,
    title: str,
    labels: tuple[str, str],
    *,
    places: Mapping[str, str] | None = None,
    regions: bool = False,
) -> Figure:
    """The matrix in colours, with numbers where there are few cells; missing cells are hatched.

    Parameters
    ----------
    rows
        As of ``cells_frame``.
    columns
        What its columns are called.
    title, labels
        Of the figure, and of its rows (the CPU that is asked) and columns (the CPU that asks).
    places
        Columns of where CPUs lie, without the side, and what these are called: lines are drawn
        where they end.
    regions
        Whether what lies between the first kind of lines is named along the upper edge.
    """
    matrix = _Matrix(rows, columns)
    figure, axes = _square(matrix, labels)
    values = matrix.of(columns.names[2])
    low, high = _colour_range(values)
    drawn = axes.imshow(
        values, cmap="viridis", vmin=low, vmax=high, interpolation="nearest", zorder=1
    )
    below, above = bool(np.nanmin(values) < low), bool(np.nanmax(values) > high)
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    bar = figure.colorbar(drawn, ax=axes, shrink=0.85, extend=extend)
    width = _median_half_width(matrix)
    scatter = f"\n(95 % intervals of cells: ±{width:.1f} %)" if math.isfinite(width) else ""
    bar.set_label(f"latency ({columns.unit}){scatter}")
    if len(matrix.cpus) <= _MOST_WRITTEN:
        _write(axes, matrix, math.sqrt(low * high))
    _hatch_missing(axes, values)
    edges: dict[str, list[float]] = {}
    for place, name in (places or {}).items():
        found = matrix.edges(place)
        if found and found not in edges.values():
            edges[name] = found
    _draw_edges(axes, edges)
    named = matrix.named(next(iter(places))) if regions and places else []
    _name_regions(axes, named)
    axes.set_title(title, pad=22 if named else None)
    return figure


def in_groups(
    rows: pd.DataFrame, columns: PairColumns, title: str, labels: tuple[str, str]
) -> Figure:
    """Which class of distance each pair of cores is of, the cores put together by their groups.

    ``rows``: as of ``classes_frame``.
    """
    matrix = _Matrix(rows, columns)
    figure, axes = _square(matrix, labels, legend=True)
    kinds = matrix.of("class")
    classes = _classes(rows, columns)
    colours = colormaps["viridis"](np.linspace(0.1, 0.95, max(len(classes), 1)))
    axes.imshow(
        kinds, cmap=ListedColormap(colours), vmin=-0.5, vmax=max(len(classes), 1) - 0.5,
        interpolation="nearest", zorder=1,
    )  # fmt: skip
    _hatch_missing(axes, kinds)
    edges = matrix.edges("group")
    _draw_edges(axes, {"group": edges} if len(edges) < _MOST_LABELS else {})
    upper = rows[rows[columns.names[0]] < rows[columns.names[1]]]["class"]
    handles = [
        Patch(color=colour, label=f"{_ends(*near)} {columns.unit}, "
              f"{_pairs(int((upper == number).sum()))}")
        for (number, near), colour in zip(classes.items(), colours, strict=False)
    ]  # fmt: skip
    figure.legend(
        handles=handles,
        title="classes of distance,\n95 % intervals",
        fontsize="small",
        loc="outside right upper",
    )
    axes.set_title(title)
    return figure


def by_class(rows: pd.DataFrame, columns: PairColumns, title: str) -> Figure:
    """Each cell's latency by its class of distance; with its interval where there are few.

    ``rows``: as of ``classes_frame``.
    """
    from_, to, latency = columns.names
    unit = columns.unit
    known = rows[rows[latency].notna()]
    classes = _classes(rows, columns)
    kinds = known["class"].mask(known[from_] == known[to], _OWN)
    shown = [(kind, known[kinds == kind]) for kind in (_OWN, *classes) if (kinds == kind).any()]
    figure = Figure(figsize=(8, 1.9 + 0.7 * (len(classes) + 1)))
    axes = figure.subplots()
    generator = np.random.default_rng(1)
    few = len(known) <= _MOST_WITH_INTERVALS
    names = []
    for place, (kind, cells) in enumerate(shown):
        spread = np.linspace(-0.25, 0.25, len(cells)) if len(cells) > 1 else np.zeros(1)
        x, colour = cells[latency], "C0" if kind == _OWN else "C1"
        if few:
            ends = cells[f"low_{unit}"], cells[f"high_{unit}"]
            style: dict[str, Any] = {"fmt": "o", "capsize": 2, "color": colour, "lw": 1}
            intervals(axes, x, place + spread, *ends, horizontal=True, **style)
        else:
            y = place + generator.permutation(spread)
            axes.plot(x, y, ".", ms=3, color=colour, alpha=0.5)
        if kind == _OWN:
            names.append("a core and itself")
            continue
        names.append(f"class {kind + 1}: {_ends(*classes[kind])}")
        axes.fill_betweenx(
            [place - 0.4, place + 0.4],
            *classes[kind][1:],
            color="black",
            alpha=0.25 if few else 0.5,  # cells are seen through it, a narrow one is seen
            lw=1,
            zorder=3,
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(f"latency of a cell ({unit}){', with 95 % intervals' if few else ''}")
    axes.set_title(title)
    if classes:
        band = Patch(color="black", alpha=0.25, label="mean of a class, 95 % interval")
        figure.legend(handles=[band], fontsize="small", loc="outside lower right")
    return figure


# --- a table as a matrix -------------------------------------------------------------------------


class _Matrix:
    """The columns of a table of cells as matrices, in the order of its rows."""

    def __init__(self, rows: pd.DataFrame, columns: PairColumns) -> None:
        self.rows = rows
        self.columns = columns
        self.cpus = rows[columns.names[0]].unique().tolist()

    def of(self, name: str) -> Floats:
        return self.rows[name].to_numpy(np.float64).reshape(2 * [len(self.cpus)])

    def _along(self, place: str) -> list[float]:
        """Where each CPU lies; empty unless it is known of all."""
        side = self.columns.from_
        each = self.rows.drop_duplicates(f"{side}_cpu")[f"{side}_{place}"]
        return [] if each.isna().any() else each.tolist()

    def edges(self, place: str) -> list[float]:
        """Between which rows a line is to be drawn: 15.5 lies behind the sixteenth core."""
        return [n + 0.5 for n in np.flatnonzero(np.diff(self._along(place))).tolist()]

    def named(self, place: str) -> list[tuple[str, float, float]]:
        """What lies between the edges, and from where to where."""
        along, edges = self._along(place), self.edges(place)
        ends = [-0.5, *edges, len(along) - 0.5] if along else []
        return [
            (f"{place} {along[int(begin + 0.5)]:.0f}", begin, end)
            for begin, end in itertools.pairwise(ends)
        ]


def _classes(rows: pd.DataFrame, columns: PairColumns) -> dict[int, tuple[float, float, float]]:
    """By number, the latency of each class of distance with the ends of its interval."""
    unit = columns.unit
    names = ["class", f"class_{unit}", f"class_low_{unit}", f"class_high_{unit}"]
    found = rows[rows["class"].notna()].drop_duplicates("class").sort_values("class")[names]
    return {int(kind): (near, low, high) for kind, near, low, high in found.itertuples(index=False)}


# --- parts ---------------------------------------------------------------------------------------


def _square(
    matrix: _Matrix, labels: tuple[str, str], *, legend: bool = False
) -> tuple[Figure, Axes]:
    """Axes for a matrix, with the numbers of the CPUs along both sides."""
    count = len(matrix.cpus)
    side = 4.2 if count <= 4 else 5.2 if count <= _MOST_WRITTEN // 2 else 7.0
    figure = Figure(figsize=(side + (3.2 if legend else 1.4), side))
    axes = figure.subplots()
    axes.grid(visible=False)
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, count) if count / n <= _MOST_LABELS)
    places = range(0, count, step)
    names = [str(matrix.cpus[place]) for place in places]
    axes.set_xticks(places, names, rotation=90 if count > _MOST_WRITTEN else 0)
    axes.set_yticks(places, names)
    axes.set_ylabel(labels[0])
    axes.set_xlabel(labels[1])
    return figure, axes


def _colour_range(values: Floats) -> tuple[float, float]:
    """Nearly all cells; wide enough that what is alike looks alike."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.005, 0.995])
    middle = math.sqrt(low * high)
    return min(low, middle * (1 - _LEAST_SPAN)), max(high, middle * (1 + _LEAST_SPAN))


def _median_half_width(matrix: _Matrix) -> float:
    """Percent: the median over cells; infinite where most cells have no interval."""
    latency, unit = matrix.of(matrix.columns.names[2]), matrix.columns.unit
    known = np.isfinite(latency)
    widths = 50 * np.log(matrix.of(f"high_{unit}")[known] / matrix.of(f"low_{unit}")[known])
    return float(np.median(np.where(np.isfinite(widths), widths, np.inf)))


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def _ends(effect: float, low: float, high: float) -> str:
    if not math.isfinite(low):
        return f"{effect:.0f}"
    return f"{effect:.0f} [{low:.0f}, {high:.0f}]"


def _write(axes: Axes, matrix: _Matrix, middle: float) -> None:
    """Numbers into the cells; also the half-width of their intervals, where there is room."""
    values, unit = matrix.of(matrix.columns.names[2]), matrix.columns.unit
    widths = (matrix.of(f"high_{unit}") - matrix.of(f"low_{unit}")) / 2
    ends = len(matrix.cpus) <= _MOST_WITH_ENDS
    for row, column in np.argwhere(np.isfinite(values)):
        value, width = values[row, column], widths[row, column]
        text = f"{value:.0f}"
        if ends and math.isfinite(width):
            text += f"\n±{width:.{0 if width >= 1 else 1}f}"
        axes.text(
            column, row, text, ha="center", va="center", zorder=3,
            color="black" if value > middle else "white",
            fontsize="medium" if ends else "x-small",
        )  # fmt: skip


def _hatch_missing(axes: Axes, values: Floats) -> None:
    """What lies under missing cells, and its name below everything: it must not hide cells."""
    if np.isfinite(values).all():
        return
    style: dict[str, Any] = {"facecolor": "0.93", "edgecolor": "0.7", "hatch": "////", "lw": 0}
    axes.add_patch(Rectangle((-0.5, -0.5), len(values), len(values), zorder=0, **style))
    axes.figure.legend(
        handles=[Patch(label="not measured", **style)], loc="outside lower left", fontsize="small"
    )


def _draw_edges(axes: Axes, edges: Mapping[str, Sequence[float]]) -> None:
    """Lines through the matrix, of each kind in a style of its own."""
    for places, (colour, style, width) in zip(edges.values(), _LINES, strict=False):
        for place in places:
            axes.axhline(place, color=colour, ls=style, lw=width, zorder=2)
            axes.axvline(place, color=colour, ls=style, lw=width, zorder=2)


def _name_regions(axes: Axes, named: Sequence[tuple[str, float, float]]) -> None:
    for name, begin, end in named:
        axes.text(
            (begin + end) / 2, 1.01, name, ha="center", va="bottom", fontsize="small",
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
