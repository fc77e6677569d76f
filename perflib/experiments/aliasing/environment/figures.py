"""The figures of a sweep over the size of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflib.experiments.aliasing.environment.table import AliasEnvTable
from perflib.stats.intervals import t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["aslr", "counters", "environment", "link_order"]

_MARK = "C3"
_MOST_COUNTERS = 20


def environment(table: AliasEnvTable) -> Figure:
    """Time an iteration at each size, predicted ones marked; the simulated count below."""
    from matplotlib.figure import Figure

    counts = table.simulated_counts
    figure = Figure(figsize=(8, 6.2 if counts is not None else 4.0))
    panels = figure.subplots(1 if counts is None else 2, 1, sharex=True, squeeze=False)[:, 0]
    above = panels[0]
    curve = table.size_ns()
    x = curve["environment_bytes"].to_numpy()
    y, low, high = (curve[name].to_numpy(np.float64) for name in ("ns", "low", "high"))
    marked = curve["predicted"].to_numpy(bool)
    above.plot(x[~marked], y[~marked], ".", ms=3, color="C0", label="other sizes")
    if (~marked).any():
        ends = np.nanquantile(y[~marked], [0.025, 0.975])
        above.axhspan(*ends, color="C0", alpha=0.15, lw=0, label="95 % of them")
    if marked.any():
        reach = np.abs(np.nan_to_num([y - low, high - y]))[:, marked]
        above.errorbar(
            x[marked], y[marked], yerr=reach, fmt="D", ms=5, capsize=3, color=_MARK,
            label="predicted: low 12 bits agree, 95 % interval",
        )  # fmt: skip
    above.set_ylabel("time per iteration (ns)")
    # From zero, so that a little looks little; what is far beyond the rest leaves the panel.
    top = float(np.nanmax([np.nanmedian(y) * 1.35, *(1.1 * y[marked])]))
    above.set_ylim(0, top)
    above.set_title("Time against the size of the environment")
    above.legend(fontsize="small", loc="lower right", ncols=3)
    if counts is not None and table.simulated is not None:
        below = panels[1]
        for size in table.predicted:
            below.axvline(size, color=_MARK, lw=5, alpha=0.25)
        below.plot(x, counts, "-", color="0.25", lw=1.2, label="simulated")
        below.plot([], [], color=_MARK, lw=5, alpha=0.25, label="predicted")
        below.set_ylabel("simulated 4K aliases\nper iteration")
        below.set_title(
            f"simulated: {table.simulated['model']}", fontsize="small", fontweight="normal"
        )
        below.set_ylim(0, max(1.0, 1.25 * float(np.nanmax(counts))))
        below.legend(fontsize="small", loc="upper right")
    panels[-1].set_xlabel("size of the environment (B)")
    return figure


def counters(table: AliasEnvTable) -> Figure:
    """How strongly each counter goes with the time, size by size."""
    from matplotlib.figure import Figure

    ranked = table.ranking().head(_MOST_COUNTERS)
    figure = Figure(figsize=(8, 1.4 + 0.34 * max(len(ranked), 3)))
    axes = figure.subplots()
    place = np.arange(len(ranked))[::-1]
    colours = ["C1" if source == "simulated" else "C0" for source in ranked["source"]]
    values = ranked["correlation"].fillna(0.0)
    axes.barh(place, values, color=colours, height=0.7)
    for at, value, p in zip(place, ranked["correlation"], ranked["p"], strict=True):
        words = "the same at all sizes" if not np.isfinite(value) else f"{value:+.2f} (p = {p:.2g})"
        end = max(value, 0.0) if np.isfinite(value) else 0.0
        axes.text(end + 0.02, at, words, va="center", fontsize="small")
    for colour, source in (("C0", "measured"), ("C1", "simulated")):
        if source in set(ranked["source"]):
            axes.barh([0], [0], color=colour, label=source)
    axes.set_yticks(place, ranked["counter"])
    axes.set_xlim(-1, 1.5)
    axes.set_xticks(np.arange(-1, 1.1, 0.5))
    axes.axvline(0, color="0.3", lw=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("correlation with the time, over sizes of the environment")
    axes.set_title("Counters, ranked")
    if len(ranked):
        axes.legend(fontsize="small", loc="lower left")
    else:
        axes.text(0, 0, "nothing was counted", ha="center")
    return figure


def link_order(table: AliasEnvTable) -> Figure:
    """Time an iteration in each link order, in one environment."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.6 + 0.42 * len(table.orders)))
    axes = figure.subplots()
    logs = table.order_log_ns()
    names = []
    for place, order in enumerate(table.orders):
        found = t_interval(table.by_block(logs[:, place]))
        middle, low, high = (table.base_ns * np.exp(end) for end in found)
        pairs = table.order_pairs[order]
        axes.errorbar(
            middle, -place, xerr=np.abs(np.nan_to_num([[middle - low], [high - middle]])), fmt="D",
            ms=6, capsize=3, color=_MARK if pairs else "C0",
        )  # fmt: skip
        names.append(f"{order}\n({pairs or 'none agree'})")
    axes.set_yticks([-place for place in range(len(names))], names, fontsize="small")
    axes.margins(y=0.15)
    _legend(axes, "fastest of a start,\n95 % intervals")
    axes.set_xlim(0, None)
    axes.set_xlabel("time per iteration (ns)")
    size = int(table.linked["environment_bytes"].median())
    axes.set_title(f"The same objects, linked in another order ({size} B of environment)")
    return figure


def _legend(axes: Axes, title: str) -> None:
    axes.plot([], [], "D", color=_MARK, label="low 12 bits agree")
    axes.plot([], [], "D", color="C0", label="they do not")
    axes.legend(
        fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), title=title,
        title_fontsize="small",
    )  # fmt: skip


def aslr(table: AliasEnvTable) -> Figure:
    """How the times of single starts are distributed, with fixed and with random addresses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4))
    axes = figure.subplots()
    marked = table.sweep["predicted"].astype(bool)
    parts = (
        ("ASLR off, predicted sizes", table.sweep[marked], _MARK, "-"),
        ("ASLR off, other sizes", table.sweep[~marked], "C0", "-"),
        ("ASLR on, one predicted size", table.randomised, "C2", "--"),
    )
    shown = []
    for words, rows, colour, style in parts:
        times = np.sort(rows["least_ns"].to_numpy(np.float64)) / table.iterations
        if len(times):
            share = 100 * np.arange(1, len(times) + 1) / len(times)
            axes.step(times, share, where="post", color=colour, ls=style,
                      label=f"{words} ({len(times)} starts)")  # fmt: skip
            shown.append(times)
    every = np.concatenate(shown)
    axes.set_xlim(0.98 * every.min(), max(np.quantile(every, 0.98), 1.05 * np.median(every)))
    axes.set_xlabel("time per iteration, the fastest of a start (ns)")
    axes.set_ylabel("starts that are as fast or faster (%)")
    axes.set_title("Fixed and random addresses")
    axes.legend(fontsize="small", loc="lower right")
    return figure
