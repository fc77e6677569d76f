"""The figures of ``threads``: calibration, what threads do, waits by lock, gains, the cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.experiments.threads.measure import ALONE, ONE
from perflib.experiments.threads.table import ThreadTable, WaitShare
from perflib.stats.interval import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["calibration", "concurrency", "gains", "overhead", "states", "waits"]

_PUBLISHED_THREADS = 8  # of the source's job
_MUTED = "0.6"
_MOST_LOCKS = 6  # of a version
_LEAST_SHARE = 0.02  # of the dearest lock's
_MOST_BARS = 40
_STATES = (
    ("running_s", "running", "C0"),
    ("spinning_s", "spinning", "C5"),
    ("free_ready_s", "ready, without a core", "C8"),
    ("locked_s", "waiting for a lock", "C3"),
    ("sleeping_s", "sleeping or in I/O", "#e4e4e4"),
    ("unknown_s", "unknown", "C7"),
)


def calibration(table: ThreadTable, published: pd.DataFrame) -> Figure:
    """Speed-up against effective concurrency, both for each thread, and the source's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5.6))
    axes = figure.subplots()
    axes.plot([0, 1.05], [0, 1.05], color="0.3", lw=1, label="concurrency = speed-up")
    other = published.set_index("version")
    for name, row in other.iterrows():
        x = row["vtune_concurrency"] / _PUBLISHED_THREADS
        y = row["speedup"] / _PUBLISHED_THREADS
        axes.plot(x, y, "o", mfc="none", mec=_MUTED, ms=7)
        axes.annotate(
            str(name), (x, y), (0, 7), textcoords="offset points", color="0.45", fontsize="small",
            ha="right" if x < 0.3 else "left",
        )  # fmt: skip
    axes.plot([], [], "o", mfc="none", mec=_MUTED, label="published, 8 threads")
    versions = [one for one in table.versions if table.is_profiled(one) and ONE in table.arms(one)]
    threads = 1
    for i, version in enumerate(versions):
        threads = table.sizes(version)[0]
        x, left, right = (one / threads for one in table.concurrency(version))
        y, low, high = (one / threads for one in table.speedup(version))
        axes.errorbar(
            x, y, xerr=_reach(x, left, right), yerr=_reach(y, low, high), fmt="os^Dv<>p"[i % 8],
            ms=6, capsize=3, color=f"C{i}", label=f"{version}",
        )  # fmt: skip
    # By the points: the interval of a few turns may be many times as long, and leaves the panel.
    tops = [table.speedup(version).effect / threads for version in versions]
    axes.set_xlim(0, 1.08)
    axes.set_ylim(0, 1.15 * np.nanmax([0.94, *tops]))
    axes.set_xlabel("effective concurrency by the profile, per thread")
    axes.set_ylabel("speed-up against one thread, per thread")
    axes.set_title(f"Does concurrency predict speed-up? This machine, {threads} threads")
    axes.legend(fontsize="small", loc="lower right", title="95 % intervals")
    return figure


def states(table: ThreadTable) -> Figure:
    """What the threads of each version do, as shares of their time."""
    from matplotlib.figure import Figure

    versions = _profiled(table)
    figure = Figure(figsize=(8, 1.9 + 0.5 * len(versions)))
    axes = figure.subplots()
    place = np.arange(len(versions))[::-1]
    shares = table.states()
    left = np.zeros(len(versions))
    for column, label, colour in _STATES:
        width = np.array([shares.loc[version, column] for version in versions])
        if width.max(initial=0.0) > 0.05:
            axes.barh(place, width, left=left, color=colour, label=label, height=0.65)
        left += width
    axes.set_yticks(place, versions)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the threads' time (%), mean of all profiled turns")
    axes.set_title("What the threads do")
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


