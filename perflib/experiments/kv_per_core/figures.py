"""The figures of KV per core, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from perflib.experiments.kv_per_core.analyse import tables
from perflib.stats.decomposition import PARTS, UNDIVIDED

if TYPE_CHECKING:
    from perflib.model.run import Run

__all__ = ["plots"]

_MOST_COLOURED = 8


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {
        "parts": lambda: _parts(made["parts"]()),
        "seconds_per_event": lambda: _seconds_per_event(made["seconds_per_event"]()),
        "event_by_event": lambda: _event_by_event(made["event_by_event"]()),
        "drift": lambda: _drift(made["drift"]()),
    }


def _coloured(by_core: pd.Series[float]) -> list[int]:
    """The cores to draw in colour: all if they are few, else the slowest."""
    return sorted(by_core.nlargest(_MOST_COLOURED).index)


def _parts(parts: pd.DataFrame) -> Figure:
    """Where each core's time goes: what each part adds to the time of an event, stacked."""
    table = parts.pivot(index="cpu", columns="part", values="ms_per_event")
    figure = Figure(figsize=(max(6.5, min(16.0, 4 + 0.35 * len(table))), 4.2))
    axes = figure.subplots()
    place, bottom = np.arange(len(table)), np.zeros(len(table))
    known = [name for name in (UNDIVIDED, *PARTS) if name in table]
    for name in known:
        height = table[name].fillna(0.0).clip(lower=0.0).to_numpy()
        axes.bar(place, height, bottom=bottom, width=0.7, label=name)
        bottom += height
    axes.plot(place, table["total"], "_", color="0.2", ms=18, mew=2, label="total")
    axes.set_xticks(place, [str(cpu) for cpu in table.index])
    if len(table) > 24:
        axes.tick_params(axis="x", rotation=90, labelsize="x-small")
    axes.set(xlabel="CPU", ylabel="mean time of an event (ms)")
    axes.set_ylim(0, 1.06 * float(np.nanmax(np.append(table["total"], bottom))))
    axes.set_title("Where each core's time goes")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _seconds_per_event(values: pd.DataFrame) -> Figure:
    """Time per event on each core, as KV's authors drew it."""
    place = np.arange(len(values))
    middle, low, high = (values[name] * 1e3 for name in ("clean_s", "low_s", "high_s"))
    figure = Figure(figsize=(max(6.0, min(16.0, 2 + 0.35 * len(values))), 4.2))
    axes = figure.subplots()
    half = np.abs(np.nan_to_num([middle - low, high - middle]))
    axes.errorbar(
        place, middle, yerr=half, fmt="o", capsize=4, label="undisturbed samples, 95 % interval"
    )
    axes.plot(place, values["all_trials_s"] * 1e3, "x", color="0.45", label="all samples")
    axes.set_xticks(place, [str(cpu) for cpu in values["cpu"]])
    if len(values) > 24:
        axes.tick_params(axis="x", rotation=90, labelsize="x-small")
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set(xlabel="CPU", ylabel="time per event (ms)")
    axes.set_title("KV: mean time of the same events on each core")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.legend()
    return figure


def _event_by_event(events: pd.DataFrame) -> Figure:
    """How much longer each event took than on the other cores, against what it costs."""
    coloured = _coloured(events.groupby("cpu")["slowdown_percent"].median())
    figure = Figure(figsize=(8, 4.5))
    axes = figure.subplots()
    for cpu in sorted(events["cpu"].unique()):
        mine = events[events["cpu"] == cpu]
        style = {"alpha": 0.75, "s": 18} if cpu in coloured else {"color": "0.8", "s": 8}
        label = f"cpu{cpu}" if cpu in coloured else None
        axes.scatter(mine["cost_ms"], mine["slowdown_percent"], label=label, **style)
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set(xlabel="what the event costs, median over all cores (ms)")
    if events[["cost_ms", "slowdown_percent"]].notna().all(axis=1).any():
        axes.set(xscale="log")
    else:
        words = "no event was seen on two cores often enough"
        axes.text(0.5, 0.6, words, transform=axes.transAxes, ha="center")
    axes.set_ylabel("slowdown compared with\nthe median of the others (%)")
    axes.set_title("Event by event: did all slow down, or a few?")
    if coloured:
        axes.legend(title="CPU", loc="upper right", fontsize="small", ncols=2)
    return figure


def _drift(trials: pd.DataFrame) -> Figure:
    """The cores' times over the run: what all share is drift, what one has alone is its own."""
    timed = trials["start_s"].notna().all()
    x = "start_s" if timed else "round"
    coloured = _coloured(trials[~trials["interference"]].groupby("cpu")["excess_percent"].median())
    figure = Figure(figsize=(8, 4.2))
    axes = figure.subplots()
    for cpu in coloured:
        mine = trials[trials["cpu"] == cpu]
        hit = mine["interference"]
        (line,) = axes.plot(
            mine[x][~hit], mine["excess_percent"][~hit], ".", ms=5, label=f"cpu{cpu}"
        )
        colour = line.get_color()
        axes.plot(mine[x][hit], mine["excess_percent"][hit], "x", ms=6, color=colour, alpha=0.8)
    if trials["interference"].any():
        axes.plot([], [], "x", color="0.3", label="disturbed")
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set_xlabel("time since the start (s)" if timed else "round")
    axes.set_ylabel("trial's time against\nwhat its events cost (%)")
    axes.set_title("Drift over the run, trial by trial")
    axes.legend(title="CPU", loc="upper right", fontsize="small", ncols=2)
    return figure
