"""Figures of code: time by module, and the instructions of functions side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.framework.plots import intervals, panel
from perflib.instruments.profile.findings import instruction_findings
from perflib.instruments.profile.lines import beside_text
from perflib.instruments.profile.modules import short_names
from perflib.instruments.profile.side_by_side import SideBySide
from perflib.model.escape import shortened

_PLAIN, _ODD, _FIRST = "C0", "C3", "0.45"
_LETTERS = 36  # of an instruction's label on an axis
_SKID = {
    "clock": "samples of a clock: the costly instruction is the one marked or one before it",
    "counter": "samples of a counter: the costly instruction is the one marked or just before it",
    "precise": "precise samples: the costly instruction is the one marked",
}


def time_by_module(table: pd.DataFrame, functions: int = 4, least_percent: float = 1.0) -> Figure:
    """The share of each object, and below it of its costliest functions, from ``modules``."""
    bars: list[tuple[str, float, float, float, bool]] = []
    names = short_names(table["object"])
    for name, rows in table.groupby("object", sort=False):
        whole = rows.iloc[0]
        if whole["module_percent"] < least_percent and bars:
            continue
        percent, low, high = (float(whole[f"module_percent{end}"]) for end in ("", "_low", "_high"))
        bars.append((names[str(name)], percent, low, high, True))
        for row in rows.head(functions).to_dict("records"):
            if row["percent"] >= least_percent:
                label = shortened(str(row["function"]), 40)
                bars.append((label, row["percent"], row["percent_low"], row["percent_high"], False))
    figure, axes = panel(9, 1.6 + 0.3 * len(bars))
    place = np.arange(len(bars))[::-1]
    value, lows, highs = (np.array([bar[at] for bar in bars]) for at in (1, 2, 3))
    of_module = np.array([bar[4] for bar in bars])
    for chosen, colour, alpha, label in (
        (of_module, _PLAIN, 0.75, "program or library"),
        (~of_module, _PLAIN, 0.3, "its costliest functions"),
    ):
        if chosen.any():
            axes.barh(
                place[chosen], value[chosen], color=colour, alpha=alpha, height=0.7, label=label
            )
    intervals(
        axes, value, place, lows, highs, horizontal=True, fmt="none", color="0.2", lw=1.2,
        label="95 % interval",
    )  # fmt: skip
    axes.set_yticks(place, [bar[0] for bar in bars])
    for tick, bar in zip(axes.get_yticklabels(), bars, strict=True):
        tick.set_fontweight("bold" if bar[4] else "normal")
        tick.set_fontsize(10 if bar[4] else 9)
    axes.set_ylim(-0.7, len(bars) - 0.3)
    axes.set_xlim(left=0)
    axes.set_xlabel("share of all samples (%)")
    count = int(table["samples"].sum())
    axes.set_title(f"Time by program and library, then by function\n{count:,} samples")
    figure.legend(loc="outside lower right", ncols=3, fontsize="small")
    return figure


def instructions(found: Sequence[SideBySide], most: int = 0) -> Figure:
    """Functions' instructions: both shares, and their difference; a row of axes for each function.

    ``most`` instructions of each are drawn (by default fewer where there are several functions):
    those that stand out, and those with most samples.
    """
    most = most or max(8, 30 // len(found))
    chosen = [_chosen(one, most) for one in found]
    heights = [len(rows) + 4.5 for rows in chosen]
    figure = Figure(figsize=(11, 0.8 + 0.2 * sum(heights)))
    grid = figure.subplots(
        len(found), 2, squeeze=False, sharey="row", height_ratios=heights, width_ratios=(3, 2)
    )
    for one, rows, (shares, differences) in zip(found, chosen, grid, strict=True):
        _draw(one, rows, shares, differences)
    handles, labels = grid[0][0].get_legend_handles_labels()
    for axes in grid[:, 1]:  # what stands out in any function
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    figure.legend(
        handles, labels, loc="outside lower right", ncols=4, fontsize="small",
        title=_SKID[found[0].skid], title_fontsize="small",
    )  # fmt: skip
    return figure


def _chosen(found: SideBySide, most: int) -> pd.DataFrame:
    """The rows to draw, in the order of the code."""
    table = found.table
    rank = table[["percent_first", "percent_second"]].max(axis=1) + 1e3 * table["stands_out"]
    return table.loc[sorted(rank.nlargest(most).index)]


def _draw(found: SideBySide, rows: pd.DataFrame, shares: Axes, differences: Axes) -> None:
    place = np.arange(len(rows))[::-1]
    first, second = (rows[f"percent_{side}"].to_numpy(np.float64) for side in ("first", "second"))
    shares.hlines(place, first, second, color="0.7", lw=2, zorder=1)
    shares.plot(first, place, "o", mfc="none", color=_FIRST, ms=6, label=found.first)
    shares.plot(second, place, "o", color=_PLAIN, ms=5, label=found.second)
    labels = []
    for row in rows.to_dict("records"):
        offset = row["offset_first"] if pd.isna(row["offset_second"]) else row["offset_second"]
        at = f"+{int(offset):#x}" if offset >= 0 else "none"
        text = beside_text(row)
        labels.append(f"{shortened(text, _LETTERS)}  {at:>6}" if text != "?" else at)
    shares.set_yticks(place, labels, family="monospace", fontsize=8)
    odd = rows["stands_out"].to_numpy(dtype=bool)
    for tick, marked in zip(shares.get_yticklabels(), odd, strict=True):
        if marked:
            tick.set_color(_ODD)
            tick.set_fontweight("bold")
    shares.set_ylim(-0.8, len(rows) - 0.2)
    shares.set_xlim(left=-0.02 * max(1.0, first.max(initial=0), second.max(initial=0)))
    shares.set_xlabel(f"share of the samples of {shortened(found.function, 30)} (%)", fontsize=9)
    value, low, high = (
        rows[f"difference{end}"].to_numpy(np.float64) for end in ("", "_low", "_high")
    )
    level = f"{100 * found.confidence:g} % interval, all together"
    for marked, colour, label in ((~odd, "0.45", level), (odd, _ODD, "stands out")):
        if marked.any():
            intervals(
                differences, value[marked], place[marked], low[marked], high[marked],
                horizontal=True, fmt="o", ms=4, color=colour, label=label,
            )  # fmt: skip
    differences.axvline(0, color="0.3", lw=0.8)
    differences.set_xlabel(
        f"{shortened(found.second, 24)} less {shortened(found.first, 24)} (points)", fontsize=9
    )
    shares.set_title(f"{shortened(found.function, 40)}\n{_verdict(found)}", fontsize="medium")


def _verdict(found: SideBySide) -> str:
    """In a few words, what the finding says."""
    decided = instruction_findings(found)[0].verdict
    named = found.named()
    if decided == "refuted":
        return "no instruction became costlier"
    if named.empty:
        return f"open: changes below {found.open_points:.1f} points could not be seen"
    costlier = int((named["costlier_percent"] > 0).sum())
    words = f"costlier: {costlier}, cheaper: {len(named) - costlier} (of {found.tested} tested)"
    return words if decided == "supported" else f"{words}, by counting alone"
