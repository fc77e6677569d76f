"""The naive interval: right for independent rounds, and the bad example elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.stats.naive import naive_interval


def test_median_with_percentiles_of_the_bootstrap() -> None:
    values = np.random.default_rng(1).normal(0.05, 0.01, 200)
    found = naive_interval(values)
    assert found.effect == np.median(values)
    assert found.low < 0.05 < found.high
    assert found.half_width == pytest.approx(1.96 * 1.253 * 0.01 / np.sqrt(200), rel=0.3)
    assert naive_interval(values) == found
    assert naive_interval(values, confidence=0.5).half_width < found.half_width / 2


def test_missing_rounds_are_left_out() -> None:
    values = np.random.default_rng(1).normal(0, 1, 30)
    holed = np.insert(values, [0, 10, 30], np.nan)
    assert naive_interval(holed) == naive_interval(values)


@pytest.mark.parametrize("values", [[], [np.nan], [0.1]])
def test_too_few_rounds_have_no_interval(values: list[float]) -> None:
    found = naive_interval(np.array(values))
    assert np.isnan(found.low)
    assert np.isnan(found.high)
