"""Log times of simulated machines whose faults are known, and what the statistics say of them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, poisson

from perflib.stats.compare import compare_cores
from perflib.stats.naive import naive_interval

Floats = NDArray[np.float64]
THRESHOLD_PERCENT = 1.0


@dataclass(frozen=True)
class Machine:
    """A machine under a measurement: ``rounds`` over ``cores``, one each ``period_s``.

    ``slow`` is the slowdown of core 0. ``burst_share`` is the share of time in which one of
    ``burst_cores`` takes twice as long, in bursts of ``burst_s`` on average.
    ``slices`` is the share of core 0's time that another program takes in slices of about a
    millisecond of a 50 ms turn. ``wander`` and ``wander_s`` are the size and the correlation time
    of a slow wandering of each core by itself. ``missing`` is the share of turns that failed.
    """

    rounds: int = 300
    cores: int = 2
    period_s: float = 0.2
    slow: float = 0.0
    noise: float = 0.01
    tail: Literal["normal", "student", "lognormal"] = "normal"
    drift: float = 0.2
    burst_share: float = 0.0
    burst_s: float = 3.0
    burst_cores: tuple[int, ...] = (0,)
    slices: float = 0.0
    wander: float = 0.0
    wander_s: float = 2.0
    missing: float = 0.0

    @property
    def truth_percent(self) -> float:
        """By how much core 0 is typically slower than the others when it is not disturbed."""
        taken = np.arange(30)
        log_slices = float(np.log1p(self.slices * taken / 5) @ poisson.pmf(taken, 5))
        return 100 * math.expm1(math.log1p(self.slow) + log_slices)


def data(machine: Machine, generator: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Starts and log times of one measurement, and what was hidden: each core's share in bursts."""
    shape = (machine.rounds, machine.cores)
    start_s = (np.arange(machine.rounds) * machine.period_s).astype(np.float64)
    total_s = machine.rounds * machine.period_s
    cycles = start_s / total_s * generator.uniform(0.3, 1.5) + generator.uniform()
    log_time = machine.drift * np.sin(2 * np.pi * cycles)[:, None] + np.zeros(shape)
    if machine.tail == "student":
        log_time += machine.noise * generator.standard_t(3, shape)
    elif machine.tail == "lognormal":
        log_time += machine.noise * (generator.lognormal(0, 1, shape) - math.exp(0.5))
    else:
        log_time += machine.noise * generator.normal(0, 1, shape)
    if machine.wander:
        memory = math.exp(-machine.period_s / machine.wander_s)
        log_time += machine.wander * resembling(generator.normal(0, 1, shape).T, memory).T
    share = np.zeros(machine.cores)
    if machine.burst_share:
        for core in machine.burst_cores:
            hit = _bursts(machine, start_s, generator)
            log_time[hit, core] += math.log(2)
            share[core] = hit.mean()
    if machine.slices:
        log_time[:, 0] += np.log1p(machine.slices * generator.poisson(5, machine.rounds) / 5)
    log_time[:, 0] += math.log1p(machine.slow)
    log_time[generator.random(shape) < machine.missing] = np.nan
    return start_s, log_time, share


def measured(seed: int, **machine: Any) -> tuple[Floats, Floats]:
    """Log times and starts of one measurement."""
    start_s, log_time, _ = data(Machine(**machine), np.random.default_rng(seed))
    return log_time, start_s


def resembling(values: Floats, memory: float) -> Floats:
    """Make each value of a row resemble the one before; the standard deviation stays."""
    for n in range(1, values.shape[-1]):
        values[:, n] = memory * values[:, n - 1] + math.sqrt(1 - memory**2) * values[:, n]
    return values


def _bursts(machine: Machine, start_s: Floats, generator: np.random.Generator) -> NDArray[np.bool_]:
    hit = np.zeros(machine.rounds, dtype=np.bool_)
    quiet_s = machine.burst_s * (1 - machine.burst_share) / machine.burst_share
    now_s = generator.uniform(-quiet_s, quiet_s)
    while now_s < start_s[-1]:
        end_s = now_s + generator.exponential(machine.burst_s)
        hit |= (start_s >= now_s) & (start_s < end_s)
        now_s = end_s + generator.exponential(quiet_s)
    return hit


@dataclass(frozen=True)
class Study:
    """How often, of ``runs``, core 0 came out right; ``named`` counts when it was called slow."""

    runs: int
    with_interval: int
    covered: int
    disturbed_covered: int
    named: int
    wrongly_named: int
    half_width: float


@functools.cache
def study(machine: Machine, runs: int, seed: int = 1) -> Study:
    """Measure such a machine many times.

    A core is named by the rule of the product: the whole interval above 1 %, p (permutation,
    Holm) below 5 %, and every third of the run above 1 %.
    """
    generator = np.random.default_rng(seed)
    truth = machine.truth_percent
    counts = dict.fromkeys(("with_interval", "covered", "disturbed_covered", "named"), 0)
    wrongly_named = 0
    widths = []
    for _ in range(runs):
        start_s, log_time, share = data(machine, generator)
        effects = compare_cores(log_time, start_s).effects
        first = effects[0]
        named = [
            effect.slowdown.low > THRESHOLD_PERCENT
            and effect.p_holm < 0.05
            and min(effect.segments) > THRESHOLD_PERCENT
            for effect in effects
        ]
        counts["with_interval"] += math.isfinite(first.slowdown.low)
        counts["covered"] += first.slowdown.low <= truth <= first.slowdown.high
        counts["disturbed_covered"] += (
            first.interference.low <= 100 * share[0] <= first.interference.high
        )
        counts["named"] += named[0]
        wrongly_named += any(named if truth == 0 else named[1:])
        widths.append(first.slowdown.half_width)
    return Study(
        runs=runs,
        wrongly_named=wrongly_named,
        half_width=float(np.nanmedian(widths)),
        **counts,
    )


def naive_covered(machine: Machine, runs: int) -> int:
    """How often the naive interval of two cores covers, on the same data as ``study``."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(runs):
        _, log_time, _ = data(machine, generator)
        naive = naive_interval(log_time[:, 0] - log_time[:, 1])
        covered += naive.low <= math.log1p(machine.truth_percent / 100) <= naive.high
    return covered


def at_least(runs: int, probability: float) -> int:
    """What a count of that probability falls below once in a thousand times."""
    return int(binom.ppf(1e-3, runs, probability))


def at_most(runs: int, probability: float) -> int:
    """What it exceeds once in a thousand times."""
    return int(binom.ppf(1 - 1e-3, runs, probability))
