"""How much of each core one has: by simulated records, and whatever this machine gives."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib import kernels
from perflib.machine.activity.sharing import core_shares, shares_of, watch_s

ALONE_NS, CHAIN_NS, SLICE_NS = 4070.0, 1740.0, 25_000


def records(count: int, shared: float, seed: int = 1) -> NDArray[Any]:
    """A core whose sibling works for a part of the time, in segments of a hundred samples."""
    rng = np.random.default_rng(seed)
    made = np.zeros(count, kernels.record("bracket", "bracket"))
    busy = np.repeat(rng.random(count // 100 + 1) < shared, 100)[:count]
    for name in ("probe_before_ns", "probe_after_ns"):
        made[name] = ALONE_NS * np.where(busy, 1.4, 1) * (1 + 0.002 * rng.random(count))
    for name in ("chain_before_ns", "chain_after_ns"):
        made[name] = CHAIN_NS * np.where(busy, 1.03, 1) * (1 + 0.002 * rng.random(count))
    made["time_ns"] = made["cpu_time_ns"] = SLICE_NS
    return made


def test_what_each_core_gives() -> None:
    samples = {0: records(4000, 0.0), 1: records(4000, 0.6, seed=2)}
    alone, shared = shares_of(samples)
    assert (alone.cpu, shared.cpu, shared.samples) == (0, 1, 4000)
    assert alone.status == shared.status == "calibrated"
    assert alone.alone_percent == 100
    assert np.isnan(alone.sibling_cost_percent)
    truth = 100 * np.mean(samples[1]["probe_before_ns"] < 1.2 * ALONE_NS)
    assert shared.alone_percent == pytest.approx(truth, abs=0.5)
    assert shared.sibling_cost_percent == pytest.approx(40, abs=0.5)
    assert shared.taken_percent == shared.stolen_percent == 0


def test_what_others_take_and_what_the_hypervisor_takes() -> None:
    made = records(4000, 0.5)
    made["time_ns"][::100] += 2_000_000  # another task had the core
    made["run_delay_ns"][::100] = 2_000_500  # a part of it before the clock was read
    made["time_ns"][50::200] += 3_000_000  # nobody here
    made["time_ns"][7::10] += 5_000  # interrupts
    (share,) = shares_of({0: made})
    wall = made["time_ns"].sum()
    assert share.taken_percent == pytest.approx(100 * 40 * 2e6 / wall, rel=0.02)
    assert share.stolen_percent == pytest.approx(100 * 20 * 3e6 / wall, rel=0.02)


def test_one_state_alone_shows_nothing() -> None:
    (share,) = shares_of({3: records(4000, 0.0)})
    assert share.status == "no second state"
    assert np.isnan(share.alone_percent)
    assert json.loads(json.dumps(share.to_dict()))["alone_percent"] is None


def test_no_probes_no_samples_and_no_run_delay() -> None:
    made = records(300, 0.5)
    made["probe_before_ns"] = made["probe_after_ns"] = -1
    made["run_delay_ns"] = -1
    none, empty = shares_of({0: made, 1: made[:0]})
    assert none.status == empty.status == "no probes"
    for share in (none, empty):
        assert np.isnan([share.alone_percent, share.taken_percent, share.stolen_percent]).all()


def test_many_cores_are_looked_at_in_three_seconds() -> None:
    looked = [watch_s(cores) for cores in (1, 2, 20, 24, 384)]
    assert looked == pytest.approx([1.5, 1.5, 2.0, 2.4, 3.0])


def test_this_machine_is_probed_and_the_caller_stays_where_it_is() -> None:
    allowed = os.sched_getaffinity(0)
    shares = core_shares(sorted(allowed), 0.1)
    assert os.sched_getaffinity(0) == allowed
    assert [share.cpu for share in shares] == sorted(allowed)
    for share in shares:
        assert share.status != "calibrated" or 0 <= share.alone_percent <= 100
        assert np.isnan(share.taken_percent) or 0 <= share.taken_percent <= 100
