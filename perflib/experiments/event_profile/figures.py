"""The figures of one event's profile: where its time went, where two profiles differ, and when.

The points are those of the table of the same name; the titles say what the comparison is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perflib.experiments.event_profile import analyse
from perflib.experiments.event_profile.classes import classes_of, of_class
from perflib.experiments.event_profile.plots import instructions, time_by_module
from perflib.experiments.figures import (
    COMMON,
    ODD,
    additional_time,
    finite_max,
    labels,
    legend_below,
    list_of,
    repetitions,
    scaled,
)
from perflib.framework.plots import core_style, intervals, log_ticks, panel
from perflib.instruments.profile.comparison import Comparison
from perflib.instruments.profile.entry_cost import EntryCost
from perflib.model.run import Run


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    return {
        plot: partial(_titled, draw, name) if name else draw
        for name, part in classes_of(run).items()
        for plot, draw in of_class(_plots(part), name).items()
    }


def _titled(draw: Callable[[], Figure], name: str) -> Figure:
    """The same figure, which says of which class of events it is."""
    figure = draw()
    first = figure.axes[0]
    first.set_title(f"{name}: {first.get_title()}")
    return figure


def _plots(run: Run) -> dict[str, Callable[[], Figure]]:
    profiles = analyse.CoreProfiles(run)
    made = analyse.tables_of(profiles)
    drawn: dict[str, Callable[[], Figure]] = {"modules": lambda: time_by_module(made["modules"]())}
    for core in profiles.others:
        drawn[f"additional_time_{core}"] = partial(_compared, profiles, core, additional_time)
        drawn[f"cost_{core}"] = partial(_compared, profiles, core, cost_on_both)
        if f"instructions_{core}" in made:
            drawn[f"instructions_{core}"] = partial(_instructions, profiles, core)
    if "cost" in made:
        drawn["cost"] = lambda: cost_of_one(made["cost"](), len(profiles.samples))
    entry = profiles.entry
    if entry is not None:
        drawn["entry"] = lambda: entry_shares(entry)
    if "time_line" in made:
        drawn["time_line"] = lambda: time_line(made["time_line"]())
    return drawn


def _compared(
    profiles: analyse.CoreProfiles, core: str, draw: Callable[[Comparison], Figure]
) -> Figure:
    return draw(profiles.comparisons[core])


def _instructions(profiles: analyse.CoreProfiles, core: str) -> Figure:
    return instructions(analyse.beside(profiles, core))


# --- comparison --------------------------------------------------------------------------------


def cost_on_both(compared: Comparison, most: int = 12) -> Figure:
    """What the costliest functions cost per event, on both cores."""
    table = analyse.cost_by_core(compared)
    by_core = {str(core): rows[:most][::-1] for core, rows in table.groupby("core", sort=False)}
    by, unit = scaled(
        max(finite_max(rows["cost_high"]) for rows in by_core.values()), compared.unit
    )
    figure, axes = list_of(next(iter(by_core.values()))["function"])
    for (core, rows), aside, sign in zip(by_core.items(), (0.15, -0.15), "os", strict=True):
        value, low, high = (
            rows[f"cost{end}"].to_numpy(np.float64) / by for end in ("", "_low", "_high")
        )
        number = re.fullmatch(r"cpu(\d+)", core)
        intervals(
            axes, value, np.arange(len(rows)) + aside, low, high, horizontal=True, fmt=sign, ms=5,
            color=core_style(int(number[1]))[0] if number else None, label=core,
        )  # fmt: skip
    axes.set_xlim(left=0)
    axes.set_xlabel(f"cost per event ({unit}), {100 * compared.confidence:g} % interval")
    axes.set_title(f"What the costliest functions cost\n{repetitions(compared)}")
    legend_below(figure)
    return figure


def cost_of_one(shares: pd.DataFrame, samples: int, most: int = 12) -> Figure:
    """What the costliest functions of one core's profile cost, of so many samples."""
    rows = shares[:most][::-1]
    error = rows["share_percent_high"] - rows["share_percent"]
    figure, axes = list_of(rows["function"])
    axes.barh(np.arange(len(rows)), rows["share_percent"], xerr=error, capsize=3, alpha=0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("share of the event (%), 95 % interval (counting only)")
    axes.set_title(f"What the costliest functions cost\n{samples:,} samples")
    return figure


# --- entry cost --------------------------------------------------------------------------------


def entry_shares(found: EntryCost, most_labels: int = 6) -> Figure:
    """Each function's share of samples on its entry and elsewhere, against an even spread."""
    table = found.table
    figure, axes = panel(8, 6)
    even, share = table["even_percent"], table["share_percent"]
    floor = 0.5 * float(min(even.min(), share.where(share > 0, np.inf).min()))
    control = np.maximum(table["control_ratio"] * even, floor)
    axes.plot(even, control, ".", color="0.65", ms=5, label="control window elsewhere")
    costly = (table["verdict"] == "supported").to_numpy(dtype=bool)
    level = f"{100 * found.confidence:g} % interval"
    groups = ((~costly, COMMON, f"entry, {level}"), (costly, ODD, f"costly entry, {level}"))
    for chosen, colour, label in groups:
        if chosen.any():
            rows = table[chosen]
            y = np.maximum(rows["share_percent"], floor)
            low = np.maximum(rows["share_percent_low"], floor)
            high = np.maximum(rows["share_percent_high"], y)
            intervals(
                axes, rows["even_percent"], y, low, high,
                fmt="o", lw=1, capsize=0, color=colour, label=label,
            )  # fmt: skip
    ends = np.array([0.8 * float(even.min()), 1.25 * float(even.max())])
    axes.plot(ends, ends, color="0.3", lw=1, label="even spread")
    axes.plot(ends, found.times * ends, "--", color="0.3", lw=1, label=f"{found.times:g} × even")
    _number_outliers(axes, table[costly].nlargest(most_labels, "ratio"))
    log_ticks(axes.xaxis, ends[0], ends[1])
    axes.set_yscale("log")
    log_ticks(axes.yaxis, *axes.get_ylim())
    axes.set_xlabel("share of an even spread (%)")
    axes.set_ylabel("share of the function's samples\nthat are on its entry (%)")
    over = found.overall
    axes.set_title(
        f"Samples on functions' first {found.instructions} instructions\n"
        f"all functions: {over.effect:.2f} × even [{over.low:.2f}, {over.high:.2f}]; "
        f"control window {found.control.effect:.2f} × "
        f"[{found.control.low:.2f}, {found.control.high:.2f}]",
        fontsize="medium",
    )
    legend_below(figure)
    return figure


def _number_outliers(axes: Axes, rows: pd.DataFrame) -> None:
    """A number at each outlier, and the names below the diagonal, where no costly entry is."""
    for number, (_, row) in enumerate(rows.iterrows(), 1):
        axes.annotate(
            str(number),
            (row["even_percent"], row["share_percent"]),
            xytext=(-5, 5),
            textcoords="offset points",
            ha="right",
            fontsize="small",
            color=ODD,
        )
    names = [f"{number}  {name}" for number, name in enumerate(labels(rows["function"]), 1)]
    if names:
        axes.text(
            0.985,
            0.02,
            "\n".join(names),
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            multialignment="left",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "0.8", "alpha": 0.9},
        )


