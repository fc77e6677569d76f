// The modules that an event goes through, one after the other.
//
// What is done under a lock needs none: every thread works on data of its own. So the same work is
// done with and without it, and versions of the job differ by waiting alone.
#ifndef EVENT_LOOP_MODULES_H
#define EVENT_LOOP_MODULES_H

#include <stdio.h>

#include "common/event_loop_locks.h"

#define EVENT_LEAST_MOMENTUM 3e2 // MeV, of the muons that jets are made of
#define EVENT_MOST_MOMENTUM 1e3
#define EVENT_MOST_RAPIDITY 1.0
#define EVENT_DEGREES 12    // of the polynomials in a correction
#define EVENT_TERM_BYTES 24 // "+0.123*legendre_012(x)"
#define EVENT_TRACK_CM 0.1  // a step of a track that is looked for again

static kv_medium event_media[KV_MATERIALS];
static kv_volume event_volumes[KV_MAX_VOLUMES];
static int64_t event_volume_count;

// The functions that formulas may name, and the methods that the interface knows.
static char function_names[EVENT_NAMES][EVENT_NAME_BYTES];
static char method_names[EVENT_NAMES][EVENT_NAME_BYTES];
static char correction_text[EVENT_MOST_TERMS * EVENT_TERM_BYTES];

static const char class_description[] =
    "RecoJet:public Track{double momentum;double direction[3];double deposited;double "
    "correction;double selected;double track[3];unsigned long checksum;};";

static void prepare_tables(void) {
  kv_fill_tables(event_media);
  event_volume_count = kv_build_detector(event_media, event_volumes);
  for (int i = 0; i < EVENT_NAMES; i++) {
    snprintf(function_names[i], EVENT_NAME_BYTES, "legendre_%03d", i);
    snprintf(method_names[i], EVENT_NAME_BYTES, "deposited_%03d", i);
  }
  for (int term = 0; term < EVENT_MOST_TERMS; term++)
    snprintf(correction_text + (size_t)term * (EVENT_TERM_BYTES - 2), EVENT_TERM_BYTES,
             "+0.%03d*legendre_%03d(x)", 1 + 37 * term % 89, 5 * term % EVENT_NAMES);
}

// The place of a name, of so many characters, in a dictionary that is searched from its beginning.
EVENT_PART int find_name(char names[][EVENT_NAME_BYTES], const char *name, int64_t length) {
  for (int i = 0; i < EVENT_NAMES; i++) {
    int64_t same = 0;
    while (same < length && names[i][same] == name[same])
      same++;
    if (same == length && names[i][length] == '\0')
      return i;
  }
  return -1;
}

// How many jets an event has: from 1 to twice the mean, less 1, each as often as any other. Events
// of one size would fall into step, and wait less than real ones do.
static int64_t jets_of(const event_job *job, uint64_t number) {
  uint32_t counter[4] = {0, UINT32_MAX, (uint32_t)number, (uint32_t)(number >> 32)}, random[4];
  kv_philox(counter, job->seed, random);
  return 1 + random[0] % (2 * job->sizes.jets - 1);
}

// --- simulation --------------------------------------------------------------------------------

static kv_particle jet_primary(kv_state *s, event_jet *jet) {
  kv_particle p = {.kind = KV_MUON, .number = 0};
  double range = log(EVENT_MOST_MOMENTUM / EVENT_LEAST_MOMENTUM);
  jet->momentum = EVENT_LEAST_MOMENTUM * exp(range * kv_uniform(s, &p));
  double rapidity = EVENT_MOST_RAPIDITY * (2.0 * kv_uniform(s, &p) - 1.0);
  double azimuth = 2.0 * KV_PI * kv_uniform(s, &p);
  p.charge = kv_uniform(s, &p) < 0.5 ? -1 : 1;
  double up = exp(rapidity), down = exp(-rapidity), cosh2 = up + down;
  p.direction[0] = 2.0 * cos(azimuth) / cosh2;
  p.direction[1] = 2.0 * sin(azimuth) / cosh2;
  p.direction[2] = (up - down) / cosh2;
  p.energy = sqrt(jet->momentum * jet->momentum + KV_MUON_MASS * KV_MUON_MASS) - KV_MUON_MASS;
  memcpy(jet->direction, p.direction, sizeof jet->direction);
  s->particles = 1;
  return p;
}

// A muon, and all that it makes, through the detector.
EVENT_PART void simulate_jet(event_worker *w, event_jet *jet, uint64_t number) {
  kv_state state = {.volumes = event_volumes,
                    .volume_count = event_volume_count,
                    .seed = w->job->seed,
                    .event = number,
                    .stack = w->stack};
  state.stack[state.waiting++] = jet_primary(&state, jet);
  while (state.waiting > 0) {
    kv_particle p = state.stack[--state.waiting];
    int alive = 1;
    while (alive) {
      state.steps++;
      alive = state.steps < KV_MAX_STEPS && kv_step(&state, &p);
    }
    state.checksum = kv_fold_double(state.checksum, p.position[2]);
  }
  jet->deposited = 0.0;
  for (int64_t i = 0; i < event_volume_count; i++) {
    jet->deposited += state.deposited[i];
    w->event.deposited[i] += state.deposited[i];
  }
  jet->checksum = kv_fold_double(state.checksum, jet->deposited);
}

EVENT_PART void simulate(event_worker *w) {
  for (int64_t i = 0; i < w->event.jet_count; i++)
    simulate_jet(w, &w->event.jets[i], w->event.number * EVENT_MOST_JETS + (uint64_t)i);
}

// --- jet correction ----------------------------------------------------------------------------

