"""What the time of cores is made of, on rows that are worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from perflib.stats.decomposition import UNDIVIDED, Rows, decompose, mode


def rows(count: int = 4000, seed: int = 1, **given: Any) -> Rows:
    """Two cores by turns, 20 items of two groups, 8 batches; each value may be replaced."""
    random = np.random.default_rng(seed)
    item = random.integers(0, 20, count)
    cost = 1e5 * (1 + item % 7)
    cpu = cost * np.exp(random.normal(0, 0.003, count))
    values = {
        "core": np.arange(count) % 2,
        "batch": np.arange(count) * 8 // count,
        "item": item,
        "group": item // 10,
        "wall_ns": cpu,
        "cpu_ns": cpu,
        "delay_ns": np.zeros(count),
        "throttled_ns": np.full(count, np.nan),
        "clock": np.zeros(count),
        "usable": np.ones(count, dtype=bool),
        "shared": np.zeros(count, dtype=bool),
        "calibrated": np.ones(2, dtype=bool),
        **given,
    }
    return Rows(**values)


def test_the_mode_of_samples_of_which_a_third_is_longer_is_that_of_the_others() -> None:
    random = np.random.default_rng(2)
    found = []
    for _ in range(200):
        values = random.normal(0, 0.01, 300)
        values[:100] += random.exponential(0.08, 100)
        found.append((mode(values), np.median(values)))
    modes, medians = np.array(found).T
    assert abs(modes.mean()) < 0.003
    assert medians.mean() > 0.004


def test_an_item_seen_mostly_on_the_slow_core_is_not_taken_for_a_costly_one() -> None:
    random = np.random.default_rng(3)
    made = rows()
    gone = (made.core == 0) & (made.item < 5) & (random.random(len(made.core)) < 0.95)
    cpu = made.cpu_ns * np.where(made.core == 1, 1.05, 1.0)
    kept = {name: getattr(made, name) for name in ("core", "batch", "item", "group")}
    kept |= {"cpu_ns": cpu, "wall_ns": cpu}
    left = rows((~gone).sum(), **{name: values[~gone] for name, values in kept.items()})
    own = decompose(left).own[1].slowdown
    assert own.effect == pytest.approx(5.0, abs=0.1)
    assert own.low < 5 < own.high


@pytest.mark.parametrize("known_batch", [None, 2])
def test_a_core_whose_clock_is_rarely_known_is_not_slower_for_it(known_batch: int | None) -> None:
    """Both run at the same clock; of one the probes found a step alone that it rarely reaches."""
    made = rows()
    step = 0.05 + 0.02 * np.sin(made.batch)  # both cores, batch by batch
    cpu = made.cpu_ns * np.exp(step)
    clock = np.where(made.core == 0, step, np.nan)
    if known_batch is not None:
        clock[(made.core == 1) & (made.batch == known_batch)] = 0.0
    random = np.random.default_rng(4)
    clock[(made.core == 1) & (made.batch != 5) & (random.random(len(clock)) < 0.1)] = 0.0
    found = decompose(rows(cpu_ns=cpu, wall_ns=cpu, clock=clock))
    for core in found.own:
        assert abs(core.slowdown.effect) < 0.1
        assert core.slowdown.low < 0 < core.slowdown.high


def test_a_clock_that_one_sample_of_a_batch_shows_is_the_batchs() -> None:
    found = decompose(rows(16, clock=np.full(16, 0.1)))  # one sample of each core in each batch
    assert found.clock == pytest.approx(np.full((8, 2), 0.1))


def test_a_stop_is_of_other_tasks_of_a_quota_or_of_the_hypervisor() -> None:
    made = rows()
    away = np.where(made.core == 1, 0.25, 0.0) * made.cpu_ns
    for delay, throttled, expected in (
        (away, np.nan, (0.2, 0.0, 0.0)),
        (0 * away, np.nan, (0.0, 0.0, 0.2)),
        (0 * away, away, (0.2, 0.2, 0.0)),
        (away, away, (0.2, 0.2, 0.0)),
        (away / 2, away / 2, (0.2, 0.1, 0.0)),
    ):
        found = decompose(
            rows(wall_ns=made.cpu_ns + away, delay_ns=delay, throttled_ns=throttled + 0 * away)
        )
        shares = (found.taken_share, found.quota_share, found.stolen_share)
        assert [share[:, 1].mean() for share in shares] == pytest.approx(expected, abs=1e-6)
        assert [share[:, 0].max() for share in shares] == pytest.approx([0, 0, 0], abs=1e-9)


def test_without_accounts_what_is_missing_is_one_part() -> None:
    made = rows()
    found = decompose(rows(wall_ns=1.25 * made.cpu_ns, delay_ns=np.full(4000, np.nan)))
    assert found.taken_share.mean() == pytest.approx(0.2)
    assert np.isnan(found.stolen_share).all()
    assert dict(found.factors(0))["total"].effect == pytest.approx(1.25, rel=0.01)


def test_cpu_time_beyond_the_wall_time_breaks_nothing() -> None:
    made = rows()
    found = decompose(rows(wall_ns=0.999 * made.cpu_ns))
    factors = dict(found.factors(0))
    product = math.prod(factor.effect for name, factor in factors.items() if name != "total")
    assert product == pytest.approx(factors["total"].effect, rel=1e-9)
    assert (found.taken_share >= 0).all()


def test_a_core_without_usable_samples_has_a_total_and_an_undivided_part() -> None:
    made = rows()
    found = decompose(
        rows(
            cpu_ns=made.cpu_ns * np.where(made.core == 1, 1.4, 1.0),
            wall_ns=made.cpu_ns * np.where(made.core == 1, 1.4, 1.0),
            usable=made.core == 0,
            shared=made.core == 1,
            calibrated=np.array([True, False]),
        )
    )
    assert math.isnan(found.own[1].slowdown.effect)
    assert found.totals[1].slowdown.effect == pytest.approx(40, abs=1)
    assert next(name for name, _ in found.factors(1)) == UNDIVIDED
    assert dict(found.factors(1))[UNDIVIDED].effect == pytest.approx(1.4, rel=0.01)
