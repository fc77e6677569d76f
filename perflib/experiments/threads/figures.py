"""The figures of ``threads``: calibration, what threads do, waits by lock, gains, the cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.threads.analyse import tables
from perflib.framework.plots import COLOURS, dots, intervals, log_ticks, panel
from perflib.framework.published import published
from perflib.instruments.threads.use import CLASSES
from perflib.model.run import Run

_PUBLISHED_THREADS = 8  # of the job of Jones 2015
_MUTED = "0.6"
_MAX_LOCKS = 6  # of a version
_MIN_SHARE = 0.02  # of the costliest lock's
_MAX_BARS = 40
_STATES = {
    "running": "running",
    "spinning": "spinning",
    "run-queue delay": "ready",
    "waiting for a lock": "waiting",
    "sleeping or in I/O": "sleeping",
    "unknown": "unknown",
}
_FREE, _OTHERS = "no lock", "other locks"


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn; what the samples do not hold has none."""
    draw: dict[str, Callable[[pd.DataFrame], Figure]] = {
        "calibration": _calibration,
        "states": _states,
        "concurrency": _concurrency,
        "waits": _waits,
        "gains": _gains,
        "overhead": partial(_overhead, limit=run.params["distortion_percent"]),
        "use": _use,
        "critical_path": _critical_path,
    }
    needs = {"calibration": ["concurrency", "speedup"], "gains": ["bound_percent"]}
    derived = tables(run)
    made = {name: derived[name]() for name in draw if name in derived}
    for name, columns in needs.items():
        if len(made[name]):
            known = made[name].groupby("version")[columns].transform("count").min(axis=1) > 0
            made[name] = made[name][known]
    return {name: partial(draw[name], table) for name, table in made.items() if len(table)}


def _calibration(table: pd.DataFrame) -> Figure:
    """Speed-up against effective concurrency, both for each thread, and those of Jones 2015."""
    figure, axes = panel(7.5, 5.6)
    axes.plot([0, 1.05], [0, 1.05], color="0.3", lw=1, label="concurrency = speed-up")
    theirs = published("vtune_calibration").set_index("version")
    for name, they in theirs.iterrows():
        x = they["vtune_concurrency"] / _PUBLISHED_THREADS
        y = they["speedup"] / _PUBLISHED_THREADS
        axes.plot(x, y, "o", mfc="none", mec=_MUTED, ms=7)
        axes.annotate(
            str(name), (x, y), (0, 7), textcoords="offset points", color="0.45", fontsize="small",
            ha="right" if x < 0.3 else "left",
        )  # fmt: skip
    axes.plot([], [], "o", mfc="none", mec=_MUTED, label="Jones 2015, 8 threads")
    for i, row in enumerate(table.to_dict("records")):
        threads = row["threads"]
        x, left, right = (row[f"concurrency{end}"] / threads for end in ("", "_low", "_high"))
        y, low, high = (row[f"speedup{end}"] / threads for end in ("", "_low", "_high"))
        style: dict[str, Any] = {"fmt": "os^Dv<>p"[i % 8], "ms": 6, "color": f"C{i}"}
        intervals(axes, [x], [y], [left], [right], horizontal=True, **style)
        intervals(axes, [x], [y], [low], [high], label=str(row["version"]), **style)
    threads = int(table["threads"].iloc[-1])
    # By the points: the interval of a few rounds may be many times as long, and leaves the panel.
    axes.set_xlim(0, 1.08)
    axes.set_ylim(0, 1.15 * max(0.94, float((table["speedup"] / table["threads"]).max())))
    axes.set_xlabel("effective concurrency by the profile, per thread")
    axes.set_ylabel("speed-up over one thread, per thread")
    axes.set_title(f"Does concurrency predict speed-up? Measured with {threads} threads")
    axes.legend(fontsize="small", loc="lower right", title="95 % intervals")
    return figure


def _states(table: pd.DataFrame) -> Figure:
    """What the threads of each version do, as shares of their time."""
    shares = table.pivot_table(index="version", columns="state", values="share_percent", sort=False)
    what = "share of the threads' time (%), mean of all profiled trials"
    colours = {name: COLOURS[state] for name, state in _STATES.items()}
    return _stacked(shares, colours, "What the threads do", what)


