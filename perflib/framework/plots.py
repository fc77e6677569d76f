"""Parts of figures that several experiments draw: intervals, named sizes, cores side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

__all__ = ["MARKS", "intervals", "literal", "once_each", "pages", "size_marks", "slowdowns"]

MARKS = "o^svDPX*"
_MOST_COLOURED = 8
_KIB = 1024


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
    axes.errorbar(x, y, **bars, **{"fmt": "o-", "ms": 4, "capsize": 3, **style})


def literal(name: object) -> str:
    """A name that a user gave as matplotlib writes it literally, not as mathematics."""
    return str(name).replace("$", r"\$")


def once_each(axes: Axes, **style: Any) -> None:
    """A legend in which each label stands once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), **{"fontsize": "small", "loc": "upper left", **style})


def pages(backing: str) -> str:
    """A kind of pages in words."""
    if backing == "loaded":
        return "pages as loaded"
    return "4 KiB pages" if backing == "4k" else f"2 MiB pages ({backing})"


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
        ``cpu``, the column ``size`` in bytes, ``slowdown_percent``, ``low_percent``,
        ``high_percent``.
    size
        The name of the column on the x axis, which is in KiB.
    """
    mean = frame.groupby("cpu")["slowdown_percent"].mean().fillna(0)
    order = mean.sort_values(ascending=False, kind="stable").index
    for place, cpu in enumerate(order):
        mine = frame[frame["cpu"] == cpu]
        x, y = mine[size] / _KIB, mine["slowdown_percent"]
        if place >= _MOST_COLOURED:
            axes.plot(x, y, color="0.8", lw=0.8)
            continue
        shifted = x * (1 + 0.012 * place)  # so that intervals do not hide each other
        intervals(axes, shifted, y, mine["low_percent"], mine["high_percent"], label=f"cpu{cpu}")
    axes.axhline(0, color="0.3", lw=0.8)
    axes.set_ylabel("slower than the median\nof the others (%)")
    axes.legend(fontsize="small", loc="upper left", ncols=4, title="95 % intervals")
