"""The figures of matrices of cores, drawn from the tables of ``tables``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from perflib.experiments.core_pairs.cells import PairColumns
from perflib.framework.plots import intervals, panel
from perflib.stats.intervals import Floats

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
        Of the figure, and of its rows (the CPU that has it) and columns (the CPU that requests it).
    places
        Columns of where CPUs are, without the side, and what these are called: lines are drawn
        where they end.
    regions
        Whether what is between the first kind of lines is named along the upper edge.
    """
    matrix = _Matrix(rows, columns)
    values = matrix.latency
    low, high = _colour_range(values)
    below, above = bool(np.nanmin(values) < low), bool(np.nanmax(values) > high)
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    width = _median_half_width(matrix)
    scatter = f"\n(95 % intervals of cells: ±{width:.1f} %)" if math.isfinite(width) else ""
    figure, axes = _square(
        matrix, values, labels, cmap="viridis", vmin=low, vmax=high, **_written(matrix),
        cbar_kws={
            "label": f"latency ({columns.unit}){scatter}", "shrink": 0.85, "extend": extend
        },
    )  # fmt: skip
    edges: dict[str, list[int]] = {}
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
    classes = _classes(rows, columns)
    count = max(len(classes), 1)
    colours = sns.color_palette("viridis", count)
    figure, axes = _square(
        matrix, matrix.of("class"), labels, cmap=colours, vmin=-0.5, vmax=count - 0.5, cbar=False
    )
    edges = matrix.edges("group")
    _draw_edges(axes, {"group": edges} if len(edges) < _MOST_LABELS else {}, named=False)
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
        loc="outside right center",
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
    figure, axes = panel(8, 1.9 + 0.7 * (len(classes) + 1))
    generator = np.random.default_rng(1)
    few = len(known) <= _MOST_WITH_INTERVALS
    names = []
    for place, (kind, cells) in enumerate(shown):
        spread = np.linspace(-0.25, 0.25, len(cells)) if len(cells) > 1 else np.zeros(1)
        x, colour = cells[latency], "C0" if kind == _OWN else "C1"
        if few:
            ends = cells[f"{latency}_low"], cells[f"{latency}_high"]
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
        latency = columns.names[2]
        self.latency = self.of(latency)
        self.low, self.high = (self.of(f"{latency}_{end}") for end in ("low", "high"))

    def of(self, name: str) -> Floats:
        return self.rows[name].to_numpy(np.float64).reshape(2 * [len(self.cpus)])

    def _along(self, place: str) -> list[float]:
        """Where each CPU is; empty unless it is known of all."""
        side = self.columns.from_
        each = self.rows.drop_duplicates(f"{side}_cpu")[f"{side}_{place}"]
        return [] if each.isna().any() else each.tolist()

    def edges(self, place: str) -> list[int]:
        """Between which rows a line is to be drawn: 16 is behind the sixteenth core."""
        return [n + 1 for n in np.flatnonzero(np.diff(self._along(place))).tolist()]

    def named(self, place: str) -> list[tuple[str, int, int]]:
        """What is between the edges, and from where to where."""
        along, edges = self._along(place), self.edges(place)
        ends = [0, *edges, len(along)] if along else []
        return [
            (f"{place} {along[begin]:.0f}", begin, end) for begin, end in itertools.pairwise(ends)
        ]


def _classes(rows: pd.DataFrame, columns: PairColumns) -> dict[int, tuple[float, float, float]]:
    """By number, the latency of each class of distance with the ends of its interval."""
    names = ["class", *(f"class_{columns.unit}{end}" for end in ("", "_low", "_high"))]
    found = (
        rows[rows["class"].notna()]
        .drop_duplicates("class")
        .sort_values("class", kind="stable")[names]
    )
    return {int(kind): (near, low, high) for kind, near, low, high in found.itertuples(index=False)}


# --- parts ---------------------------------------------------------------------------------------


