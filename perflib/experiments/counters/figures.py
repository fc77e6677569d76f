"""The figures of the experiment: errors beside the scatter, costs, one job over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.experiments.counters.analyse import CountersTable
from perflib.experiments.counters.measure import ONE_SET, SAMPLED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["costs", "errors", "over_time"]

_MARKS = {ONE_SET: "o", "rotated": "s", "kernel": "^", SAMPLED: "D"}
_MOST_EVENTS = 24
_LINEAR_PERCENT = 0.1  # below this the axis of errors is linear
_MOST_ROWS = 4


def _modes(table: pd.DataFrame) -> list[str]:
    known = [mode for mode in _MARKS if mode in set(table["mode"])]
    return known + sorted(set(table["mode"]) - set(known))


def errors(table: CountersTable, limit_percent: float) -> Figure:
    """Each event's average error in each mode with its interval, and the run-to-run scatter."""
    from matplotlib.figure import Figure

    found = table.errors
    worst = found.groupby("event")["average_error_percent"].max().sort_values(ascending=False)
    events = list(worst.index[:_MOST_EVENTS])[::-1]
    jobs = sorted(found["jobs"].unique())
    figure = Figure(figsize=(4 + 3.2 * len(jobs), 2.4 + 0.5 * len(events)))
    panels = figure.subplots(1, len(jobs), sharex=True, sharey=True, squeeze=False)[0]
    modes = _modes(found)
    for panel, count in zip(panels, jobs, strict=True):
        here = found[found["jobs"] == count]
        _scatter(panel, here, events)
        for number, mode in enumerate(modes):
            rows = here[here["mode"] == mode].set_index("event").reindex(events)
            place = np.arange(len(events)) + 0.5 * ((number + 1) / (len(modes) + 1) - 0.5)
            value = rows["average_error_percent"].to_numpy(np.float64)
            low = value - rows["error_low_percent"].to_numpy(np.float64)
            high = rows["error_high_percent"].to_numpy(np.float64) - value
            reach = np.nan_to_num(np.maximum([low, high], 0.0))
            panel.errorbar(
                value, place, xerr=reach, fmt=_MARKS.get(mode, "v"), ms=5, capsize=3, label=mode
            )
        panel.axvline(limit_percent, color="C3", ls="--", lw=1, label=f"{limit_percent:g} %")
        panel.set_xscale("symlog", linthresh=_LINEAR_PERCENT)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.tick_params(axis="x", labelsize="small")
        panel.set_title(f"{count} job{'s' if count > 1 else ''}", fontsize="medium")
        panel.set_xlabel("average error (%)")
    panels[0].set_yticks(np.arange(len(events)), events)
    panels[0].set_ylim(-0.6, len(events) - 0.4)
    rounds = int(found["pairs"].max())
    figure.suptitle(
        f"How far counts are from those of one set at a time (95 % intervals, {rounds} rounds)",
        fontsize="medium",
    )
    _legend_below(figure, panels[0])
    return figure


def _scatter(panel: Axes, here: pd.DataFrame, events: list[str]) -> None:
    """A grey bar as long as the run-to-run scatter: errors inside it mean nothing."""
    scatter = here.groupby("event")["scatter_average_percent"].first().reindex(events)
    panel.barh(
        np.arange(len(events)),
        scatter.fillna(0.0),
        height=0.8,
        color="0.85",
        label="two runs of one set at a time",
    )


def _legend_below(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize="small")


