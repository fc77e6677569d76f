"""The figures of cache coherence, each drawn from the table of its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.core_pairs.coherence.analyse import tables
from perflib.experiments.core_pairs.coherence.names import CHASED
from perflib.experiments.core_pairs.coherence.table import COLUMNS
from perflib.experiments.core_pairs.figures import heatmap
from perflib.framework.plots import MARKS, intervals, log_ticks, panel
from perflib.model.run import Run
from perflib.stats.intervals import Floats

_STATES = {
    "local": "local (own Modified)",
    "invalid": "invalid (from memory)",
    "shared_here": "shared, a copy here",
    "owned_here": "modified there, a copy here",
    "last_level": "in the owner's last-level cache",
}
_MAX_FACTOR = 5.0  # an interval of two batches can extend anywhere
_LABELS = "owner, CPU", "requester, CPU"
_PLACES = {"node": "NUMA nodes", "cache": "last-level caches"}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn: of what was measured."""
    draw = {
        "states": _states,
        "protocols": _protocols,
        "control": _control,
        "over_time": _over_time,
    }
    return {
        name: partial(_drawn, draw.get(name, _heatmap), make)
        for name, make in tables(run).items()
        if name != "latencies"
    }


def _drawn(draw: Callable[[pd.DataFrame], Figure], make: Callable[[], pd.DataFrame]) -> Figure:
    return draw(make())


def _heatmap(rows: pd.DataFrame) -> Figure:
    """Each pair's latency; lines where a NUMA node or a last-level cache ends."""
    what, way = rows["what"].iloc[0], rows["way"].iloc[0]
    title = f"Latency of {what} ({way})" if way else f"Latency of {what}"
    return heatmap(rows, COLUMNS, title, _LABELS, places=_PLACES)


def _states(rows: pd.DataFrame) -> Figure:
    """What it takes to load or write a line, by the state that it was in."""
    states = rows["state"].unique().tolist()
    figure, axes = panel(8, 1.8 + 0.52 * len(states))
    by_access = list(rows.groupby("access", sort=False))
    for i, (access, mine) in enumerate(by_access):
        shift = 0.17 * (2 * i - len(by_access) + 1)
        y = [states.index(state) + shift for state in mine["state"]]
        axes.hlines(
            y, mine["nearest_ns"], mine["farthest_ns"], color=f"C{i}", lw=6, alpha=0.25,
            label="all pairs of cores" if i == 0 else "",
        )  # fmt: skip
        _points(axes, y, mine, i, "load" if access == "load" else "write (an exchange)")
    log_ticks(axes.xaxis, *_limits(rows))
    axes.set_yticks(range(len(states)), [_STATES.get(state, state) for state in states])
    axes.set_ylim(len(states) - 0.5, -0.5)
    axes.set_xlabel("latency of one line (ns): median over pairs, 95 % interval")
    axes.set_ylabel("the line was")
    axes.set_title("What a line costs, by its state")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _protocols(rows: pd.DataFrame) -> Figure:
    """The distribution of each protocol's rows, and where the mean of all samples is."""
    figure, axes = panel(8, 1.6 + 0.75 * len(rows))
    y = range(len(rows))
    ends = [rows[f"quantile_{share:g}_ns"] for share in (0.01, 0.25, 0.75, 0.99)]
    axes.hlines(y, ends[0], ends[3], color="0.6", lw=1.5, label="98 % of all rows")
    axes.hlines(y, ends[1], ends[2], color="C0", lw=7, alpha=0.4, label="half of all rows")
    _points(axes, y, rows, 0, "median, 95 % interval", above=True)
    drawn = [*ends]
    if rows["mean_ns"].notna().any():
        axes.plot(rows["mean_ns"], y, "x", color="C3", ms=7, mew=2, label="mean of all samples")
        drawn.append(rows["mean_ns"].dropna())
    log_ticks(axes.xaxis, *_limits(rows, np.concatenate(drawn)))
    axes.set_yticks(y, [f"{row.what}\n({row.way})" for row in rows.itertuples()])
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.set_xlabel("latency as each protocol reports it (ns)")
    axes.set_title("The same cores by several protocols")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _over_time(rows: pd.DataFrame) -> Figure:
    """The same pairs, round by round: were the cores always as far apart?"""
    figure, axes = panel(8, 4.4)
    x = "start_s" if rows["start_s"].notna().all() else "round"
    named = rows.assign(latency_of=rows["what"] + " (" + rows["way"] + ")")
    sns.scatterplot(named, x=x, y="latency_ns", hue="latency_of", s=12, linewidth=0, ax=axes)
    log_ticks(axes.yaxis, rows["latency_ns"].min() / 1.2, rows["latency_ns"].max() * 1.2)
    axes.set_xlabel("round" if x == "round" else "time since the run began (s)")
    axes.set_ylabel("latency (ns)")
    axes.set_title("The same cores in the course of time")
    below = {"bbox_to_anchor": (0.5, -0.2), "ncols": 2, "title": None, "fontsize": "small"}
    sns.move_legend(axes, "upper center", **below)
    return figure


def _control(rows: pd.DataFrame) -> Figure:
    """The same lines in four layouts: where fetching ahead helps, and where it does not."""
    figure, axes = panel(8, 3.4)
    y = range(len(rows))
    _points(axes, y, rows, 0, None)
    axes.barh(y, rows["latency_ns"], color="C0", alpha=0.25, height=0.6, lw=0)
    axes.set_yticks(y, [name.replace(" ", ", ") for name in rows["layout"]])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.25 * rows["latency_ns"].max())
    lines = f"{rows['lines'].iloc[0]:.0f} lines, " if "lines" in rows else ""
    pair = f"cpu{rows['owner_cpu'].iloc[0]} to cpu{rows['requester_cpu'].iloc[0]}"
    axes.set_xlabel(f"latency of one line (ns), 95 % intervals\n{lines}{CHASED}, {pair}")
    axes.set_title("The control: where are neighbours fetched ahead?")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _points(
    axes: Axes,
    y: Sequence[float],
    rows: pd.DataFrame,
    colour: int,
    label: str | None,
    *,
    above: bool = False,
) -> None:
    """Estimates with their intervals, and the number next to each, or above it."""
    x, low, high = _estimates(rows)
    style = {"fmt": MARKS[colour], "ms": 5, "color": f"C{colour}", "label": label}
    intervals(axes, x, y, low, high, horizontal=True, **style)
    for one, end, place in zip(x, high, y, strict=True):
        right = min(end, _MAX_FACTOR * one) if math.isfinite(end) else one
        axes.annotate(
            f"{one:.3g}", (one if above else right, place), xytext=(0, 11) if above else (6, 0),
            textcoords="offset points", va="center", ha="center" if above else "left",
            fontsize="x-small", color=f"C{colour}",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip


def _estimates(rows: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Latencies and the ends of their intervals, in ns."""
    name = "median_ns" if "median_ns" in rows else "latency_ns"
    x, low, high = rows[[name, f"{name}_low", f"{name}_high"]].to_numpy(np.float64).T
    return x, low, high


def _limits(rows: pd.DataFrame, more: Floats | None = None) -> tuple[float, float]:
    """Of a logarithmic axis: with the intervals, but for what goes beyond all bounds."""
    x, lows, highs = _estimates(rows)
    points = np.concatenate([x, x[:0] if more is None else more])
    low = max(np.nanmin([*points, *lows]), points.min() / _MAX_FACTOR)
    high = min(np.nanmax([*points, *highs]), points.max() * _MAX_FACTOR)
    room = max(high / low, 2.0) ** 0.05
    return float(low / room), float(high * room**3)  # more at the right: numbers stand there
