"""``kernels_c/event_loop.c`` in plain Python: the same events, bit for bit.

>>> process(seed=1, number=0, sizes=Sizes())  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from tests.reference.kv import send
from tests.reference.kv_detector import MUON, SOLENOID_FIELD, philox
from tests.reference.kv_step import CURVATURE, step
from tests.reference.kv_transport import Event, Particle, runge_kutta
from tests.reference.words import WORD, bits, fold

LEAST_MOMENTUM, MOST_MOMENTUM = 300.0, 1000.0
MOST_JETS = 64
NAMES = 512
DEGREES = 12
TRACK_CM = 0.1
CLASS = (
    "RecoJet:public Track{double momentum;double direction[3];double deposited;double "
    "correction;double selected;double track[3];unsigned long checksum;};"
)


@dataclass(frozen=True)
class Sizes:
    """What ``event_sizes`` has: jets, and the work at each point."""

    jets: int = 1
    formula: int = 3
    interface: int = 2
    queue: int = 5
    output: int = 2
    checksum: int = 2


def jets_of(seed: int, number: int, mean: int) -> int:
    """How many jets an event has."""
    counter = (0, 2**32 - 1, number & 0xFFFFFFFF, number >> 32)
    return 1 + philox(counter, seed)[0] % (2 * mean - 1)


class Jet:
    """A muon that was followed, with all that it made."""

    def __init__(self, seed: int, number: int) -> None:
        event = self.event = Event(seed, number)
        p = Particle(event, MUON, 0, 0.0, [0.0] * 3, [0.0] * 3, volume=0, number=0)
        self.momentum = LEAST_MOMENTUM * exp(log(MOST_MOMENTUM / LEAST_MOMENTUM) * p.uniform())
        send(p, self.momentum, most_rapidity=1.0)
        self.direction = p.direction[:]
        event.particles = 1
        event.stack.append(p)
        while event.stack:
            p = event.stack.pop()
            while step(p):
                pass
            event.checksum = fold(event.checksum, bits(p.position[2]))
        self.deposited = 0.0
        for value in event.deposited:
            self.deposited += value
        self.checksum = fold(event.checksum, bits(self.deposited))


def legendre(degree: int, x: float) -> float:
    before, value = 0.0, 1.0
    for n in range(degree):
        before, value = value, ((2 * n + 1) * x * value - n * before) / (n + 1)
    return value


def correction(x: float, terms: int) -> float:
    """What the formula gives."""
    value = 0.0
    for term in range(terms):
        factor = (1 + 37 * term % 89) / 1000.0
        value += factor * legendre(5 * term % NAMES % DEGREES, x)
    return value


def track(jet: Jet, steps: int) -> list[float]:
    p = Particle(jet.event, MUON, 0, 0.0, [0.0] * 3, jet.direction[:], volume=0, number=0)
    for _ in range(steps):
        runge_kutta(p, CURVATURE / jet.momentum, SOLENOID_FIELD, 0.0, TRACK_CM)
    return p.position


def checksum_class(passes: int) -> int:
    found = 0
    for character in CLASS * passes:
        found = (3 * found + ord(character)) & WORD
    return found


def process(seed: int, number: int, sizes: Sizes) -> int:
    """One event through all modules; its checksum."""
    jets = [Jet(seed, number * MOST_JETS + i) for i in range(jets_of(seed, number, sizes.jets))]
    deposited = [0.0] * len(jets[0].event.deposited)
    for jet in jets:
        deposited = [a + b for a, b in zip(deposited, jet.event.deposited, strict=True)]
    whole = 0
    for i, jet in enumerate(jets):
        selected = 0.0
        for k in range(sizes.interface):
            selected += deposited[(11 * i + 7 * k) % NAMES % len(deposited)]
        found = fold(jet.checksum, bits(correction(jet.direction[2], sizes.formula)))
        for value in (selected, *track(jet, sizes.queue)):
            found = fold(found, bits(value))
        whole = fold(whole, found)
    for passes in (sizes.output, 1):
        packed = 0
        for value in deposited * passes:
            packed = fold(packed, bits(value))
        whole = fold(whole, fold(packed, checksum_class(sizes.checksum)))
    return whole


def merge(records: Sequence[int], passes: int) -> int:
    """The checksum of a job."""
    merged = 0
    for record in records:
        for _ in range(passes):
            merged = fold(merged, record)
    return merged
