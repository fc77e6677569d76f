"""The figures of sweeps over the size of the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.experiments.code_size.analyse import Reaches
from perflib.experiments.code_size.table import SMALL_PAGES, CodeTable
from perflib.stats.interval import percent
from perflib.stats.intervals import t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from perflib.stats.knees import Knees

__all__ = ["core_difference", "misses", "page_ratio", "ring_ratio", "time_per_step"]

_KIB = 1024
_MOST_CORES = 8
_MOST_INSIDE = 4
_CACHE_COLOUR, _TLB_COLOUR = "0.35", "C4"
_PAGES = {
    "4k": "4 KiB pages",
    "thp": "2 MiB pages (thp)",
    "collapse": "2 MiB pages (collapse)",
    "hugetlb": "2 MiB pages (hugetlb)",
    "hugectl": "2 MiB pages (hugectl)",
}
_PATTERNS = {
    "random": "cases at random",
    "page": "one case a page, at random",
    "chase": "branch chase, one jump a page",
}


def time_per_step(table: CodeTable, pattern: str, reaches: Reaches, step: str) -> Figure:
    """Time a step against the size of the code, on each core and each kind of pages."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6))
    axes = figure.subplots()
    few = len(table.cores) <= _MOST_CORES
    for i, backing in enumerate(table.backings):
        for j, cpu in enumerate(table.cores if few else [None]):
            curve = table.curve(pattern, backing, cpu)
            x, y = curve["code_bytes"] / _KIB, curve["step_ns"]
            reach = np.nan_to_num([y - curve["low_ns"], curve["high_ns"] - y])
            label = f"{_PAGES.get(backing, backing)}, {'all cores' if cpu is None else f'cpu{cpu}'}"
            axes.errorbar(
                x, y, yerr=np.abs(reach), marker="o^svDPX*"[j % 8], ms=4, capsize=2, label=label,
                color=f"C{i}", ls="-" if j == 0 else "--", alpha=1 / (1 + 0.3 * j),
            )  # fmt: skip
    held = {name: size for name, size in reaches.caches.items() if size < x.max() * _KIB}
    if held and pattern == "random" and np.isfinite(y).all():
        _, model = table.miss_model(pattern, table.backings[-1], held)
        words = f"misses that {' and '.join(held)}\nmust have, costs fitted"
        axes.plot(x, model, color="0.35", lw=1, ls="-.", label=words)
    axes.set_xlabel("extent of the code that runs (KiB)")
    axes.set_ylabel(f"time per {step} (ns)")
    axes.set_ylim(0, None)
    _size_axis(axes, table, [pattern])
    _predicted(axes, reaches, low=True)
    what = "functions called at random" if step == "call" else _PATTERNS.get(pattern, pattern)
    axes.set_title(f"Time per {step} against the size of the code: {what}")
    beside = len(axes.containers) > _MOST_INSIDE  # or it would hide the curves
    axes.legend(
        fontsize="small", title="95 % intervals", loc="upper left",
        bbox_to_anchor=(1, 1) if beside else (0, 1),
    )  # fmt: skip
    return figure


