from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.machine.activity.noise import GAP_CAUSES, gap_histogram, stolen_share


@given(st.integers(64, 2**34 - 1))
def test_a_gap_is_between_its_edges(gap_ns: int) -> None:
    edges, counts = gap_histogram([gap_ns])
    (index,) = np.flatnonzero(counts)
    assert edges[index] <= gap_ns < edges[index + 1]


def test_stolen_share_takes_the_ordinary_step_off() -> None:
    # 900 steps of 20 ns and 10 gaps of 220 ns, of which 200 ns each were stolen
    duration_ns = 900 * 20 + 10 * 220
    assert stolen_share(2200, 10, 910, duration_ns) == pytest.approx(2000 / duration_ns)


def test_every_length_has_a_cause() -> None:
    for switched in (False, True):
        limits = [cause.below_ns for cause in GAP_CAUSES if cause.switched == switched]
        assert limits == sorted(limits)
        assert limits[-1] == float("inf")
