"""The figures of KV per core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflib.experiments.kv_per_core.analyse import KvTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["drift", "event_by_event", "seconds_per_event"]

_MOST_COLOURED = 8


def _coloured(table: KvTable) -> list[int]:
    """The cores to draw in colour: all if they are few, else the slowest."""
    effects = [effect.slowdown.effect for effect in table.comparison.effects]
    order = np.argsort([-effect if np.isfinite(effect) else np.inf for effect in effects])
    return sorted(table.cores[i] for i in order[:_MOST_COLOURED])


def seconds_per_event(table: KvTable) -> Figure:
    """Time per event on each core, as in the source's first figure."""
    from matplotlib.figure import Figure

    values = table.seconds_per_event() * 1e3
    place = np.arange(len(values))
    figure = Figure(figsize=(max(6.0, min(16.0, 2 + 0.35 * len(values))), 4.2))
    axes = figure.subplots()
    middle = values["undisturbed_s"]
    reach = np.nan_to_num([middle - values["low_s"], values["high_s"] - middle])
    axes.errorbar(
        place, middle, yerr=np.abs(reach), fmt="o", capsize=4, label="undisturbed, 95 % interval"
    )
    axes.plot(
        place, values["all_turns_s"], "x", color="0.45", label="all turns, disturbances included"
    )
    axes.set_xticks(place, [str(cpu) for cpu in values.index])
    if len(values) > 24:
        axes.tick_params(axis="x", rotation=90, labelsize="x-small")
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set(xlabel="CPU", ylabel="time per event (ms)")
    axes.set_title(f"KV: mean time of the same {len(table.cost_ns)} events on each core")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.legend()
    return figure


def event_by_event(table: KvTable) -> Figure:
    """How much longer each event took than on the other cores, against what it costs."""
    from matplotlib.figure import Figure

    slowdown = table.event_slowdown()
    cost_ms = table.cost_ns.reindex(slowdown.index) / 1e6
    coloured = _coloured(table)
    figure = Figure(figsize=(8, 4.5))
    axes = figure.subplots()
    for cpu in table.cores:
        style = {"alpha": 0.75, "s": 18} if cpu in coloured else {"color": "0.8", "s": 8}
        label = f"cpu{cpu}" if cpu in coloured else None
        axes.scatter(cost_ms, slowdown[cpu], label=label, **style)
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set(xscale="log", xlabel="what the event costs, median over all cores (ms)")
    axes.set_ylabel("slowdown against\nthe median of the others (%)")
    axes.set_title("Event by event: did all slow down, or a few?")
    axes.legend(title="CPU", loc="upper right", fontsize="small", ncols=2)
    return figure


def drift(table: KvTable) -> Figure:
    """The cores' times over the run: what all share is drift, what one has alone is its own."""
    from matplotlib.figure import Figure

    timed = table.start_s is not None
    x = table.start_s if table.start_s is not None else np.arange(len(table.rounds))
    figure = Figure(figsize=(8, 4.2))
    axes = figure.subplots()
    coloured = _coloured(table)
    disturbed = table.comparison.disturbed
    for column, cpu in enumerate(table.cores):
        if cpu not in coloured:
            continue
        y = 100 * np.expm1(table.log_time[:, column])
        clear = ~disturbed[:, column]
        (line,) = axes.plot(x[clear], y[clear], ".", ms=5, label=f"cpu{cpu}")
        axes.plot(x[~clear], y[~clear], "x", ms=6, color=line.get_color(), alpha=0.8)
    if disturbed.any():
        axes.plot([], [], "x", color="0.3", label="disturbed turn")
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set_xlabel("time since the start (s)" if timed else "round")
    axes.set_ylabel("turn's time against\nwhat its events cost (%)")
    axes.set_title("Drift over the run, turn by turn")
    axes.legend(title="CPU", loc="upper right", fontsize="small", ncols=2)
    return figure
