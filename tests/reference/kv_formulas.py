"""Cross sections and energy losses of ``kernels_c/kv.c``, in plain Python.

The same arithmetic in the same order as ``kernels_c/common/kv_formulas.h``, where the sources of
the formulas stand: every result agrees to the last bit. Units: MeV, cm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, log, pi, sqrt

ELECTRON_MASS = 0.51099895
MUON_MASS = 105.6583755
ALPHA = 0.0072973525693
ELECTRON_RADIUS = 2.8179403e-13
AVOGADRO = 6.02214076e23
BETHE = 0.307075
SQRT_E = 1.648721270700128
LN10 = 2.302585092994046

GAUSS_16 = (
    (0.09501250983763744, 0.18945061045506850),
    (0.28160355077925891, 0.18260341504492359),
    (0.45801677765722739, 0.16915651939500254),
    (0.61787624440264375, 0.14959598881657673),
    (0.75540440835500303, 0.12462897125553387),
    (0.86563120238783174, 0.09515851168249278),
    (0.94457502307323258, 0.06225352393864789),
    (0.98940093499164993, 0.02715245941175409),
)
GAUSS_8 = (
    (0.18343464249564980, 0.36268378337836198),
    (0.52553240991632899, 0.31370664587788729),
    (0.79666647741362674, 0.22238103445337447),
    (0.96028985649753623, 0.10122853629037626),
)


@dataclass(frozen=True)
class Material:
    """A row of ``kv_materials_table``."""

    name: str
    z: float
    a: float
    density: float
    excitation_ev: float
    cbar: float
    x0: float
    x1: float
    slope: float
    power: float
    delta0: float
    radiation_length: float


@dataclass
class Medium:
    """A material and all that follows from it (``kv_medium``); the tables are filled later."""

    material: Material
    table: list[list[list[float]]] = field(default_factory=list)
    pair_share: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        z, a, density = self.material.z, self.material.a, self.material.density
        self.radiation_length_cm = self.material.radiation_length / density
        self.electrons = 0.5 * BETHE * z / a * density
        self.atoms = AVOGADRO * density / a
        self.cube_root_z: float = z ** (1.0 / 3.0)
        self.muon_nucleus: float = 1.54 * a**0.27
        c = ALPHA * z * (ALPHA * z)
        coulomb = c * (1.0 / (1.0 + c) + 0.20206 - c * (0.0369 - c * (0.0083 - c * 0.002)))
        nucleus = log(184.15 / self.cube_root_z) - coulomb
        self.screening = 4.0 / 3.0 * log(z)
        self.coulomb = 4.0 * coulomb
        self.electron_share = log(1194.0 / (self.cube_root_z * self.cube_root_z)) / nucleus


Shape = Callable[[Medium, float, float], float]


def screening_1(element: float, delta: float) -> float:
    if delta <= 1.0:
        return 20.867 - delta * (3.242 - delta * 0.625) - element
    return 21.12 - 4.184 * log(delta + 0.952) - element


def screening_2(element: float, delta: float) -> float:
    if delta <= 1.0:
        return 20.209 - delta * (1.930 + delta * 0.086) - element
    return 21.12 - 4.184 * log(delta + 0.952) - element


def brems_shape(m: Medium, e: float, photon: float) -> float:
    rest = e - photon
    ratio = rest / e
    delta = 136.0 * ELECTRON_MASS * photon / (m.cube_root_z * e * rest)
    element = m.screening + m.coulomb
    shape = (1.0 + ratio * ratio) * screening_1(element, delta) - 2.0 / 3.0 * ratio * screening_2(
        element, delta
    )
    return max(shape, 0.0)


def pair_element(m: Medium, photon: float) -> float:
    return m.screening + m.coulomb if photon > 50.0 else m.screening


def pair_shape(m: Medium, photon: float, share: float) -> float:
    both = share * (1.0 - share)
    delta = 136.0 * ELECTRON_MASS / (m.cube_root_z * photon * both)
    element = pair_element(m, photon)
    shape = (1.0 - 2.0 * both) * screening_1(element, delta) + 2.0 / 3.0 * both * screening_2(
        element, delta
    )
    return max(shape, 0.0)


def muon_brems_shape(m: Medium, e: float, photon: float) -> float:
    v = photon / e
    delta = MUON_MASS * MUON_MASS * photon / (2.0 * e * (e - photon))
    z, third = m.material.z, m.cube_root_z
    nucleus = log(
        183.0
        / third
        * (MUON_MASS + delta * (m.muon_nucleus * SQRT_E - 2.0))
        / (m.muon_nucleus * (ELECTRON_MASS + delta * SQRT_E * 183.0 / third))
    )
    electrons = 0.0
    if photon < e / (1.0 + MUON_MASS * MUON_MASS / (2.0 * ELECTRON_MASS * e)):
        electrons = log(
            1429.0
            / (third * third)
            * MUON_MASS
            / (
                (1.0 + delta * MUON_MASS / (ELECTRON_MASS * ELECTRON_MASS * SQRT_E))
                * (ELECTRON_MASS + delta * SQRT_E * 1429.0 / (third * third))
            )
        )
    return (1.0 - v + 0.75 * v * v) * (z * max(nucleus, 0.0) + max(electrons, 0.0))


def density_effect(m: Material, beta_gamma: float) -> float:
    x = log(beta_gamma) / LN10
    if x >= m.x1:
        return 2.0 * LN10 * x - m.cbar
    if x >= m.x0:
        bend: float = (m.x1 - x) ** m.power
        return 2.0 * LN10 * x - m.cbar + m.slope * bend
    return float(m.delta0 * 10.0 ** (2.0 * (x - m.x0)))


def most_transfer(energy: float) -> float:
    gamma = 1.0 + energy / MUON_MASS
    ratio = ELECTRON_MASS / MUON_MASS
    return 2.0 * ELECTRON_MASS * (gamma * gamma - 1.0) / (1.0 + 2.0 * gamma * ratio + ratio * ratio)


def bethe(m: Medium, energy: float, cut: float) -> float:
    gamma = 1.0 + energy / MUON_MASS
    bg2 = gamma * gamma - 1.0
    beta2 = bg2 / (gamma * gamma)
    most = most_transfer(energy)
    up = min(cut, most)
    excitation = 1e-6 * m.material.excitation_ev
    spin = up / (gamma * MUON_MASS)
    bracket = (
        log(2.0 * ELECTRON_MASS * bg2 * up / (excitation * excitation))
        - beta2 * (1.0 + up / most)
        - density_effect(m.material, sqrt(bg2))
        + 0.25 * spin * spin
    )
    radiated = 0.0
    if energy > 1000.0:
        x = log(2.0 * most / ELECTRON_MASS)
        radiated = ALPHA / (2.0 * pi) * (log(2.0 * gamma) - x / 3.0) * x * x
    return m.electrons * (bracket / beta2 + radiated)


def berger_seltzer(m: Medium, energy: float, cut: float) -> float:
    tau = energy / ELECTRON_MASS
    gamma = 1.0 + tau
    bg2 = tau * (tau + 2.0)
    beta2 = bg2 / (gamma * gamma)
    up = cut / ELECTRON_MASS if cut < 0.5 * energy else 0.5 * tau
    excitation = 1e-6 * m.material.excitation_ev / ELECTRON_MASS
    f = (
        log((tau - up) * up)
        - 1.0
        - beta2
        + tau / (tau - up)
        + (0.5 * up * up + (2.0 * tau + 1.0) * log(1.0 - up / tau)) / (gamma * gamma)
    )
    bracket = (
        log(2.0 * (tau + 2.0) / (excitation * excitation))
        + f
        - density_effect(m.material, sqrt(bg2))
    )
    return m.electrons * bracket / beta2


def delta_rays(m: Medium, energy: float, cut: float) -> float:
    most = most_transfer(energy)
    if most <= cut:
        return 0.0
    gamma = 1.0 + energy / MUON_MASS
    beta2 = 1.0 - 1.0 / (gamma * gamma)
    e = energy + MUON_MASS
    bracket = 1.0 / cut - 1.0 / most - beta2 / most * log(most / cut) + (most - cut) / (2.0 * e * e)
    return m.electrons * bracket / beta2


def moller(m: Medium, energy: float, cut: float) -> float:
    if energy <= 2.0 * cut:
        return 0.0
    tau = energy / ELECTRON_MASS
    gamma = 1.0 + tau
    gamma2 = gamma * gamma
    beta2 = tau * (tau + 2.0) / gamma2
    x = cut / energy
    bracket = (
        tau * tau / gamma2 * (0.5 - x)
        + 1.0 / x
        - 1.0 / (1.0 - x)
        - (2.0 * gamma - 1.0) / gamma2 * log((1.0 - x) / x)
    )
    return m.electrons / ELECTRON_MASS * bracket / (beta2 * tau)


def integral(
    shape: Shape, m: Medium, energy: float, low: float, high: float, *, weigh: bool
) -> float:
    middle, half = 0.5 * (log(low) + log(high)), 0.5 * (log(high) - log(low))
    total = 0.0
    for node, weight in GAUSS_16:
        for side in (-1.0, 1.0):
            x = exp(middle + half * side * node)
            value = shape(m, energy, x)
            total += weight * (value * x if weigh else value)
    return total * half


def brems_constant(m: Medium) -> float:
    z = m.material.z
    return m.atoms * ALPHA * (ELECTRON_RADIUS * ELECTRON_RADIUS) * z * (z + m.electron_share)


def brems(m: Medium, energy: float, low: float, high: float, *, weigh: bool) -> float:
    high = min(high, energy)
    if low >= high:
        return 0.0
    e = energy + ELECTRON_MASS
    return brems_constant(m) * integral(brems_shape, m, e, low, high, weigh=weigh)


def muon_brems(m: Medium, energy: float, low: float, high: float, *, weigh: bool) -> float:
    high = min(high, energy)
    if low >= high:
        return 0.0
    radius = ELECTRON_RADIUS * ELECTRON_MASS / MUON_MASS
    constant = m.atoms * (16.0 / 3.0) * ALPHA * (radius * radius) * m.material.z
    e = energy + MUON_MASS
    return constant * integral(muon_brems_shape, m, e, low, high, weigh=weigh)


def muon_pair_most(m: Medium, e: float) -> float:
    return e - 0.75 * SQRT_E * MUON_MASS * m.cube_root_z


def muon_pair_constant(m: Medium) -> float:
    radius = ALPHA * ELECTRON_RADIUS
    return m.atoms * (radius * radius)


def muon_pair_shape(m: Medium, e: float, transfer: float) -> float:
    z, third, me, mu = m.material.z, m.cube_root_z, ELECTRON_MASS, MUON_MASS
    rest, threshold = e - transfer, 4.0 * me / transfer
    if threshold >= 1.0 or transfer >= muon_pair_most(m, e):
        return 0.0
    heavy = 6.0 * mu * mu / (e * rest)
    low = log(
        (threshold + 2.0 * heavy * (1.0 - threshold))
        / (1.0 + (1.0 - heavy) * sqrt(1.0 - threshold))
    )
    v = transfer / e
    beta = 0.5 * v * v / (1.0 - v)
    xi0 = mu * mu * v * v / (4.0 * me * me * (1.0 - v))
    radius, ratio = 183.0 / third, mu / me
    small, middle, half, total = 1.5 * third / ratio, 0.5 * low, -0.5 * low, 0.0
    for node, weight in GAUSS_8:
        for side in (-1.0, 1.0):
            t = exp(middle + half * side * node)
            rho = 1.0 - t
            rho2 = rho * rho
            xi = xi0 * (1.0 - rho2)
            ye = (5.0 - rho2 + 4.0 * beta * (1.0 + rho2)) / (
                2.0 * (1.0 + 3.0 * beta) * log(3.0 + 1.0 / xi) - rho2 - 2.0 * beta * (2.0 - rho2)
            )
            yu = (4.0 + rho2 + 3.0 * beta * (1.0 + rho2)) / (
                (1.0 + rho2) * (1.5 + 2.0 * beta) * log(3.0 + xi) + 1.0 - 1.5 * rho2
            )
            common = 2.0 * me * SQRT_E * radius * (1.0 + xi) / (transfer * (1.0 - rho2))
            electron, muon = (1.0 + xi) * (1.0 + ye), (1.0 + 1.0 / xi) * (1.0 + yu)
            le = log(radius * sqrt(electron) / (1.0 + common * (1.0 + ye))) - 0.5 * log(
                1.0 + small * small * electron
            )
            lu = log(ratio * radius * sqrt(muon) / (1.0 + common * (1.0 + yu))) - log(
                1.5 * third * sqrt(muon)
            )
            fe = (
                ((2.0 + rho2) * (1.0 + beta) + xi * (3.0 + rho2)) * log(1.0 + 1.0 / xi)
                + (1.0 - rho2 - beta) / (1.0 + xi)
                - (3.0 + rho2)
            ) * le
            fu = (
                ((1.0 + rho2) * (1.0 + 1.5 * beta) - (1.0 + 2.0 * beta) * (1.0 - rho2) / xi)
                * log(1.0 + xi)
                + xi * (1.0 - rho2 - beta) / (1.0 + xi)
                + (1.0 + 2.0 * beta) * (1.0 - rho2)
            ) * lu
            total += weight * (max(fe, 0.0) + max(fu, 0.0) / (ratio * ratio)) * t
    gamma, zeta = e / mu, 0.0
    if gamma > 35.0:
        nucleus = 0.073 * log(gamma / (1.0 + 1.95e-5 * (third * third) * gamma)) - 0.26
        electrons = 0.058 * log(gamma / (1.0 + 5.3e-5 * third * gamma)) - 0.14
        zeta = nucleus / electrons if nucleus > 0.0 else 0.0
    return 4.0 / (3.0 * pi) * z * (z + zeta) * (1.0 - v) * (total * half)


def pair_production(m: Medium, photon: float) -> float:
    low = ELECTRON_MASS / photon
    if low >= 0.5:
        return 0.0
    middle, half, total = 0.5 * (0.5 + low), 0.5 * (0.5 - low), 0.0
    for node, weight in GAUSS_16:
        for side in (-1.0, 1.0):
            total += weight * pair_shape(m, photon, middle + half * side * node)
    return 2.0 * brems_constant(m) * total * half


def compton(m: Medium, photon: float) -> float:
    k = photon / ELECTRON_MASS
    x, beyond = log(1.0 + 2.0 * k), 1.0 + 2.0 * k
    bracket = (
        (1.0 + k) / (k * k) * (2.0 * (1.0 + k) / beyond - x / k)
        + x / (2.0 * k)
        - (1.0 + 3.0 * k) / (beyond * beyond)
    )
    return m.electrons / ELECTRON_MASS * bracket


def photoelectric(m: Medium, photon: float) -> float:
    power = 2.9 if photon < 0.5 else 2.0
    at_half = m.atoms * 0.188e-24 * (m.material.z / 26.0) ** 4.2
    return float(at_half * (0.5 / photon) ** power)
