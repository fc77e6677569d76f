"""``kernels_c/kv.c`` in plain Python: the same events, bit for bit.

>>> simulate(seed=1, number=0).checksum  # doctest: +SKIP
"""

from __future__ import annotations

from math import cos, exp, pi, sin, sqrt

from tests.reference.kv_detector import MUON
from tests.reference.kv_formulas import MUON_MASS
from tests.reference.kv_step import step
from tests.reference.kv_transport import Event, Particle
from tests.reference.words import bits, fold

LEAST_MOMENTUM = 5e3
MOST_MOMENTUM = 5e6
SLOPE = 1.7
MOST_RAPIDITY = 2.0


def send(p: Particle, momentum: float, most_rapidity: float) -> None:
    """Give a muon that comes in its direction, charge and energy."""
    rapidity = most_rapidity * (2.0 * p.uniform() - 1.0)
    azimuth = 2.0 * pi * p.uniform()
    p.charge = -1 if p.uniform() < 0.5 else 1
    up, down = exp(rapidity), exp(-rapidity)
    p.direction = [
        2.0 * cos(azimuth) / (up + down),
        2.0 * sin(azimuth) / (up + down),
        (up - down) / (up + down),
    ]
    p.energy = sqrt(momentum * momentum + MUON_MASS * MUON_MASS) - MUON_MASS


def primary(event: Event) -> Particle:
    """The muon that comes in."""
    p = Particle(event, MUON, 0, 0.0, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], volume=0, number=0)
    rest = 1.0 - SLOPE
    low, high = LEAST_MOMENTUM**rest, MOST_MOMENTUM**rest
    momentum = (low + (high - low) * p.uniform()) ** (1.0 / rest)
    send(p, momentum, MOST_RAPIDITY)
    event.particles = 1
    return p


def simulate(seed: int, number: int) -> Event:
    """One event; its checksum is that of ``kv_event`` on the same machine."""
    event = Event(seed, number)
    event.stack.append(primary(event))
    while event.stack:
        p = event.stack.pop()
        event.steps += 1
        while step(p):
            event.steps += 1
        event.checksum = fold(event.checksum, p.volume * 3 + p.kind)
        for value in (p.energy, *p.position):
            event.checksum = fold(event.checksum, bits(value))
    for value in event.deposited:
        event.checksum = fold(event.checksum, bits(value))
    return event
