/* event_loop: a multithreaded event framework, whose threads wait for each other at known points.
 *
 * Each thread takes the next event and brings it through a chain of modules: kv's detector
 * simulation of muons, a jet correction by formulas, a selection through an interface that calls
 * methods by name, items evaluated when they are asked for, and output. It stresses what C. Jones
 * found in cmsRun (Threading Performance Measurements with VTune, 2015): a formula's construction
 * takes a global lock, every call through the interface takes a lock, an output module serves one
 * event at a time and computes a long checksum of a class under a lock, and items of the event's
 * data go through a serial queue of tasks.
 *
 * Each of these points can be switched off. Kept constant: the work. It is the same with and
 * without the lock, so the time that a job gains was waiting. The checksum is a function of the
 * seed, the events' numbers and the sizes alone; it folds all results, so the compiler can leave
 * nothing out.
 *
 * The job keeps its own account of every lock's waiting, printed as JSON at its end
 * (common/event_loop_locks.h says what is counted): the truth that a profile is held to.
 *
 * @kernel
 * flags = ["-O2", "-g", "-ffp-contract=off", "-fno-math-errno", "-fno-builtin-log",
 *          "-fno-builtin-exp", "-fno-builtin-pow", "-fno-builtin-sin", "-fno-builtin-cos",
 *          "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
 * link = ["-lm", "-lpthread"]
 * bundle = ["program"]
 * [variants.tsan] # every access to memory is watched for races
 * flags = ["-O1", "-g", "-ffp-contract=off", "-fno-math-errno", "-fno-builtin-log",
 *          "-fno-builtin-exp", "-fno-builtin-pow", "-fno-builtin-sin", "-fno-builtin-cos",
 *          "-fno-omit-frame-pointer", "-fsanitize=thread"]
 * link = ["-lm", "-lpthread", "-fsanitize=thread"]
 * bundle = []
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pthread_setname_np, the kinds of mutexes
#endif
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/event_loop_modules.h"

// @interface
// The checksum of one event of the chain, by the calling thread, without locks. sizes: jets, and
// the work of formula, interface, queue, output, checksum. 0 for bad sizes.
uint64_t event_checksum(uint64_t seed, uint64_t event, const int64_t sizes[6]);
// The checksum of a job of these events, from theirs.
uint64_t event_merge(const uint64_t *records, int64_t events, int64_t passes);
// @end

static pthread_once_t event_prepared = PTHREAD_ONCE_INIT;

// Serial, at the beginning: the detector, its cross sections, the dictionaries.
EVENT_PART void prepare(void) { pthread_once(&event_prepared, prepare_tables); }

uint64_t event_checksum(uint64_t seed, uint64_t event, const int64_t sizes[6]) {
  event_job job = {.seed = seed,
                   .sizes = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]}};
  event_worker *w = aligned_alloc(_Alignof(event_worker), sizeof *w);
  if (w == NULL || sizes[0] < 1 || sizes[0] > EVENT_MOST_JETS / 2 || sizes[1] > EVENT_MOST_TERMS) {
    free(w);
    return 0;
  }
  prepare();
  memset(w, 0, offsetof(event_worker, stack));
  w->job = &job;
  uint64_t checksum = process_event(w, event);
  free(w);
  return checksum;
}

// Serial, at the end: the events' records, in the order of their numbers, into one.
EVENT_PART uint64_t merge(const uint64_t *records, int64_t events, int64_t passes) {
  uint64_t merged = 0;
  for (int64_t i = 0; i < events; i++)
    for (int64_t pass = 0; pass < passes; pass++)
      merged = kv_fold(merged, records[i]);
  return merged;
}

uint64_t event_merge(const uint64_t *records, int64_t events, int64_t passes) {
  return merge(records, events, passes);
}

#ifdef PERFLIB_MAIN
#include "common/event_loop_main.h"
#endif
