"""The figures of sweeps over the size of the code, drawn from their tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.code_size.reaches import Reaches
from perflib.framework.plots import (
    ABOVE,
    COLOURS,
    MARKS,
    doubling,
    intervals,
    once_each,
    pages,
    panel,
    panels_above,
    size_marks,
    slowdowns,
    with_ends,
)
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.run import Run

_KIB = 1024
_MOST_INSIDE = 4
_MAX_FACTOR, _MARGIN = 1.5, 1.08
_EXTENT = "extent of the code that runs (KiB)"
_STATES = {"all": "", "alone": ", alone", "shared": ", sibling busy"}
_KNEES = {"all": "C3", "alone": "C3", "shared": "C1"}
_PATTERNS = {
    "call": "functions called at random",
    "random": "cases at random",
    "compiled": "cases of the compiled switch at random",
    "page": "one case a page, at random",
    "chase": "branch chase, one jump a page",
}
Tables = dict[str, Callable[[], pd.DataFrame]]


def reaches_of(run: Run) -> Reaches:
    """What caches and TLBs of the run's machine hold."""
    return Reaches.of(run.provenance.get("machine", {}))


def drawn(run: Run, tables: Tables) -> dict[str, Callable[[], Figure]]:
    """The figures that both experiments have."""
    reaches = reaches_of(run)
    found: dict[str, Callable[[], Figure]] = {}
    if "page_ratio" in tables:
        known = tables.get("knees", pd.DataFrame)
        found["page_ratio"] = lambda: page_ratio(tables["page_ratio"](), known(), reaches)
    if "core_difference" in tables:
        found["core_difference"] = lambda: core_difference(tables["core_difference"](), reaches)
    return found


def times(frame: pd.DataFrame, reaches: Reaches, step: str) -> Figure:
    """Time of a step against the size of the code, on each core and each kind of pages."""
    pattern = str(frame["pattern"].iloc[0])
    figure, axes = panel(8, 4.6)
    for backing, of_backing in frame.groupby("backing", sort=False):
        curves = of_backing.groupby(["state", "cpu"], sort=False, dropna=False)
        for j, ((state, cpu), mine) in enumerate(curves):
            core = f"cpu{cpu}" if isinstance(cpu, int | np.integer) else "all cores"
            style: dict[str, Any] = {
                "color": COLOURS.get(str(backing), "C6"),
                "ls": "-" if j == 0 else "--",
                "alpha": 1 / (1 + 0.3 * j),
            }
            if state == "shared":
                style |= {"ls": ":", "lw": 1.0, "mfc": "white", "alpha": 0.8}
            intervals(
                axes, mine["code_bytes"] / _KIB, *with_ends(mine, "step_ns"), fmt=MARKS[j % 8],
                capsize=2,
                label=f"{pages(str(backing))}, {core}{_STATES[str(state)]}", **style,
            )  # fmt: skip
    predicted = frame.dropna(subset="predicted_ns").drop_duplicates("code_bytes")
    if len(predicted):
        levels = [name for name, size in reaches.caches.items() if size < frame["code_bytes"].max()]
        label = f"misses that {' and '.join(levels)}\nmust have, costs fitted"
        x = predicted["code_bytes"] / _KIB
        axes.plot(x, predicted["predicted_ns"], color="0.35", lw=1, ls="-.", label=label)
    axes.set(xlabel=_EXTENT, ylabel=f"time per {step} (ns)")
    axes.set_ylim(0, _MARGIN * _of_most(frame["step_ns"], frame["step_ns_high"]))
    _size_axis(axes, frame)
    size_marks(axes, reaches.caches, low=True)
    _reach_marks(axes, reaches, low=True)
    what = _PATTERNS.get(step) or _PATTERNS.get(pattern, pattern)
    axes.set_title(f"Time per {step} against the size of the code: {what}")
    outside = len(axes.containers) > _MOST_INSIDE  # or it would hide the curves
    axes.legend(
        fontsize="small", title="95 % intervals", loc="upper left",
        bbox_to_anchor=(1, 1) if outside else (0, 1),
    )  # fmt: skip
    return figure


def page_ratio(frame: pd.DataFrame, knees: pd.DataFrame, reaches: Reaches) -> Figure:
    """How much longer the same code takes on 4 KiB than on 2 MiB pages, and the knees."""
    patterns = list(frame["pattern"].unique())
    figure, panels = panels_above(len(patterns), 8, 3.0 * len(patterns) + 1.2)
    for axes, pattern in zip(panels, patterns, strict=True):
        mine = frame[frame["pattern"] == pattern]
        for i, (backing, one) in enumerate(mine.groupby("backing", sort=False)):
            shifted = one["code_bytes"] / _KIB * 1.02**i  # so that intervals do not hide each other
            intervals(
                axes, shifted, *with_ends(one, "extra_percent"),
                label=f"4 KiB over {pages(str(backing))}",
            )  # fmt: skip
        if len(knees):
            here = (knees["pattern"] == pattern) & (knees["compared_with"] != "line")
            _knee_marks(axes, knees[here & (knees["state"] != "shared")], mine)
        axes.axhline(0, color="0.3", lw=0.8)
        axes.set_ylabel("extra time on\n4 KiB pages (%)")
        axes.set_title(_PATTERNS.get(pattern, pattern), fontsize="medium")
        _size_axis(axes, frame)
        _reach_marks(axes, reaches)
        once_each(axes, ncols=3, **ABOVE)
    panels[-1].set_xlabel(_EXTENT)
    return figure


