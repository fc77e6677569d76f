"""The figures of counts over time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from numpy.typing import NDArray

from perflib.experiments.counting.analyse import tables
from perflib.framework.plots import instead
from perflib.model.run import Run

_EVENTS = 8
_MIN_SHARE = 0.05  # of an interval, for its rate to be drawn
_PERCENT = {"ns": 1e-7, "us": 1e-4, "ms": 0.1}  # a time in a second: its share


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    return {
        "series": lambda: _series(made["series"]()),
        "totals": lambda: _complete(made["totals"](), run.params["complete_percent"]),
    }


def _series(series: pd.DataFrame) -> Figure:
    """A panel a count: those whose rate varies most in proportion; gaps in time stay gaps."""
    series = _drawn(series)
    counts = _varying(series)
    figure = Figure(figsize=(9, 1.2 + 1.25 * max(1, len(counts))))
    figure.suptitle("Rates over time")
    panels = figure.subplots(max(1, len(counts)), 1, sharex=True, squeeze=False)[:, 0]
    if not counts:
        panels[0].text(0.5, 0.5, "nothing was counted", transform=panels[0].transAxes, ha="center")
        return figure
    labels = [label for _, label in counts]
    for axes, (name, label), colour in zip(
        panels, counts, sns.color_palette("colorblind", 10), strict=False
    ):
        mine = series[(series["set"] == name) & (series["label"] == label)]
        unit = mine["unit"].iloc[0]
        values, edges = _stairs(mine)
        values = values * _PERCENT.get(unit, 1.0)
        axes.stairs(values, edges, color=colour, fill=True, alpha=0.15)
        axes.stairs(values, edges, color=colour, baseline=None)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("percent" if unit in _PERCENT else "per s", fontsize="small")
        title = f"{label} (set {name})" if labels.count(label) > 1 else label
        axes.set_title(title, loc="left", fontsize="small", fontweight="normal", pad=3)
    panels[-1].set_xlabel("time since the begin (s)")
    return figure


def _drawn(series: pd.DataFrame) -> pd.DataFrame:
    """Without rates from next to no time: of a set that was being changed, of the last moment."""
    cpu = pd.Series(series.get("cpu", -1), index=series.index)
    label = series["event"].where(cpu < 0, series["event"] + " of cpu" + cpu.astype(str))
    short = series["elapsed_ns"] < _MIN_SHARE * series["elapsed_ns"].median()
    barely = series["complete_percent"] < 100 * _MIN_SHARE
    return series.assign(per_s=series["per_s"].mask(short | barely), label=label)


def _stairs(mine: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and edges of `stairs`; what was not counted is a step of NaN."""
    mine = mine.sort_values("time_s", kind="stable")
    begin = mine["time_s"].to_numpy(np.float64)
    length = mine["elapsed_ns"].to_numpy(np.float64) / 1e9
    end = begin + length
    near = np.abs(begin[1:] - end[:-1]) < _MIN_SHARE * length[:-1]
    end[:-1] = np.where(near, begin[1:], end[:-1])
    values = np.column_stack([mine["per_s"].to_numpy(np.float64), np.full(len(mine), np.nan)])
    edges = np.maximum.accumulate(np.column_stack([begin, end]).ravel())
    wide = np.append(np.diff(edges) > 0, True)
    return values.ravel()[:-1][wide[:-1]], edges[wide]


def _varying(series: pd.DataFrame) -> list[tuple[str, str]]:
    """Set and label of each count that is drawn, in the order of the run."""
    means = series.groupby(["set", "label"], sort=False)["per_s"].agg(["mean", "std"])
    means = means[means["mean"] > 0]
    order = (means["std"].fillna(0.0) / means["mean"]).sort_values(ascending=False, kind="stable")
    chosen = set(order.index[:_EVENTS])
    return [(str(name), str(label)) for name, label in means.index if (name, label) in chosen]


def _complete(totals: pd.DataFrame, limit: float) -> Figure:
    """How much of the time each event was counted."""
    totals = totals.assign(event=_labels(totals))
    figure = Figure(figsize=(8, 1.6 + 0.28 * max(1, len(totals))))
    axes = figure.subplots()
    axes.set_title("How complete each count is")
    if totals.empty:
        instead(axes, "nothing was counted")
        return figure
    sns.barplot(totals, x="complete_percent", y="event", color="0.6", errorbar=None, ax=axes)
    axes.axvline(limit, color="0.2", linestyle="--", label=f"complete from {limit:g} % on")
    axes.set(xlabel="share of the time on a counter (percent)", ylabel="", xlim=(0, 100))
    figure.legend(fontsize="small", loc="outside lower center")
    return figure


def _labels(table: pd.DataFrame) -> pd.Series[str]:
    event = table["event"].astype(str)
    return event.where(table["cpu"] < 0, event + " cpu" + table["cpu"].astype(str))
