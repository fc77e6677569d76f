"""Threads over time, and how many worked at once, as static figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import font_manager
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from perflib.instruments.threads.concurrency import (
    Serial,
    concurrency,
    concurrency_over_time,
    serial_parts,
)
from perflib.instruments.threads.formats import ALL, Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.lab.theme import themed
from perflib.lab.threads import page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_ROWS = 40
_BINS = 1000
_ROW_PIXELS, _GAP_PIXELS = 12, 2
_HATCH = 0.3  # the grey of the lines through what is unknown
_MAX_BARS = 40
_BACKGROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}


def timeline_figure(
    recording: Recording,
    selection: Selection = ALL,
    *,
    title: str = "Threads over time",
    width_inches: float = 11.0,
) -> Figure:
    """What each thread did over a span of time, and below it how many worked at once.

    Of more than 40 threads those with the most CPU time are drawn, and the figure reports it. The
    lower part counts all. A column is a bin of time, in which the states' shares are stacked.

    Parameters
    ----------
    recording
        What was recorded.
    selection
        The span of time and the threads to draw.
    title
        Of the figure.
    width_inches
        Its width.

    Raises
    ------
    UserError
        The span has no time of the recording, or there is no such row.
    """
    selection = page.window(recording, selection)
    start, end = recording.span(selection)
    first = recording.start_ns
    drawn = wanted = page.ordered(recording, "start")
    if selection.rows is not None:
        drawn = wanted = list(selection.rows)
    if len(wanted) > _MAX_ROWS:
        all_wanted = set(wanted)
        busiest = [row for row in page.ordered(recording, "CPU time") if row in all_wanted]
        drawn = sorted(busiest[:_MAX_ROWS], key=wanted.index)
    bins = max(1, min(_BINS, end - start))
    states = page.DRAWN
    with themed():
        lanes = 0.22 * max(3, len(drawn))
        figure = Figure(figsize=(width_inches, lanes + 3.0))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[lanes, 1.4])
        edges = (start - first, end - first)
        if drawn:
            above.imshow(
                _image(page.levels(recording, bins, Selection(start, end, drawn)), bins),
                extent=(*edges, len(drawn), 0), aspect="auto", interpolation="nearest",
            )  # fmt: skip
        names = recording.threads["name"]
        above.set_yticks(
            [place + 0.5 for place in range(len(drawn))],
            [drawable(page.shown(names.iloc[row])) for row in drawn],
        )
        for label in above.get_yticklabels():
            label.set_fontsize(9)
        above.grid(visible=False)
        above.tick_params(length=0)
        above.spines[:].set_visible(False)
        colours = page.colours()
        patches = [
            Patch(
                facecolor=colours[state], edgecolor="0.3", linewidth=0.5, label=page.LABELS[state],
                hatch="////" if state == State.UNKNOWN else None,
            )
            for state in states
        ]  # fmt: skip
        figure.legend(
            handles=patches, loc="outside upper left", ncols=len(patches) // 2, fontsize=9
        )
        above.set_title(title)
        _work(below, recording, bins, selection)
        _time(below, recording, start, end)
        if len(drawn) < len(wanted):
            words = f"{len(drawn)} of {len(wanted):,} threads, those with the most CPU time"
            above.set_xlabel(words, fontsize=9, loc="left")
    return figure


def concurrency_figure(
    recording: Recording,
    selection: Selection = ALL,
    *,
    serial: Serial | None = None,
    title: str = "Threads that work at once",
    width_inches: float = 9.0,
) -> Figure:
    """For how much of the time so many threads worked at once, and how many over time.

    A thread works while it runs or spins. Of the whole job the second part also shows the begin
    and the end that only one thread worked.

    Parameters
    ----------
    recording
        What was recorded.
    selection
        The span of time and the threads to count.
    serial
        Of ``serial_parts(recording)``, if it is known: of a long recording it takes seconds.
    title
        Of the figure.
    width_inches
        Its width.

    Raises
    ------
    UserError
        The span has no time of the recording, or there is no such row.
    """
    selection = page.window(recording, selection)
    start, end = recording.span(selection)
    at_once = concurrency(recording, selection)
    share = 100 * at_once / max(1, at_once.sum())
    mean = float(np.dot(share, np.arange(len(share)))) / 100
    cpus = int(recording.meta["cpus"])
    with themed():
        figure = Figure(figsize=(width_inches, 6.4))
        above, below = figure.subplots(2, 1)
        highest = max(cpus, int(np.flatnonzero(share).max(initial=0)))
        above.bar(np.arange(len(share)), share, color=page.colours()[State.RUNNING], width=0.8)
        if highest <= _MAX_BARS:
            for k, percent in enumerate(share):
                if percent:
                    words = f"{percent:.1f} %" if percent >= 0.05 else "< 0.1 %"
                    above.annotate(
                        words, (k, percent), (0, 4), textcoords="offset points", ha="center",
                        fontsize=9 if highest <= 10 else 7, bbox=_BACKGROUND, zorder=4,
                    )  # fmt: skip
            above.set_xticks(range(highest + 1))
        above.set(xlim=(-0.6, highest + 0.6), ylim=(0, 1.18 * max(1.0, share.max(initial=0))))
        above.axvline(cpus, color="0.2", ls="--", lw=1.5, label=f"cores: {cpus}", zorder=3)
        above.axvline(mean, color="C1", lw=2, label=f"effective concurrency: {mean:.2f}", zorder=3)
        above.set_xlabel("threads that run at once")
        above.set_ylabel("share of the time (%)")
        above.set_title(title)
        figure.legend(
            handles=above.get_legend_handles_labels()[0], loc="outside upper right", ncols=2,
            fontsize=9,
        )  # fmt: skip
        _work(below, recording, max(1, min(_BINS // 2, end - start)), selection)
        if selection.rows is None:
            _shade(below, recording, serial or serial_parts(recording), (start, end))
        below.legend(fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.28), ncols=4)
        _time(below, recording, start, end)
    return figure


def _image(levels: np.ndarray, bins: int) -> np.ndarray:
    """The stacked shares as pixels: float[rows * pixels, bins, 3], the first row above."""
    colours = page.colours()
    palette = np.array([to_rgb(colours[state]) for state in page.DRAWN] + [(1.0, 1.0, 1.0)])
    high = _ROW_PIXELS - _GAP_PIXELS
    heights = (np.arange(high)[::-1] + 0.5) / high * 255
    which = (levels[:, None, :, :] <= heights[None, :, None, None]).sum(axis=3)
    lane = palette[which]  # [rows, high, bins, 3]
    hatched = (np.arange(high)[:, None] + np.arange(bins)[None, :]) % 4 == 0
    lane[(which == len(page.DRAWN) - 1) & hatched[None]] = _HATCH
    image = np.ones((len(levels), _ROW_PIXELS, bins, 3))
    image[:, _GAP_PIXELS // 2 : _GAP_PIXELS // 2 + high] = lane
    return image.reshape(len(levels) * _ROW_PIXELS, bins, 3)


def _work(axes: Axes, recording: Recording, bins: int, selection: Selection) -> None:
    """How many threads work, bin by bin, and how many more are ready."""
    work = concurrency_over_time(recording, bins, selection)
    working = work["concurrency"].to_numpy()
    demand = working + work["ready"].to_numpy()
    colours = page.colours()
    start, end = (time - recording.start_ns for time in recording.span(selection))
    edges = np.linspace(start, end, bins + 1)
    axes.stairs(
        demand, edges, baseline=working, fill=True, color=colours[State.READY],
        label=page.LABELS[State.READY],
    )  # fmt: skip
    axes.stairs(working, edges, fill=True, color=colours[State.RUNNING], alpha=0.35)
    axes.stairs(working, edges, baseline=None, color=colours[State.RUNNING], label="at work")
    cpus = int(recording.meta["cpus"])
    axes.axhline(cpus, color="0.2", ls="--", lw=1.2)
    words = f"{cpus} core" if cpus == 1 else f"{cpus} cores"
    most = max(cpus, float(demand.max(initial=0)))
    axes.text(
        0.995, cpus + 0.03 * most, words, transform=axes.get_yaxis_transform(), ha="right",
        va="bottom", fontsize=9, bbox=_BACKGROUND,
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.set_ylim(0, 1.2 * most)
    axes.set_ylabel("threads at work")


def _shade(axes: Axes, recording: Recording, serial: Serial, span: tuple[int, int]) -> None:
    """Shade what only one thread worked at the job's begin and end."""
    first, last = recording.start_ns, recording.end_ns
    for begins, ends, hatch, what in (
        (first, first + serial.start_s * 1e9, "//", "begin"),
        (last - serial.end_s * 1e9, last, "\\\\", "end"),
    ):
        low, high = max(begins, span[0]), min(ends, span[1])
        if low < high:
            axes.axvspan(
                low - first, high - first, facecolor="0.5", alpha=0.3, hatch=hatch,
                edgecolor="0.3", linewidth=0,
                label=f"serial {what}: {page.duration(high - low)}",
            )  # fmt: skip


def _time(axes: Axes, recording: Recording, start: int, end: int) -> None:
    first = recording.start_ns
    words, ticks = page.time_axis(start - first, end - first)
    axes.set_xlim(start - first, end - first)
    axes.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    axes.set_xlabel(words)


def drawable(text: str) -> str:
    """A text with what the theme's font has no sign for replaced."""
    with themed():
        known = font_manager.get_font(font_manager.findfont("sans\\-serif")).get_charmap()
    return "".join(letter if ord(letter) in known else "□" for letter in text)
