"""The detector, the tables and the random numbers of ``kernels_c/kv.c``, in plain Python.

See ``kernels_c/common/kv_detector.h``, ``kv_tables.h`` and ``kv_types.h``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import exp, log

from tests.reference import kv_formulas as physics
from tests.reference.kv_formulas import LN10, MUON_MASS, Material, Medium

ELECTRON_CUT = 0.5
PHOTON_CUT = 0.2
MUON_PAIR_CUT = 10.0
TABLE_LOW = 0.2
PER_DECADE = 16
NODES = 125
PAIR_FIRST = 60
PAIR_POINTS = 25
SOFT = 1e-6
MUON, ELECTRON, PHOTON = range(3)

MATERIALS = tuple(
    Material(*row)
    for row in (
        ("vacuum", 7.353, 14.730, 1.205e-15, 85.7, 10.5961, 1.7418, 4.2759, 0.10914, 3.3994, 0.0,
         36.62),
        ("air", 7.353, 14.730, 1.205e-3, 85.7, 10.5961, 1.7418, 4.2759, 0.10914, 3.3994, 0.0,
         36.62),
        ("beryllium", 4.0, 9.0121831, 1.848, 63.7, 2.7847, 0.0592, 1.6922, 0.80392, 2.4339, 0.14,
         65.19),
        ("silicon", 14.0, 28.0855, 2.329, 173.0, 4.4355, 0.2015, 2.8716, 0.14921, 3.2546, 0.14,
         21.82),
        ("aluminium", 13.0, 26.9815385, 2.699, 166.0, 4.2395, 0.1708, 3.0127, 0.08024, 3.6345,
         0.12, 24.01),
        ("liquid argon", 18.0, 39.948, 1.396, 188.0, 5.2146, 0.2, 3.0, 0.19559, 3.0, 0.0, 19.55),
        ("iron", 26.0, 55.845, 7.874, 286.0, 4.2911, -0.0012, 3.1531, 0.14680, 2.9632, 0.12,
         13.84),
        ("lead", 82.0, 207.2, 11.350, 823.0, 6.2018, 0.3776, 3.8073, 0.09359, 3.1608, 0.14, 6.37),
        ("polystyrene", 5.244, 9.753, 1.060, 68.7, 3.2999, 0.1647, 2.5031, 0.16454, 3.2224, 0.0,
         43.79),
    )
)  # fmt: skip

# (how often, ((material, wall, end), ...)), cm
PARTS = (
    (1, (("vacuum", 2.9, 270.0), ("beryllium", 0.08, 0.08))),
    (4, (("air", 3.0, 1.0), ("silicon", 0.03, 0.03))),
    (6, (("air", 14.0, 3.0), ("silicon", 0.06, 0.06))),
    (1, (("air", 8.0, 2.0), ("aluminium", 5.0, 5.0))),
    (24, (("lead", 0.5, 0.5), ("liquid argon", 0.5, 0.5))),
    (1, (("air", 20.0, 20.0),)),
    (30, (("iron", 4.0, 4.0), ("polystyrene", 0.4, 0.4))),
    (4, (("air", 40.0, 40.0), ("iron", 15.0, 15.0))),
)
SOLENOID_FIELD = 2.0
SOLENOID_SAG = 2.7e-6


@dataclass
class Volume:
    """What is in a closed cylinder and not in the one before it."""

    radius: float
    half_length: float
    medium: Medium
    field: float = 0.0
    sag: float = 0.0

    def inside(self, x: list[float]) -> bool:
        """Whether a point is in the cylinder."""
        return (
            x[0] * x[0] + x[1] * x[1] < self.radius * self.radius and abs(x[2]) < self.half_length
        )


# Continuous loss, delta rays and bremsstrahlung.
CHARGED = {
    MUON: (physics.bethe, physics.delta_rays, physics.muon_brems),
    ELECTRON: (physics.berger_seltzer, physics.moller, physics.brems),
}


def direct(m: Medium, kind: int, energy: float) -> list[float]:
    """The columns of the table at one energy, muon pairs apart (``kv_direct``)."""
    if kind == PHOTON:
        absorbed = physics.pair_production(m, energy), physics.photoelectric(m, energy)
        return [0.0, physics.compton(m, energy), *absorbed]
    loss, knocked_on, radiated = CHARGED[kind]
    soft = radiated(m, energy, SOFT * PHOTON_CUT, PHOTON_CUT, weigh=True)
    hard = radiated(m, energy, PHOTON_CUT, energy, weigh=False)
    return [loss(m, energy, ELECTRON_CUT) + soft, knocked_on(m, energy, ELECTRON_CUT), hard, 0.0]


def muon_pairs(m: Medium, energy: float) -> tuple[list[float], float, float]:
    """Cumulative spectrum, cross section and continuous loss of a muon's pairs at a node."""
    e = energy + MUON_MASS
    interval = log(physics.muon_pair_most(m, e) / MUON_PAIR_CUT) / (PAIR_POINTS - 1)
    share: list[float] = []
    before = 0.0
    for i in range(PAIR_POINTS):
        value = physics.muon_pair_shape(m, e, MUON_PAIR_CUT * exp(i * interval))
        share.append(share[-1] + 0.5 * interval * (before + value) if i else 0.0)
        before = value
    total, constant = share[-1], physics.muon_pair_constant(m)
    least = 4.0 * physics.ELECTRON_MASS
    soft = physics.integral(physics.muon_pair_shape, m, e, least, MUON_PAIR_CUT, weigh=True)
    return [value / total for value in share], constant * total, constant * soft


@functools.cache
def media() -> dict[str, Medium]:
    """Every material with its tables filled, by name."""
    energies = [TABLE_LOW * exp(node * (LN10 / PER_DECADE)) for node in range(NODES)]
    filled = {}
    for material in MATERIALS:
        m = Medium(material)
        m.table = [[direct(m, kind, energy) for energy in energies] for kind in range(3)]
        for node in range(PAIR_FIRST, NODES):
            share, cross_section, soft = muon_pairs(m, energies[node])
            m.pair_share.append(share)
            m.table[MUON][node][0] += soft
            m.table[MUON][node][3] = cross_section
        filled[material.name] = m
    return filled


@functools.cache
def volumes() -> list[Volume]:
    """The nested cylinders, from the beam outwards."""
    found: list[Volume] = []
    radius = half_length = iron = 0.0
    coil = 0
    for repeat, layers in PARTS:
        for _ in range(repeat):
            for name, wall, end in layers:
                inner = radius
                radius += wall
                half_length += end
                if name == "aluminium":
                    coil = len(found)
                if name == "iron":
                    iron += radius * radius - inner * inner
                found.append(Volume(radius, half_length, media()[name]))
    inside = found[coil - 1].radius
    for i, volume in enumerate(found):
        if i < coil:
            volume.field, volume.sag = SOLENOID_FIELD, SOLENOID_SAG
        elif volume.medium is media()["iron"]:
            volume.field = -SOLENOID_FIELD * (inside * inside) / iron
    return found


def philox(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """Philox 4x32-10 (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (right >> 32) ^ c1 ^ k0,
            right & 0xFFFFFFFF,
            (left >> 32) ^ c3 ^ k1,
            left & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3
