"""Samples of two configurations of a simulated machine whose differences are known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

__all__ = ["DRIFT", "SHARES", "Profiled", "at_least", "at_most", "simulated"]

Floats = NDArray[np.float64]
SHARES = np.array([
    0.4, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.03, 0.02, 0.02,
    0.01, 0.01, 0.01, 0.01, 0.005, 0.005, 0.005, 0.005,
])  # fmt: skip
DRIFT = 0.1


class Profiled(NamedTuple):
    """Samples at 1 kHz of an event of ``samples`` ms, of two configurations in each round.

    Each round drifts as a whole; a tenth of the trials is hit by a burst that doubles all. In the
    second every function costs ``factor`` times as much, and each of ``one`` its own factor
    more. ``own``: how much each function's cost varies by itself from event to event (log).
    """

    rounds: int
    samples: int = 500
    factor: float = 1.0
    one: tuple[tuple[int, float], ...] = ()
    own: float = 0.0
    burst: float = 0.1

    @property
    def growth(self) -> Floats:
        growth = np.full(SHARES.size, self.factor)
        for place, factor in self.one:
            growth[place] *= factor
        return growth


def simulated(machine: Profiled, generator: np.random.Generator) -> tuple[Floats, Floats]:
    shape = (machine.rounds, SHARES.size)
    drift = np.exp(generator.normal(0, DRIFT, (machine.rounds, 1)))
    counts = []
    for growth in (np.ones(SHARES.size), machine.growth):
        burst = np.where(generator.random((machine.rounds, 1)) < machine.burst, 2.0, 1.0)
        own = np.exp(generator.normal(0, machine.own, shape)) if machine.own else 1.0
        mean = machine.samples * SHARES * drift * burst * growth * own
        counts.append(generator.poisson(mean).astype(np.float64))
    return counts[0], counts[1]


def at_least(runs: int, probability: float) -> int:
    """What a count of that probability falls below once in a thousand times."""
    return int(binom.ppf(1e-3, runs, probability))


def at_most(runs: int, probability: float) -> int:
    """What it exceeds once in a thousand times."""
    return int(binom.ppf(1 - 1e-3, runs, probability))
