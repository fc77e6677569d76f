"""The figures of the levels of memory: what they show is what the table says."""

from __future__ import annotations

from typing import Any

import pytest

from perflib.lab.theme import figures as figures_of
from tests.experiments.memory_levels.memory_samples import (
    run_of,
    samples,
)


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
