"""Probes by simulated distributions: reports are true, and what is unknown is not reported.

The simulation is not the analysis's model: the sibling comes and goes, its costs are smeared, the
clock of the probe has steps of 10 ns, and interrupts lengthen any probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from perflib.framework.brackets import classify
from perflib.stats.alone import (
    STATES,
    Calibration,
    Company,
    Probes,
    at_a_level,
    calibrate,
    states,
)

SEEDS = range(8)
PORTS_NS, CHAIN_NS, STEP_NS = 4070.0, 1742.0, 10
ALONE = [STATES.index("alone"), STATES.index("lower clock")]
SHARED = STATES.index("shared")


@dataclass(frozen=True)
class Core:
    """A core as it is: how often its sibling works, and how; how often its clock is lower."""

    busy: float = 0.0
    sibling: Literal["smeared", "clear", "even"] = "smeared"
    stays: float = 20  # samples that the sibling stays at work, or away, about
    slow: float = 0.0
    clock: float = 1.2
    interrupts: float = 0.002  # of the probes
    width: float = 0.001
    samples: int = 4000
    chains: bool = True


def switching(
    rng: np.random.Generator, count: int, share: float, stays: float
) -> NDArray[np.bool_]:
    if share in (0, 1):
        return np.full(count, share == 1)
    lengths = 1 + rng.exponential(2 * stays * np.tile([share, 1 - share], count)).astype(int)
    first = np.tile([True, False], count)
    return np.repeat(first, lengths)[int(rng.integers(2) * lengths[0]) :][:count]


def simulated(core: Core, seed: int) -> tuple[Probes, NDArray[np.bool_], NDArray[np.bool_]]:
    """The probes of a core, and of each sample whether it was alone, and at the highest clock."""
    rng = np.random.default_rng(seed)
    count = core.samples + 1
    busy = switching(rng, count, core.busy, core.stays)
    slow = switching(rng, count, core.slow, 300)
    cost = {
        "smeared": np.where(
            rng.random(count) < 0.6, rng.normal(1.42, 0.05, count), rng.uniform(1.03, 1.5, count)
        ).clip(1.03, 1.5),
        "clear": rng.uniform(1.4, 2.0, count),
        "even": rng.uniform(1.45, 1.452, count),
    }[core.sibling]
    clock = np.where(slow, core.clock, 1.0)

    def measured(time_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        interrupt = np.where(
            rng.random(count) < core.interrupts, rng.lognormal(np.log(3000), 0.8, count), 0.0
        )
        noisy = time_ns * clock * (1 + core.width * np.abs(rng.standard_normal(count)))
        return STEP_NS * np.round((noisy + interrupt) / STEP_NS)

    ports = measured(PORTS_NS * np.where(busy, cost, 1.0))
    chain = measured(CHAIN_NS * np.where(busy, 1 + 0.06 * rng.random(count) ** 2, 1.0))
    chains = (chain[:-1].copy(), chain[1:].copy()) if core.chains else ()
    alone = ~busy[1:] & ~busy[:-1]
    return Probes(ports[:-1].copy(), ports[1:].copy(), *chains), alone, ~slow[1:] & ~slow[:-1]


def calibrations(cores: Sequence[Core], seed: int = 1) -> list[Calibration]:
    probes = {cpu: simulated(core, 97 * seed + cpu)[0] for cpu, core in enumerate(cores)}
    return list(calibrate(probes).values())


def only(core: Core, seed: int = 1) -> str:
    return calibrations([core], seed)[0].status


with_and_without_chains = pytest.mark.parametrize("chains", [True, False])


# --- the sibling comes and goes -------------------------------------------------------------------


@with_and_without_chains
@pytest.mark.parametrize("sibling", ["smeared", "clear"])
@pytest.mark.parametrize("busy", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("stays", [1, 20, 400])
def test_what_is_called_alone_was_and_what_was_is_found(
    busy: float, sibling: Literal["smeared", "clear"], stays: float, chains: bool
) -> None:
    for seed in SEEDS:
        core = Core(busy, sibling, stays, chains=chains)
        probes, alone, _ = simulated(core, seed)
        if not 0.04 < alone.mean() < 0.97:
            continue  # it came once and stayed, or did not come
        calibration = calibrate({0: probes})[0]
        assert calibration.calibrated, seed
        assert calibration.alone_ns == pytest.approx(PORTS_NS, rel=0.005)
        found = np.isin(states(probes, calibration), ALONE)
        assert alone[found].mean() > 0.99, seed
        assert found[alone].mean() > 0.95, seed


# --- a sibling under control ----------------------------------------------------------------------


def company(seed: int, cost: tuple[float, float] = (1.25, 2.0), clock: float = 1.0) -> Company:
    """A calibration at its own clock: a busy sibling costs a factor within these bounds."""
    rng = np.random.default_rng(1000 + seed)
    quiet_ns, chain_ns = clock * rng.uniform(0.99, 1.01, 2) * (PORTS_NS, CHAIN_NS)
    return Company(quiet_ns, chain_ns, quiet_ns * rng.uniform(*cost))


@pytest.mark.parametrize(("chains", "clocks"), [(True, (0.8, 1.0, 1.3)), (False, (1.0, 1.3))])
def test_with_a_sibling_under_control_nobody_has_to_come_by(
    chains: bool, clocks: Sequence[float]
) -> None:
    for seed in SEEDS:
        probes, alone, _ = simulated(Core(busy=0.0, chains=chains), seed)
        assert calibrate({0: probes})[0].status == "no second state"
        for clock in clocks:
            found = calibrate({0: probes}, {0: company(seed, clock=clock)})[0]
            assert found.calibrated, (seed, clock)
            assert np.isin(states(probes, found), ALONE)[alone].mean() > 0.95


@with_and_without_chains
def test_a_sibling_that_always_works_is_not_taken_for_a_core_alone(chains: bool) -> None:
    status = "no first state" if chains else "no second state"  # it may be a lower clock
    for seed in SEEDS:
        probes, _, _ = simulated(Core(busy=1.0, sibling="even", chains=chains), seed)
        assert calibrate({0: probes})[0].status == "no second state"
        assert calibrate({0: probes}, {0: company(seed)})[0].status == status


@with_and_without_chains
def test_null_a_sibling_that_is_not_felt_changes_nothing(chains: bool) -> None:
    for seed in SEEDS:
        cores = (Core(chains=chains), Core(busy=0.4, chains=chains), Core(samples=20))
        for core in cores:
            probes = {0: simulated(core, seed)[0]}
            unfelt = {0: company(seed, (0.9, 1.09)), 7: company(seed)}
            # As text: a number that is not known equals itself there.
            assert repr(calibrate(probes, unfelt)) == repr(calibrate(probes))


def test_the_siblings_of_one_core_say_what_company_is_on_the_others() -> None:
    cores = [Core(), Core(), Core(busy=1.0, sibling="even"), Core(busy=0.3)]
    for seed in SEEDS:
        probes = {cpu: simulated(core, 97 * seed + cpu)[0] for cpu, core in enumerate(cores)}
        two = calibrate({cpu: probes[cpu] for cpu in (0, 1)}, {0: company(seed)})
        assert [one.status for one in two.values()] == ["calibrated"] * 2
        found = calibrate(probes, {0: company(seed), 3: company(seed)})
        assert [one.calibrated for one in found.values()] == [True, True, False, True]
        assert found[2].status == "no first state"
        known = calibrate(probes, {2: company(seed)})
        assert [one.calibrated for one in known.values()] == [True, True, False, True]


# --- no false confidence --------------------------------------------------------------------------


@with_and_without_chains
@pytest.mark.parametrize("interrupts", [0.0, 0.002, 0.015])
@pytest.mark.parametrize("width", [0.0, 0.001, 0.02])
def test_no_sibling_at_all(width: float, interrupts: float, chains: bool) -> None:
    core = Core(width=width, interrupts=interrupts, chains=chains)
    for seed in SEEDS:
        assert only(core, seed) == "no second state"


@with_and_without_chains
@pytest.mark.parametrize("sibling", ["smeared", "clear"])
def test_a_sibling_that_always_works_and_smears(
    sibling: Literal["smeared", "clear"], chains: bool
) -> None:
    for seed in SEEDS:
        assert only(Core(1.0, sibling, chains=chains), seed) == "no first state"


@with_and_without_chains
@pytest.mark.parametrize("interrupts", [0.0, 0.015])
@pytest.mark.parametrize("slow", [0.0, 0.5])
@pytest.mark.parametrize("cores", [1, 2])
def test_an_even_sibling_that_always_works_on_all_cores_is_not_taken_for_none(
    cores: int, slow: float, interrupts: float, chains: bool
) -> None:
    """Neither interrupts nor steps of the clock make its state one of two.

    (Without chains, steps of the clock do: they cannot be distinguished from a sibling.)
    """
    if slow and not chains:
        return
    core = Core(1.0, "even", slow=slow, interrupts=interrupts, chains=chains)
    for seed in SEEDS:
        assert {one.status for one in calibrations([core] * cores, seed)} == {"no second state"}


@with_and_without_chains
def test_a_core_without_company_learns_from_another(chains: bool) -> None:
    cores = [Core(chains=chains), Core(0.5, chains=chains), Core(1.0, chains=chains)]
    for seed in SEEDS:
        found = [one.status for one in calibrations(cores, seed)]
        assert found == ["calibrated", "calibrated", "no first state"]


@with_and_without_chains
@pytest.mark.parametrize("samples", [0, 1, 29])
def test_few_probes(samples: int, chains: bool) -> None:
    expected = "few probes" if samples else "no probes"
    assert only(Core(0.5, samples=samples, chains=chains)) == expected


def test_a_hundred_samples_are_classified_rightly_or_not_at_all() -> None:
    for seed in range(30):
        for busy in (0.3, 0.9, 1.0):
            probes, alone, _ = simulated(Core(busy, samples=100), seed)
            found = np.isin(states(probes, calibrate({0: probes})[0]), ALONE)
            assert not found.any() or alone[found].mean() > 0.9


# --- the clock ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [1.08, 1.2])
@pytest.mark.parametrize("slow", [0.1, 0.5, 0.9])
def test_steps_of_the_clock_are_known_by_their_chains_and_are_no_company(
    slow: float, clock: float
) -> None:
    for seed in SEEDS:
        probes, _, top = simulated(Core(slow=slow, clock=clock), seed)
        calibration = calibrate({0: probes})[0]
        assert calibration.status == "no second state"
        if 0.05 < top.mean() < 0.95:
            assert np.exp(np.diff(calibration.levels)) == pytest.approx([clock], rel=0.005)
            assert at_a_level(probes, calibration).mean() > 0.97


@pytest.mark.parametrize("busy", [0.2, 0.6])
@pytest.mark.parametrize("slow", [0.7, 0.9])
def test_close_steps_of_the_clock_hide_no_core_that_is_alone(slow: float, busy: float) -> None:
    """The lowest spike is a small one right below a larger one: ratios tell what is alone."""
    for seed in range(10):
        probes, alone, _ = simulated(Core(busy, slow=slow, clock=1.033, width=0.002), seed)
        (calibration,) = calibrate({0: probes}).values()
        assert calibration.calibrated
        found = np.isin(states(probes, calibration), ALONE)
        assert (found & ~alone).sum() <= 0.02 * found.sum()
        assert (found & alone).sum() >= 0.75 * alone.sum()


@pytest.mark.parametrize(("busy", "slow"), [(0.0, 0.1), (0.0, 0.5), (0.0, 0.9), (0.5, 0.5)])
def test_without_chains_a_lower_clock_passes_for_a_sibling(busy: float, slow: float) -> None:
    for seed in SEEDS:
        probes, alone, top = simulated(Core(busy, slow=slow, chains=False), seed)
        calibration = calibrate({0: probes})[0]
        found = states(probes, calibration)
        undisturbed = alone & top
        if undisturbed.mean() > 0.05 if busy else calibration.calibrated:
            assert undisturbed[np.isin(found, ALONE)].mean() > 0.99, "what is left is at one clock"
        assert not (found == STATES.index("lower clock")).any()


def test_a_core_at_a_lower_clock_is_calibrated_too() -> None:
    for chains in (True, False):
        cores = [Core(0.4, chains=chains), Core(0.4, slow=1.0, clock=1.15, chains=chains)]
        for seed in SEEDS:
            fast, slow = calibrations(cores, seed)
            assert (fast.status, slow.status) == ("calibrated", "calibrated")
            assert slow.alone_ns / fast.alone_ns == pytest.approx(1.15, rel=0.005)


# --- what is missing, or odd ----------------------------------------------------------------------


def test_samples_without_a_probe_are_unclassified() -> None:
    probes, alone, _ = simulated(Core(0.5), 1)
    assert probes.chain_before is not None
    probes.before[::3] = np.nan
    probes.after[1::3] = 0  # no time: no probe
    probes.chain_before[2::9] = np.nan
    found = states(probes, calibrate({0: probes})[0])
    cannot = STATES.index("unclassified")
    assert (found[::3] == cannot).all()
    assert (found[1::3] == cannot).all()
    assert (found[2::3] != cannot).all()
    assert alone[np.isin(found, ALONE)].mean() > 0.99


def test_no_probe_at_all() -> None:
    nothing = np.full(500, np.nan)
    for probes in (Probes(nothing, nothing), Probes(nothing, nothing, nothing, nothing)):
        calibration = calibrate({0: probes})[0]
        assert calibration.status == "no probes"
        assert np.isnan(calibration.alone_ns)
        assert (states(probes, calibration) == STATES.index("unclassified")).all()
    assert calibrate({}) == {}


def test_probes_that_are_all_the_same_or_spread_evenly() -> None:
    same = np.full(500, PORTS_NS)
    assert calibrate({0: Probes(same, same)})[0].status == "no second state"
    spread = np.random.default_rng(1).uniform(PORTS_NS, 2 * PORTS_NS, (2, 500))
    assert calibrate({0: Probes(*spread)})[0].status == "no first state"


def test_a_probe_that_another_task_interrupts_is_no_sibling() -> None:
    probes, _, _ = simulated(Core(0.5, interrupts=0.0), 1)
    probes.after[10:500:7] += 1e6
    found = states(probes, calibrate({0: probes})[0])
    assert (found[10:500:7] == STATES.index("interrupted")).all()


# --- tables ---------------------------------------------------------------------------------------


def rows(cores: Sequence[Core]) -> pd.DataFrame:
    parts = []
    for cpu, core in enumerate(cores):
        probes, alone, _ = simulated(core, 97 + cpu)
        named: dict[str, Any] = {"probe_before_ns": probes.before, "probe_after_ns": probes.after}
        if core.chains:
            named |= {"chain_before_ns": probes.chain_before, "chain_after_ns": probes.chain_after}
        parts.append(pd.DataFrame({"cpu": cpu, "truth": alone, **named}))
    return pd.concat(parts).sample(frac=1, random_state=1, ignore_index=True)


@with_and_without_chains
def test_a_table_is_classified_in_the_order_of_its_rows(chains: bool) -> None:
    table = rows([Core(0.5, chains=chains), Core(0.2, chains=chains), Core(1.0, chains=chains)])
    found = classify(table)
    assert found is not None
    assert found.any_calibrated
    assert table["truth"][found.alone].mean() > 0.99
    assert found.alone[table["truth"]].mean() > 0.95
    assert not found.alone[table["cpu"] == 2].any(), "never alone"


@pytest.mark.parametrize("core", [Core(), Core(1.0, "even"), Core(1.0), Core(slow=0.5)])
def test_where_nothing_is_calibrated_nothing_is_conditioned(core: Core) -> None:
    found = classify(rows([core, core]))
    assert found is not None
    assert not found.any_calibrated
    assert found.usable.all()
    assert not found.alone.any()


def test_a_table_without_probes() -> None:
    table = rows([Core(0.5)])
    assert classify(table.drop(columns="probe_after_ns")) is None
    assert classify(table.assign(probe_before_ns=np.nan)) is None
    assert classify(table.assign(probe_before_ns=None, probe_after_ns=None)) is None
    without = classify(table.drop(columns="chain_after_ns"))
    assert without is not None
    assert without.any_calibrated
