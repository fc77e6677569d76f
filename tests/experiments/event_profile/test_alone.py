"""Which samples of an event were taken while their core was alone, and what follows from them."""

from __future__ import annotations

import functools
import math

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.event_profile.alone import SLICE_COLUMNS, alone, slices_of_samples
from perflib.kernels import build, record
from perflib.model.finding import Finding
from tests.experiments.event_profile.profiles import FUNCTIONS
from tests.experiments.judged import made_run, supported
from tests.stats.two_profiles import at_most

EVENT = get("event_profile")
PERIOD_NS, SLICE_NS, SLICES = 250_000, 300_000, 6
SHARES = np.array([0.20, 0.16, 0.12, 0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03])
# By how much a busy sibling slows each function (log): from divisions to plain additions.
SENSITIVE = np.array([0.0, 0.5, 0.4, 0.3, 0.45, 0.2, 0.5, 0.35, 0.1, 0.4, 0.3])


def samples(
    seed: int,
    shared: tuple[float, float] = (0.0, 0.6),
    *,
    rounds: int = 12,
    events: int = 250,
    costlier: float = 1.0,
) -> pd.DataFrame:
    """Rows of two cores whose siblings are busy for so much of the time, in bursts of 2 s.

    Each recording is a process of its own, in which every function is off by 1.5 %; on core 1
    ``kv_locate`` costs ``costlier`` times as much.
    """
    generator = np.random.default_rng(seed)
    parts, now_s = [], 0.0
    steps = 10 * round(rounds * 2 * 1.5 * 100)
    busy = []
    for share in shared:
        state, on, at = np.zeros(steps, dtype=bool), generator.random() < share, 0
        while share > 0 and at < steps:
            until = at + 1 + round(100 * generator.exponential(4 * (share if on else 1 - share)))
            state[at:until], on, at = on, not on, until
        busy.append(state)
    for round_ in range(rounds):
        for core in generator.permutation(2):
            cost = SHARES * np.exp(generator.normal(0, 0.015, SHARES.size))
            cost[1] *= costlier if core == 1 else 1.0
            count = events * SLICES
            beside = busy[core][(100 * (now_s + 3e-4 * np.arange(count))).astype(int)]
            mean = cost * np.exp(np.where(beside[:, None], SENSITIVE, 0.0))
            total_ns = SLICE_NS * mean.sum(axis=1)
            start_ns = 1e9 * now_s + np.concatenate([[0], np.cumsum(total_ns + 6e3)[:-1]])
            taken = np.repeat(np.arange(count), generator.poisson(total_ns / PERIOD_NS))
            chance = np.cumsum(mean / mean.sum(axis=1, keepdims=True), axis=1)[taken]
            symbol = (generator.random((taken.size, 1)) > chance).sum(axis=1)
            probes = 4070 * np.exp(generator.normal(0, 0.001, (2, count)))
            probes *= np.where(beside, generator.uniform(1.15, 1.5, (2, count)), 1.0)
            parts.append(
                pd.DataFrame(
                    {
                        "round": round_,
                        "core": int(core),
                        "cpu": int(core),
                        "symbol": np.array(FUNCTIONS)[symbol],
                        "period": PERIOD_NS,
                        "event": "cpu-clock",
                        "slice": taken % SLICES,
                        "slice_start_ns": start_ns[taken].astype(np.int64),
                        "cpu_time_ns": total_ns[taken],
                        "run_delay_ns": 0,
                        "throttled_ns": 0,
                        "probe_before_ns": probes[0][taken],
                        "probe_after_ns": probes[1][taken],
                        "chain_before_ns": 1740.0,
                        "chain_after_ns": 1740.0,
                    }
                )
            )
            now_s += 1.2
    return pd.concat(parts, ignore_index=True)


def findings(table: pd.DataFrame) -> list[Finding]:
    return EVENT.analyse(made_run(EVENT, table))


@functools.cache
def of(seed: int, shared: tuple[float, float], costlier: float = 1.0) -> pd.DataFrame:
    return samples(seed, shared, costlier=costlier)


@pytest.mark.parametrize("shared", [(0.0, 0.6), (0.3, 0.7), (0.5, 0.5), (0.0, 0.0)])
def test_null_nothing_is_claimed_of_equal_cores_beside_busy_siblings(
    shared: tuple[float, float],
) -> None:
    runs = [supported(findings(of(seed, shared))) for seed in range(15)]
    assert sum(map(bool, runs)) <= at_most(len(runs), 0.05)


def test_null_nor_where_the_table_has_no_probes() -> None:
    tables = (of(seed, (0.3, 0.7)).drop(columns=[*SLICE_COLUMNS]) for seed in range(15))
    runs = [supported(findings(table)) for table in tables]
    named = [set(run) - {"event time"} for run in runs]  # it does take longer, with its sibling
    assert sum(map(bool, named)) <= at_most(len(runs), 0.05)


def test_a_costlier_function_is_found_beside_a_busy_sibling() -> None:
    runs = [supported(findings(of(seed, (0.2, 0.5), 1.25))) for seed in range(8)]
    assert sum("kv_locate" in run for run in runs) >= 7


def test_the_event_takes_as_long_as_on_a_core_that_is_alone() -> None:
    (longer, *_) = findings(of(1, (0.2, 0.4), 1.2))
    assert longer.low < 3.2 < longer.high  # 16 % of the event a fifth longer
    assert longer.high - longer.low < 4.0
    assert longer.reasons[-1].code == "alone"
    assert 40 < longer.reasons[-1].numbers["alone"] < 100


def test_samples_between_slices_are_left_out_and_old_tables_as_they_are() -> None:
    table = of(1, (0.3, 0.7))
    between = table.assign(**dict.fromkeys(SLICE_COLUMNS, np.nan))
    both = pd.concat([table, between], ignore_index=True)
    assert len(alone(both)[0]) == len(alone(table)[0])
    plain = table.drop(columns=[*SLICE_COLUMNS])
    same, percent = alone(plain)
    assert same is plain
    assert math.isnan(percent)


def test_a_core_that_is_never_alone_is_compared_by_all_samples() -> None:
    table = of(1, (0.0, 0.6))
    never = table["core"] == 1
    for name in ("probe_before_ns", "probe_after_ns"):
        table = table.assign(**{name: table[name].where(~never, 1.3 * table[name].median())})
    kept, percent = alone(table)
    assert (len(kept), percent) == (len(table), 0.0)
    longer, standing, *_ = findings(table)
    assert (longer.verdict, longer.reasons[0].code) == ("inconclusive", "shared")
    assert standing.verdict != "supported"


def test_where_no_sibling_ever_worked_nothing_fluctuates() -> None:
    kept, percent = alone(of(1, (0.0, 0.0)))
    assert (len(kept), percent) == (len(of(1, (0.0, 0.0))), 100.0)


def test_samples_find_the_slice_that_they_were_taken_in() -> None:
    slices = np.zeros(3, dtype=record(build("kv"), "kv_slice"))
    slices["slice"] = [0, 1, 0]
    slices["sample"]["start_ns"] = [100, 200, 300]
    slices["sample"]["time_ns"] = 90
    slices["sample"]["run_delay_ns"] = [-1, 7, 8]
    found = slices_of_samples(np.array([99, 100, 195, 289, 389, 390]), slices)
    assert set(found) == set(SLICE_COLUMNS)
    assert found["slice"] == [None, 0, None, 1, 0, None]
    assert found["run_delay_ns"] == [None, None, None, 7, 8, None]
    assert slices_of_samples(np.array([1]), slices[:0])["slice"] == [None]