def page_ratio(table: CodeTable, reaches: Reaches, knees: Mapping[str, Knees]) -> Figure:
    """How much longer the same code takes on 4 KiB than on 2 MiB pages, and the knees."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.0 * len(table.sweeps) + 1.2))
    panels = figure.subplots(len(table.sweeps), 1, sharex=True, squeeze=False)[:, 0]
    for axes, pattern in zip(panels, table.sweeps, strict=True):
        x = table.code_bytes(pattern) / _KIB
        for i, huge in enumerate(table.huge):
            blocks = table.page_ratio(pattern, huge)
            ratio = [percent(t_interval(blocks[:, place])) for place in range(len(x))]
            y = np.array([one.effect for one in ratio])
            reach = np.nan_to_num([[one.effect - one.low, one.high - one.effect] for one in ratio])
            shift = 1.02**i  # so that intervals do not hide each other
            axes.errorbar(
                x * shift, y, yerr=np.abs(reach.T), fmt="o-", ms=4, capsize=3,
                label=f"4 KiB over {_PAGES.get(huge, huge)}",
            )  # fmt: skip
        if pattern in knees:
            _mark(axes, knees[pattern], x.min() / 2)
        axes.axhline(0, color="0.3", lw=0.8)
        axes.set_ylabel("extra time on\n4 KiB pages (%)")
        axes.set_title(_PATTERNS.get(pattern, pattern), fontsize="medium")
        _size_axis(axes, table, table.sweeps)
        _predicted(axes, Reaches({}, reaches.tlbs))
        _legend(axes)
    panels[-1].set_xlabel("extent of the code that runs (KiB)")
    return figure


def ring_ratio(table: CodeTable, reaches: Reaches) -> Figure:
    """The chase against a ring of as many jumps, one a line: times, and how many times as long."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.6))
    above, below = figure.subplots(2, 1, sharex=True)
    extent, blocks = table.ring_ratio()
    x = extent / _KIB
    for i, (pattern, words) in enumerate(
        (("chase", "one jump a page"), ("line", "one jump a line, on a 64th of the pages"))
    ):
        curve = table.curve(pattern, SMALL_PAGES).iloc[table.ring_places(pattern)]
        y = curve["step_ns"].to_numpy()
        reach = np.nan_to_num([y - curve["low_ns"], curve["high_ns"] - y])
        above.errorbar(
            x, y, yerr=np.abs(reach), fmt="o-", ms=4, capsize=3, color=f"C{i}", label=words
        )
    ratio = np.exp([tuple(t_interval(blocks[:, place])) for place in range(len(x))])
    reach = np.nan_to_num([ratio[:, 0] - ratio[:, 1], ratio[:, 2] - ratio[:, 0]])
    below.errorbar(
        x, ratio[:, 0], yerr=np.abs(reach), fmt="o-", ms=4, capsize=3, color="C0",
        label="one a page over one a line",
    )  # fmt: skip
    _mark(below, table.ring_knees(), x.min() / 2)
    above.set_title("the same ring of jumps on many and on few pages of 4 KiB", fontsize="medium")
    above.set_ylabel("time per jump (ns)")
    below.set_ylabel("times as long")
    below.set_xlabel("extent of the ring with one jump a page (KiB)")
    for axes in (above, below):
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _place: f"{value:g}")
        _size_axis(axes, table, ["chase"])
        _predicted(axes, Reaches({}, reaches.tlbs))
        _legend(axes)
    return figure


