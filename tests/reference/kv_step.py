"""One step of a particle of ``kernels_c/kv.c``, in plain Python.

The functions are those of ``kernels_c/kv_step.inc``, with the ``kv_`` left out of their names and
the same arithmetic in the same order.
"""

from __future__ import annotations

from math import cos, exp, log, pi, sin, sqrt

from tests.reference import kv_formulas as physics
from tests.reference.kv_detector import (
    ELECTRON,
    ELECTRON_CUT,
    MUON,
    MUON_PAIR_CUT,
    NODES,
    PAIR_FIRST,
    PAIR_POINTS,
    PER_DECADE,
    PHOTON,
    PHOTON_CUT,
    TABLE_LOW,
    volumes,
)
from tests.reference.kv_formulas import ELECTRON_MASS, LN10, MUON_MASS, Medium
from tests.reference.kv_transport import (
    Particle,
    Vector,
    deflect,
    distance_in,
    distance_out,
    look_up,
    runge_kutta,
    scatter,
)

CURVATURE = 2.99792458
MUON_STOP = 2.0
TRIES = 100
SAGITTA = 0.002
PUSH = 1e-5
LOSS_FRACTION = 0.2


# --- processes ---------------------------------------------------------------------------------


def create(p: Particle, kind: int, charge: int, energy: float, direction: Vector) -> None:
    cut = PHOTON_CUT if kind == PHOTON else ELECTRON_CUT if charge < 0 else 0.0
    if energy < cut:
        p.deposit(energy)
        return
    event = p.event
    here, there = p.position[:], direction[:]
    made = Particle(event, kind, charge, energy, here, there, p.volume, event.particles)
    event.stack.append(made)
    event.particles += 1


def bethe_bloch(p: Particle, m: Medium, loss: float, beta2: float, step: float) -> None:
    mean = loss * step
    sigma = sqrt(m.electrons * ELECTRON_CUT / beta2 * step)
    radius = sqrt(-2.0 * log(p.uniform()))
    shift = sigma * (radius * cos(2.0 * pi * p.uniform()))
    lost = min(mean + max(min(shift, mean), -mean), p.energy)
    p.energy -= lost
    p.deposit(lost)


def knock_on(p: Particle, mass: float, transfer: float) -> None:
    momentum = sqrt(p.energy * (p.energy + 2.0 * mass))
    given = sqrt(transfer * (transfer + 2.0 * ELECTRON_MASS))
    cosine = min(transfer * (p.energy + mass + ELECTRON_MASS) / (momentum * given), 1.0)
    azimuth = 2.0 * pi * p.uniform()
    direction, _ = deflect(p.direction, cosine, sqrt(1.0 - cosine * cosine), azimuth)
    create(p, ELECTRON, -1, transfer, direction)
    rest = [momentum * p.direction[i] - given * direction[i] for i in range(3)]
    rest2 = 0.0
    for value in rest:
        rest2 += value * value
    norm = 1.0 / sqrt(rest2)
    p.direction = [value * norm for value in rest]
    p.energy -= transfer


def delta_ray(p: Particle) -> None:
    gamma = 1.0 + p.energy / MUON_MASS
    beta2 = 1.0 - 1.0 / (gamma * gamma)
    e, most = p.energy + MUON_MASS, physics.most_transfer(p.energy)
    if most <= ELECTRON_CUT:
        return
    transfer = most
    for _ in range(TRIES):
        u = p.uniform()
        transfer = ELECTRON_CUT * most / (u * most + (1.0 - u) * ELECTRON_CUT)
        weight = 1.0 - beta2 * transfer / most + transfer * transfer / (2.0 * e * e)
        if p.uniform() * 1.5 < weight:
            break
    knock_on(p, MUON_MASS, transfer)


def moller_scatter(p: Particle) -> None:
    gamma = 1.0 + p.energy / ELECTRON_MASS
    gamma2 = gamma * gamma
    low, share = ELECTRON_CUT / p.energy, 0.5
    if low >= 0.5:
        return
    for _ in range(TRIES):
        share = low / (1.0 - (1.0 - 2.0 * low) * p.uniform())
        rest = 1.0 - share
        weight = (
            (gamma - 1.0) * (gamma - 1.0) * share * share
            - (2.0 * gamma2 + 2.0 * gamma - 1.0) * share / rest
            + gamma2 / (rest * rest)
        )
        if p.uniform() * (9.0 * gamma2 - 10.0 * gamma + 5.0) < 4.0 * weight:
            break
    knock_on(p, ELECTRON_MASS, share * p.energy)


