"""The figure of top-down analysis: level 1 as a stacked bar, level 2 below it, for each run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perflib.instruments.counters.topdown import metrics
from perflib.model.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {  # of seaborn's palette for the colour-blind
    "retiring": "#029e73",
    "bad-speculation": "#d55e00",
    "frontend-bound": "#0173b2",
    "backend-bound": "#de8f05",
    "other-thread": "#949494",
}
_LEAST_LABELLED, _LEAST_WITH_ERROR = 0.05, 0.2  # of the slots: room for a label
_LIGHT = ("backend-bound", "memory-bound")  # white letters would be hard to read on them
_HEIGHTS = {1: 0.42, 2: 0.34}


def topdown_figure(tables: pd.DataFrame | Mapping[str, pd.DataFrame]) -> Figure:
    """Where the slots go, one run a pair of bars: level 1 above, level 2 below its parents.

    Parameters
    ----------
    tables
        A table of `topdown` (one domain), or several by the name of their run.

    Returns
    -------
    A figure. Labels are percent of all slots, with twice the standard uncertainty where the
    counts had to be scaled. What was not measured is left empty and hatched.

    Raises
    ------
    UserError
        None of the tables has a metric of level 1 that was measured.
    """
    from matplotlib.figure import Figure

    from perflib.lab.theme import themed

    runs = dict(tables) if isinstance(tables, Mapping) else {"": tables}
    found = {name: _measured(table) for name, table in runs.items()}
    if not any(found.values()):
        first = next(iter(runs.values()), None)
        why = "there is no table" if first is None or first.empty else str(first["status"].iloc[0])
        msg = f"nothing to draw: {why}"
        raise UserError(msg)
    with themed():
        figure = Figure(figsize=(8.6, 1.5 + 1.05 * len(runs)), layout="constrained")
        axes = figure.add_subplot()
        for place, values in enumerate(found.values()):
            _bars(axes, float(place), values)
        axes.set_yticks(range(len(runs)), list(runs))
        axes.set_ylim(len(runs) - 0.45, -0.55)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "20", "40", "60", "80", "100"])
        axes.set_xlabel("share of the issue slots (%); ±: two standard uncertainties")
        axes.set_title("Where the slots of the pipeline go")
        axes.grid(visible=False, axis="y")
        _legend(figure, found.values())
    return figure


Values = dict[str, tuple[float, float]]


def _measured(table: pd.DataFrame) -> Values:
    rows = zip(table["metric"], table["value"], table["error"], strict=True)
    plain = {str(name).partition(":")[0]: (float(v), float(e)) for name, v, e in rows}
    return {name: pair for name, pair in plain.items() if math.isfinite(pair[0])}


def _bars(axes: Axes, place: float, values: Values) -> None:
    start = 0.0
    for name in _COLOURS:
        if name not in values:
            continue
        width = max(values[name][0], 0.0)
        _bar(axes, place - 0.22, start, name, values, level=1)
        inner = start
        for child in _children(name):
            if child in values:
                _bar(axes, place + 0.2, inner, child, values, level=2)
                inner += max(values[child][0], 0.0)
        if inner < start + width - 1e-3:  # of which no part was measured
            axes.barh(place + 0.2, start + width - inner, _HEIGHTS[2], inner, **_EMPTY)
        start += width


_EMPTY: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#bbbbbb",
    "hatch": "///",
    "linewidth": 0,
}


def _bar(axes: Axes, y: float, start: float, name: str, values: Values, *, level: int) -> None:
    value, error = values[name]
    width = max(value, 0.0)
    axes.barh(y, width, _HEIGHTS[level], start, color=_colour(name), edgecolor="white")
    if width >= _LEAST_LABELLED:
        sure = not error > 0 or width < _LEAST_WITH_ERROR
        label = f"{100 * value:.0f}" if sure else f"{100 * value:.1f} ± {200 * error:.1f}"
        dark = level == 1 or _children(metrics()[name].parent)[0] == name
        dark = dark and name not in _LIGHT
        axes.text(
            start + width / 2, y, label, ha="center", va="center", size="small",
            color="white" if dark else "black", clip_on=True,
        )  # fmt: skip


def _children(name: str) -> list[str]:
    return [one.name for one in metrics().values() if one.parent == name]


def _colour(name: str) -> tuple[float, float, float]:
    """A parent's colour; its first part a little lighter, its second much."""
    from matplotlib.colors import to_rgb

    parent = metrics()[name].parent
    red, green, blue = to_rgb(_COLOURS[parent or name])
    white = 0.0 if not parent else (0.2 if _children(parent)[0] == name else 0.6)
    return (red + white * (1 - red), green + white * (1 - green), blue + white * (1 - blue))


def _legend(figure: Figure, runs: Any) -> None:
    from matplotlib.patches import Patch

    runs = list(runs)
    handles = []
    for name in _COLOURS:
        for one in [name, *_children(name)]:
            if any(one in values for values in runs):
                label = one.replace("-", " ")
                label = f"   {label}" if metrics()[one].parent else label
                handles.append(Patch(color=_colour(one), label=label))
    if any(not set(_children(name)) & set(v) for v in runs for name in _COLOURS if name in v):
        handles.append(Patch(label="parts not measured", **_EMPTY))
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize="small")
