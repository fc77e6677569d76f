"""The figures of contention: what an operation takes, how it scales, who gets how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.contention import COUNTERS, LOCKS
from perflib.experiments.contention.analyse import tables
from perflib.framework.plots import MARKS, intervals, log_ticks, panel
from perflib.model.run import Run

_MOST_SETS = 6  # that are drawn next to each other
_SCALES = 3  # numbers of cores from which on there is a curve
_APART = 0.11  # of marks of one kind
_MOST_NAMED = 8  # cores in a legend; more are drawn alike
_UNNAMED: dict[str, Any] = {"fmt": ".", "color": "C0", "capsize": 0, "elinewidth": 0.8}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    cost, shares = made["cost"](), made["shares"]()
    found: dict[str, Callable[[], Figure]] = {"cost": lambda: _cost(cost)}
    if cost["count"].nunique() >= _SCALES:
        found["scaling"] = lambda: _scaling(cost)
    if len(shares):
        found["shares"] = lambda: _shares(shares)
    return found


def _cost(cost: pd.DataFrame) -> Figure:
    """A row a kind, the cheapest way to count on top; a mark a set of cores."""
    kinds = list(dict.fromkeys(cost["kind"]))
    sets = list(dict.fromkeys(cost.sort_values("count", kind="stable")["cpus"]))
    sets = sets if len(sets) <= _MOST_SETS else [*sets[: _MOST_SETS - 1], sets[-1]]
    figure, axes = panel(8.5, 1.6 + 0.42 * len(kinds))
    for number, cpus in enumerate(sets):
        mine = cost[cost["cpus"] == cpus].set_index("kind").reindex(kinds)
        y = np.arange(len(kinds)) + (number - (len(sets) - 1) / 2) * _APART
        far = mine["distance"].dropna()
        known = len(far) and far.iloc[0] not in ("none", "unknown")
        label = f"CPUs {cpus}" + (f" ({far.iloc[0]})" if known else "")
        label = f"cpu{cpus} alone" if "none" in set(far) else label
        intervals(axes, mine["operation_ns"], y, mine["operation_ns_low"],
                  mine["operation_ns_high"], horizontal=True, fmt=MARKS[number % len(MARKS)],
                  color=f"C{number}", label=label)  # fmt: skip
    seen = cost[["operation_ns_low", "operation_ns_high"]].to_numpy()
    log_ticks(axes.xaxis, 0.8 * np.nanmin(seen), 1.25 * np.nanmax(seen))
    axes.set_yticks(np.arange(len(kinds)), kinds)
    axes.invert_yaxis()
    for kind in ("fetch_add", "spin"):  # atomics, locks
        if kind in kinds and kinds.index(kind):
            axes.axhline(kinds.index(kind) - 0.5, color="0.8", lw=0.8)
    axes.set_xlabel("time that an operation takes a core (ns); 95 % intervals")
    axes.set_title("The same addition, by one core and by several at once")
    figure.legend(fontsize="small", ncols=4, loc="outside lower center")
    return figure


def _scaling(cost: pd.DataFrame) -> Figure:
    """Operations per second of all cores against their number: counters, and locks."""
    figure = Figure(figsize=(10, 4.4))
    panels = figure.subplots(1, 2, sharex=True)
    largest = (
        cost.sort_values("count", kind="stable").groupby(["kind", "count"], sort=False).tail(1)
    )
    for axes, wanted, title in zip(
        panels, (COUNTERS, LOCKS), ("counters", "one counter under a lock"), strict=True
    ):
        for number, kind in enumerate(wanted):
            mine = largest[largest["kind"] == kind].sort_values("count", kind="stable")
            if mine.empty:
                continue
            intervals(axes, mine["count"], 1e3 / mine["gap_ns"], 1e3 / mine["gap_ns_high"],
                      1e3 / mine["gap_ns_low"], fmt=f"{MARKS[number]}-", color=f"C{number}",
                      label=kind)  # fmt: skip
        axes.set_xscale("log", base=2)
        drawn = largest[largest["kind"].isin(wanted)]
        if drawn[["gap_ns_low", "gap_ns_high"]].notna().to_numpy().any():
            slowest, fastest = drawn["gap_ns_high"].max(), drawn["gap_ns_low"].min()
            log_ticks(axes.yaxis, 0.8e3 / slowest, 1.25e3 / fastest)
        counts = sorted(set(cost["count"]))
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_xlabel("cores")
        axes.set_title(title)
        axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    panels[0].set_ylabel("million operations per second, of all cores")
    return figure


def _shares(shares: pd.DataFrame) -> Figure:
    """A row a kind, a mark a core."""
    kinds = list(dict.fromkeys(shares["kind"]))
    cpus = sorted(set(shares["cpu"]))
    figure = Figure(figsize=(8.5, 1.6 + float(np.clip(0.03 * len(cpus), 0.38, 0.6)) * len(kinds)))
    axes: Axes = figure.subplots()
    spread = np.linspace(-0.3, 0.3, len(cpus)) if len(cpus) > 1 else [0.0]
    for number, cpu in enumerate(cpus):
        style = _UNNAMED | {"label": None if number else "a core, in the order of their numbers"}
        if len(cpus) <= _MOST_NAMED:
            mark = MARKS[number % len(MARKS)]
            style = {"fmt": mark, "color": f"C{number}", "label": f"cpu{cpu}"}
        mine = shares[shares["cpu"] == cpu].set_index("kind").reindex(kinds)
        intervals(axes, mine["share_percent"], np.arange(len(kinds)) + spread[number],
                  mine["share_percent_low"], mine["share_percent_high"], horizontal=True,
                  ms=5, **style)  # fmt: skip
    axes.axvline(100, color="0.4", lw=1, ls="--", label="an even share")
    axes.set_yticks(np.arange(len(kinds)), kinds)
    axes.invert_yaxis()
    axes.set_xlabel("what a core gets of an even share (percent); intervals hold for all cores")
    axes.set_title("Who gets how much, all cores at once")
    figure.legend(fontsize="small", ncols=6, loc="outside lower center")
    return figure