def emission_angle(p: Particle, gamma: float) -> float:
    u = p.uniform()
    return min(sqrt(u / (1.0 - u)) / gamma, pi)


def radiate(p: Particle, photon: float, gamma: float) -> None:
    angle = emission_angle(p, gamma)
    direction, _ = deflect(p.direction, cos(angle), sin(angle), 2.0 * pi * p.uniform())
    p.energy -= photon
    create(p, PHOTON, 0, photon, direction)


def bremsstrahlung(p: Particle, m: Medium, shape: physics.Shape, mass: float) -> None:
    """``kv_bremsstrahlung`` and ``kv_muon_bremsstrahlung``."""
    e, photon = p.energy + mass, PHOTON_CUT
    if p.energy <= PHOTON_CUT:
        return
    width, most = log(p.energy / PHOTON_CUT), shape(m, e, PHOTON_CUT)
    for _ in range(TRIES):
        photon = PHOTON_CUT * exp(width * p.uniform())
        if p.uniform() * most < shape(m, e, photon):
            break
    radiate(p, photon, e / mass)


def muon_pair(p: Particle, m: Medium) -> None:
    place = log(p.energy / TABLE_LOW) * (PER_DECADE / LN10) - PAIR_FIRST
    row = place + p.uniform()
    if row < 0.0 or row >= NODES - PAIR_FIRST:
        return
    share = m.pair_share[int(row)]
    most = p.energy + MUON_MASS - 0.75 * physics.SQRT_E * MUON_MASS * m.cube_root_z
    u = p.uniform()
    i = 1
    while i < PAIR_POINTS - 1 and share[i] < u:
        i += 1
    rank = i - 1 + (u - share[i - 1]) / (share[i] - share[i - 1])
    width = log(most / MUON_PAIR_CUT) / (PAIR_POINTS - 1)
    transfer = MUON_PAIR_CUT * exp(width * rank)
    kinetic = transfer - 2.0 * ELECTRON_MASS
    first = kinetic * p.uniform()
    p.energy -= transfer
    create(p, ELECTRON, 1, first, p.direction)
    create(p, ELECTRON, -1, kinetic - first, p.direction)


def make_pair(p: Particle, m: Medium) -> bool:
    low, share = ELECTRON_MASS / p.energy, 0.5
    if low >= 0.5:
        return True
    delta = 4.0 * 136.0 * ELECTRON_MASS / (m.cube_root_z * p.energy)
    most = physics.screening_1(physics.pair_element(m, p.energy), delta)
    for _ in range(TRIES):
        share = low + (1.0 - 2.0 * low) * p.uniform()
        if p.uniform() * most <= physics.pair_shape(m, p.energy, share):
            break
    azimuth, e = 2.0 * pi * p.uniform(), share * p.energy
    for charge in (1, -1):
        angle = emission_angle(p, e / ELECTRON_MASS)
        direction, _ = deflect(p.direction, cos(angle), sin(angle), azimuth)
        create(p, ELECTRON, charge, max(e - ELECTRON_MASS, 0.0), direction)
        e = p.energy - e
        azimuth += pi
    p.energy = 0.0
    return False


def compton_scatter(p: Particle) -> None:
    k = p.energy / ELECTRON_MASS
    low = 1.0 / (1.0 + 2.0 * k)
    inverse, linear, left, t = -log(low), 0.5 * (1.0 - low * low), 1.0, 0.0
    for _ in range(TRIES):
        u = p.uniform()
        which = p.uniform() * (inverse + linear)
        left = exp(-inverse * u) if which < inverse else sqrt(low * low + (1.0 - low * low) * u)
        t = (1.0 - left) / (k * left)
        if 1.0 - left * t * (2.0 - t) / (1.0 + left * left) >= p.uniform():
            break
    sine2, before = t * (2.0 - t), p.energy
    after, old, azimuth = left * before, p.direction, 2.0 * pi * p.uniform()
    p.direction, _ = deflect(old, 1.0 - t, sqrt(max(sine2, 0.0)), azimuth)
    electron = [before * old[i] - after * p.direction[i] for i in range(3)]
    norm = 0.0
    for value in electron:
        norm += value * value
    norm = 1.0 / sqrt(norm) if norm > 0.0 else 0.0
    create(p, ELECTRON, -1, before - after, [value * norm for value in electron])
    p.energy = after