def concurrency(table: ThreadTable) -> Figure:
    """For which share of the time so many threads ran at once, version by version."""
    from matplotlib.figure import Figure

    versions = _profiled(table)
    figure = Figure(figsize=(8, 4.8))
    axes = figure.subplots()
    bars = [100 * table.histogram(version)[:_MOST_BARS] for version in versions]
    most = max(len(one) for one in bars)
    width = 0.8 / len(versions)
    for i, (version, heights) in enumerate(zip(versions, bars, strict=True)):
        mean = table.concurrency(version)
        at = np.arange(len(heights)) + (i - (len(versions) - 1) / 2) * width
        label = f"{version}: {mean.effect:.2f}"
        if np.isfinite(mean.half_width):
            label += f" [{mean.low:.2f}, {mean.high:.2f}]"
        axes.bar(at, heights, width=0.95 * width, color=f"C{i}", label=label)
    axes.set_xticks(np.arange(most))
    axes.set_xlabel("threads that run at once")
    axes.set_ylabel("share of the time (%)")
    axes.set_title("Concurrency")
    axes.grid(visible=False, axis="x")
    figure.legend(
        fontsize="small", ncols=2, loc="outside lower center",
        title="effective concurrency (the mean), 95 % interval",
    )  # fmt: skip
    return figure


def waits(table: ThreadTable) -> Figure:
    """What each lock costs, by the profile and by the job's own account."""
    from matplotlib.figure import Figure

    versions = _profiled(table)
    shown = {version: _shown(table.waits(version)) for version in versions}
    heights = [max(len(one), 1) for one in shown.values()]
    figure = Figure(figsize=(8, 1.6 + 0.42 * sum(heights) + 0.35 * len(versions)))
    panels = figure.subplots(
        len(versions), 1, sharex=True, squeeze=False, height_ratios=[n + 0.4 for n in heights]
    )[:, 0]
    account = False
    for axes, (version, locks) in zip(panels, shown.items(), strict=True):
        place = np.arange(len(locks))[::-1]
        _bars(axes, place + 0.19, [one.share for one in locks], color="C0")
        if table.has_account(version):
            account = True
            _bars(axes, place - 0.19, [one.account for one in locks], color=_MUTED)
        axes.set_yticks(place, [one.lock for one in locks])
        if not locks:
            axes.text(0.01, 0.5, "no lock was waited for", transform=axes.transAxes, va="center")
        axes.set_ylim(-0.55, max(len(locks), 1) - 0.45)
        axes.grid(visible=False, axis="y")
        axes.set_title(version, fontsize="medium")
    panels[0].barh([0], [0], color="C0", label="the profile")
    if account:
        panels[0].barh([0], [0], color=_MUTED, label="the job's own account")
    shares = [one.effect for locks in shown.values() for lock in locks
              for one in (lock.share, lock.account)]  # fmt: skip
    panels[-1].set_xlim(0, 1.3 * np.nanmax([1.0, *shares]))
    panels[-1].set_xlabel("waiting for the lock (% of the threads' time), 95 % intervals")
    figure.suptitle("What threads wait for", x=0.02, ha="left", fontweight="bold")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, fontsize="small", loc="outside lower center", ncols=2)
    return figure


def gains(table: ThreadTable) -> Figure:
    """What switching a point off gains: measured, expected and bounded by the profile."""
    from matplotlib.figure import Figure

    found = [
        (version, table.gain(version, point))
        for version in table.versions
        for point in table.points(version)
    ]
    figure = Figure(figsize=(8, 1.9 + 0.36 * len(found)))
    axes = figure.subplots()
    place = np.arange(len(found))[::-1]
    bounds = np.nan_to_num([gain.bound.effect for _, gain in found])
    axes.barh(place, bounds, color=_MUTED, alpha=0.45, height=0.7, label="profile: at most")
    _dots(axes, place + 0.14, [gain.expected for _, gain in found], "D", "C0", "profile: expected")
    _dots(axes, place - 0.14, [gain.measured for _, gain in found], "o", "C3", "measured")
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_yticks(place, [f"{version} without {gain.point}" for version, gain in found])
    axes.set_ylim(-0.7, len(found) - 0.3)
    gained = [one.effect for _, gain in found for one in (gain.measured, gain.bound)]
    low, high = np.nanmin([0.0, *gained]), np.nanmax([5.0, *gained])
    axes.set_xlim(low - 0.2 * (high - low), high + 0.2 * (high - low))
    axes.set_xlabel("shorter loop (%), 95 % intervals")
    axes.set_title("What each point costs: predicted and measured")
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


