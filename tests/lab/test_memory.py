"""The walks that a notebook shows."""

from __future__ import annotations

import numpy as np
import pytest

from perflib import experiments
from perflib.lab.memory import walks
from perflib.measure.arrays import ORDERS

_WHY = experiments.get("memory_levels").unavailable()
pytestmark = pytest.mark.skipif(bool(_WHY), reason=_WHY)


def test_a_walk_visits_every_line_once_in_each_order() -> None:
    frame = walks(64)
    count = 64 * 1024 // 64
    lines = {order: own["line"].to_numpy() for order, own in frame.groupby("order")}
    assert lines.keys() == ORDERS.keys() - {"spread"}  # which is no order of all lines
    for found in lines.values():
        assert sorted(found) == list(range(count))
    assert (frame["page"] == frame["line"] // 64).all()
    steps = np.diff(lines["sequential"])
    assert set(steps.tolist()) <= {1, 1 - count}
    assert len({line // 64 for line in lines["page"][:63]}) == 1
    assert len({line // 64 for line in lines["lmbench"][:16]}) == 16
