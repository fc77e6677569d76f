"""The figures of the experiment: errors compared with the scatter, costs, one job over time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.counters.analyse import tables
from perflib.experiments.counters.modes import KERNEL, ONE_SET, ROTATED, SAMPLED
from perflib.framework.plots import intervals, panels_above
from perflib.model.run import Run

_MARKS = {ONE_SET: "o", ROTATED: "s", KERNEL: "^", SAMPLED: "D"}
_MAX_EVENTS = 24
_LINEAR_PERCENT = 0.1  # below this the axis of errors is linear
_MAX_ROWS = 4
_TITLE = {"x": 0.02, "ha": "left", "fontweight": "bold", "fontsize": "medium"}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn; what the samples do not hold has none."""
    params = run.params
    draw: dict[str, Callable[[pd.DataFrame], Figure]] = {
        "errors": lambda table: _errors(table, params["error_percent"]),
        "costs": lambda table: _costs(
            table, params["counting_percent"], params["sampling_percent"]
        ),
        "over_time": _over_time,
    }
    derived = tables(run)
    made = {name: derived[name]() for name in draw}
    return {
        name: lambda name=name: draw[name](made[name])  # type: ignore[misc]
        for name in draw
        if len(made[name])
    }


def _modes(table: pd.DataFrame) -> list[str]:
    known = [mode for mode in _MARKS if mode in set(table["mode"])]
    return known + sorted(set(table["mode"]) - set(known))


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs at once"


def _beside(number: int, count: int) -> float:
    """How far from a tick the series of that number stands, of so many that share the tick."""
    return 0.5 * ((number + 1) / (count + 1) - 0.5)


def _legend_below(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize="small")


# --- errors ------------------------------------------------------------------------------------


def _errors(found: pd.DataFrame, limit_percent: float) -> Figure:
    """Each event's average error in each mode with its interval, and the run-to-run scatter."""
    worst = (
        found.groupby("event")["average_error_percent"]
        .max()
        .sort_values(ascending=False, kind="stable")
    )
    events = list(worst.index[:_MAX_EVENTS])[::-1]
    jobs = sorted(found["jobs"].unique())
    figure = Figure(figsize=(4 + 3.2 * len(jobs), 2.4 + 0.5 * len(events)))
    panels = figure.subplots(1, len(jobs), sharex=True, sharey=True, squeeze=False)[0]
    modes = _modes(found)
    for panel, count in zip(panels, jobs, strict=True):
        here = found[found["jobs"] == count]
        _scatter(panel, here, events)
        for number, mode in enumerate(modes):
            rows = here[here["mode"] == mode].set_index("event").reindex(events)
            intervals(
                panel,
                rows["average_error_percent"],
                np.arange(len(events)) + _beside(number, len(modes)),
                rows["error_percent_low"],
                rows["error_percent_high"],
                horizontal=True,
                fmt=_MARKS.get(mode, "v"),
                ms=5,
                label=mode,
            )
        panel.axvline(limit_percent, color="C3", ls="--", lw=1, label=f"{limit_percent:g} %")
        panel.set_xscale("symlog", linthresh=_LINEAR_PERCENT)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.tick_params(axis="x", labelsize="small")
        panel.set_title(_jobs(count), fontsize="medium")
        panel.set_xlabel("average error (%)")
    panels[0].set_yticks(np.arange(len(events)), events)
    panels[0].set_ylim(-0.6, len(events) - 0.4)
    rounds = int(found["pairs"].max())
    figure.suptitle(
        f"Error of the counts compared with one set at a time (95 % intervals, {rounds} rounds)",
        **_TITLE,
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


# --- costs -------------------------------------------------------------------------------------


def _costs(found: pd.DataFrame, counting_percent: float, sampling_percent: float) -> Figure:
    """What each mode costs the job, with intervals, for each number of jobs."""
    times = list(found["time"].unique())
    figure = Figure(figsize=(2 + 4.6 * len(times), 4.4))
    panels = figure.subplots(1, len(times), squeeze=False)[0]
    for panel, word in zip(panels, times, strict=True):
        here = found[found["time"] == word]
        modes = _modes(here)
        _costs_of_one_time(panel, here, modes)
        for number, mode in enumerate(modes):
            limit = sampling_percent if mode == SAMPLED else counting_percent
            label = "counted as costly from here on" if number == 0 else None
            ends = [number - 0.35, number + 0.35]
            panel.plot(ends, [limit, limit], color="C3", ls="--", lw=1, label=label)
        panel.axhline(0, color="0.3", lw=0.8)
        panel.set_xticks(np.arange(len(modes)), modes)
        panel.set_xlim(-0.6, len(modes) - 0.4)
        panel.set_title(word, fontsize="medium")
    panels[0].set_ylabel("extra time compared with no counting (%)")
    rounds = int(found["pairs"].max())
    figure.suptitle(f"What it costs the job (95 % intervals, {rounds} rounds)", **_TITLE)
    _legend_below(figure, panels[0])
    return figure


def _costs_of_one_time(panel: Axes, here: pd.DataFrame, modes: list[str]) -> None:
    jobs = sorted(here["jobs"].unique())
    for number, count in enumerate(jobs):
        rows = here[here["jobs"] == count].set_index("mode").reindex(modes)
        intervals(
            panel,
            np.arange(len(modes)) + _beside(number, len(jobs)),
            rows["cost_percent"],
            rows["cost_percent_low"],
            rows["cost_percent_high"],
            fmt="o",
            ms=5,
            label=_jobs(count),
        )


# --- over time ---------------------------------------------------------------------------------


def _over_time(readings: pd.DataFrame) -> Figure:
    """Rates of one job's events over time, and the slices that a multiplexed set has seen."""
    whole = readings[readings["mode"] == ONE_SET]
    slices = readings[readings["mode"] == ROTATED]
    events = _to_draw(whole)
    figure, panels = panels_above(len(events), 9, 1.2 + 1.8 * len(events))
    for panel, (name, event) in zip(panels, events, strict=True):
        highest = 0.0
        for rows, style, label in (
            (whole, {"fmt": "-", "lw": 1}, "one set at a time: every slice"),
            (slices, {"fmt": "o", "ms": 4}, "rotated, another run: the slices seen"),
        ):
            mine = rows[(rows["set"] == name) & (rows["event"] == event)]
            highest = max([highest, *mine["rate_per_ms"].dropna()])
            panel.errorbar(
                mine["at_ms"] - mine["ran_ms"] / 2,
                mine["rate_per_ms"],
                xerr=mine["ran_ms"] / 2 if style["fmt"] == "o" else None,
                label=label,
                **style,
            )
        panel.set_ylim(-0.04 * highest, 1.15 * highest)
        panel.yaxis.set_major_formatter("{x:,.10g}")
        panel.set_ylabel("per ms of\nrunning", fontsize="small")
        panel.set_title(f"{event} ({name})", fontsize="medium")
    panels[-1].set_xlabel("time since the job's release (ms)")
    _legend_below(figure, panels[0])
    return figure


def _to_draw(readings: pd.DataFrame) -> list[tuple[str, str]]:
    """The sets' events that happen at all, those first whose rate varies most."""
    rates = readings[readings["value"] > 0].groupby(["event"], sort=False)["rate_per_ms"]
    varies = (rates.std() / rates.mean()).fillna(0.0).sort_values(ascending=False, kind="stable")
    first_set = readings.groupby("event", sort=False)["set"].first()
    return [(str(first_set[event]), str(event)) for event in varies.index[:_MAX_ROWS]]