def _concurrency(table: pd.DataFrame) -> Figure:
    """For which share of the time so many threads ran at once, version by version."""
    figure, axes = panel(8, 4.8)
    table = table[table["threads_at_once"] < _MAX_BARS]
    names = {}
    for version, mine in table.groupby("version", sort=False):
        mean, low, high = mine[["effective", "effective_low", "effective_high"]].iloc[0]
        interval = f" [{low:.2f}, {high:.2f}]" if math.isfinite(high - low) else ""
        names[version] = f"{version}: {mean:.2f}{interval}"
    named = table.assign(version=table["version"].map(names))
    sns.barplot(
        named, x="threads_at_once", y="share_percent", hue="version", errorbar=None, saturation=1,
        ax=axes,
    )  # fmt: skip
    axes.set_xlabel("threads that run at once")
    axes.set_ylabel("share of the time (%)")
    axes.set_title("Concurrency")
    below = {"bbox_to_anchor": (0.5, -0.15), "ncols": 2, "fontsize": "small"}
    title = "effective concurrency (the mean), 95 % interval"
    sns.move_legend(axes, "upper center", title=title, **below)
    return figure


def _waits(table: pd.DataFrame) -> Figure:
    """What each lock costs, by the profile and as the job reports it."""
    shown = {str(version): _costly(mine) for version, mine in table.groupby("version", sort=False)}
    heights = [max(len(one), 1) for one in shown.values()]
    figure = Figure(figsize=(8, 1.6 + 0.42 * sum(heights) + 0.35 * len(shown)))
    panels = figure.subplots(
        len(shown), 1, sharex=True, squeeze=False, height_ratios=[n + 0.4 for n in heights]
    )[:, 0]
    series = {"share_percent": ("the profile", "C0", 0.19)}
    if "self_reported_percent" in table and table["self_reported_percent"].notna().any():
        series["self_reported_percent"] = ("self-reported by the job", _MUTED, -0.19)
    for axes, (version, locks) in zip(panels, shown.items(), strict=True):
        place = np.arange(len(locks))[::-1]
        for column, (_, colour, aside) in series.items():
            if len(locks) and locks[column].notna().any():
                _bars(axes, place + aside, locks, column, colour)
        axes.set_yticks(place, list(locks["lock"]))
        if not len(locks):
            axes.text(0.01, 0.5, "no lock was waited for", transform=axes.transAxes, va="center")
        axes.set_ylim(-0.55, max(len(locks), 1) - 0.45)
        axes.grid(visible=False, axis="y")
        axes.set_title(version, fontsize="medium")
    for label, colour, _ in series.values():
        panels[0].barh([0], [0], color=colour, label=label)
    largest = np.nanmax([1.0, *table[list(series)].to_numpy(np.float64).ravel()])
    panels[-1].set_xlim(0, 1.3 * largest)
    panels[-1].set_xlabel("waiting for the lock (% of the threads' time), 95 % intervals")
    figure.suptitle("What threads wait for", x=0.02, ha="left", fontweight="bold")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, fontsize="small", loc="outside lower center", ncols=2)
    return figure


def _gains(table: pd.DataFrame) -> Figure:
    """What switching a synchronisation point off gains: measured, expected and bounded."""
    figure = Figure(figsize=(8, 1.9 + 0.36 * len(table)))
    axes = figure.subplots()
    place = np.arange(len(table))[::-1]
    bounds = table["bound_percent"].fillna(0.0)
    axes.barh(place, bounds, color=_MUTED, alpha=0.45, height=0.7, label="profile: at most")
    dots(axes, place + 0.14, table, "expected_percent", ("D", "C0", "profile: expected"))
    dots(axes, place - 0.14, table, "measured_percent", ("o", "C3", "measured"))
    axes.axvline(0, color="0.3", lw=0.8)
    named = zip(table["version"], table["point"], strict=True)
    axes.set_yticks(place, [f"{version} without {point}" for version, point in named])
    axes.set_ylim(-0.7, len(table) - 0.3)
    gained = table[["measured_percent", "bound_percent"]].to_numpy(np.float64).ravel()
    low, high = np.nanmin([0.0, *gained]), np.nanmax([5.0, *gained])
    axes.set_xlim(low - 0.2 * (high - low), high + 0.2 * (high - low))
    axes.set_xlabel("shorter loop (%), 95 % intervals")
    axes.set_title("Gain without each synchronisation point")
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


