// The detector of the kv simulation: materials, and closed cylinders nested one in the other.
//
// Beam pipe, silicon tracker, solenoid, lead/liquid-argon calorimeter, iron/scintillator
// calorimeter, muon system of air and iron: the sizes are those of a detector at the LHC, the
// order is that of a textbook. Every layer is a cylinder with two flat ends.
#ifndef KV_DETECTOR_H
#define KV_DETECTOR_H

#include "common/kv_types.h"

enum {
  KV_VACUUM,
  KV_AIR,
  KV_BERYLLIUM,
  KV_SILICON,
  KV_ALUMINIUM,
  KV_LIQUID_ARGON,
  KV_IRON,
  KV_LEAD,
  KV_POLYSTYRENE,
  KV_MATERIALS
};

// PDG, Atomic and Nuclear Properties of Materials; density effect: Sternheimer, Berger, Seltzer
// (1984). Mixtures have the one Z that gives them their radiation length, and their own Z/A. The
// beam vacuum is air at 1e-12 of its density: nothing happens in it, and nothing divides by zero.
static const kv_material kv_materials_table[KV_MATERIALS] = {
    {"vacuum", 7.353, 14.730, 1.205e-15, 85.7, 10.5961, 1.7418, 4.2759, 0.10914, 3.3994, 0.0,
     36.62},
    {"air", 7.353, 14.730, 1.205e-3, 85.7, 10.5961, 1.7418, 4.2759, 0.10914, 3.3994, 0.0, 36.62},
    {"beryllium", 4.0, 9.0121831, 1.848, 63.7, 2.7847, 0.0592, 1.6922, 0.80392, 2.4339, 0.14,
     65.19},
    {"silicon", 14.0, 28.0855, 2.329, 173.0, 4.4355, 0.2015, 2.8716, 0.14921, 3.2546, 0.14, 21.82},
    {"aluminium", 13.0, 26.9815385, 2.699, 166.0, 4.2395, 0.1708, 3.0127, 0.08024, 3.6345, 0.12,
     24.01},
    {"liquid argon", 18.0, 39.948, 1.396, 188.0, 5.2146, 0.2000, 3.0000, 0.19559, 3.0000, 0.0,
     19.55},
    {"iron", 26.0, 55.845, 7.874, 286.0, 4.2911, -0.0012, 3.1531, 0.14680, 2.9632, 0.12, 13.84},
    {"lead", 82.0, 207.2, 11.350, 823.0, 6.2018, 0.3776, 3.8073, 0.09359, 3.1608, 0.14, 6.37},
    {"polystyrene", 5.244, 9.753, 1.060, 68.7, 3.2999, 0.1647, 2.5031, 0.16454, 3.2224, 0.0, 43.79},
};

// A part of the detector: one or two layers, repeated. Thickness of the wall and of the ends, cm.
typedef struct {
  int repeat, layers;
  struct {
    int material;
    double wall, end;
  } layer[2];
} kv_part;

static const kv_part kv_parts[] = {
    {1, 2, {{KV_VACUUM, 2.9, 270.0}, {KV_BERYLLIUM, 0.08, 0.08}}},
    {4, 2, {{KV_AIR, 3.0, 1.0}, {KV_SILICON, 0.03, 0.03}}},
    {6, 2, {{KV_AIR, 14.0, 3.0}, {KV_SILICON, 0.06, 0.06}}},
    {1, 2, {{KV_AIR, 8.0, 2.0}, {KV_ALUMINIUM, 5.0, 5.0}}},
    {24, 2, {{KV_LEAD, 0.5, 0.5}, {KV_LIQUID_ARGON, 0.5, 0.5}}},
    {1, 1, {{KV_AIR, 20.0, 20.0}}},
    {30, 2, {{KV_IRON, 4.0, 4.0}, {KV_POLYSTYRENE, 0.4, 0.4}}},
    {4, 2, {{KV_AIR, 40.0, 40.0}, {KV_IRON, 15.0, 15.0}}},
};

#define KV_SOLENOID_FIELD 2.0  // tesla at the centre
#define KV_SOLENOID_SAG 2.7e-6 // 1/cm^2: a fifth of the field is lost at the ends of the tracker

// Lay out the volumes. The solenoid's flux returns through the iron, as one field for all of it.
static int64_t kv_build_detector(const kv_medium *media, kv_volume *volumes) {
  int64_t count = 0, coil = 0;
  double radius = 0.0, half_length = 0.0, iron = 0.0;
  for (size_t part = 0; part < sizeof kv_parts / sizeof *kv_parts; part++)
    for (int repeat = 0; repeat < kv_parts[part].repeat; repeat++)
      for (int layer = 0; layer < kv_parts[part].layers; layer++) {
        int material = kv_parts[part].layer[layer].material;
        double inner = radius;
        radius += kv_parts[part].layer[layer].wall;
        half_length += kv_parts[part].layer[layer].end;
        volumes[count] = (kv_volume){radius, half_length, 0.0, 0.0, &media[material]};
        if (material == KV_ALUMINIUM)
          coil = count;
        if (material == KV_IRON)
          iron += radius * radius - inner * inner;
        count++;
      }
  double inside = volumes[coil - 1].radius;
  double back = -KV_SOLENOID_FIELD * (inside * inside) / iron;
  for (int64_t i = 0; i < count; i++) {
    if (i < coil) {
      volumes[i].field = KV_SOLENOID_FIELD;
      volumes[i].sag = KV_SOLENOID_SAG;
    } else if (volumes[i].medium == &media[KV_IRON]) {
      volumes[i].field = back;
    }
  }
  return count;
}

#endif
