"""The figures of one event's profile: where its time went, where two profiles differ, and when.

The points are those of the table of the same name; the titles say what the comparison is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perflib.experiments.event_profile import analyse
from perflib.experiments.event_profile.classes import classes_of, of_class
from perflib.experiments.event_profile.plots import instructions, time_by_module
from perflib.framework.plots import core_style, intervals, log_ticks

if TYPE_CHECKING:
    from perflib.instruments.profile.comparison import Comparison
    from perflib.instruments.profile.entry_cost import EntryCost
    from perflib.model.run import Run

__all__ = [
    "abbreviated",
    "additional_time",
    "cost_of_one",
    "cost_on_both",
    "entry_shares",
    "plots",
    "time_line",
]

_WIDTH = 40  # characters of a function's name beside an axis
_COMMON, _ODD = "C0", "C3"


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


# --- names and units ---------------------------------------------------------------------------


def abbreviated(name: str, width: int = _WIDTH) -> str:
    """A function's name without arguments, and its end if it is still too long.

    >>> abbreviated("std::vector<int, std::allocator<int> >::push_back(int const&)")
    'std::vector<…>::push_back'
    >>> abbreviated("G4VEnergyLossProcess::PostStepGetPhysicalInteractionLength", 40)
    '…::PostStepGetPhysicalInteractionLength'
    """
    operator = re.search(r"operator\s*(?:\(\)|<=>|<<=|>>=|->\*?|<<|>>|<=|>=|<|>)", name)
    head, tail = (name, "") if operator is None else (name[: operator.start()], operator[0])
    plain = _without(head.replace("(anonymous namespace)", "{anonymous}"))
    if "(" in name or "::" in name:
        plain = re.sub(r"^.*(?<!operator)\s", "", plain)  # a template's name begins with its type
    short = plain + tail
    parts = short.split("::")
    while len(short) > width and len(parts) > 1:
        parts = parts[1:]
        short = "…::" + "::".join(parts)
    return short if len(short) <= width else "…" + short[len(short) - width + 1 :]


def _without(name: str) -> str:
    """Template arguments as ``<…>``, and no arguments: what stands in brackets is cut out."""
    kept, depth, opened = [], 0, ""
    for sign in name:
        if sign in "<(":
            if not depth:
                opened = sign
            depth += 1
        if not depth:
            kept.append(sign)
        if sign in ">)" and depth:
            depth -= 1
            if not depth and opened == "<":
                kept.append("<…>")
    return "".join(kept).removesuffix(" const").strip() if not depth else name


def _labels(names: Iterable[str]) -> list[str]:
    """Short names; those of overloads, which would look alike, are numbered."""
    seen: Counter[str] = Counter()
    labels = []
    for name in names:
        short = abbreviated(name)
        seen[short] += 1
        labels.append(short if seen[short] == 1 else f"{short} #{seen[short]}")
    return labels


def _scaled(largest: float, unit: str) -> tuple[float, str]:
    """By what to divide values of that size, and the unit they are in then."""
    steps = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")] if unit == "ns" else []
    steps = steps or [(1e9, f"10⁹ {unit}"), (1e6, f"10⁶ {unit}"), (1e4, f"10³ {unit}")]
    for size, name in steps:
        if largest >= size:
            return (1e3 if size == 1e4 else size), name
    return 1.0, unit


def _finite_max(*columns: pd.Series[float]) -> float:
    values = np.abs(np.concatenate([column.to_numpy(np.float64) for column in columns]))
    return float(np.max(values[np.isfinite(values)], initial=0.0))


# --- comparison --------------------------------------------------------------------------------


def additional_time(compared: Comparison, most: int = 12) -> Figure:
    """The additional time by function, beside what the slowdown common to all explains.

    The ``most`` functions of the largest additional time, and all that stand out.
    """
    table = analyse.additional_time(compared)
    largest = table["additional"].abs().nlargest(most).index
    rows = table[table.index.isin(largest) | table["stands_out"]].sort_values("additional")
    by, unit = _scaled(_finite_max(rows["additional_low"], rows["additional_high"]), compared.unit)
    figure, axes = _list_of(rows["function"])
    place = np.arange(len(rows))
    odd = rows["stands_out"].to_numpy(dtype=bool)
    value, low, high = (
        rows[f"additional{end}"].to_numpy(np.float64) / by for end in ("", "_low", "_high")
    )
    level = f"{100 * compared.confidence:g} % interval"
    for chosen, colour, label in ((~odd, _COMMON, level), (odd, _ODD, f"stands out, {level}")):
        if chosen.any():
            axes.barh(place[chosen], value[chosen], color=colour, alpha=0.35, height=0.6)
            intervals(
                axes, value[chosen], place[chosen], low[chosen], high[chosen], horizontal=True,
                fmt="o", ms=5, color=colour, label=label,
            )  # fmt: skip
    axes.plot(
        rows["explained"] / by,
        place,
        "D",
        ms=6,
        mfc="none",
        color="0.2",
        label="common slowdown's part",
    )
    for at, (_, row) in enumerate(rows.iterrows()):
        if row["stands_out"]:
            axes.annotate(
                _excess_words(row["excess_percent"]),
                (high[at], at),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=_ODD,
                fontsize="small",
            )
    axes.margins(x=0.22 if odd.any() else 0.05)
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_xlabel(f"additional time per event on {compared.second} ({unit})")
    total = compared.total
    axes.set_title(
        f"Where {compared.second} takes longer than {compared.first}\n"
        f"event {total.effect:+.1f} % [{total.low:+.1f}, {total.high:+.1f}], "
        f"{_repetitions(compared)}"
    )
    _legend_below(figure)
    return figure


def cost_on_both(compared: Comparison, most: int = 12) -> Figure:
    """What the costliest functions cost per event, on both cores."""
    table = analyse.cost_by_core(compared)
    by_core = {str(core): rows[:most][::-1] for core, rows in table.groupby("core", sort=False)}
    by, unit = _scaled(
        max(_finite_max(rows["cost_high"]) for rows in by_core.values()), compared.unit
    )
    figure, axes = _list_of(next(iter(by_core.values()))["function"])
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
    axes.set_title(f"What the costliest functions cost\n{_repetitions(compared)}")
    _legend_below(figure)
    return figure


def cost_of_one(shares: pd.DataFrame, samples: int, most: int = 12) -> Figure:
    """What the costliest functions of one core's profile cost, of so many samples."""
    rows = shares[:most][::-1]
    error = rows["share_high"] - rows["share_percent"]
    figure, axes = _list_of(rows["function"])
    axes.barh(np.arange(len(rows)), rows["share_percent"], xerr=error, capsize=3, alpha=0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("share of the event (%), 95 % interval (counting only)")
    axes.set_title(f"What the costliest functions cost\n{samples:,} samples")
    return figure


def _repetitions(compared: Comparison) -> str:
    if compared.counting_only:
        return "1 repetition (counting only)"
    return f"{compared.rounds} repetitions"


def _excess_words(percent: float) -> str:
    return f"{percent:+.0f} % excess" if np.isfinite(percent) else "new"


def _list_of(functions: pd.Series[str]) -> tuple[Figure, Axes]:
    """A figure with a line for each function, the first lowest."""
    figure = Figure(figsize=(9, 2.2 + 0.33 * len(functions)))
    axes = figure.subplots()
    axes.set_yticks(np.arange(len(functions)), _labels(functions[::-1])[::-1])
    axes.set_ylim(-0.7, len(functions) - 0.3)
    return figure, axes


def _legend_below(figure: Figure) -> None:
    """Below the axes, where it hides no function."""
    figure.legend(loc="outside lower right", ncols=3, fontsize="small")


# --- entry cost --------------------------------------------------------------------------------


def entry_shares(found: EntryCost, most_labels: int = 6) -> Figure:
    """Each function's share of samples on its entry and elsewhere, against an even spread."""
    table = found.table
    figure = Figure(figsize=(8, 6))
    axes = figure.subplots()
    even, share = table["even_percent"], table["share_percent"]
    floor = 0.5 * float(min(even.min(), share.where(share > 0, np.inf).min()))
    control = np.maximum(table["control_ratio"] * even, floor)
    axes.plot(even, control, ".", color="0.65", ms=5, label="control window elsewhere")
    costly = (table["verdict"] == "supported").to_numpy(dtype=bool)
    level = f"{100 * found.confidence:g} % interval"
    groups = ((~costly, _COMMON, f"entry, {level}"), (costly, _ODD, f"costly entry, {level}"))
    for chosen, colour, label in groups:
        if chosen.any():
            rows = table[chosen]
            y = np.maximum(rows["share_percent"], floor)
            low = np.maximum(rows["share_low"], floor)
            intervals(
                axes, rows["even_percent"], y, low, np.maximum(rows["share_high"], y), fmt="o",
                lw=1, capsize=0, color=colour, label=label,
            )  # fmt: skip
    ends = np.array([0.8 * float(even.min()), 1.25 * float(even.max())])
    axes.plot(ends, ends, color="0.3", lw=1, label="even spread")
    axes.plot(ends, found.times * ends, "--", color="0.3", lw=1, label=f"{found.times:g} × even")
    _number_outliers(axes, table[costly].nlargest(most_labels, "ratio"))
    log_ticks(axes.xaxis, ends[0], ends[1])
    axes.set_yscale("log")
    log_ticks(axes.yaxis, *axes.get_ylim())
    axes.set_xlabel("share of an even spread (%)")
    axes.set_ylabel("share of the function's samples\nthat lie on its entry (%)")
    over = found.overall
    axes.set_title(
        f"Samples on functions' first {found.instructions} instructions\n"
        f"all functions: {over.effect:.2f} × even [{over.low:.2f}, {over.high:.2f}]; "
        f"control window {found.control.effect:.2f} × "
        f"[{found.control.low:.2f}, {found.control.high:.2f}]",
        fontsize="medium",
    )
    _legend_below(figure)
    return figure


def _number_outliers(axes: Axes, rows: pd.DataFrame) -> None:
    """A number at each outlier, and the names below the diagonal, where no costly entry lies."""
    for number, (_, row) in enumerate(rows.iterrows(), 1):
        axes.annotate(
            str(number),
            (row["even_percent"], row["share_percent"]),
            xytext=(-5, 5),
            textcoords="offset points",
            ha="right",
            fontsize="small",
            color=_ODD,
        )
    names = [f"{number}  {name}" for number, name in enumerate(_labels(rows["function"]), 1)]
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
    figure = Figure(figsize=(9, 3.6))
    axes = figure.subplots()
    sns.histplot(
        x=times_ms, bins=edges, element="step", color=_COMMON, alpha=0.6, linewidth=0,
        label="samples", ax=axes,
    )  # fmt: skip
    for at, label, style in ((0.0, "begin", "-"), (end_ms, "end", "--")):
        axes.axvline(at, color="0.2", lw=1.2, ls=style, label=f"{label} of the event")
    missed_ms = missed_begin_ms + missed_end_ms
    label = f"missed: {missed_ms:.2f} ms, {100 * missed_ms / end_ms:.2g} %"
    for low, high in ((0.0, missed_begin_ms), (end_ms - missed_end_ms, end_ms)):
        if high > low:
            axes.axvspan(low, high, color=_ODD, alpha=0.5, lw=0, label=label)
            label = "_"  # one line in the legend for both ends
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    aside = 0.02 * (last - first)
    axes.set_xlim(first - aside, last + aside)
    axes.set_xlabel("time since the event's begin (ms)")
    axes.set_ylabel(f"samples per {width:.3g} ms")
    axes.set_title(f"{times_ms.size:,} samples of an event of {end_ms:,.1f} ms")
    _legend_below(figure)
    return figure
