// What the parts of the event loop share: the job, its events, its threads, its account.
#ifndef EVENT_LOOP_TYPES_H
#define EVENT_LOOP_TYPES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "kv_step.inc"

#include "common/kv_tables.h"

// A function that stands in every call chain under its own name, whatever the optimiser would do.
#define EVENT_PART KV_PART

#define EVENT_MOST_JETS 64 // of one event
#define EVENT_NAMES 512    // in each dictionary of functions
#define EVENT_NAME_BYTES 16
#define EVENT_MOST_TERMS 4096

// The points where events queue up, each an option.
enum { POINT_FORMULA, POINT_INTERFACE, POINT_OUTPUT, POINT_CHECKSUM, POINT_QUEUE, EVENT_POINTS };

static const char *const event_points[EVENT_POINTS] = {"formula", "interface", "output", "checksum",
                                                       "queue"};

// The locks that stand there; the output point has two, one for each output module.
enum {
  FORMULA_LOCK,
  INTERFACE_LOCK,
  OUTPUT_MODULE,
  MONITOR_MODULE,
  CLASS_LOCK,
  TASK_QUEUE,
  EVENT_LOCKS
};

typedef struct {
  int64_t jets; // of an event, on average
  // How much work there is at each point: terms of a formula, method calls, steps of a track,
  // passes over the event, passes over the description of a class.
  int64_t formula, interface, queue, output, checksum;
} event_sizes;

typedef struct {
  uint64_t seed;
  int64_t threads, events, first, spin, merge;
  int64_t points; // bit p: point p is serialised
  event_sizes sizes;
  atomic_int_fast64_t begun; // events
  uint64_t *records;         // of each event, what the output is merged from
} event_job;

typedef struct {
  double momentum, direction[3], deposited, correction, selected, track[3];
  uint64_t checksum;
} event_jet;

typedef struct {
  uint64_t number, checksum;
  int64_t jet_count;
  event_jet jets[EVENT_MOST_JETS];
  double deposited[KV_MAX_VOLUMES];
} event_data;

// Of one thread at one lock.
typedef struct {
  int64_t taken, waits, waiting_ns, longest_ns, held_ns, spinning_ns;
  int64_t since_ns; // when it was taken
} lock_account;

typedef struct {
  _Alignas(64) event_job *job;
  pthread_t thread;
  int64_t row, tid, events, cpu_ns, begin_ns, end_ns;
  lock_account locks[EVENT_LOCKS];
  event_data event;
  int64_t terms;
  int32_t functions[EVENT_MOST_TERMS];
  double factors[EVENT_MOST_TERMS];
  kv_particle stack[KV_STACK];
} event_worker;

static int64_t event_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

#endif
