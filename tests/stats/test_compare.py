"""The comparison of cores on simulated machines: its intervals cover, and it accuses nobody."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflib.stats.compare import compare_cores
from perflib.stats.interval import Interval
from perflib.stats.intervals import time_batches
from tests.slow import mostly_slow
from tests.stats.simulated import Machine, Study, at_least, at_most, measured, naive_covered, study

NULL = Machine()
BURSTS = Machine(burst_share=0.25)

QUIET: dict[str, tuple[Machine, int]] = {
    "5 rounds": (Machine(rounds=5), 150),
    "5 rounds, heavy tails": (Machine(rounds=5, tail="student"), 200),
    "8 rounds": (Machine(rounds=8), 200),
    "20 rounds": (Machine(rounds=20), 200),
    "20 rounds, heavy tails": (Machine(rounds=20, tail="student"), 120),
    "20 rounds, skewed": (Machine(rounds=20, tail="lognormal"), 120),
    "12 rounds, 12 % slow, much noise": (Machine(rounds=12, slow=0.12, noise=0.03), 150),
    "100 rounds": (Machine(rounds=100), 100),
    "100 rounds, 5 % slow": (Machine(rounds=100, slow=0.05, tail="student"), 60),
    "a tenth missing": (Machine(rounds=60, cores=3, missing=0.1, slow=0.03), 15),
    "4 cores": (Machine(rounds=60, cores=4, period_s=1.0), 30),
    "300 rounds": (NULL, 40),
    "300 rounds, heavy tails": (Machine(tail="student"), 25),
    "300 rounds, skewed": (Machine(tail="lognormal"), 25),
    "each core wanders for 2 s": (Machine(wander=0.01), 30),
    "slices of a millisecond take 5 %": (Machine(slices=0.05), 30),
    "slices of a millisecond take 10 %": (Machine(slices=0.10), 30),
}
DISTURBED: dict[str, tuple[Machine, int]] = {
    "a quarter of the time": (BURSTS, 40),
    "two fifths, and 5 % slow": (Machine(burst_share=0.4, slow=0.05), 30),
    "both cores": (Machine(burst_share=0.3, burst_cores=(0, 1), slow=0.05), 30),
    "the other core only": (Machine(burst_share=0.3, burst_cores=(1,), slow=0.05), 30),
    "few rounds": (Machine(rounds=20, burst_share=0.2, burst_s=0.6), 120),
    "one of 16 cores, 12 % slow": (
        Machine(rounds=40, cores=16, period_s=1.6, burst_share=0.2, slow=0.12),
        20,
    ),
    "three of 16 cores, none slow": (
        Machine(rounds=40, cores=16, period_s=1.6, burst_share=0.2, burst_cores=(0, 3, 4)),
        20,
    ),
}
ALL = {**QUIET, **{f"bursts: {name}": case for name, case in DISTURBED.items()}}
QUICK = {  # the other machines differ from these in one way each, and take most of the time
    "5 rounds", "12 rounds, 12 % slow, much noise", "100 rounds, 5 % slow", "a tenth missing",
    "each core wanders for 2 s", "slices of a millisecond take 5 %",
    "bursts: a quarter of the time", "bursts: two fifths, and 5 % slow", "bursts: both cores",
}  # fmt: skip


@pytest.fixture(params=mostly_slow(list(ALL), QUICK))
def studied(request: pytest.FixtureRequest) -> Study:
    machine, runs = ALL[request.param]
    return study(machine, runs)


def test_interval_covers_the_truth_as_often_as_it_says(studied: Study) -> None:
    assert studied.with_interval >= 0.9 * studied.runs
    assert studied.covered >= at_least(studied.with_interval, 0.95)


@pytest.mark.parametrize("names", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)])
def test_all_machines_together(names: Iterable[str]) -> None:
    """Many runs in all: a coverage that is a few percent too low would be seen."""
    studies = [study(*ALL[name]) for name in names]
    total = sum(seen.with_interval for seen in studies)
    assert sum(seen.covered for seen in studies) >= at_least(total, 0.95)
    assert sum(seen.wrongly_named for seen in studies) <= at_most(total, 0.001)


def test_no_core_is_named_that_is_not_slow(studied: Study) -> None:
    """At most one in twenty runs would be what the rule promises; far fewer are seen."""
    assert studied.wrongly_named <= at_most(studied.runs, 0.005)


SLOW = ["12 rounds, 12 % slow, much noise", "100 rounds, 5 % slow"]
SLOW += [name for name in ALL if "slices" in name or ("% slow" in name and "bursts" in name)]


@pytest.mark.parametrize("name", mostly_slow(SLOW, QUICK))
def test_slow_core_is_named(name: str) -> None:
    machine, runs = ALL[name]
    assert study(machine, runs).named >= at_least(runs, 0.97)


def test_slices_are_measured_to_a_point_and_a_half_within_a_minute() -> None:
    """300 rounds of two turns take that long: half-widths stay below what the issue asks for."""
    assert study(*QUIET["slices of a millisecond take 5 %"]).half_width < 1.5


def test_core_at_the_threshold_is_hardly_ever_named() -> None:
    runs = 80
    assert study(Machine(rounds=60, slow=0.01), runs).named <= at_most(runs, 0.05)


def test_time_disturbed_is_recovered() -> None:
    for name in ("a quarter of the time", "two fifths, and 5 % slow", "both cores"):
        machine, runs = DISTURBED[name]
        assert study(machine, runs).disturbed_covered >= at_least(runs, 0.95), name


def test_naive_interval_does_not_cover_where_ours_does() -> None:
    """Bursts of seconds on one core: what most people would draw is wrong in most runs."""
    machine, runs = DISTURBED["a quarter of the time"]
    seen = study(machine, runs)
    assert naive_covered(machine, runs) < 0.4 * runs
    assert seen.covered >= at_least(seen.with_interval, 0.95)
    machine, runs = QUIET["each core wanders for 2 s"]
    assert naive_covered(machine, runs) < 0.7 * runs
    assert naive_covered(NULL, 30) >= at_least(30, 0.95), "it is not wrong everywhere"


@pytest.mark.slow
def test_limit_wandering_slower_than_a_batch_is_covered_less_often() -> None:
    """Known: a core that wanders for 6 s by itself, with batches of 4 s, is covered in 86 %."""
    runs = 40
    seen = study(Machine(wander=0.01, wander_s=6.0), runs)
    assert seen.covered >= at_least(runs, 0.86)
    assert seen.wrongly_named <= at_most(runs, 0.05)


# --- data that are not as they should be --------------------------------------------------------


def test_single_round_has_an_effect_and_no_interval() -> None:
    comparison = compare_cores(np.log([[1.0, 1.1, 1.0]]), np.zeros(1))
    assert comparison.effects[1].slowdown.effect == pytest.approx(10)
    for effect in comparison.effects:
        assert math.isnan(effect.slowdown.low)
        assert effect.p_holm > 0.05
    assert comparison.half_width == math.inf


def test_single_core_has_nothing_to_compare_with() -> None:
    comparison = compare_cores(np.zeros((30, 1)), np.arange(30.0))
    (effect,) = comparison.effects
    assert math.isnan(effect.slowdown.effect)
    assert effect.p_holm == 1.0
    assert comparison.half_width == math.inf


def test_no_rounds_at_all() -> None:
    comparison = compare_cores(np.zeros((0, 2)), np.zeros(0))
    assert all(math.isnan(effect.slowdown.effect) for effect in comparison.effects)
    assert comparison.half_width == math.inf


@pytest.mark.parametrize("rounds", [2, 5, 8, 40])
def test_equal_values_are_equal(rounds: int) -> None:
    comparison = compare_cores(np.full((rounds, 3), 17.0), np.arange(0.0, rounds))
    for effect in comparison.effects:
        assert effect.slowdown == Interval(0, 0, 0)
        assert (effect.p_holm, effect.interference.effect) == (1.0, 0.0)
        assert effect.segments[0] == 0
    assert comparison.half_width == 0
    assert not comparison.interference.any()


def test_core_without_a_single_turn_leaves_the_others() -> None:
    log_time, start_s = measured(5, rounds=100, cores=3, slow=0.05)
    log_time[:, 2] = np.nan
    comparison = compare_cores(log_time, start_s)
    slow, other, absent = comparison.effects
    assert slow.slowdown.low < 5 < slow.slowdown.high
    assert other.slowdown.high < 0
    assert math.isnan(absent.slowdown.effect)
    assert math.isnan(absent.interference.effect)
    assert comparison.half_width == math.inf


def test_missing_turns_are_left_out() -> None:
    log_time, start_s = measured(5, rounds=100, cores=4, slow=0.05)
    log_time[::7, 0] = np.nan
    log_time[3] = np.nan
    log_time[40:60, 1] = np.nan
    effects = compare_cores(log_time, start_s).effects
    assert effects[0].slowdown.low < 5 < effects[0].slowdown.high
    for effect in effects[1:]:
        assert abs(effect.slowdown.effect) < 0.5
        assert effect.slowdown.half_width < 1


@given(
    st.integers(0, 12).flatmap(
        lambda rounds: st.integers(1, 5).flatmap(
            lambda cores: st.lists(
                st.lists(st.floats(-30, 30) | st.just(math.nan), min_size=cores, max_size=cores),
                min_size=rounds,
                max_size=rounds,
            ).map(lambda rows: np.array(rows, dtype=np.float64).reshape(rounds, cores))
        )
    ),
    st.booleans(),
)
@settings(max_examples=50)
def test_whatever_the_data_it_answers(log_time: np.ndarray, timed: bool) -> None:
    """No warning (they are errors here), no exception, and intervals that hold their effect."""
    start_s = np.arange(0.0, len(log_time)) if timed else None
    comparison = compare_cores(log_time, start_s)
    assert len(comparison.effects) == log_time.shape[1]
    assert comparison.interference.shape == log_time.shape
    assert not comparison.interference[~np.isfinite(log_time)].any()
    for effect in comparison.effects:
        assert 0 < effect.p_holm <= 1
        for interval in (effect.slowdown, effect.interference):
            if math.isfinite(interval.low):
                assert interval.low <= interval.effect <= interval.high
        if math.isfinite(effect.interference.low):
            assert 0 <= effect.interference.low <= effect.interference.high <= 100


# --- what must not matter ----------------------------------------------------------------------


def test_pause_of_a_resumed_run_is_nobody_s_time() -> None:
    log_time, start_s = measured(5, burst_share=0.25)
    whole = compare_cores(log_time, start_s)
    paused = start_s.copy()
    paused[150:] += 3600
    resumed = compare_cores(log_time, paused)
    assert resumed.effects[0].slowdown == pytest.approx(whole.effects[0].slowdown, abs=0.05)
    assert resumed.effects[0].interference.effect == pytest.approx(
        whole.effects[0].interference.effect, abs=3
    )


def test_segments_are_the_thirds_of_the_run() -> None:
    log_time, start_s = measured(5, slow=0.05, noise=0.003)
    log_time[200:, 0] += 0.02
    comparison = compare_cores(log_time, start_s)
    assert (comparison.batches == time_batches(start_s, 300)).all()
    first, second, third = comparison.effects[0].segments
    assert (first, second) == pytest.approx((5, 5), abs=0.5)
    assert third == pytest.approx(7.1, abs=0.5)
