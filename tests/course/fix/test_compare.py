"""What a comparison says of simulated measurements, whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from perflib.course.fix.compare import ORIGINAL, YOURS, compare, decided

Floats = NDArray[np.float64]
SIMULATIONS = 400


def autocorrelated(draw: np.random.Generator, count: int, memory: float) -> Floats:
    """Of unit variance, each value like the one before."""
    found = np.empty(count)
    found[0] = draw.standard_normal()
    for at in range(1, count):
        found[at] = memory * found[at - 1] + math.sqrt(1 - memory**2) * draw.standard_normal()
    return found


def skewed(draw: np.random.Generator, count: int) -> Floats:
    """Process-to-process variation by the place of memory: mostly small, rarely large."""
    return draw.lognormal(0.0, 1.0, count)


def ratios(draw: np.random.Generator, truth: float, noise: float, *, batches: int = 10) -> Floats:
    variation = skewed(draw, batches) - skewed(draw, batches)  # of either version's memory
    wander = autocorrelated(draw, batches, 0.5)
    return np.asarray(truth + noise * (0.3 * variation + 0.5 * wander), dtype=np.float64)


@pytest.mark.parametrize("noise", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("truth", [0.0, math.log(0.77), math.log(1.3)])
def test_the_interval_covers_the_truth(truth: float, noise: float) -> None:
    draw = np.random.default_rng([int(1e4 * noise), int(100 * truth) % 1000])
    found = [decided(ratios(draw, truth, noise)) for _ in range(SIMULATIONS)]
    covered = np.mean([one.longer.low <= truth <= one.longer.high for one in found])
    assert covered > 0.93


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.03, 0.1, 0.5])
@pytest.mark.parametrize("batches", [8, 10, 16])
def test_the_same_code_is_hardly_ever_called_faster_or_slower(noise: float, batches: int) -> None:
    draw = np.random.default_rng([int(1e4 * noise), batches])
    verdicts = [
        decided(ratios(draw, 0.0, noise, batches=batches)).verdict for _ in range(SIMULATIONS)
    ]
    false = sum(verdict in {"faster", "slower"} for verdict in verdicts) / SIMULATIONS
    assert false < 0.05
    if noise == 0.001:
        assert verdicts.count("no difference") > 0.95 * SIMULATIONS


def test_a_clear_effect_is_found_and_a_small_one_is_not_denied() -> None:
    draw = np.random.default_rng(5)
    clear = [decided(ratios(draw, math.log(0.8), 0.03)).verdict for _ in range(SIMULATIONS)]
    assert clear.count("faster") > 0.95 * SIMULATIONS
    longer = [decided(ratios(draw, math.log(1.2), 0.03)).verdict for _ in range(SIMULATIONS)]
    assert longer.count("slower") > 0.95 * SIMULATIONS
    small = [decided(ratios(draw, math.log(0.97), 0.01)).verdict for _ in range(SIMULATIONS)]
    assert small.count("no difference") + small.count("slower") < 0.05 * SIMULATIONS


# --- from samples ---------------------------------------------------------------------------------


def samples(
    draw: np.random.Generator,
    faster: float,
    *,
    batches: int = 10,
    rounds: int = 30,
    slices: int = 3,
    company: float = 0.0,
    probes: bool = True,
    delays: float = 0.0,
) -> pd.DataFrame:
    """Both versions on a core whose speed drifts, and that has company for a share of the time.

    Company makes a faster version slower by another factor, as it does: only what is timed alone
    shows what the code itself does.
    """
    shape = batches, rounds, 2, slices
    batch, round_, version, _ = (grid.ravel() for grid in np.indices(shape))
    count = batch.size
    drift = np.repeat(0.3 * autocorrelated(draw, batches * rounds, 0.9), 2 * slices)
    state = np.repeat(autocorrelated(draw, batches * rounds * 2, 0.8), slices)
    busy = state < (np.quantile(state, company) if company else -math.inf)
    variation = 0.01 * skewed(draw, batches * 2).reshape(batches, 2)[batch, version]
    tail = 0.01 * draw.exponential(1.0, count)
    other = math.log(2.4 if faster else 1.6)
    slower = np.where(busy, np.where(version == YOURS, other, math.log(1.6)), 0.0)
    log_time = math.log(4e5) + drift + variation + tail + slower
    log_time += np.where(version == YOURS, -faster, 0)
    time_ns = np.exp(log_time)
    delayed = draw.random(count) < delays
    probe = np.where(busy, 6500.0, 4000.0) * draw.normal(1, 0.002, count)
    table = pd.DataFrame(
        {
            "batch": batch, "round": round_, "version": version, "calls": 10, "cpu": 0,
            "partner_cpu": -2, "partner_delay_ns": 0, "ok": True,
            "start_ns": np.arange(count) * 10**6, "time_ns": time_ns + delayed * 4e6,
            "cpu_time_ns": time_ns, "run_delay_ns": delayed * 4e6,
        }
    )  # fmt: skip
    if probes:
        table["probe_before_ns"] = table["probe_after_ns"] = probe
    return table


@pytest.mark.parametrize("company", [0.0, 0.6])
def test_company_on_the_core_does_not_change_what_is_saved(company: float) -> None:
    draw, truth = np.random.default_rng(7), math.log(1.3)
    found = [compare(samples(draw, truth, company=company)) for _ in range(60)]
    covered = np.mean([one.longer.low <= -truth <= one.longer.high for one in found])
    assert covered > 0.85
    assert all(one.verdict == "faster" for one in found)
    alone = [one for one in found if "alone" in one.samples[1]]
    assert len(alone) >= (54 if company else 0)


def test_waits_for_the_core_are_left_out_where_two_threads_are_timed() -> None:
    draw = np.random.default_rng(3)
    table = samples(draw, math.log(2), probes=False, delays=0.4)
    table["partner_cpu"] = 1  # wall time counts
    found = compare(table)
    assert found.verdict == "faster"
    assert "waited for no core" in found.samples[1]
    assert found.samples[0] == pytest.approx(0.6, abs=0.08)
    assert found.saved_percent.effect == pytest.approx(50, abs=3)


def test_too_few_processes_give_no_verdict() -> None:
    draw = np.random.default_rng(4)
    found = compare(samples(draw, 1.0, batches=5))
    assert (found.verdict, found.batches) == ("not known", 5)
    assert "it takes 8" in str(found)
    assert decided(np.full(8, np.nan)).verdict == "not known"
    only = samples(draw, 1.0)
    assert compare(only[only["version"] == ORIGINAL]).verdict == "not known"


# --- in words -------------------------------------------------------------------------------------


def said(middle: float, scatter: float, threshold: float = 1.0) -> str:
    spread = scatter * np.array([1, -1, 1, -1, -1, 1, 1, -1, 1, -1, -1, 1])
    return str(decided(middle + spread, threshold))


def test_the_sentence_has_an_interval_always() -> None:
    assert said(math.log(0.77), 0.02).startswith(
        "faster by 23.0 % ± 1.3 of the original's time: 1.30"
    )
    assert said(math.log(1.25), 0.01).startswith("slower by 25.0 % ± 1.0 of the original")
    assert said(0.0, 0.002).startswith("no difference: 0.00 % ± 0.")
    assert said(0.0, 0.2).startswith("not known: ")
    assert "−" in said(0.03, 0.05)
    assert said(math.log(0.05), 1.0).startswith("faster by 9")
    assert "[" in said(math.log(0.05), 1.0)
    for middle in (-3.0, -0.01, 0.0, 0.01, 3.0):
        for scatter in (0.0, 1e-6, 0.01, 1.0):
            assert any(sign in said(middle, scatter) for sign in "±[")


def test_the_threshold_decides_what_counts() -> None:
    assert said(-0.03, 0.001, 1.0).startswith("faster")
    assert said(-0.03, 0.001, 5.0).startswith("no difference")
    assert said(-0.03, 0.001, 3.0).startswith("not known")
