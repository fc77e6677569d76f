"""What kv.c samples adds up to what its formulas say.

Sampled with the reference in Python, which test_kv.py holds to the C bit for bit. Seeds are fixed:
the tolerances are three or more standard errors.
"""

from __future__ import annotations

import math
import statistics

import pytest

from tests.reference import kv_formulas, kv_step, kv_transport
from tests.reference.kv_detector import ELECTRON, MUON, PHOTON, Volume, media
from tests.reference.kv_transport import Event, Particle


def particle(kind: int, charge: int, energy: float, number: int = 0) -> Particle:
    event = Event(seed=1, number=number, particles=1, deposited=[0.0])
    return Particle(event, kind, charge, energy, [0.0] * 3, [0.0, 0.0, 1.0], volume=0, number=0)


@pytest.mark.parametrize(
    ("material", "kind", "energy", "thickness_cm", "samples", "within"),
    [
        ("iron", MUON, 10e3, 20.0, 1500, 0.03),
        ("silicon", ELECTRON, 5.0, 0.03, 2000, 0.10),
        ("lead", ELECTRON, 50.0, 0.01, 4000, 0.20),
    ],
)
def test_mean_loss_in_a_slab(
    monkeypatch: pytest.MonkeyPatch,
    material: str,
    kind: int,
    energy: float,
    thickness_cm: float,
    samples: int,
    within: float,
) -> None:
    """Continuous loss and all the secondaries that leave: ionisation plus radiation."""
    slab = [Volume(1e6, thickness_cm, media()[material])]
    monkeypatch.setattr(kv_step, "volumes", lambda: slab)
    lost = []
    for number in range(samples):
        p = particle(kind, -1, energy, number)
        while kv_step.step(p):
            pass
        lost.append(energy - p.energy)
    m = slab[0].medium
    if kind == MUON:
        e = energy + kv_formulas.MUON_MASS
        least, most = 4.0 * kv_formulas.ELECTRON_MASS, kv_formulas.muon_pair_most(m, e)
        pairs = kv_formulas.integral(
            kv_formulas.muon_pair_shape, m, e, least, most, weigh=True
        ) * kv_formulas.muon_pair_constant(m)
        brems = kv_formulas.muon_brems(m, energy, 1e-6 * energy, energy, weigh=True)
        rate = kv_formulas.bethe(m, energy, energy) + brems + pairs
    else:
        brems = kv_formulas.brems(m, energy, 1e-6 * energy, energy, weigh=True)
        rate = kv_formulas.berger_seltzer(m, energy, energy) + brems
    assert statistics.mean(lost) == pytest.approx(rate * thickness_cm, rel=within)


def test_compton_electrons_take_the_klein_nishina_share() -> None:
    """At 1 MeV the electron has 0.440 MeV on average (Evans, The Atomic Nucleus, 1955)."""
    taken = []
    for number in range(4000):
        p = particle(PHOTON, 0, 1.0, number)
        kv_step.compton_scatter(p)
        taken.append(1.0 - p.energy)
        # the photon's angle belongs to its energy
        expected = 1.0 - kv_formulas.ELECTRON_MASS * (1.0 / p.energy - 1.0)
        assert p.direction[2] == pytest.approx(expected, abs=1e-9)
    assert statistics.mean(taken) == pytest.approx(0.440, rel=0.03)


def test_decay_electrons_have_the_michel_spectrum() -> None:
    """Mean 0.7 of the largest energy, m/2; with the neutrinos the muon's mass is used up."""
    energies = []
    for number in range(4000):
        p = particle(MUON, 1, 0.0, number)
        kv_step.stop(p)
        (positron,) = p.event.stack
        assert positron.charge == 1
        energies.append(positron.energy + kv_formulas.ELECTRON_MASS)
        balance = positron.total_energy() + p.event.escaped + p.event.deposited[0]
        assert balance == pytest.approx(kv_formulas.MUON_MASS, rel=1e-12)
    assert statistics.mean(energies) == pytest.approx(0.35 * kv_formulas.MUON_MASS, rel=0.02)


def test_deflection_keeps_length_and_angle() -> None:
    for step in range(200):
        polar, azimuth = 0.0157 * step, 0.7 * step
        before = [math.sin(polar), 0.0, math.cos(polar)]
        after, _ = kv_transport.deflect(before, math.cos(0.3), math.sin(0.3), azimuth)
        assert math.hypot(*after) == pytest.approx(1.0, rel=1e-12)
        cosine = sum(before[i] * after[i] for i in range(3))
        assert cosine == pytest.approx(math.cos(0.3), rel=1e-12)