def core_difference(table: CodeTable, pattern: str, reaches: Reaches) -> Figure:
    """The source's figure: how much slower each core is than the others, at each size."""
    from matplotlib.figure import Figure

    backings = [name for name in (SMALL_PAGES, *table.huge[:1]) if name in table.backings]
    figure = Figure(figsize=(8, 3.0 * len(backings) + 1.2))
    panels = figure.subplots(len(backings), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    x = table.code_bytes(pattern) / _KIB
    for axes, backing in zip(panels, backings, strict=True):
        compared = table.difference_by_size(pattern, backing)
        effects = np.array(
            [[tuple(effect.slowdown) for effect in one.effects] for one in compared]
        )  # [n, cpu, (effect, low, high)]
        order = np.argsort(-np.nan_to_num(effects[:, :, 0]).mean(axis=0))
        for place, core in enumerate(order):
            y, low, high = effects[:, core].T
            if place >= _MOST_CORES:
                axes.plot(x, y, color="0.8", lw=0.8)
                continue
            shift = 1 + 0.012 * place
            axes.errorbar(
                x * shift, y, yerr=np.abs(np.nan_to_num([y - low, high - y])), fmt="o-", ms=4,
                capsize=3, label=f"cpu{table.cores[core]}",
            )  # fmt: skip
        axes.axhline(0, color="0.3", lw=0.8)
        axes.set_ylabel("slower than the median\nof the others (%)")
        axes.set_title(_PAGES.get(backing, backing), fontsize="medium")
        _size_axis(axes, table, [pattern])
        _predicted(axes, Reaches({}, reaches.tlbs))
        axes.legend(fontsize="small", loc="upper left", ncols=4, title="95 % intervals")
    panels[-1].set_xlabel("extent of the code that runs (KiB)")
    return figure


def misses(table: CodeTable, simulated: Mapping[str, Any], reaches: Reaches) -> Figure:
    """Simulated iTLB misses a step, above what 4 KiB pages cost a step; measured ones if any."""
    from matplotlib.figure import Figure

    rows = pd.DataFrame(simulated["rows"])
    paired = bool(table.huge) and SMALL_PAGES in table.backings
    figure = Figure(figsize=(8, 6.6 if paired else 3.8))
    panels = figure.subplots(2 if paired else 1, 1, sharex=True, squeeze=False)[:, 0]
    above, below = panels[0], panels[-1]
    patterns = [name for name in table.patterns if name in set(rows["pattern"])]
    for i, pattern in enumerate(patterns):
        extent = dict(zip(table.sizes(pattern), table.code_bytes(pattern) / _KIB, strict=True))
        mine = rows[rows["pattern"] == pattern]
        x = mine["n"].map(extent)
        words = _PATTERNS.get(pattern, pattern)
        above.plot(x, mine["misses_per_step"], "o-", ms=4, color=f"C{i}", label=words)
        above.plot(x, mine["walks_per_step"], "s:", ms=4, color=f"C{i}")
        counted = table.values(pattern, SMALL_PAGES, "itlb_misses")
        steps = table.values(pattern, SMALL_PAGES, "steps")
        if np.isfinite(counted).any():
            y = np.nanmedian(counted / steps, axis=(0, 1))
            above.plot(list(extent.values()), y, "x", color=f"C{i}", label=f"{words}, measured")
        if paired:
            extra = _extra_ns(table, pattern)
            below.errorbar(
                list(extent.values()), extra[:, 0],
                yerr=np.abs(np.nan_to_num([extra[:, 0] - extra[:, 1], extra[:, 2] - extra[:, 0]])),
                fmt="o-", ms=4, capsize=3, color=f"C{i}", label=words,
            )  # fmt: skip
    above.plot([], [], "o-", color="0.3", label="first level misses")
    above.plot([], [], "s:", color="0.3", label="both levels miss")
    above.set_ylabel("simulated iTLB misses\nper step")
    model = str(simulated["model"]).replace("; ", ";\n")
    above.set_title(f"simulated: {model}", fontsize="small", fontweight="normal")
    if paired:
        below.axhline(0, color="0.3", lw=0.8)
        below.set_ylabel("measured: extra time on\n4 KiB pages (ns per step)")
    below.set_xlabel("extent of the code that runs (KiB)")
    for axes in panels:
        _size_axis(axes, table, patterns)
        _predicted(axes, Reaches({}, reaches.tlbs))
        axes.legend(fontsize="small", loc="upper left")
    return figure


def _extra_ns(table: CodeTable, pattern: str) -> Any:
    """``[n, (effect, low, high)]``: time a step on 4 KiB pages beyond that on 2 MiB pages."""
    huge = table.curve(pattern, table.huge[0])["step_ns"].to_numpy()
    blocks = table.page_ratio(pattern, table.huge[0])
    return np.array(
        [
            [ns * np.expm1(end) for end in t_interval(blocks[:, place])]
            for place, ns in enumerate(huge)
        ]
    )


def _mark(axes: Axes, knees: Knees, nowhere: float) -> None:
    """Each knee with its interval; a low end of 0 is drawn where nothing was measured."""
    for knee in knees.knees:
        ends = max(knee.size.low / _KIB, nowhere), knee.size.high / _KIB
        axes.axvspan(*ends, color="C3", alpha=0.15, label="knee, 95 % interval")
        axes.axvline(knee.size.effect / _KIB, color="C3", lw=1.5)


def _legend(axes: Axes) -> None:
    """With each label once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), fontsize="small", loc="upper left")


def _size_axis(axes: Axes, table: CodeTable, patterns: Sequence[str]) -> None:
    """Sizes of the code, doubling; the same for all panels of a figure."""
    sizes = np.concatenate([table.code_bytes(pattern) for pattern in patterns]) / _KIB
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes.min() / 1.2, sizes.max() * 1.2)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")


def _predicted(axes: Axes, reaches: Reaches, *, low: bool = False) -> None:
    """Where a cache is full and a TLB's reach ends, by CPUID's word."""
    smallest, largest = axes.get_xlim()
    place, side = (0.02, "bottom") if low else (0.98, "top")
    for sizes, colour, style in (
        (reaches.caches, _CACHE_COLOUR, ":"),
        (reaches.tlbs, _TLB_COLOUR, "--"),
    ):
        for name, size in sizes.items():
            x = size / _KIB
            if smallest < x < largest:
                axes.axvline(x, color=colour, ls=style, lw=1.2)
                axes.text(
                    x, place, f" {name}", color=colour, fontsize="x-small", rotation=90, va=side,
                    ha="right", transform=axes.get_xaxis_transform(),
                )  # fmt: skip