def ring_ratio(frame: pd.DataFrame, knees: pd.DataFrame, reaches: Reaches) -> Figure:
    """The chase and a ring of as many jumps, one a line: times, and how many times as long."""
    figure = Figure(figsize=(8, 6.6))
    above, below = figure.subplots(2, 1, sharex=True)
    rings = {"chase": "one jump a page", "line": "one jump a line, on a 64th of the pages"}
    for state, mine in frame.groupby("state", sort=False):
        words = _STATES[str(state)]
        shared: dict[str, Any] = {"fmt": "o:", "mfc": "white"} if state == "shared" else {}
        x = mine["code_bytes"] / _KIB
        for i, (ring, name) in enumerate(rings.items()):
            ends = with_ends(mine, f"{ring}_ns")
            intervals(above, x, *ends, color=f"C{i}", label=name + words, **shared)
        colour = _KNEES[str(state)]
        intervals(
            below, x, *with_ends(mine, "ratio"),
            color="C0" if state != "shared" else colour, label=f"one a page over one a line{words}",
            **shared,
        )  # fmt: skip
    _knee_marks(below, knees[knees["compared_with"] == "line"], frame)
    above.set_title("the same ring of jumps on many and on few pages of 4 KiB", fontsize="medium")
    above.set_ylabel("time per jump (ns)")
    below.set(ylabel="times as long", xlabel="extent of the ring with one jump a page (KiB)")
    _log_limits(above, frame, *(f"{ring}_ns" for ring in rings))
    _log_limits(below, frame, "ratio")
    for axes in (above, below):
        doubling(axes.yaxis)
        _size_axis(axes, frame)
        _reach_marks(axes, reaches)
        once_each(axes)
    return figure


