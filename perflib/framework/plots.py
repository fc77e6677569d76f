"""How figures are drawn, with names as they are; parts of several: intervals, sizes, ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter

from perflib.measure.pages.kinds import GIGANTIC_PAGES, SMALL_PAGES, page_words
from perflib.model.escape import in_legend, shortened
from perflib.model.run import recording_in

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

MARKS = "o^svDPX*"
ABOVE = {  # a legend above its axes, at the right: it hides no point
    "loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2, "frameon": False,
    "fontsize": "small",
}  # fmt: skip
_MAX_TICK_LETTERS, _MAX_LEGEND_LETTERS = 40, 60
_MAX_LINE_LETTERS = 200  # of other lines
_LETTERS_AN_INCH = 11  # of a panel's title
_CORE_COLOURS = ("C0", "C1", "C2", "C3", "C4", "C5", "C9", "0.15")  # those seen on white
_MAX_COLOURED = 8
_MAX_COUNTERS = 20
_SOURCES = {"measured": "C0", "simulated": "C1"}
COLOURS = {
    # parts of a core's time
    "own speed": "C0", "own speed or sibling": "C9", "clock": "C1", "interrupts": "C2",
    "sibling": "C3", "other tasks": "C4", "hypervisor": "C5",
    # kinds of pages
    "4k": "C0", "thp": "C1", "collapse": "C2", "hugetlb": "C3", "hugetlb_1g": "C4",
    "hugectl": "C5", "loaded": "C8",
    # states of a thread; what does nothing recedes, and the theme has no colour as light
    "running": "C0", "ready": "C8", "waiting": "C3", "sleeping": "#e4e4e4", "spinning": "C5",
    "unknown": "C7",
    # classes of use: threads that run or could, compared with the cores
    "idle": "#e4e4e4", "poor": "C3", "ok": "C8", "ideal": "C2", "over": "#0b2a6b",
}  # fmt: skip
"""One thing has one colour, whatever else its figure shows; no other table has one for it."""
_KIB = 1024
_STEPS = {  # ticks of a decade, on an axis whose ends are so many times apart at most
    2.0: (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
    8.0: (1, 1.5, 2, 3, 5, 7),
    2000.0: (1, 2, 5),
}


@contextmanager
def literally() -> Iterator[None]:
    """Draw texts as they are within the ``with`` block: no ``$`` begins mathematics.

    Numbers along a logarithmic axis need `log_ticks`, or a formatter: matplotlib's is mathematics.
    """
    with mpl.rc_context({"text.parse_math": False}):
        yield


def drawn(draw: Callable[[], Figure], mark: str = "") -> Figure:
    """A figure with all texts as they are, also where it is drawn again; long ones shortened.

    ``mark`` stands above it: where what it shows is from, if not from this machine.
    """
    with literally():
        figure = draw()
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                _shorten_ticks(axis)
            place = axes.get_subplotspec()
            columns = place.get_gridspec().ncols if place else 1
            room = max(
                _MAX_LEGEND_LETTERS, round(_LETTERS_AN_INCH * figure.get_figwidth() / columns)
            )
            for text in axes.findobj(Text):
                text.set_text(_short(text.get_text(), room))
        for legend in [*figure.legends, *(one.get_legend() for one in figure.axes)]:
            for text in legend.get_texts() if legend else ():
                text.set_text(_short(text.get_text(), _MAX_LEGEND_LETTERS))
        for text in figure.findobj(Text):
            text.set_text(_short(text.get_text(), _MAX_LINE_LETTERS))
        if mark:
            _add_mark(figure, mark)
    return figure


def recorded_mark(provenance: Mapping[str, Any]) -> str:
    """What stands above the figure of a recorded run; empty: it was measured here."""
    note = recording_in(provenance)
    return f"recorded on {note}, not measured here" if note else ""


def _add_mark(figure: Figure, mark: str) -> None:
    """A line above the figure, where legends outside of the axes leave room; below its title."""
    title = figure.get_suptitle()
    for text in figure.texts:
        if title and text.get_text() == title:
            text.set_text(f"{title}\n{mark}")
            return
    figure.suptitle(mark, fontsize="small", color="#8a3b00", x=0.01, ha="left")


def _shorten_ticks(axis: Axis) -> None:
    """Make all ticks now: later they would be matplotlib's own, with mathematics."""
    words = [text.get_text() for text in axis.get_majorticklabels()]
    short = [_short(word, _MAX_TICK_LETTERS) for word in words]
    if short != words:
        axis.set_ticks(axis.get_majorticklocs(), short)


