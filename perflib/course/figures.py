"""A prediction next to what was measured."""

from __future__ import annotations

from matplotlib.figure import Figure

from perflib.course.items import Measured
from perflib.framework.plots import log_ticks
from perflib.lab.theme import themed

_WIDE = 10.0  # from this ratio on, the axis is logarithmic


def compared(name: str, unit: str, guess: float | None, found: Measured) -> Figure:
    """One line: the measured interval, and the guess as a mark next to it.

    Parameters
    ----------
    name, unit
        What was predicted.
    guess
        The prediction; ``None``: none was made.
    found
        The measured quantity with its interval.
    """
    with themed():
        figure = Figure(figsize=(7.0, 1.9))
        axes = figure.subplots()
        axes.errorbar(
            [found.value],
            [0],
            xerr=[[found.value - found.low], [found.high - found.value]],
            fmt="o",
            capsize=6,
            color="C0",
            label=f"{found.what}, with its interval",
        )
        ends = [found.low, found.value, found.high]
        if guess is not None:
            axes.plot([guess], [0], "D", color="C3", markersize=9, label="your prediction")
            ends.append(guess)
        axes.margins(x=0.15)
        if min(ends) > 0 and max(ends) / min(ends) > _WIDE:
            log_ticks(axes.xaxis, min(ends) / 2, max(ends) * 2)
        else:
            axes.ticklabel_format(axis="x", useOffset=False)
        axes.set_yticks([])
        axes.set_xlabel(f"{name}, {unit}")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        return figure
