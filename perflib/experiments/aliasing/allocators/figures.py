"""The figures of ``allocators``, each drawn from the table of its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from perflib.experiments.aliasing.allocators.analyse import tables
from perflib.experiments.aliasing.allocators.claims import AGAIN, NEW
from perflib.framework.plots import intervals
from perflib.model.run import Run
from perflib.model.sentences import size

_TITLES = {NEW: "new pairs: nothing was freed before", AGAIN: "pairs after others were freed"}
_MOST_SHOWN = 2.5  # times the median: an interval may leave the panel
_MOSTLY = 50.0
_STRAIGHT = 10.0  # percent: beyond, the axis is logarithmic


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    draw = {"addresses": _addresses, "cost": _cost, "time": _time}
    return {name: partial(_drawn, draw[name], made[name]) for name in made}


def _drawn(draw: Callable[[pd.DataFrame], Figure], table: Callable[[], pd.DataFrame]) -> Figure:
    return draw(table())


def _addresses(shares: pd.DataFrame) -> Figure:
    """Allocator by size: how many of the pairs share their low 12 bits."""
    states = [state for state in _TITLES if (shares["state"] == state).any()]
    allocators = list(dict.fromkeys(shares["allocator"]))
    near = 100 * (shares["near"] - shares["equal"]) / shares["pairs"]
    words = [
        f"{equal:.0f}\n+{more:.0f}" if more > 0 else f"{equal:.0f}"
        for equal, more in zip(shares["equal_percent"], near, strict=True)
    ]
    cells = shares.assign(words=words).pivot(index=["state", "allocator"], columns="size_bytes")
    sizes = cells["words"].columns
    figure = Figure(
        figsize=(0.72 * len(sizes) + 2.6, len(states) * (0.5 * len(allocators) + 0.75) + 0.9)
    )
    panels = figure.subplots(len(states), 1, squeeze=False, sharex=True)[:, 0]
    for axes, state in zip(panels, states, strict=True):
        mine = cells.loc[state].reindex(allocators)
        sns.heatmap(
            mine["equal_percent"], annot=mine["words"], fmt="", annot_kws={"fontsize": "small"},
            cmap="Reds", vmin=0, vmax=100, cbar=False, ax=axes,
            xticklabels=[size(one) for one in sizes], yticklabels=allocators,
        )  # fmt: skip
        axes.tick_params(axis="x", rotation=45)
        axes.tick_params(axis="y", rotation=0)
        axes.set(xlabel="", ylabel="")
        axes.set_title(_TITLES[state], fontsize="medium")
    panels[-1].set_xlabel("size of each buffer (+: further pairs, the second up to 127 B above)")
    bar = figure.colorbar(panels[0].collections[0], ax=panels.tolist())
    bar.set_label("pairs with equal low 12 bits (%)")
    figure.suptitle("Pairs of equal buffers that alias", x=0.02, ha="left", fontweight="bold")
    return figure


def _cost(costs: pd.DataFrame) -> Figure:
    """What the distance costs, and what else the allocator's buffer does, with intervals."""
    names = [
        f"{row['allocator']}, {row['function']}, {size(row['size_bytes'])}"
        for row in costs.to_dict("records")
    ]
    figure = Figure(figsize=(8.2, 0.27 * len(names) + 1.9))
    axes = figure.subplots()
    y = np.arange(len(names))
    kinds = (
        ("distance", "the distance", "o", "C0", -0.14),
        ("shared", "the distance, sibling busy", "D", "0.6", 0.0),
        ("other", "all else of that buffer", "s", "C1", 0.14),
    )
    for what, label, marker, colour, shift in kinds:
        x, low, high = (costs[f"{what}_percent{end}"] for end in ("", "_low", "_high"))
        if x.notna().any():
            intervals(
                axes, x, y + shift, low, high, horizontal=True, fmt=marker, ms=5, mfc="white",
                capsize=2, lw=1, color=colour, label=label,
            )  # fmt: skip
    near = (costs["predicted_percent"] > _MOSTLY).to_numpy()
    axes.plot(
        costs["distance_percent"][near], y[near] - 0.14, "o", ms=5, color="C0", ls="none",
        zorder=5, label="the distance, predicted to alias",
    )  # fmt: skip
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_yticks(y, names, fontsize="small")
    axes.set_ylim(len(names) - 0.4, -0.6)
    ends = np.abs(costs.filter(regex="^(distance|other)_").to_numpy(np.float64))
    widest = 1.15 * float(np.max(ends, where=np.isfinite(ends), initial=1.0))
    label = "longer (%)"
    if widest > 1.5 * _STRAIGHT:
        axes.set_xscale("symlog", linthresh=_STRAIGHT)
        axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
        label += f", straight up to {_STRAIGHT:g} and logarithmic beyond"
    axes.set_xlim(max(-widest, -100.0), min(widest, 1000.0))
    axes.set_xlabel(label)
    axes.set_title("What the place of malloc's second buffer costs")
    figure.legend(
        loc="outside lower center", ncols=3, fontsize="small", title="95 % intervals",
        title_fontsize="small",
    )  # fmt: skip
    return figure


def _time(times: pd.DataFrame) -> Figure:
    """Time an element on each allocator's own pair."""
    functions, sizes = (list(dict.fromkeys(times[name])) for name in ("function", "size_bytes"))
    figure = Figure(figsize=(2.9 * len(sizes) + 0.6, 2.4 * len(functions) + 0.8))
    panels = figure.subplots(len(functions), len(sizes), squeeze=False)
    for (i, function), (j, size_bytes) in itertools.product(enumerate(functions), enumerate(sizes)):
        axes = panels[i, j]
        mine = times[(times["function"] == function) & (times["size_bytes"] == size_bytes)]
        if mine.empty:
            axes.set_axis_off()
            continue
        y, high = mine["element_ns"], mine["element_ns_high"]
        intervals(axes, range(len(mine)), y, mine["element_ns_low"], high, fmt="o", ms=5, lw=1)
        names = list(mine["allocator"])
        axes.set_xticks(range(len(mine)), names, rotation=30, ha="right", fontsize="small")
        axes.set_xlim(-0.5, len(mine) - 0.5)
        top = float(high.where(np.isfinite(high), y).max())
        axes.set_ylim(0, 1.15 * min(top, _MOST_SHOWN * float(y.median())))
        axes.set_title(f"{function}, {size(size_bytes)}", fontsize="medium")
    for axes in panels[:, 0]:
        axes.set_ylabel("time per element (ns)", fontsize="small")
    figure.suptitle(
        "On malloc's own pair, with 95 % intervals", x=0.02, ha="left", fontweight="bold"
    )
    return figure
