"""How a particle of ``kernels_c/kv.c`` moves, in plain Python.

The functions are those of ``kernels_c/common/kv_transport.h``, with the ``kv_`` left out of their
names and the same arithmetic in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import copysign, cos, log, pi, sin, sqrt

from tests.reference.kv_detector import (
    MUON,
    NODES,
    PER_DECADE,
    TABLE_LOW,
    Volume,
    philox,
    volumes,
)
from tests.reference.kv_formulas import ELECTRON_MASS, LN10, MUON_MASS, Medium

FAR = 1e30
Vector = list[float]


@dataclass
class Particle:
    """``kv_particle``; the random numbers left of its block are in ``words``."""

    event: Event
    kind: int
    charge: int
    energy: float
    position: Vector
    direction: Vector
    volume: int
    number: int
    free_paths: float = 0.0
    scattered: float = 0.0
    draws: int = 0
    words: tuple[int, int, int, int] = (0, 0, 0, 0)

    def uniform(self) -> float:
        if self.draws % 4 == 0:
            event = self.event.number
            counter = (self.draws // 4, self.number, event & 0xFFFFFFFF, event >> 32)
            self.words = philox(counter, self.event.seed)
        self.draws += 1
        return (self.words[(self.draws - 1) % 4] + 0.5) * 2.0**-32

    def total_energy(self) -> float:
        if self.kind == MUON:
            return self.energy + MUON_MASS
        return self.energy + 2.0 * ELECTRON_MASS if self.charge > 0 else self.energy

    def deposit(self, energy: float) -> None:
        self.event.deposited[self.volume] += energy


@dataclass
class Event:
    """``kv_state``."""

    seed: int
    number: int
    steps: int = 0
    particles: int = 0
    stack: list[Particle] = field(default_factory=list)
    checksum: int = 0
    escaped: float = 0.0
    deposited: list[float] = field(default_factory=lambda: [0.0] * len(volumes()))


def turn(bend: float, strength: float, sag: float, x: Vector, u: Vector) -> Vector:
    r2 = x[0] * x[0] + x[1] * x[1]
    b0, b1 = strength * sag * x[2] * x[0], strength * sag * x[2] * x[1]
    b2 = strength * (1.0 - sag * (x[2] * x[2] - 0.5 * r2))
    return [
        bend * (u[1] * b2 - u[2] * b1),
        bend * (u[2] * b0 - u[0] * b2),
        bend * (u[0] * b1 - u[1] * b0),
    ]


def runge_kutta(p: Particle, bend: float, strength: float, sag: float, step: float) -> None:
    x, u, half, axes = p.position, p.direction, 0.5 * step, range(3)
    k1 = turn(bend, strength, sag, x, u)
    u2 = [u[i] + half * k1[i] for i in axes]
    k2 = turn(bend, strength, sag, [x[i] + half * u[i] for i in axes], u2)
    u3 = [u[i] + half * k2[i] for i in axes]
    k3 = turn(bend, strength, sag, [x[i] + half * u2[i] for i in axes], u3)
    u4 = [u[i] + step * k3[i] for i in axes]
    k4 = turn(bend, strength, sag, [x[i] + step * u3[i] for i in axes], u4)
    sixth = step / 6.0
    p.position = [x[i] + sixth * (u[i] + 2.0 * (u2[i] + u3[i]) + u4[i]) for i in axes]
    u = [u[i] + sixth * (k1[i] + 2.0 * (k2[i] + k3[i]) + k4[i]) for i in axes]
    norm = 1.0 / sqrt(u[0] * u[0] + u[1] * u[1] + u[2] * u[2])
    p.direction = [u[i] * norm for i in axes]


def distance_out(v: Volume, x: Vector, u: Vector) -> float:
    a = u[0] * u[0] + u[1] * u[1]
    b = x[0] * u[0] + x[1] * u[1]
    c = x[0] * x[0] + x[1] * x[1] - v.radius * v.radius
    distance = FAR
    if a > 1e-20:
        root = b * b - a * c
        distance = (sqrt(root) - b) / a if root > 0.0 else 0.0
    if abs(u[2]) > 1e-10:
        end = v.half_length if u[2] > 0.0 else -v.half_length
        distance = min((end - x[2]) / u[2], distance)
    return max(distance, 0.0)


def distance_in(v: Volume, x: Vector, u: Vector) -> float:
    a = u[0] * u[0] + u[1] * u[1]
    b = x[0] * u[0] + x[1] * u[1]
    c = x[0] * x[0] + x[1] * x[1] - v.radius * v.radius
    enter, leave = -FAR, FAR
    if a > 1e-20:
        root = b * b - a * c
        if root <= 0.0:
            return FAR
        root = sqrt(root)
        enter, leave = (-b - root) / a, (root - b) / a
    elif c > 0.0:
        return FAR
    if abs(u[2]) > 1e-10:
        near = -v.half_length if u[2] > 0.0 else v.half_length
        enter = max((near - x[2]) / u[2], enter)
        leave = min((-near - x[2]) / u[2], leave)
    elif abs(x[2]) > v.half_length:
        return FAR
    if enter >= leave or leave <= 0.0:
        return FAR
    return max(enter, 0.0)


def look_up(m: Medium, kind: int, energy: float) -> list[float]:
    place = log(energy / TABLE_LOW) * (PER_DECADE / LN10)
    node = min(int(place) if place > 0.0 else 0, NODES - 2)
    f = place - node
    low, high = m.table[kind][node], m.table[kind][node + 1]
    return [low[i] + f * (high[i] - low[i]) for i in range(4)]


def deflect(u: Vector, cosine: float, sine: float, azimuth: float) -> tuple[Vector, Vector]:
    sign = copysign(1.0, u[2])
    a = -1.0 / (sign + u[2])
    b = u[0] * u[1] * a
    e1 = (1.0 + sign * u[0] * u[0] * a, sign * b, -sign * u[0])
    e2 = (b, sign + u[1] * u[1] * a, -u[1])
    c, d = cos(azimuth), sin(azimuth)
    across = [c * e1[i] + d * e2[i] for i in range(3)]
    turned = [cosine * u[i] + sine * across[i] for i in range(3)]
    length = 0.0
    for value in turned:
        length += value * value
    length = 1.0 / sqrt(length)
    return [value * length for value in turned], across


def highland(t: float) -> float:
    bracket = max(1.0 + 0.038 * log(t), 0.2)
    return t * bracket * bracket


def scatter(
    p: Particle, momentum2: float, beta2: float, radiation_length_cm: float, step: float
) -> None:
    before = highland(p.scattered) if p.scattered > 0.0 else 0.0
    p.scattered += step / (radiation_length_cm * beta2)
    variance = 13.6 * 13.6 / momentum2 * max(highland(p.scattered) - before, 0.0)
    angle = sqrt(-2.0 * variance * log(p.uniform()))
    azimuth = 2.0 * pi * p.uniform()
    sine = sin(angle)
    p.direction, across = deflect(p.direction, cos(angle), sine, azimuth)
    shift = 0.5 * step * sine
    p.position = [p.position[i] + shift * across[i] for i in range(3)]