# --- one event ---------------------------------------------------------------------------------


def time_line(samples: pd.DataFrame, bin_ms: float = 1.0) -> Figure:
    """When samples were taken: their number in each bin, from before the event to after it.

    The bins are wider where more than a thousand would be needed.
    """
    times_ms = samples["time_ms"].to_numpy(np.float64)
    end_ms, missed_begin_ms, missed_end_ms = (
        float(samples[name].iloc[0]) for name in ("event_ms", "missed_begin_ms", "missed_end_ms")
    )
    first, last = min(0.0, float(times_ms.min())), max(end_ms, float(times_ms.max()))
    width = max(bin_ms, (last - first) / 1000)
    edges = np.arange(np.floor(first / width), np.ceil(last / width) + 1) * width
    figure, axes = panel(9, 3.6)
    sns.histplot(
        x=times_ms, bins=edges, element="step", color=COMMON, alpha=0.6, linewidth=0,
        label="samples", ax=axes,
    )  # fmt: skip
    for at, label, style in ((0.0, "begin", "-"), (end_ms, "end", "--")):
        axes.axvline(at, color="0.2", lw=1.2, ls=style, label=f"{label} of the event")
    missed_ms = missed_begin_ms + missed_end_ms
    label = f"missed: {missed_ms:.2f} ms, {100 * missed_ms / end_ms:.2g} %"
    for low, high in ((0.0, missed_begin_ms), (end_ms - missed_end_ms, end_ms)):
        if high > low:
            axes.axvspan(low, high, color=ODD, alpha=0.5, lw=0, label=label)
            label = "_"  # one line in the legend for both ends
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    aside = 0.02 * (last - first)
    axes.set_xlim(first - aside, last + aside)
    axes.set_xlabel("time since the event's begin (ms)")
    axes.set_ylabel(f"samples per {width:.3g} ms")
    axes.set_title(f"{times_ms.size:,} samples of an event of {end_ms:,.1f} ms")
    legend_below(figure)
    return figure