def isotropic(p: Particle) -> Vector:
    cosine = 2.0 * p.uniform() - 1.0
    azimuth, sine = 2.0 * pi * p.uniform(), sqrt(1.0 - cosine * cosine)
    return [sine * cos(azimuth), sine * sin(azimuth), cosine]


def stop(p: Particle) -> None:
    p.deposit(p.energy)
    p.energy = 0.0
    if p.kind == MUON:
        most = 0.5 * (MUON_MASS + ELECTRON_MASS * ELECTRON_MASS / MUON_MASS)
        x = 1.0
        for _ in range(TRIES):
            x = p.uniform()
            if p.uniform() < x * x * (3.0 - 2.0 * x):
                break
        kinetic = max(x * most - ELECTRON_MASS, 0.0)
        p.event.escaped += MUON_MASS - ELECTRON_MASS - kinetic
        p.deposit(-ELECTRON_MASS if p.charge > 0 else ELECTRON_MASS)
        create(p, ELECTRON, p.charge, kinetic, isotropic(p))
    elif p.charge > 0:
        direction = isotropic(p)
        create(p, PHOTON, 0, ELECTRON_MASS, direction)
        create(p, PHOTON, 0, ELECTRON_MASS, [-value for value in direction])


# --- the step ----------------------------------------------------------------------------------


def interact(p: Particle, m: Medium, cross: list[float]) -> bool:
    which = p.uniform() * (cross[1] + cross[2] + cross[3])
    process = 1 if which < cross[1] else 2 if which < cross[1] + cross[2] else 3
    if p.kind == MUON:
        if process == 1:
            delta_ray(p)
        elif process == 2:
            bremsstrahlung(p, m, physics.muon_brems_shape, MUON_MASS)
        else:
            muon_pair(p, m)
    elif p.kind == ELECTRON:
        if process == 1:
            moller_scatter(p)
        else:
            bremsstrahlung(p, m, physics.brems_shape, ELECTRON_MASS)
    elif process == 1:
        compton_scatter(p)
    elif process == 2:
        return make_pair(p, m)
    else:
        p.deposit(p.energy)
        p.energy = 0.0
        return False
    return True


def step(p: Particle) -> bool:
    """One step; whether the particle continues."""
    shells = volumes()
    v = shells[p.volume]
    m = v.medium
    if p.energy < (MUON_STOP, ELECTRON_CUT, PHOTON_CUT)[p.kind]:
        stop(p)
        return False
    cross = look_up(m, p.kind, p.energy)
    length = distance_out(v, p.position, p.direction)
    if p.volume > 0:
        length = min(distance_in(shells[p.volume - 1], p.position, p.direction), length)
    length += PUSH
    total = cross[1] + cross[2] + cross[3]
    if p.free_paths <= 0.0:
        p.free_paths = -log(p.uniform())
    momentum2, beta2, bend = 0.0, 1.0, 0.0
    if p.kind != PHOTON:
        mass = MUON_MASS if p.kind == MUON else ELECTRON_MASS
        e = p.energy + mass
        momentum2 = p.energy * (p.energy + 2.0 * mass)
        beta2 = momentum2 / (e * e)
        bend = CURVATURE * p.charge / sqrt(momentum2)
        length = min(LOSS_FRACTION * p.energy / cross[0], length)
        if v.field != 0.0:
            length = min(sqrt(2.0 * SAGITTA / abs(bend * v.field)), length)
    used = length * total
    interacts = used >= p.free_paths
    if interacts:
        length = p.free_paths / total
    p.free_paths = 0.0 if interacts else p.free_paths - used

    if p.kind != PHOTON and v.field != 0.0:
        runge_kutta(p, bend, v.field, v.sag, length)
    else:
        p.position = [p.position[i] + length * p.direction[i] for i in range(3)]
    if p.kind != PHOTON:
        bethe_bloch(p, m, cross[0], beta2, length)
        scatter(p, momentum2, beta2, m.radiation_length_cm, length)

    while p.volume < len(shells) and not shells[p.volume].inside(p.position):
        p.volume += 1
    while p.volume > 0 and shells[p.volume - 1].inside(p.position):
        p.volume -= 1
    if p.volume == len(shells):
        p.event.escaped += p.total_energy()
        return False
    return interact(p, m, cross) if interacts else True
