"""How figures look: one theme for notebooks, the form and the report, fit for the colour-blind."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import seaborn as sns
from IPython.display import Image
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from perflib import experiments
from perflib.framework.plots import COLOURS, literally
from perflib.model.run import Run

_DPI = 110


@contextmanager
def themed() -> Iterator[None]:
    """Draw in perflib's theme within the ``with`` block; matplotlib's settings come back after."""
    settings = {
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "figure.constrained_layout.use": True,
        "figure.dpi": _DPI,
        "grid.alpha": 0.5,
        "legend.framealpha": 0.9,
    }
    with literally():
        sns.set_theme(style="whitegrid", palette="colorblind", color_codes=False, rc=settings)
        yield


@functools.cache
def hex_colours() -> Mapping[str, str]:
    """`COLOURS` as a page has them."""
    with themed():
        return {name: to_hex(colour) for name, colour in COLOURS.items()}


def figures(run: Run) -> dict[str, Figure]:
    """All figures of a run, by name, drawn by its experiment in perflib's theme."""
    with themed():
        return experiments.get(run.experiment).figures(run)


def png(figure: Figure) -> bytes:
    """A figure as a PNG file's bytes."""
    buffer = io.BytesIO()
    with themed():
        figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def show(figure: Figure) -> Image:
    """A figure as the value of a notebook's cell.

    One that seaborn or pyplot opened is closed, so that the notebook does not show it once more.
    """
    shown = Image(png(figure), format="png", alt=_title(figure))  # type: ignore[no-untyped-call]
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    return shown


def _title(figure: Figure) -> str:
    return "; ".join(filter(None, (axes.get_title(loc="left") for axes in figure.axes))) or "figure"
