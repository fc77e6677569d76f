"""The figures of sweeps over the distance between two buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.offsets.table import PERIOD_BYTES, OffsetTable, aliasing
from perflib.model.finding import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figures", "one_curve"]

_MARKERS = "osD^vPX*"
_PREDICTED = "predicted: the low 12 bits agree"
_MOST_TICKS = 48
Periods = Mapping[str, int | None]


def one_curve(name: str, table: OffsetTable) -> Figure:
    """Time against offset, of one function."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.8))
    axes = figure.subplots()
    _curves(axes, {name: table}, {name: PERIOD_BYTES})
    _label(axes, table, last=True)
    axes.set_title(f"{name}: time against the distance of its arrays")
    _legend(axes)
    return figure


def figures(
    tables: Mapping[str, OffsetTable],
    periods: Periods,
    findings: Sequence[Finding],
    simulated: Mapping[str, Any] | None,
) -> dict[str, Figure]:
    """A figure for each kind of function, then what was simulated, then all effects."""
    parts = {name: name.split("-") for name in tables}
    drawn = {}
    for function in ("convolution", "copy", "memcpy"):
        mine = [name for name, words in parts.items() if words[0] == function]
        if mine:
            keys = {name: _row_column_line(parts[name]) for name in mine}
            drawn[function] = _grid(function, tables, periods, keys)
    mine = [name for name, words in parts.items() if words[0] == "dgemv"]
    if mine:
        keys = {
            name: (
                "-".join(parts[name][1:-2]),
                f"stored by {parts[name][-2]}",
                f"n = {parts[name][-1]}",
            )
            for name in mine
        }
        drawn["dgemv"] = _grid("dgemv", tables, periods, keys)
    others = {name: table for name, table in tables.items() if name not in periods}
    for name, table in others.items():  # of a user's own samples
        drawn[name] = one_curve(name, table)
    if simulated is not None:
        drawn["simulated"] = _simulated(simulated)
    drawn["effects"] = _effects(findings)
    return drawn


def _row_column_line(words: Sequence[str]) -> tuple[str, str, str]:
    """Of convolution and copies: the optimisation, the length, with or without restrict."""
    level = f"-{words[1]}" if words[1:-1] else ""
    length = f"{int(words[-1]):,} floats".replace(",", " ")
    restrict = "with restrict" if "restrict" in words else "without restrict"
    return level, length, restrict if words[0] != "memcpy" else "of the C library"


def _library_order_size(words: Sequence[str]) -> tuple[str, str, str]:
    """Of dgemv."""
    return "-".join(words[1:-2]), f"stored by {words[-2]}", f"n = {words[-1]}"


def _grid(
    function: str,
    tables: Mapping[str, OffsetTable],
    periods: Periods,
    keys: Mapping[str, tuple[str, str, str]],
) -> Figure:
    """Panels in rows and columns, in each the curves of its functions."""
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(key[0] for key in keys.values()))
    columns = list(dict.fromkeys(key[1] for key in keys.values()))
    figure = Figure(figsize=(5.2 * len(columns) + 1, 2.3 * len(rows) + 1.4))
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = panels[i, j]
            mine = {name: key[2] for name, key in keys.items() if key[:2] == (row, column)}
            if not mine:
                axes.set_axis_off()
                continue
            _curves(axes, {name: tables[name] for name in mine}, periods, mine)
            _label(axes, tables[next(iter(mine))], last=i == len(rows) - 1)
            title = ", ".join(filter(None, (f"{function} {row}".strip(), column)))
            axes.set_title(title, fontsize="medium")
            if j:
                axes.set_ylabel("")
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize="small",
        title="95 % intervals; filled: predicted to alias", title_fontsize="small",
    )  # fmt: skip
    return figure


