"""The figures of cache coherence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perflib.experiments.core_pairs.coherence.table import (
    ACCESSES,
    CHASED,
    LAYOUT_CONTROL,
    CoherenceTable,
    way_of,
)
from perflib.experiments.core_pairs.figures import heatmap
from perflib.machine.cpulist import parse_cpus
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["figures"]

_STATES = {
    "local": "local (own Modified)",
    "invalid": "invalid (from memory)",
    "shared_here": "shared, a copy here",
    "owned_here": "modified there, a copy here",
}
_MARKS = "os^"
_FARTHEST = 5.0  # an interval of two blocks can reach anywhere
_MOST_WITH_TWOS = 60.0  # between the ends of an axis
_FOLLOWED = ("modified load", "invalid load")


def figures(table: CoherenceTable, machine: Mapping[str, Any]) -> dict[str, Figure]:
    """A heatmap of each protocol (or of the next best); states; protocols; the control."""
    drawn: dict[str, Figure] = {}
    for what in table.protocols or [name for name in [table.main] if name]:
        drawn[f"heatmap_{what.replace(' ', '_')}"] = _heatmap(table, what, machine)
    if any(table.states(access) for access in ACCESSES):
        drawn["states"] = _states(table)
    if table.protocols:
        drawn["protocols"] = _protocols(table)
    if table.layouts:
        drawn["control"] = _control(table)
    if len(table.rounds) > 1 and table.whats:
        drawn["over_time"] = _over_time(table)
    return drawn


def _heatmap(table: CoherenceTable, what: str, machine: Mapping[str, Any]) -> Figure:
    """Each pair's latency; lines where a NUMA node or a last-level cache ends."""
    cells, way = table.cells(what), way_of(what)
    order, boundaries = _boundaries(machine, cells.cpus)
    title = f"Latency of {what} ({way})" if way else f"Latency of {what}"
    return heatmap(
        cells, title, "ns", "owner, CPU", "requester, CPU", boundaries=boundaries, order=order
    )


def _boundaries(
    machine: Mapping[str, Any], cpus: Sequence[int]
) -> tuple[list[int], dict[str, list[float]]]:
    """The CPUs put together by node and last-level cache, and the places where these end."""
    node = {place["cpu"]: place["node"] for place in machine.get("cpus", ())}
    unified = [cache for cache in machine.get("caches", ()) if cache["kind"] == "unified"]
    last = max((cache["level"] for cache in unified), default=None)
    lists = [text for cache in unified if cache["level"] == last for text in cache["shared_by"]]
    shared = {cpu: min(parse_cpus(text)) for text in lists for cpu in parse_cpus(text)}
    order = sorted(cpus, key=lambda cpu: (node.get(cpu) or 0, shared.get(cpu, 0), cpu))
    found: dict[str, list[float]] = {}
    for name, group in (("NUMA node", node), ("last-level cache", shared)):
        of = [group.get(cpu) for cpu in order]
        edges = [place + 0.5 for place in range(len(of) - 1) if of[place] != of[place + 1]]
        if edges and edges not in found.values():
            found[name] = edges
    return order, found


