/* kv: a Monte-Carlo detector simulation, the job whose speed is compared from core to core.
 *
 * Single muons, and all that they produce, through nested cylinders of real materials in a
 * solenoid's field: Runge-Kutta, Bethe-Bloch, Highland, delta rays, bremsstrahlung, pair
 * production, Compton scattering. It stresses what such jobs stress: branches, divisions and
 * logarithms in many small functions, and (with copies) more code than the caches for it hold.
 *
 * Kept constant: event k of a seed. Its random numbers are a function of (seed, k, particle,
 * draw), so it can be run alone, anywhere, in any order, with any number of copies. What differs
 * between events is physics: a few muons of the steep spectrum radiate hard, and their showers
 * cost tens of times the median. The checksum folds the end of every particle and every
 * volume's energy, so the compiler can leave nothing out.
 *
 * Not simulated: muon-nucleus interactions (5 to 10 % of the radiative loss), decay in flight,
 * capture of stopped negative muons, in-flight annihilation, single large-angle scatters, the
 * Landau-Pomeranchuk-Migdal effect. Energies: (what came in) = deposited + escaped.
 *
 * libm is called only where Python's math module calls the same function, and nothing is fused or
 * reordered: tests/reference/kv.py gives the same checksums on the same machine. (Another libm, or
 * a CPU for which it picks other code, may round a logarithm differently, and an event then
 * takes another course.)
 *
 * @kernel
 * flags = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-builtin-log", "-fno-builtin-exp",
 *          "-fno-builtin-pow", "-fno-builtin-sin", "-fno-builtin-cos"]
 * link = ["-lm", "-lpthread"]
 * copied = "kv_step.inc"
 * bundle = ["library", "program"]
 * [variants.framed] # call chains for a profiler
 * flags = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-builtin-log", "-fno-builtin-exp",
 *          "-fno-builtin-pow", "-fno-builtin-sin", "-fno-builtin-cos", "-fno-omit-frame-pointer",
 *          "-DKV_COSTLIER=1"]
 * bundle = ["program"]
 * [variants.costlier] # the same but for one number, by which kv_runge_kutta is about 10 % slower
 * flags = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-builtin-log", "-fno-builtin-exp",
 *          "-fno-builtin-pow", "-fno-builtin-sin", "-fno-builtin-cos", "-fno-omit-frame-pointer",
 *          "-DKV_COSTLIER=10"]
 * bundle = ["program"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "common/bracket.h"
#include "common/kv_tables.h"
#include "common/kv_transport.h"
#include "common/switches.h"

// @interface
typedef struct {
  int64_t event;
  int64_t start_ns;             // CLOCK_MONOTONIC when the event began
  int64_t time_ns;              // wall time of the event
  int64_t cpu_time_ns;          // CLOCK_THREAD_CPUTIME_ID spent in it
  int64_t involuntary_switches; // of the thread, during the event (kv_run only)
  int64_t cpu;                  // where it ran; -1 if it moved meanwhile
  uint64_t checksum;
  int64_t steps, particles;
  double energy_in_gev, energy_deposited_gev, energy_escaped_gev;
  int64_t truncated; // 1 if a safety limit was hit (the rest was deposited where it was)
} kv_event;

typedef struct {
  int64_t event, slice; // the slice-th part of the event: the same steps wherever it runs
  int64_t cpu;          // where it ran; -1 if it moved meanwhile
  bracket sample;
} kv_slice;

// Simulate events[0 .. count - 1] of a seed into out. 0, or 1 for bad arguments.
int64_t kv_run(uint64_t seed, const int64_t *events, int64_t count, kv_event *out);
// The same in slices of so many steps, each between two probes; an event's times are the sums of
// its slices'. Returns the number of slices, or -1 for bad arguments; those beyond most are not
// noted.
int64_t kv_run_slices(uint64_t seed, const int64_t *events, int64_t count, int64_t slice_steps,
                      kv_event *out, kv_slice *slices, int64_t most);
int64_t kv_code_bytes(void); // extent of the repeated code
int64_t kv_copies(void);

// For the tests of the physics. Energies and momenta in MeV, lengths in cm, fields in tesla;
// particle: 0 muon, 1 electron, 2 photon.
const char *kv_material_name(int64_t material); // NULL after the last
double kv_density(int64_t material);            // g/cm^3
// Mean loss in MeV cm^2/g: by ionisation, and by radiation.
double kv_ionisation(int64_t material, int64_t particle, double energy);
double kv_radiation(int64_t material, int64_t particle, double energy);
// What the step code uses, interpolated: 0 loss below the cuts (MeV/cm), 1 .. 3 cross sections
// (1/cm); and the same from the formulas (muon pairs, column 3 of the muon, left out).
void kv_interpolated(int64_t material, int64_t particle, double energy, double out[4]);
void kv_formulas(int64_t material, int64_t particle, double energy, double out[4]);
// From state = {x, y, z, direction} along path, in a uniform field along z.
void kv_track(double state[6], double momentum, double field, double path, double step);
// Root mean square of the angle in a plane after a thickness in radiation lengths, in so many
// steps, of samples muons.
double kv_scattering_width(double momentum, double thickness, int64_t steps, int64_t samples);
void kv_random(const uint32_t counter[4], uint64_t key, uint32_t out[4]);
// @end

#define KV_LEAST_MOMENTUM 5e3 // MeV, of the muons that come in; dN/dp falls as p^-KV_SLOPE
#define KV_MOST_MOMENTUM 5e6
#define KV_SLOPE 1.7
#define KV_MOST_RAPIDITY 2.0

typedef int kv_step_function(kv_state *s, kv_particle *p);
extern kv_step_function *const kv_step_copies[] __attribute__((visibility("hidden")));
extern const int64_t kv_step_count __attribute__((visibility("hidden")));
extern const char kv_step_begin[] __attribute__((visibility("hidden")));
extern const char kv_step_end[] __attribute__((visibility("hidden")));

static kv_medium kv_media[KV_MATERIALS];
static kv_volume kv_volumes[KV_MAX_VOLUMES];
static int64_t kv_volume_count;
static pthread_once_t kv_ready = PTHREAD_ONCE_INIT;
static _Thread_local kv_particle kv_stack[KV_STACK];

// Which copy of the step code serves a cell: a module (volume and sector) and a kind of particle.
#define KV_CELLS (KV_MAX_VOLUMES * KV_SECTORS * KV_KINDS)
static kv_step_function *kv_cell[KV_CELLS];

// Every copy serves as many cells as any other; which ones is shuffled, always in the same way,
// so that neighbouring cells lie apart whatever the number of copies.
static void kv_deal_copies(int64_t cells) {
  for (int64_t i = 0; i < cells; i++)
    kv_cell[i] = kv_step_copies[i % kv_step_count];
  for (int64_t i = cells - 1; i > 0; i--) {
    uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, random[4];
    kv_philox(counter, 0, random);
    int64_t j = random[0] % (i + 1);
    kv_step_function *other = kv_cell[i];
    kv_cell[i] = kv_cell[j];
    kv_cell[j] = other;
  }
}

static void kv_prepare(void) {
  kv_fill_tables(kv_media);
  kv_volume_count = kv_build_detector(kv_media, kv_volumes);
  kv_deal_copies(kv_volume_count * KV_SECTORS * KV_KINDS);
}

// One of 16 equal sectors in azimuth, without an arc tangent.
static inline int kv_sector(double x, double y) {
  double across = fabs(x), up = fabs(y), less = up < across ? up : across;
  double more = up < across ? across : up;
  return (x < 0.0) + 2 * (y < 0.0) + 4 * (up > across) + 8 * (less > 0.41421356237309503 * more);
}

static kv_particle kv_primary(kv_state *s) {
  kv_particle p = {.kind = KV_MUON, .number = 0};
  double rest = 1.0 - KV_SLOPE;
  double low = pow(KV_LEAST_MOMENTUM, rest), high = pow(KV_MOST_MOMENTUM, rest);
  double momentum = pow(low + (high - low) * kv_uniform(s, &p), 1.0 / rest);
  double rapidity = KV_MOST_RAPIDITY * (2.0 * kv_uniform(s, &p) - 1.0);
  double azimuth = 2.0 * KV_PI * kv_uniform(s, &p);
  p.charge = kv_uniform(s, &p) < 0.5 ? -1 : 1;
  double up = exp(rapidity), down = exp(-rapidity), cosh2 = up + down;
  p.direction[0] = 2.0 * cos(azimuth) / cosh2;
  p.direction[1] = 2.0 * sin(azimuth) / cosh2;
  p.direction[2] = (up - down) / cosh2;
  p.energy = sqrt(momentum * momentum + KV_MUON_MASS * KV_MUON_MASS) - KV_MUON_MASS;
  s->particles = 1;
  return p;
}

// The slices of a call, as they come; those that find no room are counted only.
typedef struct {
  int64_t slice_steps, count, most;
  kv_slice *out, now;
} kv_slices;

static void kv_note_slice(kv_slices *slices) {
  kv_slice *now = &slices->now;
  bracket_end(&now->sample);
  if (sched_getcpu() != now->cpu)
    now->cpu = -1;
  if (slices->count < slices->most)
    slices->out[slices->count] = *now;
  slices->count++;
}

static void kv_slice_ends(kv_state *s) {
  kv_slices *slices = s->slices;
  kv_note_slice(slices);
  s->next_slice += slices->slice_steps;
  bracket last = slices->now.sample;
  slices->now.slice++;
  slices->now.cpu = sched_getcpu();
  bracket_next(&last, &slices->now.sample);
}

// Follow a particle to its end, and fold that into the checksum.
static void kv_follow(kv_state *s, kv_particle *p) {
  int alive = 1;
  while (alive) {
    if (s->steps == KV_MAX_STEPS) { // never seen; bounds the time whatever happens
      s->truncated = 1;
      kv_deposit(s, p, kv_total_energy(p));
      break;
    }
    if (s->steps++ == s->next_slice)
      kv_slice_ends(s);
    int64_t module = (int64_t)p->volume * KV_SECTORS + kv_sector(p->position[0], p->position[1]);
    alive = kv_cell[module * KV_KINDS + p->kind](s, p);
  }
  s->checksum = kv_fold(s->checksum, (uint64_t)p->volume * KV_KINDS + (uint64_t)p->kind);
  s->checksum = kv_fold_double(s->checksum, p->energy);
  for (int i = 0; i < 3; i++)
    s->checksum = kv_fold_double(s->checksum, p->position[i]);
}

static void kv_simulate(kv_state *s, kv_event *out) {
  kv_particle p = kv_primary(s);
  out->energy_in_gev = 1e-3 * kv_total_energy(&p);
  kv_follow(s, &p);
  while (s->waiting > 0) {
    p = s->stack[--s->waiting];
    kv_follow(s, &p);
  }
  double deposited = 0.0;
  for (int64_t i = 0; i < s->volume_count; i++) {
    deposited += s->deposited[i];
    s->checksum = kv_fold_double(s->checksum, s->deposited[i]);
  }
  out->energy_deposited_gev = 1e-3 * deposited;
  out->energy_escaped_gev = 1e-3 * s->escaped;
  out->checksum = s->checksum;
  out->steps = s->steps;
  out->particles = s->particles;
  out->truncated = s->truncated;
}

static kv_state kv_begin(uint64_t seed, int64_t event) {
  return (kv_state){.volumes = kv_volumes,
                    .volume_count = kv_volume_count,
                    .seed = seed,
                    .event = (uint64_t)event,
                    .stack = kv_stack,
                    .next_slice = -1};
}

int64_t kv_run(uint64_t seed, const int64_t *events, int64_t count, kv_event *out) {
  if (count < 0 || (count > 0 && (events == NULL || out == NULL)))
    return 1;
  pthread_once(&kv_ready, kv_prepare);
  for (int64_t i = 0; i < count; i++) {
    kv_event *e = &out[i];
    kv_state state = kv_begin(seed, events[i]);
    e->event = events[i];
    int64_t switches = involuntary_switches(), cpu = sched_getcpu();
    int64_t cpu_time = bracket_cpu_ns();
    e->start_ns = clock_ns();
    kv_simulate(&state, e);
    e->time_ns = clock_ns() - e->start_ns;
    e->cpu_time_ns = bracket_cpu_ns() - cpu_time;
    e->involuntary_switches = involuntary_switches() - switches;
    e->cpu = sched_getcpu() == cpu ? cpu : -1;
  }
  return 0;
}

int64_t kv_run_slices(uint64_t seed, const int64_t *events, int64_t count, int64_t slice_steps,
                      kv_event *out, kv_slice *slices, int64_t most) {
  if (count < 0 || slice_steps < 1 || most < 0 ||
      (count > 0 && (events == NULL || out == NULL || slices == NULL)))
    return -1;
  pthread_once(&kv_ready, kv_prepare);
  kv_slices noted = {.slice_steps = slice_steps, .most = most, .out = slices};
  for (int64_t i = 0; i < count; i++) {
    kv_state state = kv_begin(seed, events[i]);
    state.next_slice = slice_steps;
    state.slices = &noted;
    noted.now = (kv_slice){.event = events[i], .cpu = sched_getcpu()};
    int64_t first = noted.count;
    out[i] = (kv_event){.event = events[i], .cpu = noted.now.cpu};
    bracket_begin(&noted.now.sample);
    kv_simulate(&state, &out[i]);
    kv_note_slice(&noted);
    for (int64_t j = first; j < noted.count && j < most; j++) {
      out[i].time_ns += slices[j].sample.time_ns;
      out[i].cpu_time_ns += slices[j].sample.cpu_time_ns;
      out[i].cpu = slices[j].cpu < 0 ? -1 : out[i].cpu;
    }
  }
  return noted.count;
}

int64_t kv_code_bytes(void) { return kv_step_end - kv_step_begin; }

int64_t kv_copies(void) { return kv_step_count; }

// --- for the tests of the physics --------------------------------------------------------------

const char *kv_material_name(int64_t material) {
  return material < 0 || material >= KV_MATERIALS ? NULL : kv_materials_table[material].name;
}

double kv_density(int64_t material) { return kv_materials_table[material].density; }

static const kv_medium *kv_get_medium(int64_t material) {
  pthread_once(&kv_ready, kv_prepare);
  return &kv_media[material];
}

double kv_ionisation(int64_t material, int64_t particle, double energy) {
  const kv_medium *m = kv_get_medium(material);
  double loss =
      particle == KV_MUON ? kv_bethe(m, energy, energy) : kv_berger_seltzer(m, energy, energy);
  return loss / m->material->density;
}

double kv_radiation(int64_t material, int64_t particle, double energy) {
  const kv_medium *m = kv_get_medium(material);
  double loss, low = KV_SOFT * energy;
  if (particle == KV_MUON) {
    double e = energy + KV_MUON_MASS, most = kv_muon_pair_most(m, e),
           least = 4.0 * KV_ELECTRON_MASS;
    loss = kv_muon_brems(m, energy, low, energy, 1);
    if (least < most)
      loss += kv_muon_pair_constant(m) * kv_integral(kv_muon_pair_shape, m, e, least, most, 1);
  } else {
    loss = kv_brems(m, energy, low, energy, 1);
  }
  return loss / m->material->density;
}

void kv_interpolated(int64_t material, int64_t particle, double energy, double out[4]) {
  kv_look_up(kv_get_medium(material), (int)particle, energy, out);
}

void kv_formulas(int64_t material, int64_t particle, double energy, double out[4]) {
  kv_direct(kv_get_medium(material), (int)particle, energy, out);
}

void kv_track(double state[6], double momentum, double field, double path, double step) {
  for (double done = 0.0; done < path; done += step) {
    double next = path - done < step ? path - done : step;
    kv_runge_kutta(state, state + 3, KV_CURVATURE / momentum, field, 0.0, next);
  }
}

double kv_scattering_width(double momentum, double thickness, int64_t steps, int64_t samples) {
  double sum = 0.0, e2 = momentum * momentum + KV_MUON_MASS * KV_MUON_MASS;
  kv_state s = {.seed = 1};
  for (int64_t i = 0; i < samples; i++) {
    kv_particle p = {.direction = {0.0, 0.0, 1.0}, .number = (uint32_t)i};
    for (int64_t step = 0; step < steps; step++)
      kv_scatter(&s, &p, momentum * momentum, momentum * momentum / e2, 1.0, thickness / steps);
    sum += p.direction[0] * p.direction[0] + p.direction[1] * p.direction[1];
  }
  return sqrt(sum / (2.0 * samples));
}

void kv_random(const uint32_t counter[4], uint64_t key, uint32_t out[4]) {
  kv_philox(counter, key, out);
}

#ifdef PERFLIB_MAIN
#include "common/kv_main.h"
#endif
