"""The figures of memory under load: latency against bandwidth, and bandwidth by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.memory_load.analyse import tables
from perflib.framework.plots import MARKS, intervals, panel, panels_above, with_ends
from perflib.model.run import Run

_UNLOADED = (  # what is at the left of the curve: its mark, its colour where one pair is drawn
    ("idle", "D", "0.35", "other cores idle"),
    ("cache", "s", "C1", "other cores busy in their caches"),
)
_MOST_SETS = 8  # of cores that are drawn next to each other


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    found: dict[str, Callable[[], Figure]] = {}
    curve, bandwidth = made["curve"](), made["bandwidth"]()
    if len(curve):
        found["curve"] = lambda: _curve(curve, made["summary"](), run.params["threshold_percent"])
    if len(bandwidth):
        found["bandwidth"] = lambda: _bandwidth(bandwidth)
    return found


def _nodes(row: pd.Series) -> str:
    return f"cores of node {row['core_node']}, memory of node {row['memory_node']}"


def _curve(curve: pd.DataFrame, summary: pd.DataFrame, threshold: float) -> Figure:
    """Latency against what the other cores move; idle cores and busy ones at the left."""
    figure, axes = panel(8.5, 4.8)
    several, named = len(summary) > 1, False
    for number, ((memory_node, core_node), mine) in enumerate(
        curve.groupby(["memory_node", "core_node"])
    ):
        colour = f"C{number % 10}"
        loaded = mine[mine["load"] == "memory"].sort_values("gb_s", kind="stable")
        if len(loaded):
            name = _nodes(mine.iloc[0]) if several else "other cores stream"
            _points(axes, loaded, colour, f"{MARKS[number % len(MARKS)]}-", name)
        for load, mark, grey, words in _UNLOADED:
            part = mine[mine["load"] == load]
            if len(part):
                _points(axes, part, colour if several else grey, mark,
                        "" if number else words, mfc="white")  # fmt: skip
        knee = summary[
            (summary["memory_node"] == memory_node) & (summary["core_node"] == core_node)
        ].iloc[0]
        if np.isfinite(knee["knee_gb_s"]):
            words = "" if named else f"latency crosses +{threshold:g} %"
            named = True
            if several:
                axes.axvline(knee["knee_gb_s"], color=colour, lw=1.2, ls="--", label=words)
            else:
                axes.axvspan(knee["knee_gb_s_low"], knee["knee_gb_s_high"], color=colour,
                             alpha=0.12, label=words)  # fmt: skip
                axes.axvline(knee["knee_gb_s"], color=colour, lw=1, ls="--")
    axes.set_ylim(0, None)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set(xlabel="bandwidth that the other cores use (GB/s)",
             ylabel="latency of a dependent load (ns)")  # fmt: skip
    axes.set_title("Latency of memory under load")
    figure.legend(fontsize="small", ncols=2, loc="outside lower center", title="95 % intervals",
                  title_fontsize="small")  # fmt: skip
    return figure


def _points(axes: Axes, part: pd.DataFrame, colour: str, fmt: str, label: str, **style: Any
            ) -> None:  # fmt: skip
    ends = with_ends(part, "latency_ns")
    intervals(axes, part["gb_s"], *ends, fmt=fmt, color=colour, label=label, **style)


def _bandwidth(frame: pd.DataFrame) -> Figure:
    """A panel a pair of nodes; of each kind a bar for every core alone and for all together."""
    pairs = list(frame.groupby(["memory_node", "core_node"]))
    kinds = list(dict.fromkeys(frame["kind"]))
    figure, panels = panels_above(len(pairs), 9, 1.2 + 3.0 * len(pairs))
    for axes, (_, mine) in zip(panels, pairs, strict=True):
        sets = _chosen(mine)
        width = 0.8 / len(sets)
        for number, streams in enumerate(sets):
            part = mine[mine["streams"] == streams].set_index("kind").reindex(kinds)
            alone = streams.isdecimal()
            x = np.arange(len(kinds)) + (number - (len(sets) - 1) / 2) * width
            colour = f"C{number % 10}" if alone else "0.35"
            label = f"cpu{streams} alone" if alone else f"CPUs {streams} together"
            axes.bar(x, part["gb_s"], width * 0.92, color=colour, alpha=0.75, label=label)
            intervals(axes, x, *with_ends(part, "gb_s"), fmt="none", ecolor="0.1")
            axes.plot(x, part["best_gb_s"], "_", color="k", ms=9,
                      label="best of all samples" if number == 0 else None)  # fmt: skip
        axes.set_ylabel("bandwidth (GB/s)")
        axes.grid(visible=False, axis="x")
        axes.set_title(_nodes(mine.iloc[0]), fontsize="medium")
        if len(pairs) > 1:  # each names cores of its own
            axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
            axes.legend(fontsize="small", ncols=5, loc="upper left")
    panels[-1].set_xticks(np.arange(len(kinds)), kinds)
    figure.suptitle("Bandwidth by STREAM's count: mean with its 95 % interval")
    if len(pairs) == 1:
        figure.legend(fontsize="small", ncols=4, loc="outside lower center")
    return figure


def _chosen(mine: pd.DataFrame) -> list[str]:
    """The sets of cores to draw: all together, and single cores, the slowest of many."""
    together = [one for one in dict.fromkeys(mine["streams"]) if not one.isdecimal()]
    alone = mine[mine["streams"].str.isdecimal()]
    means = alone.groupby("streams")["gb_s"].mean().nsmallest(_MOST_SETS - len(together))
    return [*sorted(means.index, key=int), *together]
