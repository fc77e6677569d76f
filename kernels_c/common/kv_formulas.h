// Cross sections and energy losses of the kv simulation, as formulas. The tables are filled from
// them once (kv_tables.h); a step interpolates.
#ifndef KV_FORMULAS_H
#define KV_FORMULAS_H

#include "common/kv_shapes.h"

// --- ionisation --------------------------------------------------------------------------------

static inline double kv_density_effect(const kv_material *m, double beta_gamma) {
  double x = log(beta_gamma) / KV_LN10;
  if (x >= m->x1)
    return 2.0 * KV_LN10 * x - m->cbar;
  if (x >= m->x0)
    return 2.0 * KV_LN10 * x - m->cbar + m->slope * pow(m->x1 - x, m->power);
  return m->delta0 * pow(10.0, 2.0 * (x - m->x0));
}

// Bethe's formula for muons with energy transfers up to cut, MeV/cm: density effect, spin, and
// radiation off the struck electrons (PDG 2022, eqs. 34.5, 34.10; Groom et al. 2001, eqs. 1, 17).
static double kv_bethe(const kv_medium *m, double energy, double cut) {
  double gamma = 1.0 + energy / KV_MUON_MASS;
  double bg2 = gamma * gamma - 1.0, beta2 = bg2 / (gamma * gamma);
  double most = kv_most_transfer(energy), up = cut < most ? cut : most;
  double excitation = 1e-6 * m->material->excitation_ev;
  double spin = up / (gamma * KV_MUON_MASS);
  double bracket = log(2.0 * KV_ELECTRON_MASS * bg2 * up / (excitation * excitation)) -
                   beta2 * (1.0 + up / most) - kv_density_effect(m->material, sqrt(bg2)) +
                   0.25 * spin * spin;
  double radiated = 0.0;
  if (energy > 1000.0) {
    double l = log(2.0 * most / KV_ELECTRON_MASS);
    radiated = KV_ALPHA / (2.0 * KV_PI) * (log(2.0 * gamma) - l / 3.0) * l * l;
  }
  return m->electrons * (bracket / beta2 + radiated);
}

// The same for electrons, transfers up to half the energy: Berger and Seltzer (ICRU 37). A
// positron is given the electron's loss; theirs differ by a few per cent.
static double kv_berger_seltzer(const kv_medium *m, double energy, double cut) {
  double tau = energy / KV_ELECTRON_MASS, gamma = 1.0 + tau;
  double bg2 = tau * (tau + 2.0), beta2 = bg2 / (gamma * gamma);
  double up = cut < 0.5 * energy ? cut / KV_ELECTRON_MASS : 0.5 * tau;
  double excitation = 1e-6 * m->material->excitation_ev / KV_ELECTRON_MASS;
  double f = log((tau - up) * up) - 1.0 - beta2 + tau / (tau - up) +
             (0.5 * up * up + (2.0 * tau + 1.0) * log(1.0 - up / tau)) / (gamma * gamma);
  double bracket = log(2.0 * (tau + 2.0) / (excitation * excitation)) + f -
                   kv_density_effect(m->material, sqrt(bg2));
  return m->electrons * bracket / beta2;
}

// Electrons of more than cut knocked out by a muon, 1/cm.
static double kv_delta_rays(const kv_medium *m, double energy, double cut) {
  double most = kv_most_transfer(energy);
  if (most <= cut)
    return 0.0;
  double gamma = 1.0 + energy / KV_MUON_MASS, beta2 = 1.0 - 1.0 / (gamma * gamma);
  double e = energy + KV_MUON_MASS;
  double bracket =
      1.0 / cut - 1.0 / most - beta2 / most * log(most / cut) + (most - cut) / (2.0 * e * e);
  return m->electrons * bracket / beta2;
}

// Electrons of more than cut knocked out by an electron: Moller, 1/cm.
static double kv_moller(const kv_medium *m, double energy, double cut) {
  if (energy <= 2.0 * cut)
    return 0.0;
  double tau = energy / KV_ELECTRON_MASS, gamma = 1.0 + tau, gamma2 = gamma * gamma;
  double beta2 = tau * (tau + 2.0) / gamma2, x = cut / energy;
  double bracket = tau * tau / gamma2 * (0.5 - x) + 1.0 / x - 1.0 / (1.0 - x) -
                   (2.0 * gamma - 1.0) / gamma2 * log((1.0 - x) / x);
  return m->electrons / KV_ELECTRON_MASS * bracket / (beta2 * tau);
}

// --- radiation ---------------------------------------------------------------------------------

