"""The machine's portrait: its cores and caches as one figure, with what was measured of each.

Places are in inches: text keeps its size, and 64 cores stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.patheffects import withStroke

from perflib.framework.plots import COLOURS
from perflib.investigation.evidence import Evidence
from perflib.lab.machine import in_bytes
from perflib.lab.portrait_facts import Core, Facts, Group, Level, NodeFacts, facts_of
from perflib.lab.theme import themed
from perflib.model.escape import visible

_WIDE = 7.2
_EDGE = 0.06
_GREY, _INK, _FRAME = "#5a5a5a", "#1c1c1c", "#9a9a9a"
_SLOW = "#b34700"
_HALO = withStroke(linewidth=3, foreground="white")
_LARGE = 2.2  # inches, from which on a core has room for words


@dataclass(frozen=True)
class _Part:
    """How a part of a core's time is drawn: by the colour of `COLOURS`, and by pattern."""

    name: str
    of: str
    hatch: str


_PARTS: Mapping[str, _Part] = {
    "own": _Part("own work", "own speed", ""),
    "sibling": _Part("lost to a busy sibling", "sibling", "////"),
    "tasks": _Part("other tasks, quota", "other tasks", "...."),
    "hypervisor": _Part("hypervisor", "hypervisor", "xxxx"),
}


@dataclass(frozen=True)
class _Sizes:
    """How large a core is drawn: by how many there are."""

    columns: int
    pitch: float
    high: float
    label: float
    text: float

    @property
    def large(self) -> bool:
        """There is room for words."""
        return self.pitch >= _LARGE


