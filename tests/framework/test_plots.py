from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from perflib.framework.plots import core_style, core_styles, log_ticks


def test_cores_of_one_machine_look_unlike() -> None:
    looks = [core_style(cpu) for cpu in range(64)]
    assert len(set(looks)) == 64
    assert core_style(3) == core_style(np.int64(3))  # type: ignore[arg-type]
    styles = core_styles([8, 1])
    assert styles["palette"] == {8: core_style(8)[0], 1: core_style(1)[0]}
    assert styles["markers"] == {8: core_style(8)[1], 1: core_style(1)[1]}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.79, 1.35, ["0.8", "0.9", "1", "1.1", "1.2", "1.3"]),
        (90.0, 600.0, ["100", "150", "200", "300", "500"]),
        (0.4, 8.0, ["0.5", "1", "2", "5"]),
        (0.9, 20000.0, ["1", "10", "100", "1000", "10000"]),
    ],
)
def test_a_logarithmic_axis_has_plain_numbers(low: float, high: float, expected: list[str]) -> None:
    axes = Figure().subplots()
    axes.plot([low, high], [1, 2])
    log_ticks(axes.xaxis, low, high)
    assert axes.get_xlim() == (low, high)
    assert axes.get_yscale() == "linear"
    labels = {tick.get_position()[0]: tick.get_text() for tick in axes.get_xticklabels()}
    assert [text for place, text in labels.items() if low <= place <= high] == expected
    assert not any(tick.get_text() for tick in axes.get_xticklabels(minor=True))
