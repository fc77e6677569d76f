"""Samples of two configurations of a simulated machine whose differences are known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.stats.simulated import at_least, at_most

__all__ = ["DRIFT", "SHARES", "Busy", "Profiled", "at_least", "at_most", "recorded", "simulated"]

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


class Busy(NamedTuple):
    """Two equal cores of a busy machine; a recording of each in every round, 2 samples a ms.

    While a thread on the same physical core works, each function takes longer by a factor of its
    own. That comes and goes in bursts: for ``shared`` of the time on each core, ``burst_s`` long.
    Each recording is a process of its own, in which every function is off by ``offset`` (log), and
    is preempted now and then: what runs next has cold caches. In the second, function 1 costs
    ``growth`` times as much.
    """

    rounds: int = 20
    shared: tuple[float, float] = (0.2, 0.6)
    burst_s: float = 3.0
    offset: float = 0.015
    preempted: float = 0.02
    growth: float = 1.0


_RECORDING_S, _BETWEEN_S = 0.5, 0.6
_SENSITIVE = np.array([
    0.0, 0.45, 0.5, 0.3, 0.35, 0.6, 0.4, 0.1, 0.4, 0.2, 0.3, 0.5, 0.4, 0.2, 0.4, 0.3, 0.6, 0.3,
])  # fmt: skip


def recorded(machine: Busy, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Samples ``[round, function]`` on both cores."""
    step_s = 0.01
    steps = round(machine.rounds * 2 * 2.5 * (_RECORDING_S + _BETWEEN_S) / step_s)
    states = []
    for share in machine.shared:
        state, now = np.zeros(steps, dtype=bool), bool(generator.random() < share)
        at = 0
        while share > 0 and at < steps:
            mean_s = machine.burst_s * (2 * share if now else 2 * (1 - share))
            until = at + max(1, round(generator.exponential(mean_s) / step_s))
            state[at:until], now, at = now, not now, until
        states.append(state)
    costs = SHARES * np.ones((2, 1))
    costs[1, 1] *= machine.growth
    counts = np.zeros((2, machine.rounds, SHARES.size))
    at = 0
    for round_ in range(machine.rounds):
        for core in generator.permutation(2):
            own = np.exp(generator.normal(0, machine.offset, SHARES.size))
            cold = generator.random(SHARES.size) < machine.preempted
            alone = costs[core] * own * np.where(cold, 1.1, 1.0)
            both = np.array([alone, alone * np.exp(_SENSITIVE)])
            left_s, mean = _RECORDING_S, np.zeros(SHARES.size)
            while left_s > 0:
                here = both[int(states[core][at])]
                done_s = min(left_s, step_s / here.sum())
                mean += 2000 * done_s * here
                left_s -= done_s
                at += 1
            # A clock's samples: their number is the time, and chance only says where they fall.
            counts[core, round_] = generator.multinomial(round(mean.sum()), mean / mean.sum())
            at += round(_BETWEEN_S / step_s)
    return counts[0], counts[1]
