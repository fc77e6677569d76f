"""Steps in simulated series of days; the noise is none that `find_steps` assumes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.series import MIN_DAYS, MIN_VALUES, StepChange, find_steps

Floats = NDArray[np.float64]

DAY_S = 86400.0
MONDAY_S = 20454 * DAY_S + 0.3 * DAY_S  # 1 January 2026 was a Thursday
THRESHOLD = 0.01


def two_weeks(
    rng: np.random.Generator,
    *,
    step: float = 0.0,
    days: int = 14,
    per_day: int = 8,
    drift: float = 0.01,
    load: float = 0.01,
) -> tuple[Floats, Floats, int]:
    """Times, values, and the index of the step: drift, working hours, days that differ by
    themselves, and skewed noise that remembers the last value."""
    n = days * per_day
    time_s = MONDAY_S + np.arange(n) * DAY_S / per_day + rng.uniform(0, 1800, n)
    hour, weekday = (time_s / 3600) % 24, (time_s // DAY_S + 3) % 7
    values = drift * np.linspace(0, 1, n) ** 1.3
    values += load * ((weekday < 5) & (hour > 8) & (hour < 17))
    which = ((time_s - time_s[0]) // DAY_S).astype(int)
    values += 0.003 * rng.standard_t(4, which[-1] + 1)[which]
    noise = (rng.gamma(2, 1, n) - 2) / np.sqrt(2)
    for i in range(1, n):
        noise[i] += 0.5 * noise[i - 1]
    values += 0.005 * noise
    at = int(n * rng.uniform(0.25, 0.75))
    values[at:] += step
    return time_s, values, at


def find_step(time_s: Floats, values: Floats, resamples: int = 499) -> StepChange | None:
    return find_steps(time_s, values[:, None], resamples=resamples)[0]


def is_shown(found: StepChange | None) -> bool:
    """Whether the step would be reported: rarely by chance, and more than the threshold."""
    assert found is not None
    return found.p <= 0.01 and (found.size.low > THRESHOLD or found.size.high < -THRESHOLD)


@pytest.mark.parametrize("load", [0.01, 0.03])
def test_drift_and_working_hours_are_no_step(load: float) -> None:
    rng = np.random.default_rng(7)
    shown = [
        is_shown(find_step(*two_weeks(rng, load=load, drift=load)[:2], resamples=299))
        for _ in range(60)
    ]
    assert sum(shown) <= 3


@pytest.mark.parametrize("sign", [1, -1])
def test_one_step_is_found_with_its_date_and_size(sign: int) -> None:
    rng = np.random.default_rng(8)
    shown = dated = sized = 0
    for _ in range(40):
        time_s, values, at = two_weeks(rng, step=sign * 0.05)
        found = find_step(time_s, values, resamples=299)
        assert found is not None
        shown += is_shown(found)
        dated += found.first <= at <= found.last
        sized += found.size.low <= sign * 0.05 <= found.size.high
    assert shown >= 36
    assert dated >= 34
    assert sized >= 30


def test_a_bad_run_is_no_step_and_hides_none() -> None:
    rng = np.random.default_rng(9)
    time_s, values, _ = two_weeks(rng, load=0.0)
    values[40] += 1.0
    assert not is_shown(find_step(time_s, values))
    time_s, values, at = two_weeks(rng, step=0.05, load=0.0)
    values[at - 9] += 1.0
    found = find_step(time_s, values)
    assert is_shown(found)
    assert found is not None
    assert found.first <= at <= found.last


def test_too_little_gives_no_step() -> None:
    rng = np.random.default_rng(10)
    time_s, values, _ = two_weeks(rng, step=0.1)
    assert find_step(time_s[: MIN_VALUES - 1], values[: MIN_VALUES - 1]) is None
    few_days = time_s < time_s[0] + (MIN_DAYS - 1) * DAY_S
    assert find_step(time_s[few_days], values[few_days]) is None
    assert find_step(time_s, np.full(len(time_s), 2.5)) is None
    assert find_step(time_s[:0], values[:0]) is None


def test_a_long_series_is_searched_at_fewer_places() -> None:
    time_s, values, at = two_weeks(np.random.default_rng(12), step=0.05, days=60, per_day=24)
    found = find_step(time_s, values, resamples=99)
    assert found is not None
    assert abs(found.at - at) <= 24


def test_a_hundred_series_are_corrected_together() -> None:
    rng = np.random.default_rng(13)
    time_s = two_weeks(rng)[0]
    healthy = np.column_stack([two_weeks(rng, load=0.0)[1] for _ in range(100)])
    assert not any(map(is_shown, find_steps(time_s, healthy)))
    healthy[50:, 70] += 0.08
    healthy[3, 70] = np.nan
    found = find_steps(time_s, healthy)
    assert is_shown(found[70])
    assert not any(is_shown(one) for i, one in enumerate(found) if i != 70)


def test_a_series_of_few_values_is_left_out() -> None:
    rng = np.random.default_rng(14)
    time_s, values, _ = two_weeks(rng, step=0.1)
    table = np.column_stack([values, np.where(np.arange(len(values)) < 12, values, np.nan)])
    whole, few = find_steps(time_s, table)
    assert whole is not None
    assert few is None
