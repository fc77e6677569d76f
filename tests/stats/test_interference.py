"""Disturbed or slow: distinguished turn by turn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflib.stats.interference import common_level, trials_with_interference
from tests.stats.simulated import measured


@pytest.mark.parametrize("rounds", [8, 20, 100, 300])
@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_quiet_machine_has_none(rounds: int, drift: float) -> None:
    log_time, start_s = measured(3, rounds=rounds, drift=drift, slow=0.12)
    assert not trials_with_interference(log_time, start_s).any(), "slow is not interfered with"


@pytest.mark.parametrize("cores", [2, 3, 8])
@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_burst_is_found_turn_by_turn(cores: int, factor: float) -> None:
    log_time, start_s = measured(3, cores=cores, slow=0.05)
    hit = np.zeros_like(log_time, dtype=np.bool_)
    hit[60:75, 0] = hit[200:230, 0] = hit[240:260, 1] = hit[5, 1] = True
    if cores != 3:  # of three, two at once would be taken for what all have in common
        hit[225:240, 1] = True
    found = trials_with_interference(log_time + hit * math.log(factor), start_s)
    assert (found ^ hit).sum() <= 2


def test_weak_burst_is_found_by_its_duration() -> None:
    log_time, start_s = measured(3)
    hit = np.zeros_like(log_time, dtype=np.bool_)
    hit[100:150, 0] = True
    burst = log_time + hit * math.log(1.08)
    assert not trials_with_interference(burst)[hit].mean() > 0.9, "not without the time"
    found = trials_with_interference(burst, start_s)
    assert found[hit].mean() > 0.9
    assert found[~hit].mean() < 0.02


def test_one_that_lasts_for_most_of_the_run_is_still_a_disturbance() -> None:
    log_time, start_s = measured(3)
    hit = np.zeros_like(log_time, dtype=np.bool_)
    hit[20:130, 1] = hit[180:250, 1] = True
    found = trials_with_interference(log_time + hit * math.log(2), start_s)
    assert (found ^ hit).mean() < 0.01


def test_all_cores_at_once() -> None:
    """The host takes the whole machine away: no core's fault, but no time to measure in."""
    log_time, start_s = measured(3, cores=4, drift=0.0)
    log_time[100:110] += math.log(1.6)
    found = trials_with_interference(log_time, start_s)
    assert found[100:110].all()
    assert found.sum() == 40


def test_missing_turns_are_not_disturbed() -> None:
    log_time, start_s = measured(3, cores=3)
    log_time[::3, 0] = np.nan
    log_time[50:60] = np.nan
    log_time[101:120, 1] += math.log(2)
    found = trials_with_interference(log_time, start_s)
    assert not found[np.isnan(log_time)].any()
    assert found[101:120, 1].all()
    assert found.sum() <= 21


@pytest.mark.parametrize("shape", [(0, 2), (1, 3), (40, 1), (2, 2)])
def test_too_little_to_tell(shape: tuple[int, int]) -> None:
    found = trials_with_interference(np.zeros(shape), np.arange(0.0, shape[0]))
    assert found.shape == shape
    assert not found.any()


def test_few_rounds_need_more_to_be_convinced() -> None:
    """From seven rounds the scale is hardly known: 30 % may be noise, a factor of two is not."""
    quiet = np.random.default_rng(1).normal(0, 0.01, (7, 2))
    mild, strong = quiet.copy(), quiet.copy()
    mild[2, 0] += math.log(1.3)
    strong[2, 0] += math.log(2)
    assert not trials_with_interference(mild).any()
    assert np.argwhere(trials_with_interference(strong)).tolist() == [[2, 0]]
    more = np.random.default_rng(1).normal(0, 0.01, (8, 2))
    more[2, 0] += math.log(1.3)
    assert np.argwhere(trials_with_interference(more)).tolist() == [[2, 0]]


def test_common_level_is_the_lower_median_of_those_present() -> None:
    rows = np.array([[3.0, 1.0], [np.nan, 2.0], [5.0, 4.0]])
    assert common_level(rows).tolist() == [1.0, 2.0, 4.0]
    three = np.array([[3.0, 1.0, 2.0], [np.nan, 9.0, 7.0]])
    assert common_level(three).tolist() == [2.0, 7.0]
    assert np.isnan(common_level(np.full((1, 3), np.nan)))
