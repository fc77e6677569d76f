// Spectra of the kv simulation without their constants: what a step samples from, and what the
// cross sections (kv_formulas.h) are integrals of.
#ifndef KV_SHAPES_H
#define KV_SHAPES_H

#include "common/kv_types.h"

// The most a muon can give an electron at rest (PDG 2022, eq. 34.4).
static inline double kv_most_transfer(double energy) {
  double gamma = 1.0 + energy / KV_MUON_MASS, ratio = KV_ELECTRON_MASS / KV_MUON_MASS;
  return 2.0 * KV_ELECTRON_MASS * (gamma * gamma - 1.0) /
         (1.0 + 2.0 * gamma * ratio + ratio * ratio);
}

// Screening functions of the Thomas-Fermi atom (Butcher and Messel 1960), less the screening and
// Coulomb terms of the element; delta = 136 m_e k / (Z^(1/3) E E') for a photon k between electron
// energies E and E' (bremsstrahlung), or E+ and E- (pair production).
static inline double kv_screening_1(double element, double delta) {
  double phi =
      delta <= 1.0 ? 20.867 - delta * (3.242 - delta * 0.625) : 21.12 - 4.184 * log(delta + 0.952);
  return phi - element;
}

static inline double kv_screening_2(double element, double delta) {
  double phi =
      delta <= 1.0 ? 20.209 - delta * (1.930 + delta * 0.086) : 21.12 - 4.184 * log(delta + 0.952);
  return phi - element;
}

static inline double kv_screening_delta(const kv_medium *m, double photon, double e1, double e2) {
  return 136.0 * KV_ELECTRON_MASS * photon / (m->cube_root_z * e1 * e2);
}

// k dsigma/dk of an electron of total energy e, without its constants.
KV_PART double kv_brems_shape(const kv_medium *m, double e, double photon) {
  double rest = e - photon, ratio = rest / e;
  double delta = kv_screening_delta(m, photon, e, rest);
  double element = m->screening + m->coulomb;
  double shape = (1.0 + ratio * ratio) * kv_screening_1(element, delta) -
                 2.0 / 3.0 * ratio * kv_screening_2(element, delta);
  return shape > 0.0 ? shape : 0.0;
}

// The Coulomb correction of pair production counts above 50 MeV, as in EGS and Geant4.
static inline double kv_pair_element(const kv_medium *m, double photon) {
  return photon > 50.0 ? m->screening + m->coulomb : m->screening;
}

// dsigma/d(share) of a photon's pair, share = E+ / photon, without its constants.
KV_PART double kv_pair_shape(const kv_medium *m, double photon, double share) {
  double both = share * (1.0 - share);
  double delta = 136.0 * KV_ELECTRON_MASS / (m->cube_root_z * photon * both);
  double element = kv_pair_element(m, photon);
  double shape = (1.0 - 2.0 * both) * kv_screening_1(element, delta) +
                 2.0 / 3.0 * both * kv_screening_2(element, delta);
  return shape > 0.0 ? shape : 0.0;
}

// k dsigma/dk of a muon of total energy e, without its constants: Kelner, Kokoulin, Petrukhin
// (1997), on the nucleus and on the electrons.
KV_PART double kv_muon_brems_shape(const kv_medium *m, double e, double photon) {
  double v = photon / e;
  double delta = KV_MUON_MASS * KV_MUON_MASS * photon / (2.0 * e * (e - photon));
  double z = m->material->z, third = m->cube_root_z;
  double nucleus =
      log(183.0 / third * (KV_MUON_MASS + delta * (m->muon_nucleus * KV_SQRT_E - 2.0)) /
          (m->muon_nucleus * (KV_ELECTRON_MASS + delta * KV_SQRT_E * 183.0 / third)));
  double electrons = 0.0;
  double most = e / (1.0 + KV_MUON_MASS * KV_MUON_MASS / (2.0 * KV_ELECTRON_MASS * e));
  if (photon < most)
    electrons =
        log(1429.0 / (third * third) * KV_MUON_MASS /
            ((1.0 + delta * KV_MUON_MASS / (KV_ELECTRON_MASS * KV_ELECTRON_MASS * KV_SQRT_E)) *
             (KV_ELECTRON_MASS + delta * KV_SQRT_E * 1429.0 / (third * third))));
  nucleus = nucleus > 0.0 ? nucleus : 0.0;
  electrons = electrons > 0.0 ? electrons : 0.0;
  return (1.0 - v + 0.75 * v * v) * (z * nucleus + electrons);
}

#endif