def core_difference(frame: pd.DataFrame, reaches: Reaches) -> Figure:
    """How much slower each core is than the others at each size, as Guerri et al. drew it."""
    backings = list(frame["backing"].unique())
    figure = Figure(figsize=(8, 3.0 * len(backings) + 1.2))
    panels = figure.subplots(len(backings), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, backing in zip(panels, backings, strict=True):
        slowdowns(axes, frame[frame["backing"] == backing], "code_bytes")
        axes.set_title(pages(backing), fontsize="medium")
        _size_axis(axes, frame)
        _reach_marks(axes, reaches)
    panels[-1].set_xlabel(_EXTENT)
    return figure


def compiled(frame: pd.DataFrame, knees: pd.DataFrame, reaches: Reaches) -> Figure:
    """The compiled switch next to the assembled one: times, what 4 KiB pages cost, misses."""
    switches = {
        "random": ("assembled switch", "C0", "o"),
        "compiled": ("compiled switch", "C1", "s"),
    }
    extra, simulated = (
        bool(frame[name].notna().any()) for name in ("extra_percent", "misses_per_step")
    )
    count = 1 + extra + simulated
    figure = Figure(figsize=(8, 2.6 * count + 1.2))
    panels = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    rows = panels.copy()
    below, last = (rows.pop() if some else None for some in (simulated, extra))
    for pattern, (name, colour, mark) in switches.items():
        mine = frame[frame["pattern"] == pattern].assign(kib=lambda one: one["code_bytes"] / _KIB)
        for backing, one in mine.groupby("backing", sort=False):
            small = str(backing) == SMALL_PAGES
            ends = with_ends(one, "step_ns")
            intervals(
                panels[0], one["kib"], *ends, color=colour, fmt=f"{mark}-" if small else f"{mark}:",
                mfc=colour if small else "white", label=f"{name}, {pages(str(backing))}",
            )  # fmt: skip
            if last is not None and one["extra_percent"].notna().any():
                ends = with_ends(one, "extra_percent")
                words = f"{name}, 4 KiB over {pages(str(backing))}"
                intervals(last, one["kib"], *ends, color=colour, fmt=f"{mark}-", label=words)
        known = mine.dropna(subset="misses_per_step")
        if below is not None and len(known):
            below.plot(
                known["kib"], known["misses_per_step"], f"{mark}-", ms=4, color=colour, label=name
            )
    panels[0].set(
        ylabel="time per step (ns)", title="The compiled switch next to the assembled one"
    )
    panels[0].set_ylim(0, _MARGIN * _of_most(frame["step_ns"], frame["step_ns_high"]))
    if last is not None:
        last.axhline(0, color="0.3", lw=0.8)
        last.set_ylabel("extra time on\n4 KiB pages (%)")
        for pattern, (_, colour, _) in switches.items():
            known = knees[(knees["pattern"] == pattern) & (knees["state"] != "shared")]
            for place, high, low in zip(
                known["size_bytes"], known["size_bytes_high"], known["size_bytes_low"], strict=True
            ):
                last.axvspan(
                    max(low, frame["code_bytes"].min()) / _KIB,
                    high / _KIB,
                    color=colour,
                    alpha=0.12,
                )
                last.axvline(place / _KIB, color=colour, lw=1)
    if below is not None:
        below.set_ylabel("simulated iTLB\nmisses per step")
    panels[-1].set_xlabel(_EXTENT)
    for axes in panels:
        _size_axis(axes, frame)
        _reach_marks(axes, reaches)
        axes.legend(fontsize="small", loc="upper left")
    return figure


def misses(frame: pd.DataFrame, model: str, reaches: Reaches) -> Figure:
    """Simulated iTLB misses of a step above what 4 KiB pages cost it; counted ones if any."""
    paired = bool(frame["extra_ns"].notna().any())
    figure, panels = panels_above(2 if paired else 1, 8, 6.6 if paired else 3.8)
    above, below = panels[0], panels[-1]
    for i, (pattern, every) in enumerate(frame.groupby("pattern", sort=False)):
        style = {"ms": 4, "color": f"C{i}"}
        words = _PATTERNS.get(str(pattern), str(pattern))
        every = every.assign(kib=every["code_bytes"] / _KIB)  # noqa: PLW2901
        simulated = every.dropna(subset="misses_per_step")
        above.plot(simulated["kib"], simulated["misses_per_step"], "o-", label=words, **style)
        above.plot(simulated["kib"], simulated["walks_per_step"], "s:", **style)
        counted = every["counted_per_step"]
        if counted.notna().any():
            above.plot(every["kib"], counted, "x", color=f"C{i}", label=f"{words}, measured")
        if paired:
            ends = with_ends(every, "extra_ns")
            intervals(below, every["kib"], *ends, color=f"C{i}", label=words)
    above.plot([], [], "o-", color="0.3", label="first level misses")
    above.plot([], [], "s:", color="0.3", label="both levels miss")
    above.set_ylabel("simulated iTLB misses\nper step")
    title = model.replace("; ", ";\n")
    above.set_title(f"simulated: {title}", fontsize="small", fontweight="normal")
    if paired:
        below.axhline(0, color="0.3", lw=0.8)
        below.set_ylabel("measured: extra time on\n4 KiB pages (ns per step)")
    below.set_xlabel(_EXTENT)
    for axes in panels:
        _size_axis(axes, frame)
        _reach_marks(axes, reaches)
        axes.legend(fontsize="small", loc="upper left")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _of_most(values: pd.Series[float], highs: pd.Series[float]) -> float:
    """The top of what is drawn: intervals of very few batches may leave the figure."""
    most = float(values.max())
    return max(most, float(highs[highs < _MAX_FACTOR * most].max()))


def _log_limits(axes: Axes, frame: pd.DataFrame, *columns: str) -> None:
    """A range for points, whatever their intervals, with room for the legend."""
    values = frame[list(columns)].to_numpy(np.float64)
    axes.set_ylim(
        float(np.nanmin(values)) / _MAX_FACTOR, float(np.nanmax(values)) * 2 * _MAX_FACTOR
    )


def _knee_marks(axes: Axes, knees: pd.DataFrame, frame: pd.DataFrame) -> None:
    """Each knee with its interval; a low end of 0 is drawn where nothing was measured."""
    nowhere = frame["code_bytes"].min() / _KIB / 2
    for _, knee in knees.iterrows():
        low, middle, high = (
            float(knee[name]) / _KIB for name in ("size_bytes_low", "size_bytes", "size_bytes_high")
        )
        colour, words = _KNEES[str(knee["state"])], _STATES[str(knee["state"])]
        label = f"knee{words}, 95 % interval"
        axes.axvspan(max(low, nowhere), high, color=colour, alpha=0.15, lw=0, label=label)
        axes.axvline(middle, color=colour, lw=1.5)


def _size_axis(axes: Axes, frame: pd.DataFrame) -> None:
    """Sizes of the code, doubling; the same for all panels of a figure."""
    sizes = np.asarray(frame["code_bytes"], dtype=np.float64) / _KIB
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes.min() / 1.2, sizes.max() * 1.2)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")


def _reach_marks(axes: Axes, reaches: Reaches, *, low: bool = False) -> None:
    """Where a TLB's reach ends, as CPUID reports it or as is published."""
    said = f" ({reaches.origin})" if reaches.origin else ""
    named = {f"{name}{said}": size for name, size in reaches.tlbs.items()}
    size_marks(axes, named, colour="C4", style="--", low=low)