def _sizes(groups: Sequence[Group]) -> _Sizes:
    count = sum(len(group.cores) for group in groups)
    largest = max((len(group.cores) for group in groups), default=1)
    most = 4 if count <= 4 else 8 if count <= 16 else 16
    columns = most
    if largest <= most:
        columns = largest * max(1, min(most // largest, math.ceil(count / largest)))
    pitch = (_WIDE - 4 * _EDGE) / columns
    if pitch >= _LARGE:
        return _Sizes(columns, pitch, 0.86, 10, 8)
    if pitch >= 0.8:
        return _Sizes(columns, pitch, 0.64, 8.5, 7.5)
    return _Sizes(columns, pitch, 0.5, 6.5, 6.5)


def portrait(evidence: Evidence) -> Figure:
    """Draw the machine of an investigation: as it is described, and what was measured of it.

    Cores are boxes, grouped by node and by the last cache that they share. A bar in a box says
    where the time of the core went in the step ``symptom``. Below, each cache: the size that the
    machine claims next to the sizes that it answered, and what a load takes.
    """
    return drawn(facts_of(evidence))


def drawn(known: Facts) -> Figure:
    """The portrait of facts that are known already."""
    nodes = [node for node in known.nodes if node.groups or node.memory]
    groups = [group for node in nodes for group in node.groups]
    sizes = _sizes(groups)
    heights = [_node_height(node, sizes, known) for node in nodes]
    legend = 0.46
    cores_high = 0.46 + sum(heights) + legend
    levels_high = 0.62 + 0.3 * len(known.levels) if known.levels else 0.0
    with themed():
        figure = Figure(
            figsize=(_WIDE, cores_high + levels_high),
        )
        figure.set_layout_engine("none")
        axes = _inches(figure, levels_high, cores_high)
        _write(axes, 2 * _EDGE, cores_high - 0.16, known.name, size=11, weight="bold")
        _write(axes, 2 * _EDGE, cores_high - 0.34, known.counted, size=8, color=_GREY)
        top = cores_high - 0.46
        for node, high in zip(nodes, heights, strict=True):
            _node(axes, node, top, high, sizes, known)
            top -= high
        _legend(axes, top, known)
        if known.levels:
            _ladder(figure, known, levels_high)
    return figure


# --- drawing in inches ---------------------------------------------------------------------------


def _inches(figure: Figure, bottom: float, high: float) -> Axes:
    wide, whole = figure.get_size_inches()
    axes = figure.add_axes((0, bottom / whole, 1, high / whole))
    axes.set(xlim=(0, wide), ylim=(0, high))
    axes.set_axis_off()
    return axes


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Text in one line."""
    style = {"va": "center", "color": _INK} | style
    axes.text(x, y, visible(text), **style)


def _rounded(axes: Axes, x: float, y: float, wide: float, high: float, **style: Any) -> None:
    style = {"facecolor": "white", "edgecolor": _FRAME, "linewidth": 0.8, **style}
    box = "round,pad=0,rounding_size=0.04"
    axes.add_patch(FancyBboxPatch((x, y), wide, high, boxstyle=box, **style))


# --- nodes and groups ----------------------------------------------------------------------------


def _lines(node: NodeFacts, sizes: _Sizes) -> list[list[Group]]:
    """Groups next to each other, as many as fit; one that is wider takes lines of its own."""
    lines: list[list[Group]] = []
    used = sizes.columns
    for group in node.groups:
        columns = min(len(group.cores), sizes.columns)
        if used + columns > sizes.columns:
            lines.append([])
            used = 0
        lines[-1].append(group)
        used += columns
    return lines


def _group_height(group: Group, sizes: _Sizes) -> float:
    rows = math.ceil(len(group.cores) / sizes.columns)
    between = 0.16 if group.inner else 0.0
    return rows * (sizes.high + between) + (0.24 if group.cache else 0.04) + 0.08


def _node_height(node: NodeFacts, sizes: _Sizes, known: Facts) -> float:
    lines = _lines(node, sizes)
    head = 0.24 if node.title(several=len(known.nodes) > 1) else 0.06
    return head + sum(max(_group_height(one, sizes) for one in line) for line in lines) + 0.1


def _node(
    axes: Axes, node: NodeFacts, top: float, high: float, sizes: _Sizes, known: Facts
) -> None:
    _rounded(axes, _EDGE, top - high + 0.06, _WIDE - 2 * _EDGE, high - 0.06, facecolor="#f4f4f4")
    title = node.title(several=len(known.nodes) > 1)
    if title:
        _write(axes, 2.5 * _EDGE, top - 0.13, title, size=8)
    top -= 0.24 if title else 0.06
    for line in _lines(node, sizes):
        left = 2 * _EDGE
        for group in line:
            columns = min(len(group.cores), sizes.columns)
            _group(axes, group, left, top, columns, sizes)
            left += columns * sizes.pitch
        top -= max(_group_height(group, sizes) for group in line)


def _group(axes: Axes, group: Group, left: float, top: float, columns: int, sizes: _Sizes) -> None:
    high = _group_height(group, sizes)
    wide = columns * sizes.pitch
    _rounded(axes, left + 0.02, top - high + 0.04, wide - 0.04, high - 0.04, facecolor="#e6e6e6")
    row_high = sizes.high + (0.16 if group.inner else 0.0)
    for i, core in enumerate(group.cores):
        row, column = divmod(i, columns)
        x = left + column * sizes.pitch + 0.05
        y = top - 0.04 - row * row_high - sizes.high
        _core(axes, core, x, y + 0.03, sizes.pitch - 0.1, sizes.high - 0.05, sizes)
    for name, first, last in group.inner_rows(columns):
        row, begin = divmod(first, columns)
        x = left + begin * sizes.pitch + 0.05
        y = top - 0.04 - (row + 1) * row_high + 0.02
        span = (last - first + 1) * sizes.pitch - 0.1
        axes.add_patch(Rectangle((x, y), span, 0.13, facecolor="#d2d2d2", edgecolor=_FRAME, lw=0.5))
        _write(axes, x + span / 2, y + 0.06, _fitting(name, span), size=6.5, ha="center")
    if group.cache:
        text = _fitting(group.cache, wide)
        _write(axes, left + wide / 2, top - high + 0.14, text, size=7.5, ha="center")


def _fitting(text: str, wide: float) -> str:
    """The words of a text that fit: a small letter takes a seventeenth of an inch."""
    words = text.split()
    while len(" ".join(words)) * 0.06 > wide and len(words) > 1:
        words.pop()
    return " ".join(words)


# --- one core ------------------------------------------------------------------------------------


def _core(
    axes: Axes, core: Core, x: float, y: float, wide: float, high: float, sizes: _Sizes
) -> None:
    style: dict[str, Any] = {}
    if core.slow:
        style = {"edgecolor": _SLOW, "linewidth": 2.4}
    elif not core.allowed:
        style = {"linestyle": "--", "facecolor": "#f4f4f4"}
    _rounded(axes, x, y, wide, high, **style)
    top = y + high
    pad = 0.08 if sizes.large else 0.03
    ink = _INK if core.allowed else _GREY
    bar_high = 0.2 if sizes.large else 0.13
    line = 0.17 if sizes.large else 0.14 if sizes.high > 0.6 else 0.125
    name_y = top - line / 2 - 0.02
    bar_y = top - line - 0.04 - bar_high
    below = bar_y - line / 2 - 0.01
    if sizes.large:
        _write(axes, x + pad, name_y, core.name, size=sizes.label, weight="bold", color=ink)
        text = core.text
        colour = _SLOW if core.slow else _GREY
        weight = "bold" if core.slow else "normal"
        _write(axes, x + wide - pad, name_y, text, size=8, ha="right", color=colour, weight=weight)
        _write(axes, x + pad, below, core.shares_text, size=7.5)
        for i, private in enumerate(core.private[:2]):
            _write(axes, x + pad, below - (i + 1) * 0.155, private, size=7.5, color=_GREY)
    else:
        name = core.name if sizes.high > 0.6 or len(core.name) < 6 else core.name[3:]
        middle = x + wide / 2
        _write(axes, middle, name_y, name, size=sizes.label, ha="center", color=ink)
        short = core.short
        if short:
            slow = {"color": _SLOW} if core.slow else {}
            if core.slow:
                corner: dict[str, Any] = {"ha": "center", "size": 8, "color": _SLOW}
                _write(axes, x + wide, top, "▲", path_effects=[_HALO], zorder=5, **corner)
            _write(axes, middle, below, short, size=sizes.text, ha="center", **slow)
        if sizes.high > 0.6 and core.second:
            y2 = below - 0.15
            _write(axes, middle, y2, core.second, size=6.5, ha="center", color=_GREY)
    if core.shares is not None:
        _bar(axes, core.shares, x + pad, bar_y, wide - 2 * pad, bar_high)


def _bar(
    axes: Axes, shares: Mapping[str, float], x: float, y: float, wide: float, high: float
) -> None:
    with mpl.rc_context({"hatch.linewidth": 0.6}):
        for name, part in _PARTS.items():
            span = wide * shares[name] / 100
            if span > 0:
                style = _pattern(part)
                axes.add_patch(Rectangle((x, y), span, high, linewidth=0.3, **style))
                x += span


def _pattern(part: _Part) -> dict[str, Any]:
    return {"facecolor": COLOURS[part.of], "edgecolor": _INK, "hatch": part.hatch}


def _legend(axes: Axes, top: float, known: Facts) -> None:
    y = top - 0.13
    if known.measured:
        _write(axes, 2 * _EDGE, y, "Where the core's time went:", size=7.5)
        x = 1.72
        with mpl.rc_context({"hatch.linewidth": 0.6}):
            for part in _PARTS.values():
                style = _pattern(part)
                axes.add_patch(Rectangle((x, y - 0.06), 0.24, 0.12, linewidth=0.3, **style))
                _write(axes, x + 0.29, y, part.name, size=7.5)
                x += 0.55 + 0.056 * len(part.name)
    else:
        text = "How much each core was disturbed was not measured."
        _write(axes, 2 * _EDGE, y, text, size=7.5)
    _write(axes, 2 * _EDGE, y - 0.19, known.signs, size=7.5, color=_GREY)


# --- caches and memory ---------------------------------------------------------------------------


def _ladder(figure: Figure, known: Facts, high: float) -> None:
    """Each level: the size that is claimed, the sizes it answered, what a load takes."""
    wide, whole = figure.get_size_inches()
    left, right = 2.15, 1.85
    axes = figure.add_axes(
        (left / wide, 0.36 / whole, (wide - left - right) / wide, (high - 0.6) / whole)
    )
    levels = known.levels
    axes.set(ylim=(len(levels) - 0.5, -0.5), xscale="log")
    for i, level in enumerate(levels):
        _level(axes, i, level)
    axes.set_xlim(*known.size_limits)
    ticks = [4.0**k for k in range(6, 24) if known.size_limits[0] <= 4.0**k <= known.size_limits[1]]
    ticks = ticks[:: math.ceil(len(ticks) / 6)]
    axes.set_xticks(ticks, [in_bytes(tick) for tick in ticks], size=7)
    axes.set_xticks([], minor=True)
    axes.set_yticks([])
    axes.tick_params(length=2, pad=2)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FRAME)
    axes.grid(visible=True, axis="x", alpha=0.5)
    for i, level in enumerate(levels):
        place = axes.get_yaxis_transform()
        style: dict[str, Any] = {"transform": place, "size": 8}
        _write(axes, -(left - 2 * _EDGE) / (wide - left - right), i, level.name, **style)
        _write(axes, 1.03, i, level.text, **style)
    head = _inches(figure, high - 0.26, 0.26)
    _write(head, 2 * _EDGE, 0.14, "Caches and memory", size=8.5, weight="bold")
    _write(head, left, 0.14, known.ladder_signs, size=7.5, color=_GREY)
    _write(head, wide - right + 0.05, 0.14, known.latency_head, size=7.5, color=_GREY)


def _level(axes: Axes, place: int, level: Level) -> None:
    if level.shared is not None:
        axes.plot(level.shared, [place + 0.22] * 2, ":", color="C3", lw=2)
    if level.found is not None:
        axes.plot(level.found, [place] * 2, "-|", color="C0", lw=2.6, ms=8, mew=1.6)
    if level.claimed_bytes:
        axes.plot(
            [level.claimed_bytes], [place], "D", ms=5.5, mfc="white", mec=_INK, mew=1.2, zorder=5
        )