def overhead(table: ThreadTable, limit: float, published: pd.DataFrame) -> Figure:
    """The job's time under the profile over that alone, and the source's."""
    from matplotlib.figure import Figure

    versions = [one for one in _profiled(table) if ALONE in table.arms(one)]
    figure = Figure(figsize=(8, 2.1 + 0.5 * len(versions)))
    axes = figure.subplots()
    place = np.arange(len(versions))[::-1]
    ratios = [Interval(*(1 + end / 100 for end in table.overhead(version))) for version in versions]
    axes.axvline(1, color="0.3", lw=0.8)
    axes.axvline(1 + limit / 100, color="C3", ls="--", lw=1.2, label=f"{limit:g} % longer")
    _dots(axes, place, ratios, "o", "C0", "this machine, 95 % interval")
    slower = published["vtune_job_time_s"] / published["regular_job_time_s"]
    other = dict(zip(published["version"], slower, strict=True))
    for at, version in zip(place, versions, strict=True):
        if version in other:
            ratio = other[version]
            axes.plot(ratio, at, "o", mfc="none", mec=_MUTED, ms=7)
            axes.annotate(
                f"{ratio:.1f}", (ratio, at), (8, -3), textcoords="offset points", color="0.45",
                fontsize="small",
            )  # fmt: skip
    if set(versions) & set(other):
        axes.plot([], [], "o", mfc="none", mec=_MUTED, label="published (VTune, 8 threads)")
    axes.set_xscale("log")
    seen = [one.effect for one in ratios] + [other[one] for one in versions if one in other]
    low, high = np.nanmin([0.9, *seen]) / 1.1, np.nanmax([1.2, *seen]) * 1.25
    axes.set_xlim(low, high)
    room = math.log(high / low) / 14  # between two numbers
    ticks = [1.0]
    for tick in (0.8, 0.5, 0.2, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 10, 20, 50):
        apart = min(abs(math.log(tick / set_)) for set_ in ticks)
        if low <= tick <= high and apart > room:
            ticks.append(tick)
    axes.set_xticks(ticks, [f"{one:g}" for one in ticks])
    axes.minorticks_off()
    axes.set_yticks(place, versions)
    axes.set_ylim(-0.6, len(versions) - 0.4)
    axes.set_xlabel("job time under the profile over job time alone")
    axes.set_title("What the profile costs")
    axes.grid(visible=False, axis="y")
    figure.legend(fontsize="small", ncols=3, loc="outside lower center")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _profiled(table: ThreadTable) -> list[str]:
    return [version for version in table.versions if table.is_profiled(version)]


def _shown(locks: Sequence[WaitShare]) -> list[WaitShare]:
    """The dearest few, without those that are nothing beside the first."""
    return [
        one
        for one in locks[:_MOST_LOCKS]
        if one.share.effect > 0 and one.share.effect >= _LEAST_SHARE * locks[0].share.effect
    ]


def _reach(effect: float, low: float, high: float) -> Any:
    return np.abs(np.nan_to_num([[effect - low], [high - effect]]))


def _reaches(found: Sequence[Interval]) -> Any:
    return np.abs(np.nan_to_num([[one.effect - one.low, one.high - one.effect] for one in found])).T


def _bars(axes: Axes, place: Any, found: Sequence[Interval], color: str) -> None:
    if found:
        axes.barh(
            place, np.nan_to_num([one.effect for one in found]), xerr=_reaches(found), height=0.36,
            color=color, error_kw={"capsize": 2, "lw": 1, "ecolor": "0.2"},
        )  # fmt: skip


def _dots(
    axes: Axes, place: Any, found: Sequence[Interval], mark: str, colour: str, label: str
) -> None:
    axes.errorbar(
        [one.effect for one in found], place, xerr=_reaches(found), fmt=mark, ms=5, capsize=3,
        color=colour, label=label,
    )  # fmt: skip
