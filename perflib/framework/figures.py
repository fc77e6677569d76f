"""Where the frames of a flame graph are and which colour each has; the graph as a figure.

The width of a frame is its share of the samples, the order of neighbours is alphabetical (not one
of time), and a function has the same colour in every graph. With a base the colour is the change:
red where a frame has a larger share of the samples than in the base, blue where a smaller one.
"""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Collection
from typing import Any, Literal

import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from perflib.instruments.profile.views import Node, Weight, object_of, top_down
from perflib.model.errors import UserError, choose
from perflib.model.escape import visible

Orientation = Literal["flame", "icicle"]
"""Where the callees are: above their callers, or below."""

# Light enough for dark text (INK) everywhere: a contrast of at least 7 to 1, tested.
INK = "#1a1a1a"
_LESS, _EQUAL, _MORE = (0.47, 0.69, 0.89), (0.93, 0.93, 0.91), (0.97, 0.56, 0.46)
_STEPS = 41  # of the scale of changes; odd, so that no change has a step of its own


def _hex(colour: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def _between(low: tuple[float, ...], high: tuple[float, ...], share: float) -> str:
    red, green, blue = (a + (b - a) * share for a, b in zip(low, high, strict=True))
    return _hex((red, green, blue))


_FUNCTIONS = [
    _hex(colorsys.hls_to_rgb(hue / 360, lightness, 0.85))
    for hue in range(8, 56, 4)
    for lightness in (0.72, 0.76, 0.80, 0.84)
]
_CHANGES = [
    _between(_EQUAL, _MORE if step > 0 else _LESS, abs(step) / (_STEPS // 2))
    for step in range(-(_STEPS // 2), _STEPS // 2 + 1)
]


def flame_figure(
    samples: pd.DataFrame,
    base: pd.DataFrame | None = None,
    *,
    weight: Weight = "samples",
    orientation: Orientation = "flame",
    title: str = "Flame graph",
    width_inches: float = 11.0,
    significant: Collection[str] | None = None,
) -> Figure:
    """A flame graph as a static figure; see `perflib.lab.flamegraph.flame_graph`.

    Frames narrower than a pixel are left out, and the figure reports how many. ``significant``:
    with a base, only these functions have the colour of their change; all others are grey.
    """
    check(orientation)
    drawn = placed(samples, base, weight, 100 / (width_inches * 110), significant)
    whole = drawn["total"][0]
    rows = max(drawn["depth"]) + 1
    height_inches = 1.2 + 0.2 * rows + (0.7 if drawn["changes"] else 0)
    figure = Figure(figsize=(width_inches, height_inches))
    axes = figure.subplots()
    axes.set(xlim=(0, whole), ylim=(0, rows) if orientation == "flame" else (rows, 0))
    for at, place in enumerate(drawn["name"]):
        start, total, depth = (drawn[key][at] for key in ("start", "total", "depth"))
        frame = Rectangle(
            (start, depth), total, 1,
            facecolor=drawn["palette"][drawn["colour"][at]],
            edgecolor="white", linewidth=0.4 if total * 300 > whole else 0.0,
        )  # fmt: skip
        axes.add_patch(frame)
        letters = int(total / whole * width_inches * 72 / 4.6) - 1
        if letters >= 3:
            name = visible(drawn["names"][place])
            shown = name if len(name) <= letters else name[: letters - 1] + "…"
            label = axes.text(
                start + 0.0025 * whole, depth + 0.5, shown,
                fontsize=7.5, family="monospace", color=INK, va="center", clip_on=True,
            )  # fmt: skip
            label.set_clip_path(frame)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.set_xticks([0, whole], ["", f"{whole:,} {weight} = 100 %"])
    for tick in axes.get_xticklabels():
        tick.set_horizontalalignment("right")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=9)
    axes.set_title(title)
    notes = [drawn["left_out"], drawn["gone"]]
    if any(notes):
        axes.set_xlabel("\n".join(filter(None, notes)), fontsize=9, loc="left")
    if drawn["changes"]:
        scale = ScalarMappable(
            Normalize(-drawn["largest"], drawn["largest"]),
            LinearSegmentedColormap.from_list("changes", _CHANGES),
        )
        bar = figure.colorbar(
            scale, ax=axes, location="bottom", anchor=(1.0, 0.5), shrink=0.35, aspect=25,
            fraction=0.2 / height_inches, pad=0.1 / height_inches,
        )  # fmt: skip
        bar.set_label(
            "change of share against the base (percentage points)", fontsize=9, loc="right"
        )
        bar.ax.tick_params(labelsize=9)
    return figure


def check(orientation: str) -> None:
    """Refuse another orientation than the two."""
    if orientation not in ("flame", "icicle"):
        raise UserError(choose("orientation", orientation, ("flame", "icicle")))


def placed(
    samples: pd.DataFrame,
    base: pd.DataFrame | None,
    weight: Weight,
    minimum_percent: float,
    significant: Collection[str] | None = None,
) -> dict[str, Any]:
    """All that drawing needs: the frames' names, places and colours, parents before children.

    ``start`` and ``total`` are in samples (or periods); a parent's children are side by side
    from its own start, and what is left at its end is its self and what was left out.
    """
    root = top_down(samples, weight)
    if not root.total:
        msg = "a flame graph needs samples: there are none in this table"
        raise UserError(msg)
    before = None if base is None else top_down(base, weight)
    if before is not None and not before.total:
        msg = "a comparison needs samples in the base as well: there are none"
        raise UserError(msg)

    names: dict[str, int] = {}
    frames: dict[str, list[int]] = {key: [] for key in ("name", "depth", "start", "total", "self")}
    changes: list[float] = []
    least = root.total * minimum_percent / 100
    left_out = 0
    gone = 0.0
    waiting: list[tuple[Node, Node | None, int, int]] = [(root, before, 0, 0)]
    while waiting:
        node, old, depth, start = waiting.pop()
        place = names.setdefault(node.function, len(names))
        for key, value in zip(frames, (place, depth, start, node.total, node.self), strict=True):
            frames[key].append(value)
        if before is not None:
            share_before = old.total / before.total if old else 0.0
            changes.append(100 * (node.total / root.total - share_before))
            lost = (
                [o.total for name, o in old.below.items() if name not in node.below] if old else []
            )
            gone += 100 * sum(lost) / before.total
        below = []
        for child in sorted(node.below.values(), key=lambda child: child.function):
            if child.total >= least:
                below.append((child, old and old.below.get(child.function), depth + 1, start))
                start += child.total
            else:
                left_out += sum(1 for _ in child.walk())
        waiting.extend(reversed(below))

    shown = changes
    if significant is not None:
        listed = list(names)
        of_frame = zip(changes, frames["name"], strict=True)
        shown = [change if listed[place] in significant else 0.0 for change, place in of_frame]
    largest = max(map(abs, shown), default=0.0) or 1.0
    if before is None:
        by_name = [
            zlib.crc32(name.encode(errors="surrogatepass")) % len(_FUNCTIONS) for name in names
        ]
        colour = [by_name[place] for place in frames["name"]]
    else:
        half = _STEPS // 2
        colour = [half + round(half * change / largest) for change in shown]
    objects = object_of(samples)
    narrow = "frame is" if left_out == 1 else "frames are"
    return {
        **frames,
        "names": [visible(name) for name in names],
        "objects": [visible(objects.get(name, "")) for name in names],
        "palette": _FUNCTIONS if before is None else _CHANGES,
        "colour": colour,
        "changes": [round(change, 4) for change in changes],
        "largest": largest,
        "weight": weight,
        "left_out": f"{left_out:,} {narrow} left out, each below {minimum_percent:.2g} % of all."
        if left_out
        else "",
        "gone": f"{gone:.2g} % of the base's {weight} are in calls that are not in this profile."
        if gone
        else "",
    }