def _states(table: CoherenceTable) -> Figure:
    """What it takes to load or write a line, by the state that it was in."""
    from matplotlib.figure import Figure

    measured = {access: table.states(access) for access in ACCESSES if table.states(access)}
    rows = list(dict.fromkeys(state for states in measured.values() for state in states))
    figure = Figure(figsize=(8, 1.8 + 0.52 * len(rows)))
    axes = figure.subplots()
    shown: list[Interval] = []
    for i, (access, states) in enumerate(measured.items()):
        shift = 0.17 * (2 * i - len(measured) + 1)
        y = [rows.index(state) + shift for state in states]
        whats = [f"{state} {access}" for state in states]
        matrices = [table.cells(what).matrix for what in whats]
        axes.hlines(
            y, [np.nanmin(matrix) for matrix in matrices],
            [np.nanmax(matrix) for matrix in matrices], color=f"C{i}", lw=6, alpha=0.25,
            label="all pairs of cores" if i == 0 else "",
        )  # fmt: skip
        words = "load" if access == "load" else "write (an exchange)"
        found = [table.typical(what) for what in whats]
        _points(axes, y, found, i, words)
        shown += found
    axes.set_xscale("log")
    _logarithmic(axes.xaxis, *_limits(shown))
    axes.set_yticks(range(len(rows)), [_STATES.get(state, state) for state in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("latency of one line (ns): median over pairs, 95 % interval")
    axes.set_ylabel("the line was")
    axes.set_title("What a line costs, by its state")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _protocols(table: CoherenceTable) -> Figure:
    """How each protocol's rows are distributed, and where the mean of all samples lies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.6 + 0.75 * len(table.protocols)))
    axes = figure.subplots()
    shown, drawn = [table.typical(what) for what in table.protocols], []
    main = table.samples[table.samples["control"] == ""]
    for place, what in enumerate(table.protocols):
        mine = main[main["what"] == what]
        ends = np.quantile(mine["latency_ns"], [0.01, 0.25, 0.75, 0.99])
        drawn += ends.tolist()
        labels = ["98 % of all rows", "half of all rows"] if place == 0 else ["", ""]
        axes.hlines(place, ends[0], ends[3], color="0.6", lw=1.5, label=labels[0])
        axes.hlines(place, ends[1], ends[2], color="C0", lw=7, alpha=0.4, label=labels[1])
        _points(axes, [place], [shown[place]], 0, "median, 95 %" if place == 0 else None)
        if "mean_ns" in mine:
            label = "mean of all samples" if place == 0 else None
            drawn.append(mine["mean_ns"].mean())
            axes.plot(drawn[-1], place, "x", color="C3", ms=7, mew=2, label=label)
    axes.set_xscale("log")
    _logarithmic(axes.xaxis, *_limits(shown, drawn))
    names = [f"{what}\n({way_of(what)})" for what in table.protocols]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.set_xlabel("latency as each protocol tells it (ns)")
    axes.set_title("The same cores by several protocols")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _over_time(table: CoherenceTable) -> Figure:
    """The same pairs, round by round: were the cores always as far apart?"""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.8))
    axes = figure.subplots()
    x = table.rounds if table.start_s is None else table.start_s
    for what in [*table.protocols, *(name for name in _FOLLOWED if name in table.whats)]:
        label = f"{what} ({way_of(what)})"
        axes.plot(x, np.exp(table.by_round(what)), ".", ms=4, label=label)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    _logarithmic(axes.yaxis, low, high)
    axes.set_xlabel("round" if table.start_s is None else "time since the run began (s)")
    axes.set_ylabel("latency (ns)")
    axes.set_title("The same cores in the course of time")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _control(table: CoherenceTable) -> Figure:
    """The same lines in four layouts: where fetching ahead helps, and where it does not."""
    from matplotlib.figure import Figure

    mine = table.samples[table.samples["control"] == LAYOUT_CONTROL]
    figure = Figure(figsize=(8, 3.4))
    axes = figure.subplots()
    ends = [
        Interval(*(math.exp(end) for end in t_interval(table.layout(name))))
        for name in table.layouts
    ]
    _points(axes, range(len(ends)), ends, 0, None)
    for place, found in enumerate(ends):
        axes.barh(place, found.effect, color="C0", alpha=0.25, height=0.6, lw=0)
    axes.set_yticks(range(len(ends)), [name.replace(" ", ", ") for name in table.layouts])
    axes.set_ylim(len(ends) - 0.5, -0.5)
    axes.set_xlim(0, 1.25 * max(found.effect for found in ends))
    lines = f"{mine['lines'].iloc[0]:.0f} lines, " if "lines" in mine else ""
    axes.set_xlabel(f"{lines}{CHASED}: latency of one line (ns), 95 % intervals")
    owner, requester = mine["owner_cpu"].iloc[0], mine["requester_cpu"].iloc[0]
    axes.set_title(f"The control: where are neighbours fetched ahead? cpu{owner} to cpu{requester}")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _points(
    axes: Axes, y: Sequence[float], found: Sequence[Interval], colour: int, label: str | None
) -> None:
    """Estimates with their intervals, and the number beside each."""
    x = np.array([one.effect for one in found])
    reach = np.nan_to_num([[one.effect - one.low, one.high - one.effect] for one in found])
    axes.errorbar(
        x, y, xerr=np.abs(reach.T), fmt=_MARKS[colour % len(_MARKS)], ms=5, capsize=3,
        color=f"C{colour}", label=label,
    )  # fmt: skip
    for one, place in zip(found, y, strict=True):
        right = min(one.high, _FARTHEST * one.effect) if math.isfinite(one.high) else one.effect
        axes.annotate(
            f"{one.effect:.3g}", (right, place), xytext=(6, 0), textcoords="offset points",
            va="center", fontsize="x-small", color=f"C{colour}",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip


def _logarithmic(axis: Axis, low: float, high: float) -> None:
    """From ``low`` to ``high``, with plain numbers: at 1, 2, 5, 10 ... if there is room."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_view_interval(low, high, ignore=True)
    few = high / low < _MOST_WITH_TWOS
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_major_formatter(lambda value, _place: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def _limits(found: Sequence[Interval], more: Sequence[float] = ()) -> tuple[float, float]:
    """Of a logarithmic axis: with the intervals, but for what goes beyond all bounds."""
    effects = [*(one.effect for one in found), *more]
    lows = [one.low for one in found if math.isfinite(one.low)]
    highs = [one.high for one in found if math.isfinite(one.high)]
    low = max(min([*effects, *lows]), min(effects) / _FARTHEST)
    high = min(max([*effects, *highs]), max(effects) * _FARTHEST)
    room = max(high / low, 2.0) ** 0.05
    return low / room, high * room**3  # more at the right: numbers are written there