// Gauss-Legendre, 16 points: x of each pair of points, and their weight.
static const double kv_gauss[8][2] = {
    {0.09501250983763744, 0.18945061045506850}, {0.28160355077925891, 0.18260341504492359},
    {0.45801677765722739, 0.16915651939500254}, {0.61787624440264375, 0.14959598881657673},
    {0.75540440835500303, 0.12462897125553387}, {0.86563120238783174, 0.09515851168249278},
    {0.94457502307323258, 0.06225352393864789}, {0.98940093499164993, 0.02715245941175409}};

// The same with 8 points.
static const double kv_gauss_8[4][2] = {{0.18343464249564980, 0.36268378337836198},
                                        {0.52553240991632899, 0.31370664587788729},
                                        {0.79666647741362674, 0.22238103445337447},
                                        {0.96028985649753623, 0.10122853629037626}};

typedef double kv_shape(const kv_medium *m, double energy, double x);

// Integral over ln x from low to high of shape (x = exp(ln x)), times x where weigh is set.
static double kv_integral(kv_shape *shape, const kv_medium *m, double energy, double low,
                          double high, int weigh) {
  double middle = 0.5 * (log(low) + log(high)), half = 0.5 * (log(high) - log(low)), sum = 0.0;
  for (int i = 0; i < 8; i++)
    for (int side = -1; side <= 1; side += 2) {
      double x = exp(middle + half * side * kv_gauss[i][0]);
      double value = shape(m, energy, x);
      sum += kv_gauss[i][1] * (weigh ? value * x : value);
    }
  return sum * half;
}

static inline double kv_brems_constant(const kv_medium *m) {
  double z = m->material->z;
  return m->atoms * KV_ALPHA * (KV_ELECTRON_RADIUS * KV_ELECTRON_RADIUS) * z *
         (z + m->electron_share);
}

static inline double kv_muon_brems_constant(const kv_medium *m) {
  double radius = KV_ELECTRON_RADIUS * KV_ELECTRON_MASS / KV_MUON_MASS;
  return m->atoms * (16.0 / 3.0) * KV_ALPHA * (radius * radius) * m->material->z;
}

// Bremsstrahlung of electrons: photons above low (1/cm), or with weigh the loss to those between
// low and high (MeV/cm).
static double kv_brems(const kv_medium *m, double energy, double low, double high, int weigh) {
  high = high < energy ? high : energy;
  if (low >= high)
    return 0.0;
  double e = energy + KV_ELECTRON_MASS;
  return kv_brems_constant(m) * kv_integral(kv_brems_shape, m, e, low, high, weigh);
}

static double kv_muon_brems(const kv_medium *m, double energy, double low, double high, int weigh) {
  high = high < energy ? high : energy;
  if (low >= high)
    return 0.0;
  double e = energy + KV_MUON_MASS;
  return kv_muon_brems_constant(m) * kv_integral(kv_muon_brems_shape, m, e, low, high, weigh);
}

// --- pairs made by muons -----------------------------------------------------------------------

static inline double kv_muon_pair_most(const kv_medium *m, double e) {
  return e - 0.75 * KV_SQRT_E * KV_MUON_MASS * m->cube_root_z;
}

