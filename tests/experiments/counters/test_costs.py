"""What counting costs, estimated from segments of a job and from whole jobs, on busy machines."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.counters.costs import by_slices, cost_of_counting
from perflib.experiments.counters.modes import ONE_SET, SAMPLED
from perflib.model.finding import Finding
from tests.experiments.counters.busy import MODES, slices, whole_jobs
from tests.experiments.judged import made_run, supported
from tests.stats.two_profiles import at_most

COUNTERS = get("counters")
TRUE = dict.fromkeys(MODES, 0.002) | {SAMPLED: 0.015}
SHARED = (0.0, 0.5, 0.8)
RUNS = 16


def findings(table: pd.DataFrame) -> list[Finding]:
    return COUNTERS.analyse(made_run(COUNTERS, table))


@functools.cache
def costs_of(shared: float, probes: bool) -> tuple[pd.DataFrame, ...]:
    generator = np.random.default_rng(5)
    return tuple(
        cost_of_counting(
            by_slices(slices(generator, TRUE, shared=shared, probes=probes), "cpu_time_ns")
        )
        for _ in range(RUNS)
    )


@pytest.mark.parametrize("probes", [True, False], ids=["probes", "no probes"])
@pytest.mark.parametrize("shared", SHARED)
def test_intervals_cover_what_counting_really_costs(shared: float, probes: bool) -> None:
    missed = 0
    for table in costs_of(shared, probes):
        for row in table.to_dict("records"):
            true = 100 * TRUE[row["mode"]]
            missed += not row["cost_percent_low"] <= true <= row["cost_percent_high"]
    assert missed <= at_most(RUNS * len(MODES), 0.06)


@pytest.mark.parametrize("shared", SHARED)
def test_slices_that_had_their_core_for_themselves_tell_costs_apart(shared: float) -> None:
    widest = [
        float((table["cost_percent_high"] - table["cost_percent_low"]).max()) / 2
        for table in costs_of(shared, True)
        if len(table)  # else no slice was alone in the whole run
    ]
    assert len(widest) > RUNS / 2
    assert np.median(widest) < 2.0


@pytest.mark.parametrize("probes", [True, False], ids=["probes", "no probes"])
def test_null_no_cost_is_claimed_of_segments_on_a_busy_machine(probes: bool) -> None:
    generator = np.random.default_rng(6)
    runs = [
        supported(findings(slices(generator, TRUE, shared=shared, probes=probes)))
        for shared in SHARED * 10
    ]
    assert sum(map(bool, runs)) <= at_most(len(runs), 0.05)


@pytest.mark.parametrize("shared", SHARED)
def test_null_no_cost_is_claimed_of_whole_jobs_on_a_busy_machine(shared: float) -> None:
    generator = np.random.default_rng(7)
    runs = [supported(findings(whole_jobs(generator, shared=shared))) for _ in range(100)]
    assert sum(map(bool, runs)) <= at_most(len(runs), 0.05)


def test_a_way_to_count_that_is_costly_is_named_on_a_busy_machine() -> None:
    generator = np.random.default_rng(8)
    costly = TRUE | {ONE_SET: 0.05}
    runs = [supported(findings(slices(generator, costly, shared=0.3))) for _ in range(10)]
    assert sum(run == ["one-set×1 cost"] for run in runs) >= 8


def test_the_begin_of_a_segment_does_not_count() -> None:
    table = slices(np.random.default_rng(9), shared=0.0)
    cold = table["slice"] < 3  # less than a millisecond
    table.loc[cold & (table["counted"] == 1), "cpu_time_ns"] *= 3
    costs = cost_of_counting(by_slices(table, "cpu_time_ns"))
    assert (costs["cost_percent_low"] < 0.5).all()


def test_slices_that_were_all_counted_cost_nothing_that_is_known() -> None:
    table = slices(np.random.default_rng(9))
    assert by_slices(table[table["counted"] == 1], "cpu_time_ns").empty
    assert by_slices(table.assign(cpu=-1), "cpu_time_ns").empty