def _square(
    matrix: _Matrix, values: Floats, labels: tuple[str, str], **style: Any
) -> tuple[Figure, Axes]:
    """A matrix in colours, with the numbers of the CPUs along both sides; no value is hatched."""
    count = len(matrix.cpus)
    side = 4.2 if count <= 4 else 5.2 if count <= _MOST_WRITTEN // 2 else 7.0
    figure, axes = panel(side + (1.4 if style.get("cbar", True) else 3.2), side)
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, count) if count / n <= _MOST_LABELS)
    rows, columns = (pd.Index(matrix.cpus, name=label) for label in labels)
    sns.heatmap(
        pd.DataFrame(values, rows, columns), square=True, xticklabels=step, yticklabels=step,
        rasterized=True, ax=axes, **style,
    )  # fmt: skip
    axes.grid(visible=False)
    axes.tick_params(axis="x", rotation=90 if count > _MOST_WRITTEN else 0)
    axes.tick_params(axis="y", rotation=0)
    if not np.isfinite(values).all():
        missing: dict[str, Any] = {"facecolor": "0.93", "edgecolor": "0.7", "hatch": "////"}
        axes.patch.set(**missing)
        named = Patch(label="not measured", lw=0, **missing)
        figure.legend(handles=[named], loc="outside lower left", fontsize="small")
    return figure, axes


def _colour_range(values: Floats) -> tuple[float, float]:
    """Nearly all cells; wide enough that what is alike looks alike."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.005, 0.995])
    middle = math.sqrt(low * high)
    return min(low, middle * (1 - _LEAST_SPAN)), max(high, middle * (1 + _LEAST_SPAN))


def _median_half_width(matrix: _Matrix) -> float:
    """Percent: the median over cells; infinite where most cells have no interval."""
    known = np.isfinite(matrix.latency)
    widths = 50 * np.log(matrix.high[known] / matrix.low[known])
    return float(np.median(np.where(np.isfinite(widths), widths, np.inf)))


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def _ends(effect: float, low: float, high: float) -> str:
    if not math.isfinite(low):
        return f"{effect:.0f}"
    return f"{effect:.0f} [{low:.0f}, {high:.0f}]"


def _written(matrix: _Matrix) -> dict[str, Any]:
    """What is written into the cells, if they are few: numbers, and half-widths of intervals."""
    if len(matrix.cpus) > _MOST_WRITTEN:
        return {}
    values, widths = matrix.latency, (matrix.high - matrix.low) / 2
    ends = len(matrix.cpus) <= _MOST_WITH_ENDS
    words = [
        f"{value:.0f}\n±{width:.{0 if width >= 1 else 1}f}"
        if ends and math.isfinite(width)
        else f"{value:.0f}"
        for value, width in zip(values.flat, widths.flat, strict=True)
    ]
    return {
        "annot": np.reshape(words, values.shape),
        "annot_kws": {"fontsize": "medium" if ends else "x-small"},
        "fmt": "",
    }


def _draw_edges(axes: Axes, edges: Mapping[str, Sequence[int]], *, named: bool = True) -> None:
    """Lines through the matrix, of each kind in a style of its own, which is named below it."""
    for (name, places), (colour, line, width) in zip(edges.items(), _LINES, strict=False):
        style: dict[str, Any] = {"color": colour, "ls": line, "lw": width}
        for place in places:
            axes.axhline(place, **style)
            axes.axvline(place, label=name if place == places[0] else "", **style)
    if named and edges:
        axes.figure.legend(
            *axes.get_legend_handles_labels(), title="between", facecolor="0.7", ncols=3,
            fontsize="small", title_fontsize="small", loc="outside lower right",
        )  # fmt: skip


def _name_regions(axes: Axes, named: Sequence[tuple[str, int, int]]) -> None:
    for name, begin, end in named:
        axes.text(
            (begin + end) / 2, 1.01, name, ha="center", va="bottom", fontsize="small",
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