def _overhead(table: pd.DataFrame, *, limit: float) -> Figure:
    """The job's time under the profile over that alone, and those of Jones 2015."""
    figure, axes = panel(8, 2.1 + 0.5 * len(table))
    place = np.arange(len(table))[::-1]
    axes.axvline(1, color="0.3", lw=0.8)
    axes.axvline(1 + limit / 100, color="C3", ls="--", lw=1.2, label=f"{limit:g} % longer")
    dots(axes, place, table, "time_ratio", ("o", "C0", "measured, 95 % interval"))
    theirs = table["published_time_ratio"].to_numpy(np.float64)
    for at, ratio in zip(place, theirs, strict=True):
        if math.isfinite(ratio):
            axes.plot(ratio, at, "o", mfc="none", mec=_MUTED, ms=7)
            axes.annotate(
                f"{ratio:.1f}", (ratio, at), (8, -3), textcoords="offset points", color="0.45",
                fontsize="small",
            )  # fmt: skip
    if np.isfinite(theirs).any():
        axes.plot([], [], "o", mfc="none", mec=_MUTED, label="Jones 2015 (VTune, 8 threads)")
    seen = [*table["time_ratio"], *theirs]
    log_ticks(axes.xaxis, np.nanmin([0.9, *seen]) / 1.1, np.nanmax([1.2, *seen]) * 1.25)
    axes.set_yticks(place, list(table["version"]))
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("job time under the profile over job time alone")
    axes.set_title("What the profile costs")
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


def _use(table: pd.DataFrame) -> Figure:
    """How long the cores were in each class of use, version by version."""
    shares = table.pivot_table(index="version", columns="use", values="share_percent", sort=False)
    return _stacked(
        shares[list(CLASSES)],
        {name: COLOURS[name] for name in CLASSES},
        "Use of the cores: active threads per core, in the classes of VTune",
        "share of the recorded time (%)",
    )


def _critical_path(table: pd.DataFrame) -> Figure:
    """What the critical path consists of: parts that a lock holds up, and the others' states."""
    locks = table[table["by"] == "lock"]
    largest = locks[locks["name"] != ""].groupby("name", sort=False)["share_percent"].max()
    named = list(largest.nlargest(_MAX_LOCKS).index)
    shares = locks.pivot_table(
        index="version", columns="name", values="share_percent", aggfunc="sum", fill_value=0.0,
        sort=False,
    )  # fmt: skip
    shares = shares.rename(columns={"": _FREE})
    others = [name for name in shares if name not in {*named, _FREE}]
    shown = shares.reindex(columns=[*named, _FREE], fill_value=0.0)
    shown.insert(len(named), _OTHERS, shares[others].sum(axis=1))
    colours = {name: f"C{place}" for place, name in enumerate(named)}
    colours |= {_OTHERS: _MUTED, _FREE: COLOURS["idle"]}
    return _stacked(
        shown,
        colours,
        "The critical path, and the locks that others wait for meanwhile",
        "share of the critical path (%)",
    )


def _stacked(shares: pd.DataFrame, colours: dict[str, str], title: str, what: str) -> Figure:
    """A bar a version, in parts of these colours."""
    figure, axes = panel(8, 2.1 + 0.5 * len(shares))
    place = np.arange(len(shares))[::-1]
    left = np.zeros(len(shares))
    for name, colour in colours.items():
        width = shares[name].to_numpy()
        if width.max(initial=0.0) > 0.05:
            axes.barh(place, width, left=left, color=colour, label=name, height=0.65)
        left += width
    axes.set_yticks(place, list(shares.index))
    axes.set_xlim(0, 100)
    axes.set_xlabel(what)
    axes.set_title(title)
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _costly(locks: pd.DataFrame) -> pd.DataFrame:
    """The costliest few of a version, without those that are negligible compared with the first."""
    share = locks["share_percent"]
    costly: pd.DataFrame = locks[(share > 0) & (share >= _MIN_SHARE * share.max())]
    return costly.head(_MAX_LOCKS)


def _bars(axes: Axes, place: Any, table: pd.DataFrame, column: str, colour: str) -> None:
    ends = table[column] - table[f"{column}_low"], table[f"{column}_high"] - table[column]
    axes.barh(
        place, table[column].fillna(0.0), xerr=np.abs(np.nan_to_num(ends)), height=0.36,
        color=colour, error_kw={"capsize": 2, "lw": 1, "ecolor": "0.2"},
    )  # fmt: skip
