"""Excesses of functions, on simulated machines whose truth is known."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.excess import Excesses, excesses
from tests.slow import mostly_slow
from tests.stats.simulated import at_least, at_most
from tests.stats.two_profiles import SHARES, Busy, Profiled, recorded, simulated

Floats = NDArray[np.float64]


@functools.cache
def excesses_of(machine: Profiled, runs: int) -> tuple[Excesses, ...]:
    generator = np.random.default_rng(7)
    return tuple(excesses(*simulated(machine, generator), alpha=0.05) for _ in range(runs))


# --- the excess: false alarms, coverage, power ---------------------------------------------------

NULLS = {
    "5 rounds": Profiled(5),
    "8 rounds, 12 % slower": Profiled(8, factor=1.12),
    "40 rounds": Profiled(40),
    "20 rounds, all 12 % slower": Profiled(20, factor=1.12),
    "20 rounds, long events": Profiled(20, samples=5000),
    "8 rounds, functions vary by 10 %": Profiled(8, own=0.1),
    "20 rounds, functions vary by 10 %": Profiled(20, own=0.1, factor=1.12),
}
QUICK_NULLS = ("5 rounds", "8 rounds, 12 % slower", "20 rounds, functions vary by 10 %")
RUNS = 200


@pytest.mark.parametrize("machine", mostly_slow(NULLS, QUICK_NULLS))
def test_null_no_function_is_named_more_often_than_stated(machine: Profiled) -> None:
    wrong = sum(bool(found.named) for found in excesses_of(machine, RUNS))
    assert wrong <= at_most(RUNS, 0.05)


def test_null_the_rate_is_not_far_below_what_is_stated_either() -> None:
    """A test that never fires would pass the one above."""
    wrong = [bool(found.named) for name in QUICK_NULLS for found in excesses_of(NULLS[name], RUNS)]
    assert sum(wrong) >= at_least(len(wrong), 0.025)


def covered(machine: Profiled, runs: int) -> Floats:
    """How often each function's interval covers the truth."""
    truth = np.log(machine.growth / machine.factor)
    hits = np.zeros(SHARES.size)
    for found in excesses_of(machine, runs):
        low, high = found.interval(0.95)
        hits += (low <= truth) & (truth <= high)
    return hits


@pytest.mark.parametrize(
    "machine",
    mostly_slow(
        NULLS
        | {
            "one +30 %": Profiled(20, samples=3000, one=((1, 1.3),)),
            "a small one tenfold": Profiled(40, one=((17, 10.0),)),
        },
        (*QUICK_NULLS, "one +30 %"),
    ),
)
def test_intervals_cover_as_often_as_they_say(machine: Profiled) -> None:
    runs = RUNS
    hits = covered(machine, runs)
    # Wider than they need be by what a fluctuation could explain, which here is none.
    assert hits.mean() / runs >= 0.935
    # A single function's interval: half of the noise of the functions may be their own.
    assert hits.min() >= at_least(runs, 0.93)


