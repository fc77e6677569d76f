"""Figures within an HTML file: each as SVG or PNG, whichever is smaller."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from perflib.framework.plots import literally

_DPI = 100
_CSS_DPI = 96
_SMALL_BYTES = 80_000  # a PNG of this size: SVG rarely gains much
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_PLACES = re.compile(r'\b(d|x|y|points)="([^"]*)"')
_DECIMALS = re.compile(r"(-?\d+\.\d{2})\d+")


@dataclass(frozen=True)
class Picture:
    """What an ``<img>`` needs; ``width`` and ``height`` in CSS pixels."""

    source: str
    width: int
    height: int

    @property
    def size(self) -> int:
        """What it adds to a page, in bytes."""
        return len(self.source)


def picture(figure: Figure, dpi: int = _DPI) -> Picture:
    """A figure as a ``data:`` address, in the format that takes fewer bytes.

    SVG is tried where it can gain something: a figure costs a third of a second in each format.
    """
    kind, content = "image/png", _saved(figure, "png", dpi)
    if len(content) > _SMALL_BYTES:
        figure.set_layout_engine("none")  # its layout is done
        vector = _svg(figure)
        if len(vector) < len(content):
            kind, content = "image/svg+xml", vector
    width, height = figure.get_size_inches()
    source = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return Picture(source, round(_CSS_DPI * width), round(_CSS_DPI * height))


def _saved(figure: Figure, kind: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    nothing = {"png": {"Software": None}, "svg": {"Creator": None, "Date": None}}
    with literally(), mpl.rc_context({"svg.hashsalt": "perflib", "svg.fonttype": "path"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=nothing[kind])
    return buffer.getvalue()


def _svg(figure: Figure) -> bytes:
    """Without metadata, and to a hundredth of a point: nobody sees the rest."""
    text = _METADATA.sub("", _saved(figure, "svg", _DPI).decode())

    def shorter(found: re.Match[str]) -> str:
        return '{}="{}"'.format(found[1], _DECIMALS.sub(r"\1", found[2]))

    return _PLACES.sub(shorter, text).encode()
