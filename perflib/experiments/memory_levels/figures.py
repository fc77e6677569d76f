"""The figures of the levels of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perflib.experiments.memory_levels.analyse import told
from perflib.experiments.memory_levels.table import SMALL_PAGES, MemoryTable, tlb_reaches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["core_difference", "latency", "pairs", "ratios", "visits"]

_KIB = 1024
_MOST_CORES = 8
_MARKS = "o^svDPX*"
_PAGES = {"4k": "4 KiB pages"}
_TOLD = 2.0  # levels that reach over less sizes than this factor are drawn without their figures
_CLAIM_COLOUR, _TLB_COLOUR, _LEVEL_COLOUR = "0.35", "C4", "C3"
_PAGE_LINES = 64
Pair = tuple[tuple[str, str], tuple[str, str]]


def _pages(backing: str) -> str:
    return _PAGES.get(backing, f"2 MiB pages ({backing})")


def latency(table: MemoryTable) -> Figure:
    """Time of a load against the size of the array: each order and backing; levels found."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 5.4))
    axes = figure.subplots()
    for i, order in enumerate(table.orders):
        for j, backing in enumerate(table.backings):
            if table.measured(order, backing):
                curve = table.curve(order, backing)
                _bars(
                    axes, curve, "latency", f"{order}, {_pages(backing)}", f"C{i}",
                    _MARKS[i % len(_MARKS)], hollow=j > 0,
                )  # fmt: skip
    _log_axis(axes, beside=3.5)
    for number, level in enumerate(table.levels):
        found, cycles = table.latency(level), table.latency(level, "latency_cycles")
        words = f"{found.effect:.3g} ns"
        if np.isfinite(cycles.effect):
            words += f"\n{cycles.effect:.3g} cycles"
        ends = level.first_bytes / _KIB, level.last_bytes / _KIB
        axes.plot(
            ends, [found.effect] * 2, color=_LEVEL_COLOUR, lw=5, alpha=0.35,
            solid_capstyle="butt", label="" if number else "levels found",
        )  # fmt: skip
        if ends[1] < _TOLD * ends[0]:  # on the steep parts words would hide the curves
            continue
        axes.annotate(
            words, (float(np.sqrt(ends[0] * ends[1])), found.effect), (0, -6),
            textcoords="offset points", ha="center", va="top", fontsize="small",
            color=_LEVEL_COLOUR,
        )  # fmt: skip
    axes.set_ylabel("latency of a dependent load (ns)")
    axes.set_xlabel("size of the array")
    _size_axis(axes, table)
    _lines(axes, table.claims, _CLAIM_COLOUR, ":", "claimed")
    axes.legend(fontsize="small", loc="upper left", title="95 % intervals")
    return figure


# --- one over another ----------------------------------------------------------------------------


def pairs(table: MemoryTable) -> dict[str, list[Pair]]:
    """What can be compared: small and huge pages, random order and windows, ascending and not."""
    found: dict[str, list[Pair]] = {}
    orders = [name for name in table.orders if name != "sequential"]
    if SMALL_PAGES in table.backings:
        found["4 KiB over\n2 MiB pages"] = [
            ((order, SMALL_PAGES), (order, huge)) for huge in table.huge for order in orders
        ]
    found["random over\nwindow"] = [
        (("random", backing), ("window", backing)) for backing in table.backings
    ]
    found["sequential over\nother orders"] = [
        (("sequential", backing), (order, backing))
        for order in orders[:1]
        for backing in table.backings
    ]
    there = {
        title: [pair for pair in chosen if all(table.measured(*one) for one in pair)]
        for title, chosen in found.items()
    }
    return {title: chosen for title, chosen in there.items() if chosen}