def _short(text: str, most: int) -> str:
    """A text whose lines are shortened."""
    return "\n".join(shortened(line, most) for line in text.split("\n"))


def core_style(cpu: int) -> tuple[str, str]:
    """The colour and the mark of a core: the same in every figure, together unique to 64 cores."""
    turn, place = divmod(int(cpu), len(_CORE_COLOURS))
    return _CORE_COLOURS[place], MARKS[turn % len(MARKS)]


def core_styles(cpus: Iterable[int]) -> dict[str, Any]:
    """How seaborn distinguishes the cores of a table's column ``cpu``: ``core_style`` of each."""
    styles = {cpu: core_style(cpu) for cpu in cpus}
    return {
        "hue": "cpu",
        "palette": {cpu: colour for cpu, (colour, _) in styles.items()},
        "style": "cpu",
        "markers": {cpu: mark for cpu, (_, mark) in styles.items()},
    }


def slowest(by_core: pd.Series[float]) -> list[int]:
    """The cores to draw in colour, those of the largest values first: all if they are few."""
    return list(by_core.nlargest(_MAX_COLOURED).index)


def panel(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel; its size is in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


def panels_above(count: int, width: float, height: float) -> tuple[Figure, NDArray[Any]]:
    """A figure of panels above each other, with one x axis; its size is in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]


def instead(axes: Axes, words: str) -> None:
    """Say why there is nothing to draw."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center")


def doubling(axis: Axis) -> None:
    """A logarithmic axis of sizes that double, with plain numbers."""
    scale = axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale
    scale("log", base=2)
    axis.set_major_formatter(lambda value, _place: f"{value:g}")


