"""Two profiles as a figure, and what such figures share: functions along an axis, units."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.framework.plots import intervals, panel
from perflib.instruments.profile.comparison import Comparison, additional_time_table

_WIDTH = 40  # characters of a function's name on an axis
COMMON, ODD = "C0", "C3"
"""The colours of functions, and of those that stand out."""


def abbreviated(name: str, width: int = _WIDTH) -> str:
    """A function's name without arguments, and its end if it is still too long.

    >>> abbreviated("std::vector<int, std::allocator<int> >::push_back(int const&)")
    'std::vector<…>::push_back'
    >>> abbreviated("G4VEnergyLossProcess::PostStepGetPhysicalInteractionLength", 40)
    '…::PostStepGetPhysicalInteractionLength'
    """
    operator = re.search(r"operator\s*(?:\(\)|<=>|<<=|>>=|->\*?|<<|>>|<=|>=|<|>)", name)
    head, tail = (name, "") if operator is None else (name[: operator.start()], operator[0])
    plain = _without(head.replace("(anonymous namespace)", "{anonymous}"))
    if "(" in name or "::" in name:
        plain = re.sub(r"^.*(?<!operator)\s", "", plain)  # a template's name begins with its type
    short = plain + tail
    parts = short.split("::")
    while len(short) > width and len(parts) > 1:
        parts = parts[1:]
        short = "…::" + "::".join(parts)
    return short if len(short) <= width else "…" + short[len(short) - width + 1 :]


def _without(name: str) -> str:
    """Template arguments as ``<…>``, and no arguments: what stands in brackets is cut out."""
    kept, depth, opened = [], 0, ""
    for sign in name:
        if sign in "<(":
            if not depth:
                opened = sign
            depth += 1
        if not depth:
            kept.append(sign)
        if sign in ">)" and depth:
            depth -= 1
            if not depth and opened == "<":
                kept.append("<…>")
    return "".join(kept).removesuffix(" const").strip() if not depth else name


def labels(names: Iterable[str]) -> list[str]:
    """Short names; those of overloads, which would look alike, are numbered."""
    seen: Counter[str] = Counter()
    labels = []
    for name in names:
        short = abbreviated(name)
        seen[short] += 1
        labels.append(short if seen[short] == 1 else f"{short} #{seen[short]}")
    return labels


def scaled(largest: float, unit: str) -> tuple[float, str]:
    """By what to divide values of that size, and the unit they are in then."""
    steps = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")] if unit == "ns" else []
    steps = steps or [(1e9, f"10⁹ {unit}"), (1e6, f"10⁶ {unit}"), (1e4, f"10³ {unit}")]
    for size, name in steps:
        if largest >= size:
            return (1e3 if size == 1e4 else size), name
    return 1.0, unit


def finite_max(*columns: pd.Series[float]) -> float:
    """The largest absolute value that is finite; 0 where there is none."""
    values = np.abs(np.concatenate([column.to_numpy(np.float64) for column in columns]))
    return float(np.max(values[np.isfinite(values)], initial=0.0))


def additional_time(compared: Comparison, most: int = 12, what: str = "event") -> Figure:
    """The additional time by function, compared with what the slowdown common to all explains.

    The ``most`` functions of the largest additional time, and all that stand out.
    """
    table = additional_time_table(compared)
    largest = table["additional"].abs().nlargest(most).index
    rows = table[table.index.isin(largest) | table["stands_out"]].sort_values(
        "additional", kind="stable"
    )
    by, unit = scaled(finite_max(rows["additional_low"], rows["additional_high"]), compared.unit)
    figure, axes = list_of(rows["function"])
    place = np.arange(len(rows))
    odd = rows["stands_out"].to_numpy(dtype=bool)
    value, low, high = (
        rows[f"additional{end}"].to_numpy(np.float64) / by for end in ("", "_low", "_high")
    )
    level = f"{100 * compared.confidence:g} % interval"
    for chosen, colour, label in ((~odd, COMMON, level), (odd, ODD, f"stands out, {level}")):
        if chosen.any():
            axes.barh(place[chosen], value[chosen], color=colour, alpha=0.35, height=0.6)
            intervals(
                axes, value[chosen], place[chosen], low[chosen], high[chosen], horizontal=True,
                fmt="o", ms=5, color=colour, label=label,
            )  # fmt: skip
    axes.plot(
        rows["explained"] / by,
        place,
        "D",
        ms=6,
        mfc="none",
        color="0.2",
        label="common slowdown's part",
    )
    for at, (_, row) in enumerate(rows.iterrows()):
        if row["stands_out"]:
            axes.annotate(
                _excess_words(row["excess_percent"]),
                (high[at], at),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=ODD,
                fontsize="small",
            )
    axes.margins(x=0.22 if odd.any() else 0.05)
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_xlabel(f"additional time per {what} on {compared.second} ({unit})")
    total = compared.total
    axes.set_title(
        f"Where {compared.second} takes longer than {compared.first}\n"
        f"{what} {total.effect:+.1f} % [{total.low:+.1f}, {total.high:+.1f}], "
        f"{repetitions(compared)}"
    )
    legend_below(figure)
    return figure


def repetitions(compared: Comparison) -> str:
    """How many there are, in words."""
    if compared.counting_only:
        return "1 repetition (counting only)"
    return f"{compared.rounds} repetitions"


def _excess_words(percent: float) -> str:
    return f"{percent:+.0f} % excess" if np.isfinite(percent) else "new"


def list_of(functions: pd.Series[str]) -> tuple[Figure, Axes]:
    """A figure with a line for each function, the first lowest."""
    figure, axes = panel(9, 2.2 + 0.33 * len(functions))
    axes.set_yticks(np.arange(len(functions)), labels(functions[::-1])[::-1])
    axes.set_ylim(-0.7, len(functions) - 0.3)
    return figure, axes


def legend_below(figure: Figure) -> None:
    """Below the axes, where it hides no function."""
    figure.legend(loc="outside lower right", ncols=3, fontsize="small")
