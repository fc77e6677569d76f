"""The figures of layouts: what each factor does, what layout alone does, two builds compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.figures import additional_time
from perflib.experiments.layout.analyse import SAID, profiles_of, table_of, tables_of
from perflib.experiments.layout.functions import BuildProfiles
from perflib.experiments.layout.table import LayoutTable
from perflib.framework.figures import flame_figure
from perflib.framework.plots import intervals, ranked_counters
from perflib.instruments.profile.comparison import Comparison
from perflib.model.run import Run
from perflib.stats.interval import Interval

_INSIDE = 0.99  # of the values a panel shows at least; far ones would squeeze the others


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    said, table = SAID[run.params["response"]], table_of(run)
    made = tables_of(table)
    counted = made["counters"]()
    threshold = run.params["threshold_percent"]
    found: dict[str, Callable[[], Figure]] = {}
    if table.factors:
        found["factors"] = lambda: _factors(made["factors"](), made["levels"](), said, threshold)
    if len(table.twice) > 1:
        found["layouts"] = lambda: _layouts(made["layouts"](), table.alone, said)
    if len(table.pairs) > 1:
        found["builds"] = lambda: _builds(made["builds"](), table, said)
    profiles = profiles_of(run)
    if profiles is not None and (compared := profiles.functions) is not None:
        found["functions"] = lambda: additional_time(compared, what="start")
        found["flame"] = lambda: _flame(profiles, compared)
    if not counted.empty:
        found["counters"] = lambda: ranked_counters(counted, "layouts")
    return found


def _factors(factors: pd.DataFrame, levels: pd.DataFrame, said: str, threshold: float) -> Figure:
    """A row a factor: the largest difference, with its interval; and a row a level."""
    figure = Figure(figsize=(9.5, 1.8 + 0.24 * max(len(levels), 2 * len(factors))))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    place = np.arange(len(factors))[::-1].astype(np.float64)
    ends = [factors[f"largest_percent{end}"].to_numpy(np.float64) for end in ("", "_low", "_high")]
    left.axvline(threshold, color="0.5", ls="--", lw=1, label=f"matters: {threshold:g} %")
    intervals(left, ends[0], place, ends[1], ends[2], horizontal=True, fmt="o", color="C0",
              label="largest difference")  # fmt: skip
    left.set_yticks(place, [f"{name}\np = {p:.2g}" for name, p in factors[["factor", "p"]].values])
    left.set_ylim(-0.7, len(factors) - 0.3)
    left.set_xlim(0, None)
    left.set_xlabel("slowest level above the fastest (%)")
    left.set_title("Each factor", fontsize="medium")
    rows = pd.concat([levels[levels["factor"] == name] for name in factors["factor"]])
    place = np.arange(len(rows))[::-1].astype(np.float64)
    ends = [rows[f"percent{end}"].to_numpy(np.float64) for end in ("", "_low", "_high")]
    right.axvline(0, color="0.3", lw=0.8)
    colours = {name: f"C{which % 10}" for which, name in enumerate(factors["factor"])}
    for name in factors["factor"]:
        mine = (rows["factor"] == name).to_numpy()
        intervals(right, ends[0][mine], place[mine], ends[1][mine], ends[2][mine],
                  horizontal=True, fmt="o", color=colours[name])  # fmt: skip
    right.set_yticks(place, rows["level"])
    right.set_ylim(-0.7, len(rows) - 0.3)
    right.set_xlabel(f"{said}, against the factor's mean (%)")
    right.set_title("Each level", fontsize="medium")
    for axes in (left, right):
        axes.grid(visible=False, axis="y")
    figure.suptitle(f"What should not matter: {said} by layout, 95 % intervals")
    figure.legend(fontsize="small", ncols=2, loc="outside lower center")
    return figure


def _layouts(layouts: pd.DataFrame, alone: Interval, said: str) -> Figure:
    """Left the two starts of each layout against each other, right how both scatter."""
    figure = Figure(figsize=(9.5, 4.4))
    left, right = figure.subplots(1, 2)
    several = layouts["build"].nunique() > 1
    sns.scatterplot(layouts, x="first_percent", y="again_percent", hue="build", ax=left, s=22,
                    alpha=0.6, palette="colorblind", legend=several)  # fmt: skip
    values = layouts[["first_percent", "again_percent"]].to_numpy(np.float64)
    low, high = _limits(values)
    left.plot([low, high], [low, high], color="0.5", lw=0.8, ls="--")
    left.set(xlim=(low, high), ylim=(low, high))
    left.set(xlabel=f"first start: {said} (%)", ylabel="the same layout, started again (%)")
    left.set_title("A layout that matters repeats itself", fontsize="medium")
    mean = values.mean(axis=1)
    scatter = (values[:, 0] - values[:, 1]) / 2  # as noisy as a mean of two starts
    parts = pd.DataFrame(
        {
            "percent": np.concatenate([mean, scatter]),
            "what": ["mean of a layout's two starts"] * len(mean)
            + ["half of their difference"] * len(mean),
        }
    )
    sns.ecdfplot(parts, x="percent", hue="what", ax=right, palette="colorblind")
    right.set_xlim(*_limits(parts["percent"].to_numpy(np.float64)))
    right.set(xlabel=f"{said}, compared with its round (%)", ylabel="share of layouts")
    right.set_title("Wider than its noise, if layout matters", fontsize="medium")
    right.get_legend().set_title("")
    figure.suptitle(
        f"Layout alone: {alone.effect:.2g} % [{alone.low:.2g}, {alone.high:.2g}] standard "
        "deviation, without the scatter of starts"
    )
    return figure


def _builds(builds: pd.DataFrame, table: LayoutTable, said: str) -> Figure:
    """Each pair of starts, and the mean with its interval; next to it what layout alone does."""
    figure = Figure(figsize=(9, 4.2))
    axes: Axes = figure.subplots()
    values = builds["less_percent"].to_numpy(np.float64)
    mean = table.faster
    axes.axvline(0, color="0.3", lw=0.8)
    alone = table.alone.effect
    if alone > 0:
        axes.axvspan(-alone, alone, color="0.85", zorder=0, label="layout alone: ± one standard "
                     "deviation")  # fmt: skip
    sns.ecdfplot(x=values, ax=axes, color="C0", label="pairs of starts, one layout each")
    axes.axvspan(mean.low, mean.high, color="C3", alpha=0.35, label="mean, 95 % interval")
    axes.axvline(mean.effect, color="C3", lw=1.2)
    axes.set_xlim(*_limits(np.append(values, [mean.low, mean.high])))
    axes.set(xlabel=f"B takes less {said} than A by (%)", ylabel="share of pairs")
    axes.set_title("Two builds in the same random layouts")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


def _flame(profiles: BuildProfiles, compared: Comparison) -> Figure:
    """The second build's stacks; a frame has a colour where its function stands out."""
    table = compared.table
    samples = profiles.samples
    a, b = (samples[(samples["build"] == build).to_numpy()] for build in ("A", "B"))
    return flame_figure(
        b, a, weight="period", significant=set(table.loc[table["stands_out"], "function"]),
        title="Build B; coloured where a function's difference stands out, grey elsewhere",
    )  # fmt: skip


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Without the farthest values."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [(1 - _INSIDE) / 2, (1 + _INSIDE) / 2]) if known.size else (0, 0)
    room = max(0.08 * (high - low), 0.1)
    return float(low - room), float(high + room)
