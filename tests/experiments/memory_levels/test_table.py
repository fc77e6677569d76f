"""What a table of samples says, on a simulated machine whose levels are known."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.experiments.memory_levels import tables
from perflib.experiments.memory_levels.table import MemoryTable, data_caches, primary
from tests.experiments.memory_levels.memory_samples import (
    CACHES,
    CYCLES,
    KIB,
    MEMORY_NS,
    MHZ,
    MIB,
    REQUIRED,
    SIZES,
    machine,
    samples,
)

WINDOW = ("window", "4k")


def test_claims_of_cores_that_differ() -> None:
    """Efficient cores next to fast ones: the levels are those of the cores like the first."""
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
