"""What a figure shows, read back from its axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer


def bars(axes: Axes) -> dict[str, ErrorbarContainer]:
    """What has intervals, by label."""
    found = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    return {str(one.get_label()): one for one in found}


def points(bar: ErrorbarContainer) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    line = bar.lines[0]
    assert line is not None
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
