"""Capacities that a latency curve shows, and by how much they shrink; by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.capacity import capacity, shrinkage

Floats = NDArray[np.float64]
SIZES = 2048.0 * 2 ** (np.arange(49) / 6)
L1, NEXT = 32768.0, 14 / 4


def curve(end: float, gradual: float = 4.0) -> Floats:
    """Log latency of a cache that ends there, and of a second one ten times as slow beyond."""
    missed = 1 - np.minimum(end / SIZES, 1.0) ** gradual
    return np.asarray(np.log(1 + (NEXT - 1) * missed))


def batches(end: float, seed: int, count: int = 8, lost: float = 0.0) -> Floats:
    """``[batch, size]`` with noise of long tails, batches that are slower as a whole, and gaps."""
    generator = np.random.default_rng(seed)
    rows = curve(end) + 0.01 * generator.standard_t(3, (count, SIZES.size))
    rows += generator.normal(0, 0.01, (count, 1))
    return np.where(generator.random(rows.shape) < lost, np.nan, rows)


@pytest.mark.parametrize("end", [10_000.0, 32768.0, 50_000.0])
@pytest.mark.parametrize("gradual", [2.0, 8.0])
def test_capacity_is_where_the_curve_leaves_its_level(end: float, gradual: float) -> None:
    found = capacity(SIZES, curve(end, gradual), SIZES[0], end)
    limit = (math.sqrt(2) - 1) / (NEXT - 1)  # of the loads miss there
    assert found == pytest.approx(end * (1 - limit) ** (-1 / gradual), rel=0.03)


def test_one_size_that_is_slow_by_chance_is_no_end() -> None:
    spoiled = curve(L1)
    spoiled[12] += 1.0
    assert capacity(SIZES, spoiled, SIZES[0], L1) == capacity(SIZES, curve(L1), SIZES[0], L1)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(SIZES.size),
        np.full(SIZES.size, np.nan),
        np.where(np.arange(SIZES.size) == 5, 0.0, np.nan),
        -curve(L1),
    ],
)
def test_a_curve_without_an_end_has_no_capacity(values: Floats) -> None:
    assert math.isnan(capacity(SIZES, values, SIZES[0], L1))


def test_intervals_cover_the_truth() -> None:
    """Half of the cells are missing, as where a core is rarely seen in one state."""
    covered, widths = 0, []
    for seed in range(40):
        found, whole, left = shrinkage(
            SIZES, batches(L1, seed, lost=0.3), batches(0.75 * L1, seed + 1000, lost=0.5),
            SIZES[0], L1,
        )  # fmt: skip
        assert left < whole
        assert found.low <= found.effect <= found.high
        covered += found.low <= 25 <= found.high
        widths.append(found.half_width)
    assert covered >= 36
    assert np.median(widths) < 9


def test_null_equal_curves_do_not_differ() -> None:
    wrong = 0
    for seed in range(40):
        found, *_ = shrinkage(SIZES, batches(L1, seed), batches(L1, seed + 1000), SIZES[0], L1)
        wrong += found.low > 0 or found.high < 0
    assert wrong <= 2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_batches_have_no_interval(count: int) -> None:
    found, *_ = shrinkage(SIZES, batches(L1, 1, count), batches(L1, 2, count), SIZES[0], L1)
    assert all(map(math.isnan, found))


def test_a_state_that_was_hardly_seen_says_nothing() -> None:
    never = np.full((8, SIZES.size), np.nan)
    found, whole, left = shrinkage(SIZES, batches(L1, 1), never, SIZES[0], L1)
    assert math.isfinite(whole)
    assert math.isnan(left)
    assert math.isnan(found.effect)