def ratios(table: MemoryTable, chosen: Mapping[str, Sequence[Pair]]) -> Figure:
    """One order or backing over another, within rounds, at each size; see ``pairs``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 2.4 * len(chosen) + 0.8))
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, several) in zip(panels, chosen.items(), strict=True):
        for i, (above, below) in enumerate(several):
            curve = table.ratio_curve(above, below)
            label = f"{above[0]} / {below[0]}, {_pages(above[1])}"
            if above[0] == below[0]:
                label = f"{above[0]}, {_pages(above[1])} / {_pages(below[1])}"
            _bars(axes, curve, "ratio", label, f"C{i}", _MARKS[i % len(_MARKS)])
        axes.axhline(1, color="0.3", lw=0.8)
        ascending = title.startswith("sequential")
        _log_axis(axes, beside=1.5)
        axes.set_ylabel(f"{title}\n(ratio)")
        _size_axis(axes, table)
        _lines(axes, table.claims, _CLAIM_COLOUR, ":", "", high=not ascending)
        if not ascending:
            _lines(axes, tlb_reaches(table.machine), _TLB_COLOUR, "--", "", high=True)
        axes.legend(fontsize="small", loc="lower left" if ascending else "upper left")
    panels[-1].set_xlabel("size of the array")
    return figure


# --- core against core ---------------------------------------------------------------------------


def core_difference(table: MemoryTable) -> Figure:
    """How much longer a load takes on each core than on the median of the others, by size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 4.2))
    axes = figure.subplots()
    compared = [table.core_difference([place]) for place in range(len(table.sizes))]
    effects = np.array([[tuple(one.slowdown) for one in each.effects] for each in compared])
    order = np.argsort(-np.nan_to_num(effects[:, :, 0]).mean(axis=0))
    for place, core in enumerate(order):
        told_ = pd.DataFrame(effects[:, core], columns=["slower", "low", "high"])
        told_.insert(0, "array_bytes", table.sizes * (1 + 0.012 * place))
        if place >= _MOST_CORES:
            axes.plot(told_["array_bytes"] / _KIB, told_["slower"], color="0.8", lw=0.8)
            continue
        mark = _MARKS[place % len(_MARKS)]
        _bars(axes, told_, "slower", f"cpu{table.cores[core]}", f"C{place}", mark)
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set_ylabel("slower than the median\nof the others (%)")
    axes.set_xlabel("size of the array")
    axes.set_title(f"{table.primary[0]}, {_pages(table.primary[1])}", fontsize="medium")
    _size_axis(axes, table)
    _lines(axes, table.claims, _CLAIM_COLOUR, ":", "")
    axes.legend(fontsize="small", loc="upper left", ncols=4, title="95 % intervals")
    return figure


# --- orders --------------------------------------------------------------------------------------


def visits(walks: Mapping[str, Sequence[int]], steps: int) -> Figure:
    """Which page and line each of the first loads of a walk goes to, one panel an order.

    ``walks``: the lines visited, by order.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 1.9 * len(walks) + 0.6))
    panels = figure.subplots(len(walks), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (order, lines) in zip(panels, walks.items(), strict=True):
        shown = np.asarray(lines[:steps])
        axes.plot(np.arange(shown.size), shown / _PAGE_LINES, ".", ms=2.5)
        pages = len(set((shown // _PAGE_LINES).tolist()))
        axes.set_title(f"{order}: {pages} pages", fontsize="medium")
        axes.set_ylabel("page")
    panels[-1].set_xlabel("load")
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _bars(
    axes: Axes,
    curve: pd.DataFrame,
    value: str,
    label: str,
    colour: str,
    mark: str,
    *,
    hollow: bool = False,
) -> None:
    y = curve[value]
    reach = np.abs(np.nan_to_num([y - curve["low"], curve["high"] - y]))
    axes.errorbar(
        curve["array_bytes"] / _KIB, y, yerr=reach, marker=mark, ms=4, capsize=2, lw=1.2,
        color=colour, ls="--" if hollow else "-", mfc="white" if hollow else colour, label=label,
    )  # fmt: skip


def _log_axis(axes: Axes, beside: float) -> None:
    """As far as the points go and a factor more; wider intervals are cut off at its ends."""
    from matplotlib.container import ErrorbarContainer
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    curves = [bar.lines[0] for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    every = np.concatenate([np.asarray(curve.get_ydata(), float) for curve in curves])
    low, high = np.nanmin(every) / beside, np.nanmax(every) * beside
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if high / low > 8 else (1, 1.5, 2, 3, 5))
    )
    axes.yaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _size_axis(axes: Axes, table: MemoryTable) -> None:
    """Sizes, fourfold from tick to tick."""
    sizes = table.sizes / _KIB
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes.min() / 1.2, sizes.max() * 1.2)
    exponents = range(int(np.ceil(np.log2(sizes.min()))), int(np.log2(sizes.max())) + 1, 2)
    axes.set_xticks([2.0**exponent for exponent in exponents])
    axes.xaxis.set_major_formatter(lambda value, _place: told(value * _KIB))
    axes.tick_params(axis="x", labelsize="small")


def _lines(
    axes: Axes,
    sizes: Mapping[str, int],
    colour: str,
    style: str,
    label: str,
    *,
    high: bool = False,
) -> None:
    """Vertical lines at named sizes."""
    smallest, largest = axes.get_xlim()
    for name, size in sizes.items():
        x = size / _KIB
        if smallest < x < largest:
            axes.axvline(x, color=colour, ls=style, lw=1.2)
            axes.text(
                x, 0.97 if high else 0.02, f" {name} {label}".rstrip(), color=colour,
                fontsize="x-small", rotation=90, va="top" if high else "bottom", ha="right",
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
