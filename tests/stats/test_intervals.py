"""Batches of time, intervals from them, and the permutation test, each held to what it claims."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as distributions

from perflib.stats.interval import Interval
from perflib.stats.intervals import (
    against_others,
    batch_means,
    holm,
    robust_mean,
    share_interval,
    t_interval,
    time_batches,
    within_batch_p,
)
from tests.stats.simulated import at_least, at_most, resembling

# --- batches ------------------------------------------------------------------------------------


@given(
    spans=st.lists(st.floats(1e-6, 1e4), max_size=400),
    timed=st.booleans(),
    rounds=st.integers(0, 400),
)
def test_batches_are_successive_equal_and_complete(
    spans: list[float], timed: bool, rounds: int
) -> None:
    start_s = np.concatenate([[0.0], np.cumsum(spans)]) if timed else None
    rounds = rounds if start_s is None else len(start_s)
    batches = time_batches(start_s, rounds)
    assert batches.shape == (rounds,)
    if rounds:
        assert batches[0] == 0
        assert set(np.diff(batches)) <= {0, 1}
        sizes = np.bincount(batches)
        assert sizes.max() - sizes.min() <= 1
        assert min(rounds, 8) <= len(sizes) <= 24


def test_pause_makes_no_batches() -> None:
    start_s = np.arange(0.0, 50)
    paused = start_s.copy()
    paused[25:] += 36_000
    assert (time_batches(paused, 50) == time_batches(start_s, 50)).all()


def test_clock_that_stands_still_is_no_clock() -> None:
    assert (time_batches(np.zeros(50), 50) == time_batches(None, 50)).all()


# --- the robust mean ---------------------------------------------------------------------------


def test_far_values_do_not_move_it_and_near_ones_are_averaged() -> None:
    generator = np.random.default_rng(1)
    values = generator.normal(10, 1, (400, 3))
    plain = values.mean(axis=0)
    values[:20, 1] += 100
    values[:20, 2] = np.nan
    means = robust_mean(values)
    assert means == pytest.approx(plain, abs=0.15)
    assert means[0] == pytest.approx(plain[0], abs=0.02)


def test_edges_of_the_robust_mean() -> None:
    assert robust_mean(np.full((5, 2), 3.0)).tolist() == [3.0, 3.0]
    assert robust_mean(np.array([[7.0]])).tolist() == [7.0]
    columns = np.array([[np.nan, 1.0], [np.nan, 3.0]])
    assert np.isnan(robust_mean(columns)[0])
    assert robust_mean(columns)[1] == 2.0
    assert np.isnan(robust_mean(np.zeros((0, 2)))).all()
    mostly_equal = np.array([[1.0], [1.0], [1.0], [1.0], [2.0]])
    assert robust_mean(mostly_equal)[0] == pytest.approx(1.2), "its plain mean"


# --- Student's interval ------------------------------------------------------------------------


def test_it_is_students_interval() -> None:
    values = np.array([1.0, 2.0, 4.0, 3.0])
    expected = distributions.ttest_1samp(values, 0).confidence_interval(0.9)
    found = t_interval(values, 0.9)
    assert found == pytest.approx((2.5, expected.low, expected.high))
    assert found.half_width == pytest.approx((expected.high - expected.low) / 2)


def test_edges_of_the_interval() -> None:
    assert all(math.isnan(value) for value in t_interval(np.zeros(0)))
    assert all(math.isnan(value) for value in t_interval(np.full(3, np.nan)))
    effect, low, high = t_interval(np.array([np.nan, 5.0]))
    assert effect == 5
    assert math.isnan(low)
    assert math.isnan(high)
    assert t_interval(np.full(9, 5.0)) == Interval(5, 5, 5)
    assert t_interval(np.array([1.0, np.nan, 3.0])) == t_interval(np.array([1.0, 3.0]))


@pytest.mark.parametrize("batches", [2, 5, 8, 20])
def test_independent_batches_are_covered_as_claimed(batches: int) -> None:
    runs = 2000
    rows = np.random.default_rng(batches).normal(0, 1, (runs, batches))
    covered = sum(low <= 0 <= high for _, low, high in map(t_interval, rows))
    assert at_least(runs, 0.95) <= covered <= at_most(runs, 0.985), "and not much too wide"


def test_batches_that_resemble_their_neighbours_are_covered_nearly_as_claimed() -> None:
    """Nobody knows the correlation: from 15 batches it is itself uncertain. Without it: 75 %."""
    runs = 1000
    rows = resembling(np.random.default_rng(1).normal(0, 1, (runs, 15)), 0.5)
    covered = sum(low <= 0 <= high for _, low, high in map(t_interval, rows))
    plain = sum(
        abs(row.mean()) <= distributions.t.ppf(0.975, 14) * row.std(ddof=1) / math.sqrt(15)
        for row in rows
    )
    assert plain < 0.8 * runs
    assert covered > 0.84 * runs


def test_trend_makes_it_wide() -> None:
    """As if there were three independent batches, whatever the form of the wave."""
    wave = np.sin(2 * np.pi * np.arange(24) / 24)
    trend = np.linspace(-1, 1, 24)
    step = np.repeat([-1.0, 1.0], 12)
    for values in (wave, trend, step):
        plain = distributions.t.ppf(0.975, 23) * values.std(ddof=1) / math.sqrt(24)
        assert t_interval(values).half_width > 2 * plain


# --- shares of time ----------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5, 1.0])
def test_share_of_independent_rounds_is_covered(share: float) -> None:
    runs, rounds = 500, 120
    generator = np.random.default_rng(3)
    batches = time_batches(None, rounds)
    covered = 0
    for _ in range(runs):
        found = share_interval(generator.random(rounds) < share, np.ones(rounds), batches)
        assert 0 <= found.low <= found.effect <= found.high <= 1
        covered += found.low <= share <= found.high
    assert covered >= at_least(runs, 0.93)


def test_share_in_bursts_is_nearly_covered_even_in_the_long_run() -> None:
    """Bursts of 15 rounds on average: far fewer looks than rounds, and five bursts in a run.

    What is promised is the share of *this* run (see test_compare); that of all runs is covered in
    about 85 %, where taking rounds for independent covers less than half.
    """
    runs, rounds, share = 500, 300, 0.25
    generator = np.random.default_rng(4)
    batches = time_batches(np.arange(0.0, 60, 0.2), rounds)
    covered = naive = 0
    for _ in range(runs):
        lengths = generator.exponential([15.0, 45.0], (60, 2))
        hit = np.repeat(np.tile([True, False], 60), np.ceil(lengths).astype(int).ravel())
        hit = np.roll(hit, generator.integers(len(hit)))[:rounds]
        true = 15.5 / 61
        found = share_interval(hit, np.ones(rounds), batches)
        covered += found.low <= true <= found.high
        error = 1.96 * math.sqrt(share * (1 - share) / rounds)
        naive += abs(hit.mean() - true) <= error
    assert naive < 0.5 * runs
    assert covered >= 0.8 * runs


@pytest.mark.parametrize("confidence", [0.95, 0.999])
@pytest.mark.parametrize("hits", [0, 1, 17, 40])
def test_share_of_one_batch_has_the_interval_that_scipy_calls_wilson(
    hits: int, confidence: float
) -> None:
    found = share_interval(np.arange(40) < hits, np.ones(40), np.zeros(40, int), confidence)
    wilson = distributions.binomtest(hits, 40).proportion_ci(confidence, method="wilson")
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)


def test_share_weighs_rounds_by_their_time() -> None:
    hit = np.array([True, False, False, False])
    found = share_interval(hit, np.array([3.0, 1.0, 1.0, 1.0]), np.arange(4))
    assert found.effect == 0.5
    nothing = share_interval(hit, np.zeros(4), np.arange(4))
    assert all(math.isnan(value) for value in nothing)
    empty = share_interval(hit[:0], np.zeros(0), np.arange(0))
    assert all(math.isnan(value) for value in empty)


def test_share_that_was_never_seen_may_still_be_small() -> None:
    found = share_interval(np.zeros(100, dtype=bool), np.ones(100), time_batches(None, 100))
    assert found.effect == found.low == 0
    assert 0.02 < found.high < 0.05, "about three in a hundred: the rule of three"


# --- each against the others -------------------------------------------------------------------


@given(
    rows=st.integers(2, 9).flatmap(
        lambda cores: st.lists(
            st.lists(st.floats(-100, 100) | st.integers(0, 3), min_size=cores, max_size=cores),
            min_size=1,
            max_size=5,
        )
    )
)
def test_against_the_median_of_the_others(rows: list[list[float]]) -> None:
    level = np.array(rows, dtype=np.float64)
    expected = [
        level[:, core] - np.median(np.delete(level, core, axis=1), axis=1)
        for core in range(level.shape[1])
    ]
    np.testing.assert_allclose(against_others(level), np.transpose(expected), atol=1e-12)


# --- the permutation test ----------------------------------------------------------------------


def test_exact_p_of_two_cores() -> None:
    """Three batches, all with core 0 slower: one of the eight sign patterns is as extreme."""
    level = np.array([[1.3, 1.0], [2.5, 2.0], [3.1, 3.0]])
    assert within_batch_p(level).tolist() == [1 / 8, 1.0]
    level[2] = level[2, ::-1]
    differences = np.array([0.3, 0.5, -0.1])
    patterns = [np.dot(signs, differences) for signs in itertools.product((1, -1), repeat=3)]
    expected = np.mean([value >= differences.sum() - 1e-12 for value in patterns])
    assert within_batch_p(level)[0] == expected == 2 / 8


def test_drawn_p_agrees_with_the_exact_one() -> None:
    """Fourteen batches are drawn, not counted; a constant third core changes nothing for them."""
    generator = np.random.default_rng(2)
    difference = generator.normal(0.3, 1, 14)
    level = np.stack([difference, np.zeros(14)], axis=1)
    drawn = within_batch_p(level, resamples=20_000)[0]
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=14)))
    exact = float(np.mean(signs @ difference >= difference.sum() - 1e-12))
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


@pytest.mark.parametrize(("cores", "batches", "runs"), [(2, 5, 1000), (2, 8, 1000), (4, 8, 400)])
def test_p_is_no_smaller_than_it_claims(cores: int, batches: int, runs: int) -> None:
    """Equal cores, with drift, heavy tails and batches of different noise."""
    generator = np.random.default_rng(cores + batches)
    p_values = np.empty((runs, cores))
    for n in range(runs):
        noise = generator.standard_t(3, (batches, cores)) * generator.lognormal(0, 1, (batches, 1))
        level = noise + np.cumsum(generator.normal(0, 5, (batches, 1)), axis=0)
        p_values[n] = within_batch_p(level, seed=n, resamples=500)
    for limit in (0.05, 0.1, 0.25, 0.5):
        assert (p_values[:, 0] <= limit).sum() <= at_most(runs, limit)
    family = np.array([holm(row).min() for row in p_values])
    assert (family < 0.05).sum() <= at_most(runs, 0.05)
    if batches >= 8:
        assert (p_values[:, 0] <= 0.25).sum() >= at_least(runs, 0.25), "nor is it much larger"


def test_edges_of_the_permutation_test() -> None:
    assert within_batch_p(np.zeros((0, 3))).tolist() == [1, 1, 1]
    assert within_batch_p(np.zeros((5, 1))).tolist() == [1]
    assert within_batch_p(np.zeros((5, 2))).tolist() == [1, 1]
    assert within_batch_p(np.full((5, 3), 7.0)).tolist() == [1, 1, 1]
    level = np.random.default_rng(1).normal(size=(9, 3))
    holed = np.concatenate([level, [[np.nan, 1.0, 2.0]]])
    assert (within_batch_p(holed) == within_batch_p(level)).all()
    assert (within_batch_p(level) == within_batch_p(level)).all()
    assert (within_batch_p(level) > 0).all()


# --- Holm --------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    """0.005 * 4 = 0.02; 0.01 * 3 = 0.03; 0.03 * 2 = 0.06; 0.04 * 1, but not below 0.06."""
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.4, 0.9])) == pytest.approx([0.8, 0.9])
    assert holm(np.array([0.7, 0.6])) == pytest.approx([1.0, 1.0])
    assert holm(np.array([0.03])) == pytest.approx([0.03])
    assert holm(np.zeros(0)).shape == (0,)


def test_batch_means_are_those_of_each_batch_whatever_the_shape() -> None:
    values = np.arange(24.0).reshape(6, 2, 2)
    values[0, 0, 0] = np.nan
    found = batch_means(values, np.array([0, 0, 0, 1, 1, 1]))
    assert found.shape == (2, 2, 2)
    assert found[0].ravel() == pytest.approx([6, 5, 6, 7])
    assert found[1].ravel() == pytest.approx([16, 17, 18, 19])
    assert batch_means(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)).shape == (0, 3)
