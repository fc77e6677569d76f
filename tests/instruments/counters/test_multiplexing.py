"""Scaling of counts that were seen for a part of the time: by arithmetic and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perflib.instruments.counters.multiplexing import (
    rotation,
    scale_slices,
    scale_totals,
)
from perflib.model.errors import UserError

SETS = 4
Floats = NDArray[np.float64]


def rate_of(kind: str, time: Floats, generator: np.random.Generator) -> Floats:
    on = {
        "steady": np.zeros(time.size),
        "drifting": 2 * time / time.size,
        "bursty": np.cumsum(generator.random(time.size) < 0.1) % 2,
        "spiky": 5.0 * (generator.random(time.size) < 0.15),
        "periodic": time % SETS == generator.integers(SETS),
    }
    base = {"bursty": 0.1, "spiky": 0.1}.get(kind, 1.0)
    return base + np.asarray(on[kind], dtype=np.float64)


def coverage(kind: str, slices: int = 120, *, fixed: bool = False) -> float:
    """How often the 95 % interval holds what was counted in all slices, one set in four seen."""
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(600):
        time = np.arange(slices, dtype=np.float64)
        ran_ns = generator.normal(1e7, 2e5, slices)
        rate = rate_of(kind, time, generator)
        counts = generator.poisson(1e-4 * ran_ns * rate)
        seen = rotation(SETS, slices // SETS, generator, fixed=fixed) == 0
        scaled = scale_slices(counts[seen], ran_ns[seen], float(ran_ns.sum())).interval()
        covered += scaled.low <= counts.sum() <= scaled.high
    return covered / 600


@pytest.mark.parametrize("kind", ["steady", "drifting", "bursty"])
def test_the_interval_covers(kind: str) -> None:
    assert coverage(kind) >= 0.93


@pytest.mark.parametrize("kind", ["spiky", "periodic"])
def test_the_interval_nearly_covers_where_few_slices_hold_most(kind: str) -> None:
    assert coverage(kind) >= 0.87


def test_six_slices_are_too_few_for_spikes() -> None:
    assert coverage("spiky", slices=24) < 0.8  # what the documentation admits


@pytest.mark.parametrize(("kind", "most"), [("drifting", 0.4), ("periodic", 0.01)])
def test_in_a_fixed_order_the_interval_cannot_know(kind: str, most: float) -> None:
    assert coverage(kind, fixed=True) <= most


def test_what_was_seen_all_the_time_is_exact() -> None:
    scaled = scale_slices([5, 7], [1e7, 2e7], 3e7)
    assert tuple(scaled) == (12, 0, math.inf)
    assert tuple(scaled.interval()) == (12, 12, 12)


def test_the_ratio_estimator_by_hand() -> None:
    # R = 12/4 = 3; residuals -1, 1, 0; s^2 = (4 + 1) / 4; half of the time was seen
    scaled = scale_slices([2, 4, 6], [1, 1, 2], 8)
    assert scaled.value == pytest.approx(24)
    assert scaled.error == pytest.approx(math.sqrt(0.5 * 3 * 1.25) * 2)
    assert scaled.freedom == pytest.approx(8 / 5)


def test_one_slice_has_an_estimate_and_no_uncertainty() -> None:
    scaled = scale_slices([10], [1e7], 4e7)
    assert scaled.value == 40
    assert math.isnan(scaled.error)
    assert math.isnan(scaled.interval().low)


def test_slices_in_which_the_program_did_not_run_change_nothing() -> None:
    without = scale_slices([100, 120], [1e7, 1e7], 6e7)
    assert scale_slices([100, 0, 120], [1e7, 0, 1e7], 6e7) == without


def test_slices_need_a_time_each() -> None:
    with pytest.raises(UserError, match="one count and one time each"):
        scale_slices([1, 2], [1e7], 3e7)


# --- totals of the kernel's rotation -------------------------------------------------------------


def test_no_event_seen_in_a_part_of_the_time_may_be_one_unseen() -> None:
    estimate, error = scale_totals(0, 4e8, 1e8)
    assert estimate == 0
    assert error == pytest.approx(4 * math.sqrt(0.75))


@given(value=st.integers(0, 10**15), running=st.integers(1, 10**12), more=st.integers(0, 10**12))
def test_a_total_is_never_below_what_was_seen(value: int, running: int, more: int) -> None:
    estimate, error = scale_totals(value, running + more, running)
    assert estimate >= value * (1 - 1e-12)
    assert error >= 0


def test_the_assumed_uncertainty_covers_rates_that_are_off_half_the_time() -> None:
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(500):  # 100 turns of 4 ms of four sets, on and off by chance
        rate = 2.0 * (generator.random(100) < 0.5)
        seen = rotation(SETS, 25, generator) == 0
        estimate, error = scale_totals(1000 * rate[seen].sum(), 4e8, 1e8, slice_ns=4e6, scatter=1.0)
        covered += abs(float(estimate) - 1000 * rate.sum()) <= 1.96 * float(error)
    assert covered / 500 >= 0.9
