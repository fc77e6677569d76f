"""What a table of samples says, on a simulated machine whose levels are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from perflib.experiments.memory_levels import tables
from perflib.experiments.memory_levels.table import MemoryTable, data_caches, primary, tlb_reaches
from tests.experiments.memory_levels.memory_samples import (
    CACHES,
    CYCLES,
    KIB,
    MEMORY_NS,
    MHZ,
    MIB,
    REACH,
    REQUIRED,
    SIZES,
    latency_ns,
    machine,
    samples,
)

WINDOW = ("window", "4k")


def test_machines_claims() -> None:
    assert data_caches(machine(), 0) == CACHES
    assert data_caches({}, 0) == {}
    assert tlb_reaches(machine())["second-level TLB"] == REACH
    assert tlb_reaches(machine(tlbs=False)) == {}


def test_claims_of_cores_that_differ() -> None:
    """Efficient cores beside fast ones: the levels are those of the cores like the first."""
    other = machine()
    small = {"level": 2, "kind": "unified", "size_bytes": MIB // 2, "shared_by": ["3"]}
    other["caches"] = [cache for cache in other["caches"] if cache["level"] != 2] + [
        {"level": 2, "kind": "unified", "size_bytes": MIB, "shared_by": ["0", "1-2"]},
        small,
    ]
    table = MemoryTable(samples(cores=(1, 2, 3), rounds=2), other)
    assert table.claims["L2"] == MIB
    assert data_caches(other, 3)["L2"] == MIB // 2
    assert table.alike == [1, 2]


def test_curve_is_the_machines() -> None:
    table = MemoryTable(samples(rounds=30, drift=0.0), machine())
    for order, backing in itertools.product(("window", "random", "sequential"), ("4k", "thp")):
        curve = table.curve(order, backing)
        truth = latency_ns(np.array(SIZES, dtype=float), order, backing == "thp", MHZ, 40.0)
        assert curve["array_bytes"].tolist() == list(SIZES)
        assert np.abs(np.log(curve["latency_ns"] / truth)).max() < 0.02
        inside = (curve["latency_ns_low"] < 1.004 * truth) & (
            0.996 * truth < curve["latency_ns_high"]
        )
        assert inside.mean() > 0.8


def test_minimum_in_caches_and_median_in_memory() -> None:
    """Half of the repeats take twice as long; in memory one in five is fast by chance."""
    made = samples(noise=0.001, tails=0.0, drift=0.0)
    slower = made["repeat"].isin([1, 2]) & (made["array_bytes"] <= CACHES["L3"])
    fast = (made["repeat"] == 0) & (made["array_bytes"] > CACHES["L3"])
    made["latency_ns"] *= np.where(slower, 2.0, np.where(fast, 0.5, 1.0))
    found = tables.levels(MemoryTable(made, machine())).set_index("level")["latency_ns"]
    assert found["L1d"] == pytest.approx(CYCLES[0] * 1000 / MHZ, rel=0.02)
    assert found["L3"] == pytest.approx(CYCLES[2] * 1000 / MHZ, rel=0.04)
    assert found["memory"] == pytest.approx(MEMORY_NS, rel=0.04)


def test_statistic_does_not_draw_a_level_where_a_cache_claims_to_end() -> None:
    """One flat level, repeats that scatter by half: the minimum lies far below the median."""
    for seed in range(3):
        made = samples(seed, flat=True, noise=0.01)
        generator = np.random.default_rng(seed)
        made["latency_ns"] *= np.exp(np.abs(generator.normal(0, 0.5, len(made))))
        made["latency_cycles"] = made["latency_ns"] * made["core_mhz"] / 1000
        assert len(MemoryTable(made, machine()).levels) == 1


def test_clock_that_halves_doubles_ns_and_leaves_cycles() -> None:
    full = MemoryTable(samples(drift=0.0), machine())
    half = MemoryTable(samples(drift=0.0, clock=lambda *_: MHZ / 2), machine())
    ours, theirs = (tables.levels(table).set_index("level") for table in (full, half))
    for name in CACHES:
        assert theirs["latency_ns"][name] == pytest.approx(2 * ours["latency_ns"][name], rel=0.03)
        assert theirs["latency_cycles"][name] == pytest.approx(
            ours["latency_cycles"][name], rel=0.03
        )
    # Memory has a clock of its own.
    assert theirs["latency_ns"]["memory"] == pytest.approx(ours["latency_ns"]["memory"], rel=0.03)


def test_clock_that_changes_within_the_run_leaves_the_levels() -> None:
    made = samples(drift=0.0, rounds=12, clock=lambda round_, _cpu: MHZ / (1 + round_ % 2))
    table = MemoryTable(made, machine())
    assert table.unit == "latency_cycles"
    found = tables.levels(table).set_index("level")
    assert list(found.index) == ["L1d", "L2", "L3", "memory"]
    assert found["latency_cycles"]["L1d"] == pytest.approx(CYCLES[0], rel=0.02)
    assert found["latency_ns_high"]["L1d"] > 1.2 * found["latency_ns_low"]["L1d"], (
        "ns depend on the clock"
    )


def test_frequency_is_the_highest_that_a_trial_saw() -> None:
    made = samples(drift=0.0, noise=0.001)
    slowed = made["repeat"] < 4
    made.loc[slowed, "core_mhz"] /= 3
    made["latency_cycles"] = made["latency_ns"] * made["core_mhz"] / 1000
    found = tables.levels(MemoryTable(made, machine()))
    assert found["latency_cycles"][0] == pytest.approx(CYCLES[0], rel=0.02)


def test_repeats_that_were_preempted_are_left_out_unless_there_are_no_others() -> None:
    made = samples(tails=0.0, noise=0.001, drift=0.0)
    pushed = (made["repeat"] < 3) | (made["array_bytes"] == SIZES[0])
    made["involuntary_switches"] = pushed.astype(int)
    made.loc[pushed, "latency_ns"] *= 3
    values = np.exp(MemoryTable(made, machine()).values(*WINDOW))[:, 0]
    ns = CYCLES[0] * 1000 / MHZ
    assert values[:, 1] == pytest.approx(ns, rel=0.02)
    assert values[:, 0] == pytest.approx(3 * ns, rel=0.02)


def test_cycles_of_a_user_are_taken_as_they_are() -> None:
    made = samples(rounds=2)[REQUIRED].assign(latency_cycles=7.0)
    table = MemoryTable(made, machine())
    assert np.exp(table.values(*WINDOW, "latency_cycles")) == pytest.approx(7.0)


def test_parts_of_the_curve() -> None:
    table = MemoryTable(samples(rounds=2), machine())
    assert table.sizes[table.beyond(32 * MIB)].tolist() == [s for s in SIZES if s >= 64 * MIB]
    assert table.sizes[table.beyond(0)].tolist() == [s for s in SIZES if s >= 64 * MIB * 0.98]
    assert table.sizes[table.beyond(MIB << 20)].min() >= 0.49 * 128 * MIB
    assert table.sizes[table.within(32 * KIB)].max() == 16 * KIB
    assert table.within(1) == [0]


def test_one_round_has_no_interval() -> None:
    table = MemoryTable(samples(rounds=1), machine())
    assert table.curve(*WINDOW)["latency_ns_low"].isna().all()
    assert table.half_width == math.inf
    assert tables.levels(table)["latency_ns_low"].isna().all()


@pytest.mark.parametrize(
    ("orders", "expected"),
    [
        (["sequential", "random", "window"], "window"),
        (["random", "lmbench"], "random"),
        (["mine", "sequential"], "sequential"),
        (["mine", "theirs"], "mine"),
    ],
)
def test_order_in_which_levels_are_looked_for(orders: list[str], expected: str) -> None:
    assert primary(orders, ["thp", "4k"]) == (expected, "4k")


def test_repeats_above_their_minimum() -> None:
    made = samples(noise=0.001, tails=0.0, drift=0.0)
    made.loc[made["repeat"] > 0, "latency_ns"] *= 1.5
    frame = tables.repeats(MemoryTable(made, machine()))
    assert frame["array_bytes"].tolist() == list(SIZES)
    assert frame["above_percent"].to_numpy(float) == pytest.approx(50, abs=1)
