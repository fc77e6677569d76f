"""Numbers of kinds at equal numbers of samples: exact means, and intervals that cover the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.richness import expected_distinct, more_distinct
from tests.stats.simulated import at_least

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BATCHES, SAMPLES = 12, 800


# --- how many kinds a part of the samples holds --------------------------------------------------


@pytest.mark.parametrize("counts", [[1], [3, 1], [2, 2, 1], [4, 0, 2, 1, 1]])
def test_it_is_the_mean_over_all_parts(counts: list[int]) -> None:
    samples = np.repeat(np.arange(len(counts)), counts).tolist()
    for size in range(len(samples) + 1):
        parts = [len(set(part)) for part in itertools.combinations(samples, size)]
        found = expected_distinct(np.array(counts), size)
        assert found == pytest.approx(np.mean(parts), abs=1e-12)


def test_the_last_sample_is_new_as_often_as_goods_formula_says() -> None:
    counts = np.array([1, 1, 1, 2, 5, 90])
    last = expected_distinct(counts, 100) - expected_distinct(counts, 99)
    assert last == pytest.approx(3 / 100)


@pytest.mark.parametrize("size", [-1, 4])
def test_no_larger_part_than_there_are_samples(size: int) -> None:
    with pytest.raises(ValueError, match=f"a part of {size} samples cannot be taken of 3: give 0"):
        expected_distinct(np.array([2, 1]), size)


# --- two sides -----------------------------------------------------------------------------------


def shares(kinds: int) -> Floats:
    weight = 1 / np.arange(1.0, kinds + 1)
    share: Floats = weight / weight.sum()
    return share


def counted(generator: np.random.Generator, share: Floats, samples: int, noise: float) -> Ints:
    """``[batch, kind]``; the shares of tens of kinds vary together from batch to batch."""
    varied = np.exp(generator.normal(0, noise, (BATCHES, 1 + share.size // 10)))
    mean = share * np.repeat(varied, 10, axis=1)[:, : share.size]
    taken: Ints = generator.multinomial(samples, mean / mean.sum(axis=1, keepdims=True))
    return taken


def expected(share: Floats, samples: int) -> float:
    return float((1 - (1 - share) ** samples).sum())


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("more_samples", [1, 4])
def test_intervals_cover_the_ratio_at_this_number_of_samples(
    factor: int, more_samples: int
) -> None:
    generator, runs = np.random.default_rng(5), 300
    share, other = shares(1000), shares(1000 * factor)
    hits = 0
    for _ in range(runs):
        first = counted(generator, share, SAMPLES * more_samples, 0.0)
        found = more_distinct(first, counted(generator, other, SAMPLES, 0.0))
        truth = expected(other, found.samples) / expected(share, found.samples)
        assert found.samples == SAMPLES * (BATCHES - 1)
        hits += found.more.low <= 100 * (truth - 1) <= found.more.high
    assert hits >= at_least(runs, 0.95)


def test_null_neither_more_samples_nor_varying_shares_make_more_kinds() -> None:
    generator, runs = np.random.default_rng(6), 300
    share = shares(1000)
    found = [
        more_distinct(
            counted(generator, share, 5 * SAMPLES, 0.3), counted(generator, share, SAMPLES, 0.3)
        ).more
        for _ in range(runs)
    ]
    assert sum(one.low <= 0 <= one.high for one in found) >= at_least(runs, 0.95)
    assert abs(np.mean([one.effect for one in found])) < 1


def test_the_numbers_are_of_as_many_samples_of_both() -> None:
    first = np.array([[50, 50, 0, 0], [50, 50, 0, 0]])
    second = np.array([[3, 2, 3, 2], [2, 3, 2, 3]])
    found = more_distinct(first, second)
    assert found.samples == 10
    assert found.distinct[0] == pytest.approx(2, abs=0.01)
    assert 3.5 < found.distinct[1] < 4
    assert found.new[0] < found.new[1] < 0.1
    assert found.more.effect == pytest.approx(100 * (found.distinct[1] / found.distinct[0] - 1))


def test_one_batch_has_no_interval_and_no_samples_nothing() -> None:
    one = more_distinct(np.array([[5, 5]]), np.array([[5, 0]]))
    assert one.samples == 5
    assert one.more.effect == pytest.approx(100 * (1 / expected_distinct(np.array([5, 5]), 5) - 1))
    assert math.isnan(one.more.low)
    for empty in (np.zeros((0, 3), np.int64), np.zeros((2, 3), np.int64)):
        none = more_distinct(empty, empty)
        assert none.samples == 0
        assert np.isnan([*none.more, *none.distinct, *none.new]).all()


def test_all_samples_of_a_side_in_one_batch_leave_nothing_to_compare() -> None:
    found = more_distinct(np.array([[9, 1], [0, 0]]), np.array([[5, 5], [5, 5]]))
    assert found.samples == 0
