"""The figures of the levels of memory, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from perflib.experiments.memory_levels.analyse import tables
from perflib.experiments.memory_levels.table import tlb_reaches
from perflib.framework.plots import (
    ABOVE,
    MARKS,
    intervals,
    log_ticks,
    pages,
    panel,
    panels_above,
    size_marks,
    slowdowns,
    with_ends,
)
from perflib.model.run import Run
from perflib.model.sentences import size

_KIB = 1024
_MIN_NAMED_FACTOR = (
    2.0  # levels that reach over less sizes than this factor are drawn without their numbers
)
_TLB_COLOUR, _LEVEL_COLOUR = "C4", "C3"
_LINES = ("-", "--", ":", "-.")  # by kind of pages
_SHARED = 5  # the colour of the curve next to a busy sibling
_COMPARED = {
    "pages": "4 KiB over\nhuge pages",
    "random": "random over\nwindow",
    "sequential": "sequential over\nother orders",
}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    found: dict[str, Callable[[], Figure]] = {
        "latency": lambda: latency(made["latency"](), made["levels"]())
    }
    reaches = tlb_reaches(run.provenance.get("machine", {}))
    if "ratios" in made:
        found["ratios"] = lambda: ratios(made["ratios"](), made["levels"](), reaches)
    if "core_difference" in made:
        found["core_difference"] = lambda: core_difference(
            made["core_difference"](), made["levels"]()
        )
    return found


def latency(frame: pd.DataFrame, levels: pd.DataFrame) -> Figure:
    """Time of a load against the size of the array: each order and backing; levels found.

    Where samples next to a busy sibling were seen, their curve is next to that of the core alone.
    """
    figure, axes = panel(8.5, 5.4)
    backings = list(frame["backing"].unique())
    for i, (order, of_order) in enumerate(frame.groupby("order", sort=False)):
        for (backing, samples), curve in of_order.groupby(["backing", "samples"], sort=False):
            label = f"{order}, {pages(str(backing))}"
            if samples == "shared":
                _curve(axes, curve, "latency_ns", f"{label}, sibling busy", _SHARED)
            else:
                _curve(axes, curve, "latency_ns", label, i, style=backings.index(backing))
    alone = "; core alone unless said" if "alone" in set(frame["samples"]) else ""
    _log_axis(axes, 3.5)
    _levels(axes, levels)
    axes.set_title("Latency against the size of the array")
    axes.set_ylabel("latency of a dependent load (ns)")
    axes.set_xlabel("size of the array")
    _size_axis(axes, frame)
    size_marks(axes, {f"{name} claimed": size for name, size in _claims(levels).items()}, low=True)
    axes.legend(fontsize="small", loc="upper left", title=f"95 % intervals{alone}")
    return figure


def _levels(axes: Axes, levels: pd.DataFrame) -> None:
    """The levels that were found, with their latencies where there is room."""
    found = levels[levels["samples"] != "shared"].dropna(subset="first_kib")
    for number, level in enumerate(found.to_dict("records")):
        ends, ns = (level["first_kib"], level["last_kib"]), level["latency_ns"]
        axes.plot(
            ends, [ns, ns], color=_LEVEL_COLOUR, lw=5, alpha=0.35,
            solid_capstyle="butt", label="" if number else "levels found",
        )  # fmt: skip
        if ends[1] < _MIN_NAMED_FACTOR * ends[0]:  # on the steep parts words would hide the curves
            continue
        words = f"{ns:.3g} ns"
        if np.isfinite(level["latency_cycles"]):
            words += f"\n{level['latency_cycles']:.3g} cycles"
        axes.annotate(
            words, (float(np.sqrt(ends[0] * ends[1])), ns), (0, -6),
            textcoords="offset points", ha="center", va="top", fontsize="small",
            color=_LEVEL_COLOUR,
        )  # fmt: skip


def ratios(frame: pd.DataFrame, levels: pd.DataFrame, reaches: dict[str, int]) -> Figure:
    """One order or backing over another, within rounds, at each size."""
    compared = list(frame["compared"].unique())
    figure, panels = panels_above(len(compared), 8.5, 2.4 * len(compared) + 1.0)
    of_pair = ["order", "backing", "over_order", "over_backing"]
    for axes, name in zip(panels, compared, strict=True):
        mine = frame[frame["compared"] == name]
        for i, (pair, curve) in enumerate(mine.groupby(of_pair, sort=False)):
            order, backing, over_order, over_backing = map(str, pair)
            label = f"{order} / {over_order}, {pages(backing)}"
            if order == over_order:
                label = f"{order}, {pages(backing)} / {pages(over_backing)}"
            _curve(axes, curve, "ratio", label, i)
        axes.axhline(1, color="0.3", lw=0.8)
        ascending = name == "sequential"
        _log_axis(axes, 1.5)
        axes.set_ylabel(f"{_COMPARED[name]}\n(ratio)")
        _size_axis(axes, frame)
        size_marks(axes, _claims(levels), low=ascending)
        if not ascending:
            size_marks(axes, reaches, colour=_TLB_COLOUR, style="--")
        axes.legend(ncols=2, **ABOVE)
    rows = -(-len(panels[0].get_legend_handles_labels()[0]) // 2)
    panels[0].set_title("Latency of one order or page size over another", pad=12 + 16 * rows)
    panels[-1].set_xlabel("size of the array")
    return figure


def core_difference(frame: pd.DataFrame, levels: pd.DataFrame) -> Figure:
    """How much longer a load takes on each core than on the median of the others, by size."""
    figure = Figure(figsize=(8.5, 4.2))
    axes = figure.subplots()
    slowdowns(axes, frame, "array_bytes")
    where = f"{frame['order'].iloc[0]}, {pages(frame['backing'].iloc[0])}"
    axes.set_title(f"Latency on each core against the size of the array: {where}")
    axes.set_xlabel("size of the array")
    _size_axis(axes, frame)
    size_marks(axes, _claims(levels), low=True)
    return figure


# --- parts ---------------------------------------------------------------------------------------


def _claims(levels: pd.DataFrame) -> dict[str, float]:
    """The sizes that caches claim, in bytes."""
    known = levels.dropna(subset="size_kib")
    return dict(zip(known["level"], _KIB * known["size_kib"], strict=True))


def _curve(
    axes: Axes,
    curve: pd.DataFrame,
    column: str,
    label: str,
    place: int,
    *,
    style: int = 0,
) -> None:
    colour = f"C{place}"
    intervals(
        axes, curve["array_bytes"] / _KIB, *with_ends(curve, column), label=label,
        fmt=MARKS[place % len(MARKS)], capsize=2, lw=1.2, color=colour,
        ls=_LINES[style % len(_LINES)], mfc="white" if style else colour,
    )  # fmt: skip


def _log_axis(axes: Axes, factor: float) -> None:
    """As far as the points go and a factor more; wider intervals are cut off at its ends."""
    curves = [bar.lines[0] for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    every = np.concatenate([np.asarray(curve.get_ydata(), float) for curve in curves])
    log_ticks(axes.yaxis, np.nanmin(every) / factor, np.nanmax(every) * factor)


def _size_axis(axes: Axes, frame: pd.DataFrame) -> None:
    """Sizes, fourfold from tick to tick."""
    sizes = frame["array_bytes"].to_numpy(float) / _KIB
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes.min() / 1.2, sizes.max() * 1.2)
    exponents = range(int(np.ceil(np.log2(sizes.min()))), int(np.log2(sizes.max())) + 1, 2)
    axes.set_xticks([2.0**exponent for exponent in exponents])
    axes.xaxis.set_major_formatter(lambda value, _place: size(value * _KIB))
    axes.tick_params(axis="x", labelsize="small")
