"""The figure of the data TLBs, drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.data_tlb.analyse import tables
from perflib.framework.plots import (
    ABOVE,
    MARKS,
    doubling,
    intervals,
    log_ticks,
    once_each,
    pages,
    with_ends,
)
from perflib.model.run import Run

_WORDS = {"spread": "one line a page", "packed": "as many lines, side by side"}
_BESIDE, _PAD = 1.4, 40


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How the figure is drawn."""
    made = tables(run)
    found: dict[str, Callable[[], Figure]] = {
        "loads": lambda: loads(made["loads"](), made["knees"](), made["entries"]())
    }
    if "ways" in made:
        found["ways"] = lambda: ways(made["ways"]())
    return found


def loads(frame: pd.DataFrame, knees: pd.DataFrame, entries: pd.DataFrame) -> Figure:
    """Time of a load through lines on many and on few pages, and what many pages cost.

    One column of panels for each kind of pages.
    """
    backings = list(frame["backing"].unique())
    figure = Figure(figsize=(5.6 * len(backings) + 2.4, 7.2))
    panels = figure.subplots(2, len(backings), sharex="col", squeeze=False)
    for (above, below), backing in zip(panels.T, backings, strict=True):
        mine = frame[frame["backing"] == backing]
        for i, (kind, words) in enumerate(_WORDS.items()):
            ends = with_ends(mine, f"{kind}_ns")
            intervals(above, mine["pages"], *ends, color=f"C{i}", label=words)
        ends = with_ends(mine, "extra_ns")
        intervals(below, mine["pages"], *ends, color="C0", label="one a page less side by side")
        times = mine[["spread_ns", "packed_ns"]].to_numpy(np.float64)
        low, high = float(np.nanmin(times)), float(np.nanmax(times))
        log_ticks(above.yaxis, low / _BESIDE, high * _BESIDE)
        _knee_marks(below, knees[knees["backing"] == backing])
        for axes in (above, below):
            doubling(axes.xaxis)
            _entry_marks(axes, entries[entries["backing"] == backing])
            once_each(axes, ncols=2, **ABOVE)
        below.axhline(0, color="0.3", lw=0.8)
        above.set_title(pages(str(backing)), pad=_PAD)
        above.set_ylabel("time of a load (ns)")
        below.set(xlabel="pages with a line", ylabel="what many pages cost a load (ns)")
    return figure


def ways(frame: pd.DataFrame) -> Figure:
    """Time of a load against the number of pages, by how far apart their numbers are."""
    figure = Figure(figsize=(8, 4.4))
    axes = figure.subplots()
    for i, (stride, mine) in enumerate(frame.groupby("stride", sort=False)):
        intervals(
            axes, mine["pages"], *with_ends(mine, "ratio"), color=f"C{i}",
            fmt=f"{MARKS[i % len(MARKS)]}-", label=f"{stride} pages apart: {_fits(mine)}",
        )  # fmt: skip
    doubling(axes.xaxis)
    axes.set_xlabel("pages with a line")
    axes.set_ylabel("time of a load,\nas a multiple of one that misses nothing")
    axes.set_title("Pages of 4 KiB whose numbers are far apart")
    axes.legend(fontsize="small", title="pages that fit the first level")
    return figure


def _fits(mine: pd.DataFrame) -> str:
    low, high = (float(mine[f"fit_pages_{end}"].iloc[0]) for end in ("low", "high"))
    if not np.isfinite(low):
        return "not seen"
    return f"{low:.0f}" if high - low <= 1 else f"{low:.0f} to {high - 1:.0f}"


def _knee_marks(axes: Axes, knees: pd.DataFrame) -> None:
    """Each knee: where the rise begins, shaded, and where half of it has come."""
    least = axes.get_xlim()[0]
    for _, knee in knees.iterrows():
        low, high = float(knee["begins_pages_low"]), float(knee["begins_pages_high"])
        label = "the rise begins, 95 % interval"
        axes.axvspan(max(low, least), high, color="C3", alpha=0.15, lw=0, label=label)
        axes.axvline(float(knee["half_pages"]), color="C3", lw=1.5, label="half of it has come")


def _entry_marks(axes: Axes, entries: pd.DataFrame) -> None:
    """The entries that are reported or published."""
    for _, row in entries.iterrows():
        said = row["origin"] if row["origin"].startswith("published") else f"by {row['origin']}"
        axes.axvline(row["entries"], color="C4", ls="--", lw=1.2, label=f"entries {said}")
        axes.text(
            row["entries"], 0.97, f" {row['entries']} ", color="C4", fontsize="small", va="top",
            ha="right", transform=axes.get_xaxis_transform(),
        )  # fmt: skip