@pytest.mark.parametrize("rounds", [5, 10, 40])
def test_a_function_made_ten_percent_costlier_is_named_first(rounds: int) -> None:
    """Share 15 %, counted in 60 s of samples each, whatever the number of rounds."""
    machine = Profiled(rounds, samples=90_000 // rounds, one=((1, 1.1),))
    found = excesses_of(machine, 60)
    assert sum(one.named[:1] == (1,) for one in found) >= at_least(60, 0.95)
    others = sum(len(one.named) > 1 for one in found)
    assert others <= at_most(60, 0.05)


@pytest.mark.parametrize("seed", range(3))
def test_one_odd_round_names_nobody(seed: int) -> None:
    """In one round a function took ten times as long: page faults, a neighbour's cache."""
    first, second = simulated(Profiled(10, samples=2000), np.random.default_rng(seed))
    second[3, 6] *= 10
    assert excesses(first, second, 0.05).named == ()


def test_a_function_that_varies_much_is_judged_by_itself() -> None:
    """Of 18 functions two vary by a factor of two or so each event: they are not named for it."""
    generator = np.random.default_rng(5)
    own = np.zeros(SHARES.size)
    own[[3, 10]] = 0.7
    wrong = 0
    for _ in range(200):
        counts = [
            generator.poisson(3000 * SHARES * np.exp(generator.normal(0, 1, (10, 18)) * own))
            for _ in range(2)
        ]
        wrong += bool(excesses(counts[0].astype(float), counts[1].astype(float), 0.05).named)
    assert wrong <= at_most(200, 0.07)


def test_rounds_of_different_events_may_be_mixed() -> None:
    """Shares differ from round to round; only what differs within rounds counts."""
    generator = np.random.default_rng(2)
    shares = generator.dirichlet(20 * SHARES, 30)
    wrong = 0
    for _ in range(100):
        length = generator.lognormal(7, 1, (30, 1))
        first, second = generator.poisson(length * shares), generator.poisson(1.3 * length * shares)
        wrong += bool(excesses(first.astype(float), second.astype(float), 0.05).named)
    assert wrong <= at_most(100, 0.05)


def test_changes_of_large_functions_do_not_accuse_the_others() -> None:
    """One vanishes, one is new, at few rounds, with bursts: rarely is any other named."""
    generator = np.random.default_rng(9)
    right = 0
    for rounds in (3, 5, 10) * 40:
        first, second = simulated(Profiled(rounds, samples=5000), generator)
        first[:, 2], second[:, 3] = 0, 0
        right += set(excesses(first, second, 0.05).named) == {2, 3}
    assert right >= at_least(120, 0.94)


def test_counting_alone_has_its_own_rate_and_coverage() -> None:
    """Without scatter of events, one round's intervals cover, and name nobody too often."""
    machine = Profiled(1, samples=3000, burst=0)
    found = excesses_of(machine, 300)
    assert sum(bool(one.named) for one in found) <= at_most(300, 0.05)
    assert covered(machine, 300).mean() / 300 == pytest.approx(0.95, abs=0.015)


# --- a busy machine ------------------------------------------------------------------------------

BUSY = {
    "a sibling half of the time": Busy(shared=(0.5, 0.5)),
    "more often on one core": Busy(shared=(0.2, 0.6)),
    "on one core only": Busy(shared=(0.0, 0.6)),
    "nearly always on one": Busy(shared=(0.0, 0.9)),
    "for milliseconds": Busy(shared=(0.2, 0.6), burst_s=0.02),
    "8 rounds": Busy(8),
    "none": Busy(shared=(0.0, 0.0)),
}
QUICK_BUSY = ("more often on one core", "8 rounds", "none")


@functools.cache
def named_on(machine: Busy, runs: int) -> tuple[tuple[int, ...], ...]:
    generator = np.random.default_rng(3)
    return tuple(excesses(*recorded(machine, generator), alpha=0.05).named for _ in range(runs))


@pytest.mark.parametrize("machine", mostly_slow(BUSY, QUICK_BUSY))
def test_null_a_busy_sibling_that_functions_feel_unequally_names_none(machine: Busy) -> None:
    runs = 60
    assert sum(map(bool, named_on(machine, runs))) <= at_most(runs, 0.05)


@pytest.mark.slow
def test_null_on_busy_machines_together_the_rate_is_what_is_stated() -> None:
    wrong = [bool(named) for machine in BUSY.values() for named in named_on(machine, 60)]
    assert sum(wrong) <= at_most(len(wrong), 0.05)


def test_a_slower_core_may_hide_what_fluctuates_unless_samples_were_taken_alone() -> None:
    """All but one function 12 % slower, and that one a quarter: the whole may do that to it."""
    generator = np.random.default_rng(4)
    machine = Busy(shared=(0.0, 0.0), growth=1.25)
    runs = [recorded(machine, generator) for _ in range(12)]
    slow = [(first, np.rint(1.12 * second)) for first, second in runs]
    careful = sum(1 in excesses(*one, alpha=0.05).named for one in slow)
    alone = sum(excesses(*one, alpha=0.05, fluctuates=False).named == (1,) for one in slow)
    assert alone >= at_least(12, 0.9) >= careful
