"""The figures of KV per core, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.kv_per_core.analyse import tables
from perflib.framework.plots import COLOURS, core_styles, intervals, log_ticks, panel, slowest
from perflib.model.run import Run
from perflib.stats.decomposition import PARTS, UNDIVIDED

_MAX_LEVEL_LABELS = 24  # numbers of cores along an axis


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {
        "parts": lambda: _parts(made["parts"]()),
        "seconds_per_event": lambda: _seconds_per_event(made["seconds_per_event"]()),
        "event_by_event": lambda: _event_by_event(made["event_by_event"]()),
        "drift": lambda: _drift(made["drift"]()),
    }


def _parts(parts: pd.DataFrame) -> Figure:
    """Where each core's time goes: what each part adds to the time of an event, stacked."""
    table = parts.pivot(index="cpu", columns="part", values="ms_per_event")
    figure, axes = _place_for_each(table.index, "Where each core's time goes")
    place, bottom = np.arange(len(table)), np.zeros(len(table))
    for name in (UNDIVIDED, *PARTS):
        if name in table:
            height = table[name].fillna(0.0).clip(lower=0.0).to_numpy()
            label = "other tasks, quota" if name == "other tasks" else name  # both are in it
            axes.bar(place, height, bottom=bottom, width=0.7, label=label, color=COLOURS[name])
            bottom += height
    axes.plot(place, table["total"], "_", color="0.2", ms=18, mew=2, label="total")
    axes.set_ylabel("mean time of an event (ms)")
    axes.set_ylim(0, 1.06 * float(np.nanmax(np.append(table["total"], bottom))))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _seconds_per_event(values: pd.DataFrame) -> Figure:
    """Time per event on each core, as KV's authors drew it."""
    title = "KV: mean time of the same events on each core"
    figure, axes = _place_for_each(values["cpu"], title)
    place = np.arange(len(values))
    ends = (1e3 * values[name] for name in ("clean_s", "clean_s_low", "clean_s_high"))
    intervals(axes, place, *ends, fmt="o", label="undisturbed samples, 95 % interval")
    axes.plot(place, 1e3 * values["all_trials_s"], "x", color="0.45", label="all samples")
    axes.set_ylabel("time per event (ms)")
    axes.ticklabel_format(axis="y", useOffset=False)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    return figure


def _event_by_event(events: pd.DataFrame) -> Figure:
    """How much longer each event took than on the other cores, against what it costs."""
    coloured = slowest(events.groupby("cpu")["slowdown_percent"].median())
    figure, axes = panel(8, 4.5)
    columns = {"x": "cost_ms", "y": "slowdown_percent", "ax": axes}
    shown = events["cpu"].isin(coloured)
    sns.scatterplot(events[~shown], **columns, color="0.8", s=12, linewidth=0)
    sns.scatterplot(events[shown], **columns, **core_styles(coloured), s=30, alpha=0.75)
    axes.axhline(0, color="0.3", lw=0.8)
    seen = events.dropna(subset=["cost_ms", "slowdown_percent"])["cost_ms"]
    if len(seen):
        log_ticks(axes.xaxis, seen.min() / 1.15, seen.max() * 1.15)
    else:
        words = "no event was seen on two cores often enough"
        axes.text(0.5, 0.6, words, transform=axes.transAxes, ha="center")
    axes.set_xlabel("what the event costs, median over all cores (ms)")
    axes.set_ylabel("slowdown compared with\nthe median of the others (%)")
    axes.set_title("Event by event: did all slow down, or a few?")
    _legend(figure, axes)
    return figure


def _drift(trials: pd.DataFrame) -> Figure:
    """The cores' times over the run, and how those of undisturbed trials are distributed.

    What all cores share over time is drift, what one has alone is its own. A slow core's whole
    distribution is above the others'; interference that was not noticed bends its upper end.
    """
    x = "start_s" if trials["start_s"].notna().all() else "round"
    hit = trials["interference"]
    coloured = slowest(trials[~hit].groupby("cpu")["excess_percent"].median())
    styles = core_styles(coloured)
    shown = trials["cpu"].isin(coloured)
    calm, disturbed = trials[shown & ~hit], trials[shown & hit]
    figure = Figure(figsize=(9, 4.2))
    axes, distribution = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    if len(calm):
        columns = {"y": "excess_percent", "hue": "cpu", "palette": styles["palette"]}
        sns.scatterplot(calm, x=x, **columns | styles, s=14, linewidth=0, ax=axes)
        sns.ecdfplot(calm, **columns, stat="percent", legend=False, ax=distribution)
    if len(disturbed):
        colours = disturbed["cpu"].map(styles["palette"])
        axes.scatter(disturbed[x], disturbed["excess_percent"], c=colours, marker="x")
        axes.plot([], [], "x", color="0.3", label="disturbed")
    for one in (axes, distribution):
        one.axhline(0, color="0.3", lw=0.8)
    axes.set_xlabel("time since the start (s)" if x == "start_s" else x)
    axes.set_ylabel("trial's time against\nwhat its events cost (%)")
    axes.set_title("Drift over the run, trial by trial")
    distribution.set_xlabel("undisturbed trials\nbelow (%)")
    distribution.set_title("Distribution", fontsize="medium")
    _legend(figure, axes)
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _place_for_each(cores: pd.Index | pd.Series[int], title: str) -> tuple[Figure, Axes]:
    """Axes on which each core has its place."""
    figure = Figure(figsize=(max(6.5, min(16.0, 4 + 0.35 * len(cores))), 4.2))
    axes = figure.subplots()
    axes.set_xticks(range(len(cores)), [str(cpu) for cpu in cores])
    if len(cores) > _MAX_LEVEL_LABELS:
        axes.tick_params(axis="x", rotation=90, labelsize="x-small")
    axes.set_xlim(-0.6, len(cores) - 0.4)
    axes.set_xlabel("CPU")
    axes.set_title(title)
    return figure, axes


def _legend(figure: Figure, axes: Axes) -> None:
    """The cores' legend outside the panels, where it hides no point."""
    if (inside := axes.get_legend()) is not None:
        inside.remove()
        handles = axes.get_legend_handles_labels()
        figure.legend(*handles, title="CPU", loc="outside right upper", fontsize="small")
