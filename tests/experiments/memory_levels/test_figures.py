"""The figures of the levels of memory: what they show is what the table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from perflib.experiments.memory_levels import figures, tables
from perflib.experiments.memory_levels.table import MemoryTable, tlb_reaches
from perflib.lab.theme import figures as figures_of
from tests.experiments.memory_levels.memory_samples import (
    KIB,
    MIB,
    machine,
    run_of,
    samples,
)
from tests.experiments.plotted import bars, points


def written(axes: Axes) -> str:
    return "\n".join(text.get_text() for text in axes.texts)


def test_ratios_are_those_within_rounds() -> None:
    table = MemoryTable(samples(), machine())
    reaches = tlb_reaches(table.machine)
    figure = figures.ratios(tables.ratios(table), tables.levels(table), reaches)
    assert [axes.get_ylabel().splitlines()[0] for axes in figure.axes] == [
        "4 KiB over", "random over", "sequential over",
    ]  # fmt: skip
    _, y = points(bars(figure.axes[1])["random / window, 4 KiB pages"])
    assert y == pytest.approx(table.ratio_curve(("random", "4k"), ("window", "4k"))["ratio"])
    assert y[-1] > 1.2
    assert "second-level TLB" in written(figure.axes[1])
    assert "second-level TLB" not in written(figure.axes[2])


@pytest.mark.parametrize(
    ("made", "panels"),
    [
        ({"orders": ["window"]}, 1),
        ({"orders": ["window"], "backings": ["4k"]}, 0),
        ({"orders": ["sequential"], "backings": ["4k"]}, 0),
        ({"orders": ["random", "window"], "backings": ["4k"]}, 1),
        ({"orders": ["sequential", "lmbench"], "backings": ["thp"]}, 1),
    ],
)
def test_only_what_was_measured_is_compared(made: dict[str, Any], panels: int) -> None:
    run = run_of(samples(rounds=3, **made))
    found = figures_of(run)
    assert ("ratios" in found) == (panels > 0)
    if panels:
        assert len(found["ratios"].axes) == panels


def test_cores_are_compared_by_size() -> None:
    table = MemoryTable(samples(cores=(0, 2), slow_memory={2: 0.4}, rounds=12), machine())
    (axes,) = figures.core_difference(tables.core_difference(table), tables.levels(table)).axes
    found = bars(axes)
    assert set(found) == {"cpu0", "cpu2"}
    x, y = points(found["cpu2"])
    assert y[x > 70 * MIB / KIB] == pytest.approx(40, abs=6)
    assert np.abs(y[x < 64]).max() < 6
    assert "(%)" in axes.get_ylabel()