// From "+0.123*legendre_012(x)+ ..." to factors and functions.
EVENT_PART void formula_parse(event_worker *w, const char *text, int64_t terms) {
  for (w->terms = 0; w->terms < terms; w->terms++) {
    double factor = 0.0;
    for (text += 3; *text != '*'; text++)
      factor = 10.0 * factor + (*text - '0');
    const char *name = ++text;
    while (*text != '(')
      text++;
    w->factors[w->terms] = factor / 1000.0;
    w->functions[w->terms] = find_name(function_names, name, text - name);
    text += 3;
  }
}

EVENT_PART void formula_construct(event_worker *w) {
  take_lock(w, FORMULA_LOCK);
  formula_parse(w, correction_text, w->job->sizes.formula);
  release_lock(w, FORMULA_LOCK);
}

EVENT_PART double formula_evaluate(const event_worker *w, double x) {
  double sum = 0.0;
  for (int64_t i = 0; i < w->terms; i++) {
    double before = 0.0, value = 1.0; // Legendre polynomials of degrees n - 1 and n
    for (int n = 0; n < w->functions[i] % EVENT_DEGREES; n++) {
      double next = ((2 * n + 1) * x * value - n * before) / (n + 1);
      before = value;
      value = next;
    }
    sum += w->factors[i] * value;
  }
  return sum;
}

// A formula is made anew for each jet.
EVENT_PART void correct_jets(event_worker *w) {
  for (int64_t i = 0; i < w->event.jet_count; i++) {
    event_jet *jet = &w->event.jets[i];
    formula_construct(w);
    jet->correction = formula_evaluate(w, jet->direction[2]);
  }
}

// --- selection ---------------------------------------------------------------------------------

// Methods of the event, called by name: what was deposited in some of its volumes.
EVENT_PART double interface_call(event_worker *w, int64_t first) {
  double sum = 0.0;
  take_lock(w, INTERFACE_LOCK);
  for (int64_t i = 0; i < w->job->sizes.interface; i++) {
    const char *name = method_names[(first + 7 * i) % EVENT_NAMES];
    int method = find_name(method_names, name, (int64_t)strlen(name));
    sum += w->event.deposited[method % event_volume_count];
  }
  release_lock(w, INTERFACE_LOCK);
  return sum;
}

EVENT_PART void select_jets(event_worker *w) {
  for (int64_t i = 0; i < w->event.jet_count; i++)
    w->event.jets[i].selected = interface_call(w, 11 * i);
}

// --- items that are evaluated when they are asked for ------------------------------------------

// The jet's track on its way out through the field.
EVENT_PART void item_evaluate(event_worker *w, event_jet *jet) {
  double direction[3];
  memcpy(direction, jet->direction, sizeof direction);
  memset(jet->track, 0, sizeof jet->track);
  for (int64_t i = 0; i < w->job->sizes.queue; i++)
    kv_runge_kutta(jet->track, direction, KV_CURVATURE / jet->momentum, KV_SOLENOID_FIELD, 0.0,
                   EVENT_TRACK_CM);
}

EVENT_PART void evaluate_items(event_worker *w) {
  for (int64_t i = 0; i < w->event.jet_count; i++) {
    if (is_serialised(w, TASK_QUEUE))
      task_queue_push(w, &w->event.jets[i]);
    else
      item_evaluate(w, &w->event.jets[i]);
  }
}

// --- output ------------------------------------------------------------------------------------

// The checksum of a class, from its description.
EVENT_PART uint64_t checksum_class(event_worker *w) {
  take_lock(w, CLASS_LOCK);
  uint64_t id = 0;
  for (int64_t pass = 0; pass < w->job->sizes.checksum; pass++)
    for (const char *at = class_description; *at != '\0'; at++)
      id = 3 * id + (uint64_t)*at;
  release_lock(w, CLASS_LOCK);
  return id;
}

EVENT_PART uint64_t output_pack(const event_worker *w, int64_t passes) {
  uint64_t packed = 0;
  for (int64_t pass = 0; pass < passes; pass++)
    for (int64_t i = 0; i < event_volume_count; i++)
      packed = kv_fold_double(packed, w->event.deposited[i]);
  return packed;
}

// One output module takes the event: it serves one at a time.
EVENT_PART void output_write(event_worker *w, int module, int64_t passes) {
  take_lock(w, module);
  uint64_t packed = kv_fold(output_pack(w, passes), checksum_class(w));
  w->event.checksum = kv_fold(w->event.checksum, packed);
  release_lock(w, module);
}

// To the module that keeps all, and to one that keeps little.
EVENT_PART void write_event(event_worker *w) {
  output_write(w, OUTPUT_MODULE, w->job->sizes.output);
  output_write(w, MONITOR_MODULE, 1);
}

// --- the chain ---------------------------------------------------------------------------------

// One event through all modules; its checksum.
EVENT_PART uint64_t process_event(event_worker *w, uint64_t number) {
  memset(&w->event, 0, sizeof w->event);
  w->event.number = number;
  w->event.jet_count = jets_of(w->job, number);
  simulate(w);
  correct_jets(w);
  select_jets(w);
  evaluate_items(w);
  for (int64_t i = 0; i < w->event.jet_count; i++) {
    const event_jet *jet = &w->event.jets[i];
    uint64_t hash = kv_fold_double(jet->checksum, jet->correction);
    hash = kv_fold_double(hash, jet->selected);
    for (int k = 0; k < 3; k++)
      hash = kv_fold_double(hash, jet->track[k]);
    w->event.checksum = kv_fold(w->event.checksum, hash);
  }
  write_event(w);
  return w->event.checksum;
}

#endif
