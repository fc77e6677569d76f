// What the parts of the kv simulation share: units, particles, the detector, the event's state.
//
// Units: MeV, cm, tesla. "energy" of a particle is kinetic. Every constant of physics is from the
// PDG review (2022) unless another source stands beside it.
#ifndef KV_TYPES_H
#define KV_TYPES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef KV_PART // a part of the physics code; kv_step.inc makes it a function with a symbol
#define KV_PART static inline
#endif

#define KV_PI 3.14159265358979323846
#define KV_ELECTRON_MASS 0.51099895
#define KV_MUON_MASS 105.6583755
#define KV_ALPHA 0.0072973525693         // fine structure constant
#define KV_ELECTRON_RADIUS 2.8179403e-13 // cm
#define KV_AVOGADRO 6.02214076e23
#define KV_BETHE 0.307075       // 4 pi N_A r_e^2 m_e c^2, MeV cm^2/mol
#define KV_CURVATURE 2.99792458 // MeV / (T cm): p_T = 0.3 B R
#define KV_SQRT_E 1.648721270700128
#define KV_LN10 2.302585092994046

// Production and tracking thresholds (MeV): below them energy is lost continuously, or on the spot.
#define KV_ELECTRON_CUT 0.5
#define KV_PHOTON_CUT 0.2
#define KV_MUON_PAIR_CUT 10.0 // e+e- pairs made by muons
#define KV_MUON_STOP 2.0      // a muon below this is at rest, and decays

// Tables of cross sections: KV_PER_DECADE nodes a decade, equidistant in log E.
#define KV_TABLE_LOW 0.2
#define KV_PER_DECADE 16
#define KV_NODES 125          // up to 11 TeV
#define KV_PAIR_FIRST 60      // node at 1.1 GeV; slower muons make no pairs
#define KV_PAIR_POINTS 25     // of the cumulative spectrum of muon pair production
#define KV_TRIES 100          // of a rejection loop; the worst of them accepts a third
#define KV_MAX_STEPS 50000000 // of one event; a muon of 5 TeV that loses all takes 14 million
#define KV_STACK 8192         // secondaries that wait; 500 were seen in 400 events of 5 TeV
#define KV_MAX_VOLUMES 160
#define KV_SECTORS 16

enum { KV_MUON, KV_ELECTRON, KV_PHOTON, KV_KINDS }; // an electron has charge -1 or +1

typedef struct {
  const char *name;
  double z, a, density;                      // g/cm^3
  double excitation_ev;                      // mean excitation energy I
  double cbar, x0, x1, slope, power, delta0; // density effect (Sternheimer)
  double radiation_length;                   // g/cm^2
} kv_material;

// A material as the step code needs it: all that follows from it, worked out once.
typedef struct {
  const kv_material *material;
  double radiation_length_cm;
  double electrons; // electrons per cm^3 times 2 pi r_e^2 m_e: MeV/cm
  double atoms;     // per cm^3
  double cube_root_z;
  double screening;      // 4/3 ln Z and
  double coulomb;        // 4 f(Z) of the screened cross sections
  double electron_share; // Z (Z + electron_share) instead of Z^2
  double muon_nucleus;   // 1.54 A^0.27
  // per kind and node: energy loss (MeV/cm) below the cuts, then three cross sections (1/cm)
  double table[KV_KINDS][KV_NODES][4];
  // spectrum of muon pairs: share below each of KV_PAIR_POINTS energies, equidistant in log
  double pair_share[KV_NODES - KV_PAIR_FIRST][KV_PAIR_POINTS];
} kv_medium;

// Volume i is what lies in cylinder i (radius, half length) and not in cylinder i - 1.
typedef struct {
  double radius, half_length;
  double field; // along z, tesla, at the centre
  double sag;   // 1/cm^2: how the solenoid's field falls towards its ends (kv_field)
  const kv_medium *medium;
} kv_volume;

typedef struct {
  double position[3], direction[3];
  double energy;
  double free_paths; // mean free paths left before the next interaction
  double scattered;  // radiation lengths / beta^2 behind it: the argument of Highland's logarithm
  int32_t kind, charge, volume;
  uint32_t number; // in order of creation within the event
  uint32_t draws;  // random numbers used so far
  uint32_t words[4];
} kv_particle;

typedef struct {
  const kv_volume *volumes;
  int64_t volume_count;
  uint64_t seed, event;
  int64_t steps, particles, truncated;
  int64_t waiting; // particles on the stack
  kv_particle *stack;
  uint64_t checksum;
  double escaped;
  double deposited[KV_MAX_VOLUMES];
  int64_t next_slice; // the step before which the next slice begins; -1: none does
  void *slices;       // whatever kv_slice_ends() notes them in
} kv_state;

// --- random numbers ----------------------------------------------------------------------------

// Philox 4x32-10 (Salmon et al., SC'11, doi:10.1145/2063384.2063405): 128 random bits that are a
// function of a counter and a key alone, so an event needs no other event to have run.
static inline void kv_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t left = (uint64_t)0xD2511F53u * c0, right = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(right >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)right;
    c2 = (uint32_t)(left >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)left;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

// The particle's next random number, uniform in (0, 1), never 0 or 1.
KV_PART double kv_uniform(const kv_state *s, kv_particle *p) {
  if (p->draws % 4 == 0) {
    uint32_t counter[4] = {p->draws / 4, p->number, (uint32_t)s->event, (uint32_t)(s->event >> 32)};
    kv_philox(counter, s->seed, p->words);
  }
  return ((double)p->words[p->draws++ % 4] + 0.5) * 0x1p-32;
}

// --- bookkeeping -------------------------------------------------------------------------------

static inline uint64_t kv_fold(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

static inline uint64_t kv_fold_double(uint64_t hash, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return kv_fold(hash, bits);
}

// What a particle has to give: a muon's mass is what it decays into; a positron takes an electron
// of the detector with it.
static inline double kv_total_energy(const kv_particle *p) {
  if (p->kind == KV_MUON)
    return p->energy + KV_MUON_MASS;
  return p->charge > 0 ? p->energy + 2.0 * KV_ELECTRON_MASS : p->energy;
}

// Energy given up where the particle is.
static inline void kv_deposit(kv_state *s, const kv_particle *p, double energy) {
  s->deposited[p->volume] += energy;
}

#endif