def costs(table: CountersTable, counting_percent: float, sampling_percent: float) -> Figure:
    """What each mode costs the job, with intervals, for each number of jobs."""
    from matplotlib.figure import Figure

    found = table.costs
    times = list(found["time"].unique())
    figure = Figure(figsize=(2 + 4.6 * len(times), 4.4))
    panels = figure.subplots(1, len(times), squeeze=False)[0]
    for panel, word in zip(panels, times, strict=True):
        here = found[found["time"] == word]
        modes = _modes(here)
        _costs(panel, here, modes)
        for number, mode in enumerate(modes):
            limit = sampling_percent if mode == SAMPLED else counting_percent
            label = "called dear from here on" if number == 0 else None
            ends = [number - 0.35, number + 0.35]
            panel.plot(ends, [limit, limit], color="C3", ls="--", lw=1, label=label)
        panel.axhline(0, color="0.3", lw=0.8)
        panel.set_xticks(np.arange(len(modes)), modes)
        panel.set_xlim(-0.6, len(modes) - 0.4)
        panel.set_title(word, fontsize="medium")
    panels[0].set_ylabel("more than without counting (%)")
    rounds = int(found["pairs"].max())
    figure.suptitle(f"What it costs the job (95 % intervals, {rounds} rounds)", fontsize="medium")
    _legend_below(figure, panels[0])
    return figure


def _costs(panel: Axes, here: pd.DataFrame, modes: list[str]) -> None:
    jobs = sorted(here["jobs"].unique())
    for number, count in enumerate(jobs):
        rows = here[here["jobs"] == count].set_index("mode").reindex(modes)
        place = np.arange(len(modes)) + 0.5 * ((number + 1) / (len(jobs) + 1) - 0.5)
        value = rows["cost_percent"].to_numpy(np.float64)
        low = value - rows["cost_low_percent"].to_numpy(np.float64)
        high = rows["cost_high_percent"].to_numpy(np.float64) - value
        panel.errorbar(
            place,
            value,
            yerr=np.nan_to_num([low, high]),
            fmt="o",
            ms=5,
            capsize=4,
            label=f"{count} job{'s' if count > 1 else ''} at once",
        )


def over_time(series: Sequence[Mapping[str, Any]]) -> Figure:
    """Rates of one job's events over time, and the slices of it that a set in turns has seen."""
    from matplotlib.figure import Figure

    whole = _readings(one for one in series if one["mode"] == ONE_SET)
    slices = _readings(one for one in series if one["mode"] == "rotated")
    events = _to_draw(whole)
    figure = Figure(figsize=(9, 1.2 + 1.8 * len(events)))
    panels = figure.subplots(len(events), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, event) in zip(panels, events, strict=True):
        for rows, style, label in (
            (whole, {"fmt": "-", "lw": 1}, "one set at a time: every slice"),
            (slices, {"fmt": "o", "ms": 4}, "in turns, another run: slices seen"),
        ):
            mine = rows[(rows["set"] == name) & (rows["event"] == event)]
            panel.errorbar(
                mine["at_ms"] - mine["ran_ms"] / 2,
                mine["rate"],
                xerr=mine["ran_ms"] / 2 if style["fmt"] == "o" else None,
                label=label,
                **style,
            )
        panel.set_ylim(0, 1.15 * _highest(name, event, whole, slices))
        panel.set_ylabel("per ms of\nrunning", fontsize="small")
        panel.set_title(f"{event} ({name})", fontsize="medium")
    panels[-1].set_xlabel("time since the job was let go (ms)")
    _legend_below(figure, panels[0])
    return figure


def _highest(name: str, event: str, *tables: pd.DataFrame) -> float:
    rates = [rows[(rows["set"] == name) & (rows["event"] == event)]["rate"] for rows in tables]
    return float(pd.concat(rates).max())


def _readings(parts: Any) -> pd.DataFrame:
    columns = ["at_ms", "ran_ms", "set", "event", "value"]
    found = [pd.DataFrame(one["readings"]) for one in parts]
    table = pd.concat(found) if found else pd.DataFrame(columns=columns)
    rate = table["value"].astype(np.float64) / table["ran_ms"].astype(np.float64)
    return table.assign(rate=rate.where(table["ran_ms"] > 0))


def _to_draw(readings: pd.DataFrame) -> list[tuple[str, str]]:
    """The sets' events that happen at all, those first whose rate varies most."""
    rates = readings[readings["value"] > 0].groupby(["event"], sort=False)["rate"]
    varies = (rates.std() / rates.mean()).fillna(0.0).sort_values(ascending=False)
    first_set = readings.groupby("event", sort=False)["set"].first()
    return [(str(first_set[event]), str(event)) for event in varies.index[:_MOST_ROWS]]