def _curves(
    axes: Axes,
    tables: Mapping[str, OffsetTable],
    periods: Periods,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Each function's time at each offset above its median; shaded where all are predicted."""
    offsets = sorted({int(offset) for table in tables.values() for offset in table.offsets})
    shaded = np.ones(len(offsets), dtype=bool)
    for number, (name, table) in enumerate(tables.items()):
        curve = table.curve()
        x = np.searchsorted(offsets, curve["offset_bytes"]) + 0.12 * (
            number - (len(tables) - 1) / 2
        )
        y = curve["percent"].to_numpy()
        reach = np.nan_to_num([y - curve["low_percent"], curve["high_percent"] - y], posinf=0.0)
        colour, marker = f"C{number}", _MARKERS[number % len(_MARKERS)]
        period = periods.get(name, PERIOD_BYTES)
        near = np.zeros(len(y), dtype=bool)
        if period is not None:
            near = aliasing(curve["offset_bytes"].to_numpy(), period)[0]
            shaded &= aliasing(offsets, period)[0]
        else:
            shaded[:] = False
        axes.errorbar(
            x, y, yerr=np.abs(reach), color=colour, lw=0.8, elinewidth=1, capsize=1.5,
            marker=marker, ms=4, mfc="white", label=(labels or {}).get(name, name),
        )  # fmt: skip
        axes.plot(x[near], y[near], marker, ms=4.5, color=colour, zorder=5)
    for begin, end in _runs(shaded):
        axes.axvspan(begin - 0.5, end - 0.5, color="C3", alpha=0.12, lw=0, label=_PREDICTED)
    axes.axhline(0, color="0.3", lw=0.8)
    for place in np.flatnonzero(np.diff(offsets) > 2 * np.median(np.diff(offsets))):
        axes.axvline(place + 0.5, color="0.75", lw=0.8, ls=":")  # the axis leaves something out
    axes.set_xlim(-0.7, len(offsets) - 0.3)


def _runs(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Begin and end of each run of true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _label(axes: Axes, table: OffsetTable, *, last: bool) -> None:
    """Offsets are places on the axis, not lengths: those of interest lie close together."""
    count = len(table.offsets)
    places = np.arange(0, count, -(-count // _MOST_TICKS))
    axes.set_xticks(places, [str(table.offsets[place]) for place in places] if last else [])
    axes.tick_params(axis="x", labelrotation=90, labelsize="xx-small")
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("time above\nthe median (%)", fontsize="small")
    if last:
        axes.set_xlabel("distance of the buffers modulo 4096 (B)", fontsize="small")


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), fontsize="small", title="95 % intervals")


def _simulated(simulated: Mapping[str, Any]) -> Figure:
    """Simulated aliases an element against the offset."""
    from matplotlib.figure import Figure

    rows = pd.DataFrame(simulated["rows"])
    offsets = sorted(set(rows["offset_bytes"]))
    figure = Figure(figsize=(8, 3.8))
    axes = figure.subplots()
    for number, ((function, build), mine) in enumerate(rows.groupby(["function", "build"])):
        at = mine.sort_values("offset_bytes")
        axes.plot(
            np.searchsorted(offsets, at["offset_bytes"]), at["aliases_per_element"],
            marker=_MARKERS[number % len(_MARKERS)], label=f"{function} -{build}",
        )  # fmt: skip
    for begin, end in _runs(aliasing(offsets)[0]):
        axes.axvspan(begin - 0.5, end - 0.5, color="C3", alpha=0.12, lw=0, label=_PREDICTED)
    axes.set_xticks(range(len(offsets)), [str(offset) for offset in offsets])
    axes.set_xlabel("distance of the buffers modulo 4096 (B)")
    axes.set_ylabel("simulated 4K aliases\nper element")
    axes.set_ylim(-0.2, None)
    axes.set_title(f"simulated: {simulated['model']}", fontsize="small", fontweight="normal")
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), fontsize="small")
    return figure


def _effects(findings: Sequence[Finding]) -> Figure:
    """What each function's predicted offsets cost, and its slowest, with intervals."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(finding.subject.removesuffix(" predicted") for finding in findings))
    figure = Figure(figsize=(8, 0.24 * len(names) + 1.8))
    axes = figure.subplots()
    kinds = ((" predicted", "predicted offsets", "o", -0.15), ("", "the slowest offset", "s", 0.15))
    for number, (ending, words, marker, shift) in enumerate(kinds):
        mine = {one.subject: one for one in findings}
        found = [(i, mine[name + ending]) for i, name in enumerate(names) if name + ending in mine]
        x = np.array([one.effect for _, one in found])
        ends = np.array([[one.low, one.high] for _, one in found]).reshape(-1, 2)
        reach = np.nan_to_num(np.abs(ends.T - x), posinf=0.0)
        axes.errorbar(
            x, [i + shift for i, _ in found], xerr=reach, fmt=marker, ms=4, capsize=2, lw=1,
            color=f"C{number}", label=words,
        )  # fmt: skip
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_xscale("symlog", linthresh=10)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    left = min([-10.0, *(one.low * 1.3 for one in findings if np.isfinite(one.low))])
    axes.set_xlim(max(left, -100.0), None)
    axes.set_yticks(range(len(names)), names, fontsize="x-small")
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("longer than elsewhere (%), straight up to 10 and logarithmic beyond")
    axes.set_title("What the distance of two buffers costs")
    axes.legend(fontsize="small", title="95 % intervals")
    return figure
