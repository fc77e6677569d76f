"""The figures of sweeps over the distance between two buffers, each from the table of its name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.aliasing.addresses import aliasing
from perflib.experiments.aliasing.offsets.analyse import OTHER, tables
from perflib.experiments.aliasing.offsets.functions import DGEMV, FUNCTIONS, ROUTINES, VARIANTS
from perflib.framework.plots import MARKS, intervals, once_each, panel
from perflib.model.run import Run

_PREDICTED = "predicted: the low 12 bits agree"
_MOST_TICKS = 48
_STRAIGHT = 10.0  # percent: beyond, the axis is logarithmic


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    names = [f"time_{kind}" for kind in (*ROUTINES, OTHER)]
    drawn: dict[str, Callable[[], Figure]] = {
        name: partial(_of_table, made[name]) for name in names if name in made
    }
    if "simulated" in made:
        model = str(run.provenance["simulated"]["model"])
        drawn["simulated"] = lambda: _simulated(made["simulated"](), model)
    return {**drawn, "effects": lambda: _effects(made["effects"]())}


def _of_table(table: Callable[[], pd.DataFrame]) -> Figure:
    return time_figure(table())


# --- time against offset -------------------------------------------------------------------------


def _panel_and_line(swept: Mapping[Hashable, Any]) -> tuple[str, str, str]:
    """In which row and column a function is drawn, and what its line is called there."""
    routine, build, n = swept["routine"], swept["build"], swept["n"]
    if routine == DGEMV:
        return f"{DGEMV} {build}", f"stored by {swept['order']}", f"n = {n}"
    if routine in FUNCTIONS:
        level, restrict = VARIANTS.get(build, (build, False))
        row = f"{routine} -{level}" if level else routine
        length = f"{n:,} floats".replace(",", " ")
        line = "with restrict" if restrict else "without restrict" if level else "C library"
        return row, length, line
    return swept["function"], "", "time"


def time_figure(curves: pd.DataFrame) -> Figure:
    """Time at each offset, as the tables ``time_...`` have it: panels in rows and columns."""
    functions = curves.drop_duplicates("function")
    places = {row["function"]: _panel_and_line(row) for row in functions.to_dict("records")}
    rows, columns = (list(dict.fromkeys(place[i] for place in places.values())) for i in (0, 1))
    figure = Figure(figsize=(max(8.0, 5.2 * len(columns) + 1), 2.3 * len(rows) + 1.6))
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            lines = {name: place[2] for name, place in places.items() if place[:2] == (row, column)}
            if lines:
                _panel(panels[i, j], curves, lines)
                panels[i, j].set_title(", ".join(filter(None, (row, column))), fontsize="medium")
            else:
                panels[i, j].set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("time above\nthe median (%)", fontsize="small")
    for axes in panels[-1]:
        axes.set_xlabel("offset between the buffers (B)", fontsize="small")
    labelled = [axes.get_legend_handles_labels() for axes in panels.flat]
    handles = {
        label: handle for found in labelled for handle, label in zip(*found, strict=True)
    }  # each label once
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize="small",
        title="95 % intervals; filled: predicted to alias", title_fontsize="small",
    )  # fmt: skip
    return figure


def _panel(axes: Axes, curves: pd.DataFrame, lines: dict[str, str]) -> None:
    """Each function's time above its median; shaded where all of them are predicted to alias.

    Offsets are places on the axis, not lengths: those of interest are close together.
    """
    mine = curves[curves["function"].isin(list(lines))]
    offsets = np.sort(mine["offset_bytes"].unique())
    for number, (name, line) in enumerate(lines.items()):
        curve = mine[mine["function"] == name]
        shift = 0.12 * (number - (len(lines) - 1) / 2)
        x, y = np.searchsorted(offsets, curve["offset_bytes"]) + shift, curve["percent"].to_numpy()
        colour, marker = f"C{number}", MARKS[number % len(MARKS)]
        intervals(
            axes, x, y, curve["percent_low"], curve["percent_high"], fmt=f"{marker}-", lw=0.8,
            elinewidth=1, capsize=1.5, color=colour, mfc="white", label=line,
        )  # fmt: skip
        near = curve["predicted"].to_numpy()
        axes.plot(x[near], y[near], marker, ms=4.5, color=colour, zorder=5)
    shaded = mine.groupby("offset_bytes")["predicted"].all().to_numpy()
    _shade(axes, shaded)
    axes.axhline(0, color="0.3", lw=0.8)
    apart = np.diff(offsets)
    for place in np.flatnonzero(apart > 2 * np.median(apart)) if len(apart) else ():
        axes.axvline(place + 0.5, color="0.75", lw=0.8, ls=":")  # the axis leaves something out
    axes.set_xlim(-0.7, len(offsets) - 0.3)
    ticks = np.arange(0, len(offsets), -(-len(offsets) // _MOST_TICKS))
    axes.set_xticks(ticks, [str(offset) for offset in offsets[ticks]])
    axes.tick_params(axis="x", labelrotation=90, labelsize="xx-small")
    axes.grid(visible=False, axis="x")


def _shade(axes: Axes, flags: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Each run of true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    for begin, end in edges.reshape(-1, 2):
        axes.axvspan(begin - 0.5, end - 0.5, color="C3", alpha=0.12, lw=0, label=_PREDICTED)


# --- the others ----------------------------------------------------------------------------------


def _simulated(rows: pd.DataFrame, model: str) -> Figure:
    """Simulated aliases an element against the offset."""
    offsets = np.sort(rows["offset_bytes"].unique())
    figure = Figure(figsize=(8, 3.8))
    axes = figure.subplots()
    named = rows.assign(
        place=np.searchsorted(offsets, rows["offset_bytes"]),
        compiled=rows["function"] + " -" + rows["build"],
    )
    look = {"hue": "compiled", "style": "compiled", "markers": True, "dashes": False}
    sns.lineplot(named, x="place", y="aliases_per_element", **look, estimator=None, ax=axes)
    _shade(axes, aliasing(offsets)[0])
    axes.set_xticks(range(len(offsets)), [str(offset) for offset in offsets])
    axes.set_xlabel("offset between the buffers (B)")
    axes.set_ylabel("simulated 4K aliases\nper element")
    axes.set_ylim(-0.2, None)
    axes.set_title(f"simulated: {model}", fontsize="small", fontweight="normal")
    once_each(axes, loc="best")
    return figure


def _effects(effects: pd.DataFrame) -> Figure:
    """What each function's predicted offsets cost, and its slowest, with intervals."""
    names = list(effects["function"])
    figure, axes = panel(8, 0.24 * len(names) + 1.8)
    kinds = (
        ("predicted", "predicted offsets", "o", "C0"),
        ("shared", "the same, sibling busy", "D", "0.6"),
        ("slowest", "the slowest offset", "s", "C1"),
    )
    for number, (what, words, marker, colour) in enumerate(kinds):
        x, low, high = (effects[f"{what}_percent{end}"] for end in ("", "_low", "_high"))
        y = np.arange(len(names)) + 0.15 * (number - 1)
        if x.notna().any():
            intervals(
                axes, x, y, low, high, horizontal=True, fmt=marker, capsize=2, lw=1, color=colour,
                label=words,
            )  # fmt: skip
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_xscale("symlog", linthresh=_STRAIGHT)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    lows = effects[["predicted_percent_low", "slowest_percent_low"]].to_numpy(np.float64)
    left = 1.3 * float(np.min(lows, where=np.isfinite(lows), initial=-_STRAIGHT / 1.3))
    axes.set_xlim(max(left, -100.0), None)
    axes.set_yticks(range(len(names)), names, fontsize="x-small")
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("longer than elsewhere (%), logarithmic beyond 10")
    axes.set_title("What the distance of two buffers costs")
    figure.legend(
        loc="outside lower center", ncols=3, fontsize="small", title="95 % intervals",
        title_fontsize="small",
    )  # fmt: skip
    return figure
