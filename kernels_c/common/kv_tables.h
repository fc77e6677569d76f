// The tables of the kv simulation: every formula at KV_NODES energies, for every material.
#ifndef KV_TABLES_H
#define KV_TABLES_H

#include "common/kv_detector.h"
#include "common/kv_formulas.h"

#define KV_SOFT 1e-6 // of a cut: photons below are left out of the continuous loss

static inline double kv_node_energy(int node) {
  return KV_TABLE_LOW * exp(node * (KV_LN10 / KV_PER_DECADE));
}

static void kv_fill_medium(kv_medium *m, const kv_material *material) {
  double z = material->z, a = material->a, density = material->density;
  m->material = material;
  m->radiation_length_cm = material->radiation_length / density;
  m->electrons = 0.5 * KV_BETHE * z / a * density;
  m->atoms = KV_AVOGADRO * density / a;
  m->cube_root_z = pow(z, 1.0 / 3.0);
  m->muon_nucleus = 1.54 * pow(a, 0.27);
  // Coulomb correction (Davies, Bethe, Maximon 1954) and Tsai's share of the electrons (1974).
  double c = KV_ALPHA * z * (KV_ALPHA * z);
  double coulomb = c * (1.0 / (1.0 + c) + 0.20206 - c * (0.0369 - c * (0.0083 - c * 0.002)));
  double nucleus = log(184.15 / m->cube_root_z) - coulomb;
  m->screening = 4.0 / 3.0 * log(z);
  m->coulomb = 4.0 * coulomb;
  m->electron_share = log(1194.0 / (m->cube_root_z * m->cube_root_z)) / nucleus;
}

// The four columns of kv_medium.table, worked out directly, muon pairs apart.
static void kv_direct(const kv_medium *m, int kind, double energy, double out[4]) {
  double soft = KV_SOFT * KV_PHOTON_CUT;
  memset(out, 0, 4 * sizeof *out);
  if (kind == KV_MUON) {
    out[0] =
        kv_bethe(m, energy, KV_ELECTRON_CUT) + kv_muon_brems(m, energy, soft, KV_PHOTON_CUT, 1);
    out[1] = kv_delta_rays(m, energy, KV_ELECTRON_CUT);
    out[2] = kv_muon_brems(m, energy, KV_PHOTON_CUT, energy, 0);
  } else if (kind == KV_ELECTRON) {
    out[0] =
        kv_berger_seltzer(m, energy, KV_ELECTRON_CUT) + kv_brems(m, energy, soft, KV_PHOTON_CUT, 1);
    out[1] = kv_moller(m, energy, KV_ELECTRON_CUT);
    out[2] = kv_brems(m, energy, KV_PHOTON_CUT, energy, 0);
  } else {
    out[1] = kv_compton(m, energy);
    out[2] = kv_pair_production(m, energy);
    out[3] = kv_photoelectric(m, energy);
  }
}

// Pairs by a muon: those above KV_MUON_PAIR_CUT as a cross section and a cumulative spectrum
// (trapezoids in log of the transfer), those below as continuous loss.
static void kv_fill_muon_pairs(kv_medium *m, int node) {
  double e = kv_node_energy(node) + KV_MUON_MASS, *share = m->pair_share[node - KV_PAIR_FIRST];
  double most = kv_muon_pair_most(m, e), width = log(most / KV_MUON_PAIR_CUT);
  double interval = width / (KV_PAIR_POINTS - 1), before = 0.0;
  for (int i = 0; i < KV_PAIR_POINTS; i++) {
    double value = kv_muon_pair_shape(m, e, KV_MUON_PAIR_CUT * exp(i * interval));
    share[i] = i == 0 ? 0.0 : share[i - 1] + 0.5 * interval * (before + value);
    before = value;
  }
  double total = share[KV_PAIR_POINTS - 1], constant = kv_muon_pair_constant(m);
  for (int i = 0; i < KV_PAIR_POINTS; i++)
    share[i] = share[i] / total;
  double *column = m->table[KV_MUON][node];
  column[0] +=
      constant * kv_integral(kv_muon_pair_shape, m, e, 4.0 * KV_ELECTRON_MASS, KV_MUON_PAIR_CUT, 1);
  column[3] = constant * total;
}

static void kv_fill_tables(kv_medium *media) {
  for (int material = 0; material < KV_MATERIALS; material++) {
    kv_medium *m = &media[material];
    kv_fill_medium(m, &kv_materials_table[material]);
    for (int kind = 0; kind < KV_KINDS; kind++)
      for (int node = 0; node < KV_NODES; node++)
        kv_direct(m, kind, kv_node_energy(node), m->table[kind][node]);
    for (int node = KV_PAIR_FIRST; node < KV_NODES; node++)
      kv_fill_muon_pairs(m, node);
  }
}

#endif
