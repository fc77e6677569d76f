"""What trials of threads say: times, concurrency, waits, and what a point costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflib.experiments.threads.table import ThreadTable, removed
from tests.experiments.threads.thread_samples import SHARES, network, samples

ONE_POINT = {"Final": ("output",)}


def test_a_loop_that_was_not_recorded_whole_is_not_compared_with_its_self_report() -> None:
    frame = samples(rounds=4)
    frame["recorded_s"] *= 0.5
    table = ThreadTable(frame)
    assert all(math.isnan(one.apart.effect) for one in table.waits("Initial"))


def test_the_histogram_shares_the_time_of_all_trials() -> None:
    frame = samples(versions=ONE_POINT, rounds=4)
    profiled = frame["configuration"] == "profiled"
    frame.loc[profiled, "concurrency_s"] = ["[1, 2, 3]", "[1, 2]", "[0, 0, 1]", "[]"]
    assert ThreadTable(frame).histogram("Final") == pytest.approx([0.2, 0.4, 0.4])
    frame["concurrency_s"] = "[0, 0]"
    assert ThreadTable(frame).histogram("Final").tolist() == [0, 0]


# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 8])
def test_intervals_cover_what_they_say(threads: int) -> None:
    """Of 60 runs with a profile that costs 2 %, some three miss it."""
    inside = np.zeros(3)
    for seed in range(60):
        frame = samples(seed, versions=ONE_POINT, threads=threads, rounds=12, cost=0.02)
        table = ThreadTable(frame)
        truths = (
            (table.overhead("Final"), 100 * math.expm1(0.02)),
            (table.speedup("Final"), threads * (1 - SHARES["output"])),
            (table.gain("Final", "output").measured, 100 * SHARES["output"]),
        )
        inside += [one.low <= truth <= one.high for one, truth in truths]
    assert (inside >= 52).all(), inside


# --- what a synchronisation point costs ----------------------------------------------------------


def test_a_point_gains_no_more_than_the_cpus_allow() -> None:
    """Four threads on two CPUs that are busy to 95 %: without waiting they are busy to 100 %."""
    frame = samples(versions=ONE_POINT, shares={"output": 0.5}, threads=4, rounds=4)
    frame["cpus"] = 2
    frame["running_s"] = 0.95 * 2 * frame["recorded_s"]
    gain = ThreadTable(frame).gain("Final", "output")
    assert gain.bound.effect == pytest.approx(5, rel=1e-6)
    assert gain.expected.effect <= gain.bound.effect


def test_spinning_may_go_with_any_point() -> None:
    frame = samples(versions=ONE_POINT, rounds=4)
    frame["spinning_s"] = 0.1 * frame["threads"] * frame["recorded_s"]
    frame["running_s"] -= frame["spinning_s"]
    gain = ThreadTable(frame).gain("Final", "output")
    assert gain.bound.effect == pytest.approx(100 * SHARES["output"] + 10, rel=0.1)


@pytest.mark.parametrize("threads", [2, 4, 8])
@pytest.mark.parametrize("scatter", [0.3, 1.0])
def test_the_network_expects_what_a_simulation_gains(threads: int, scatter: float) -> None:
    """No gain is above the bound, and the network's is at least as near as the bound's."""
    generator = np.random.default_rng(threads)
    for held in ([0.1, 0.1], [0.3, 0.1], [0.3, 0.3], [0.2, 0.1, 0.1, 0.05, 0.3]):
        whole_s, waits = network(generator, threads, held, scatter)
        bounds = np.array(waits) / (threads * whole_s)
        expected = removed(bounds, threads)
        for lock, bound in enumerate(bounds):
            without_s, _ = network(generator, threads, held, scatter, off=(lock,))
            gained = 1 - without_s / whole_s
            noise = 0.03
            assert gained < bound + noise
            assert expected[lock] <= bound
            assert abs(expected[lock] - gained) < abs(bound - gained) + noise
            if scatter == 1.0:  # what the network takes for granted
                assert expected[lock] == pytest.approx(gained, abs=0.05)


def test_the_network_at_its_ends() -> None:
    def gains(waiting: list[float], threads: int) -> list[float]:
        return [float(one) for one in removed(np.array(waiting), threads)]

    assert gains([], 8) == []
    assert gains([0.0, 0.0], 8) == [0.0, 0.0]
    assert gains([0.2], 1) == [0.2]  # nobody is there to wait for
    assert gains([0.7, 0.6], 4) == [0.7, 0.6]  # no time was left: nothing can be said
    assert gains([0.3], 4) == pytest.approx([0.3])  # with one lock all of it is gained
    both = gains([0.31, 0.31], 8)
    assert both[0] < 0.16  # the other limits then
    assert both[0] == pytest.approx(both[1], abs=1e-3)
    several = removed(np.array([[0.31, 0.31], [0.3, 0.0]]), 8)  # rounds side by side
    assert several[0].tolist() == pytest.approx(both, abs=1e-4)
    assert several[1].tolist() == pytest.approx([0.3, 0.0], abs=1e-4)