// transfer * dsigma/d(transfer) of e+e- production by a muon of total energy e, per atom and
// without (alpha r_e)^2: Kelner and Kotov (1968), Kokoulin and Petrukhin (1970), in the form of
// the Geant4 Physics Reference Manual; the integral over the pair's asymmetry is done in
// t = ln(1 - rho).
static double kv_muon_pair_shape(const kv_medium *m, double e, double transfer) {
  double z = m->material->z, third = m->cube_root_z, me = KV_ELECTRON_MASS, mu = KV_MUON_MASS;
  double rest = e - transfer, threshold = 4.0 * me / transfer;
  if (threshold >= 1.0 || transfer >= kv_muon_pair_most(m, e))
    return 0.0;
  double heavy = 6.0 * mu * mu / (e * rest);
  double low = log((threshold + 2.0 * heavy * (1.0 - threshold)) /
                   (1.0 + (1.0 - heavy) * sqrt(1.0 - threshold)));
  double v = transfer / e, beta = 0.5 * v * v / (1.0 - v);
  double xi0 = mu * mu * v * v / (4.0 * me * me * (1.0 - v));
  double radius = 183.0 / third, ratio = mu / me;
  double small = 1.5 * third / ratio, middle = 0.5 * low, half = -0.5 * low, sum = 0.0;
  for (int i = 0; i < 8; i++) {
    double side = i % 2 ? 1.0 : -1.0;
    double t = exp(middle + half * side * kv_gauss_8[i / 2][0]);
    double rho = 1.0 - t, rho2 = rho * rho, xi = xi0 * (1.0 - rho2);
    double ye = (5.0 - rho2 + 4.0 * beta * (1.0 + rho2)) /
                (2.0 * (1.0 + 3.0 * beta) * log(3.0 + 1.0 / xi) - rho2 - 2.0 * beta * (2.0 - rho2));
    double yu = (4.0 + rho2 + 3.0 * beta * (1.0 + rho2)) /
                ((1.0 + rho2) * (1.5 + 2.0 * beta) * log(3.0 + xi) + 1.0 - 1.5 * rho2);
    double common = 2.0 * me * KV_SQRT_E * radius * (1.0 + xi) / (transfer * (1.0 - rho2));
    double electron = (1.0 + xi) * (1.0 + ye), muon = (1.0 + 1.0 / xi) * (1.0 + yu);
    double le = log(radius * sqrt(electron) / (1.0 + common * (1.0 + ye))) -
                0.5 * log(1.0 + small * small * electron);
    double lu = log(ratio * radius * sqrt(muon) / (1.0 + common * (1.0 + yu))) -
                log(1.5 * third * sqrt(muon));
    double fe = (((2.0 + rho2) * (1.0 + beta) + xi * (3.0 + rho2)) * log(1.0 + 1.0 / xi) +
                 (1.0 - rho2 - beta) / (1.0 + xi) - (3.0 + rho2)) *
                le;
    double fu = (((1.0 + rho2) * (1.0 + 1.5 * beta) - (1.0 + 2.0 * beta) * (1.0 - rho2) / xi) *
                     log(1.0 + xi) +
                 xi * (1.0 - rho2 - beta) / (1.0 + xi) + (1.0 + 2.0 * beta) * (1.0 - rho2)) *
                lu;
    fe = fe > 0.0 ? fe : 0.0;
    fu = fu > 0.0 ? fu : 0.0;
    sum += kv_gauss_8[i / 2][1] * (fe + fu / (ratio * ratio)) * t;
  }
  double gamma = e / mu, zeta = 0.0;
  if (gamma > 35.0) {
    double nucleus = 0.073 * log(gamma / (1.0 + 1.95e-5 * (third * third) * gamma)) - 0.26;
    double electrons = 0.058 * log(gamma / (1.0 + 5.3e-5 * third * gamma)) - 0.14;
    zeta = nucleus > 0.0 ? nucleus / electrons : 0.0;
  }
  return 4.0 / (3.0 * KV_PI) * z * (z + zeta) * (1.0 - v) * (sum * half);
}

static inline double kv_muon_pair_constant(const kv_medium *m) {
  double radius = KV_ALPHA * KV_ELECTRON_RADIUS;
  return m->atoms * (radius * radius);
}

// --- photons -----------------------------------------------------------------------------------

static double kv_pair_production(const kv_medium *m, double photon) {
  double low = KV_ELECTRON_MASS / photon;
  if (low >= 0.5)
    return 0.0;
  double middle = 0.5 * (0.5 + low), half = 0.5 * (0.5 - low), sum = 0.0;
  for (int i = 0; i < 16; i++) {
    double side = i % 2 ? 1.0 : -1.0;
    double share = middle + half * side * kv_gauss[i / 2][0];
    sum += kv_gauss[i / 2][1] * kv_pair_shape(m, photon, share);
  }
  return 2.0 * kv_brems_constant(m) * sum * half;
}

// Klein and Nishina (1929), on free electrons.
static double kv_compton(const kv_medium *m, double photon) {
  double k = photon / KV_ELECTRON_MASS, l = log(1.0 + 2.0 * k), beyond = 1.0 + 2.0 * k;
  double bracket = (1.0 + k) / (k * k) * (2.0 * (1.0 + k) / beyond - l / k) + l / (2.0 * k) -
                   (1.0 + 3.0 * k) / (beyond * beyond);
  return m->electrons / KV_ELECTRON_MASS * bracket;
}

// Photoelectric absorption: power laws through the tabulated values of Al, Fe and Pb from 0.1 to
// 3 MeV, good to 30 %.
static double kv_photoelectric(const kv_medium *m, double photon) {
  double power = photon < 0.5 ? 2.9 : 2.0;
  double at_half = m->atoms * 0.188e-24 * pow(m->material->z / 26.0, 4.2);
  return at_half * pow(0.5 / photon, power);
}

#endif