def with_ends(frame: pd.DataFrame, name: str) -> list[pd.Series[float]]:
    """A column, and those of the ends of its intervals, as `intervals` takes them."""
    return [frame[f"{name}{end}"] for end in ("", "_low", "_high")]


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """A logarithmic axis from ``low`` to ``high``, with as many plain numbers as have room."""
    side = "x" if axis is axis.axes.xaxis else "y"
    axis.axes.set(**{f"{side}scale": "log", f"{side}lim": (low, high)})
    subs = next((steps for most, steps in _STEPS.items() if high / low < most), (1,))
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(lambda value, _place: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def intervals(
    axes: Axes,
    x: ArrayLike,
    y: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    horizontal: bool = False,
    **style: Any,
) -> None:
    """Points with their intervals, of y or of x; where there is no interval, the point alone."""
    middle = np.asarray(x if horizontal else y, dtype=np.float64)
    ends = middle - np.asarray(low, float), np.asarray(high, float) - middle
    bars = {"xerr" if horizontal else "yerr": np.abs(np.nan_to_num(ends, posinf=0.0))}
    if isinstance(label := style.get("label"), str):
        style["label"] = in_legend(label)
    axes.errorbar(x, y, **bars, **{"fmt": "o-", "ms": 4, "capsize": 3, **style})


def dots(
    axes: Axes,
    places: ArrayLike,
    table: pd.DataFrame,
    column: str,
    style: tuple[str, str, str],
    *,
    horizontal: bool = True,
) -> None:
    """A column's values with their intervals at some places; ``style``: mark, colour, label."""
    values, low, high = with_ends(table, column)
    if values.notna().any():  # what was not measured has no line in the legend
        mark, colour, label = style
        x, y = (values, places) if horizontal else (places, values)
        intervals(
            axes, x, y, low, high, horizontal=horizontal, fmt=mark, ms=5, color=colour, label=label
        )


def once_each(axes: Axes, **style: Any) -> None:
    """A legend in which each label stands once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), **{"fontsize": "small", "loc": "upper left", **style})


def pages(backing: str) -> str:
    """A kind of pages in words."""
    if backing == "loaded":
        return "pages as loaded"
    named = "" if backing in (SMALL_PAGES, GIGANTIC_PAGES) else f" ({backing})"
    return f"{page_words(backing)} pages{named}"


def size_marks(
    axes: Axes,
    sizes_bytes: Mapping[str, float],
    *,
    colour: str = "0.35",
    style: str = ":",
    low: bool = False,
) -> None:
    """Vertical lines at named sizes, on an axis in KiB that already has its limits."""
    smallest, largest = axes.get_xlim()
    place, side = (0.02, "bottom") if low else (0.98, "top")
    for name, size in sizes_bytes.items():
        x = size / _KIB
        if smallest < x < largest:
            axes.axvline(x, color=colour, ls=style, lw=1.2)
            axes.text(
                x, place, f" {name}", color=colour, fontsize="x-small", rotation=90, va=side,
                ha="right", transform=axes.get_xaxis_transform(),
            )  # fmt: skip


def slowdowns(axes: Axes, frame: pd.DataFrame, size: str) -> None:
    """How much slower each core is than the others, at each size; the slowest ones in colour.

    Parameters
    ----------
    frame
        ``cpu``, the column ``size`` in bytes, ``slowdown_percent`` with its ends.
    size
        The name of the column on the x axis, which is in KiB.
    """
    mean = frame.groupby("cpu")["slowdown_percent"].mean()
    coloured = slowest(mean.fillna(0.0))
    others = frame[~frame["cpu"].isin(coloured)]
    for _, mine in others.groupby("cpu"):
        axes.plot(mine[size] / _KIB, mine["slowdown_percent"], color="0.8", lw=0.8)
    for place, cpu in enumerate(coloured):
        mine, (colour, mark) = frame[frame["cpu"] == cpu], core_style(cpu)
        x, ends = mine[size] / _KIB, (mine["slowdown_percent_low"], mine["slowdown_percent_high"])
        shifted = x * (1 + 0.012 * place)  # so that intervals do not hide each other
        intervals(
            axes, shifted, mine["slowdown_percent"], *ends, fmt=f"{mark}-", color=colour,
            label=f"cpu{cpu}",
        )  # fmt: skip
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set_ylabel("slower than the median\nof the others (%)")
    axes.legend(fontsize="small", loc="upper left", ncols=4, title="95 % intervals")


def ranked_counters(ranked: pd.DataFrame, over: str) -> Figure:
    """How strongly each counter goes with the time.

    Parameters
    ----------
    ranked
        ``counter``, ``correlation``, ``p``, and ``source`` where some were simulated; the strongest
        correlation first.
    over
        What differs from one pair of values to the next, in words.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    ranked = ranked.head(_MAX_COUNTERS)
    figure = Figure(figsize=(8, 1.4 + 0.34 * max(len(ranked), 3)))
    axes = figure.subplots()
    axes.set_title("Counters, ranked")
    if ranked.empty:
        axes.text(0.5, 0.5, "nothing was counted", transform=axes.transAxes, ha="center")
        return figure
    sources = ranked["source"] if "source" in ranked else ["measured"] * len(ranked)
    places = -np.arange(float(len(ranked)))
    values = ranked["correlation"].fillna(0.0)
    axes.barh(places, values, height=0.7, color=[_SOURCES[one] for one in sources])
    axes.set_yticks(places, ranked["counter"])
    for place, value, p in zip(places, ranked["correlation"], ranked["p"], strict=True):
        words = "always the same" if not np.isfinite(value) else f"{value:+.2f} (p = {p:.2g})"
        end = max(value, 0.0) if np.isfinite(value) else 0.0
        axes.text(end + 0.02, place, words, va="center", fontsize="small")
    axes.set_xlim(-1, 1.5)
    axes.set_xticks(np.arange(-1, 1.1, 0.5))
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_xlabel(f"correlation with the time, over {over}")
    if "source" in ranked:
        shown = [Patch(color=_SOURCES[name], label=name) for name in dict.fromkeys(sources)]
        axes.legend(handles=shown, loc="lower left", fontsize="small")
    return figure
