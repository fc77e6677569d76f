"""The figures of the levels of memory: what they show is what the table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perflib.experiments.memory_levels import figures, tables
from perflib.experiments.memory_levels.table import MemoryTable
from perflib.lab.theme import figures as figures_of
from tests.experiments.memory_levels.memory_samples import (
    KIB,
    MIB,
    machine,
    run_of,
    samples,
)
from tests.experiments.plotted import bars, points


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
