/*
 * Does this core compute correctly? A battery of instructions by class, on inputs that vary bits,
 * each result compared with what software says, in one of several states of the core.
 *
 * Stressed: the execution units, the ways through caches and memory, branch prediction. Kept
 * constant: a block is 1024 results of 64 bits (OPS), the same for all cores, made from its number
 * (common/correctness_inputs.h). What has to come out is computed without the instructions of the
 * class (common/correctness_expected.h), on the core itself; the checksum of that says whether the
 * core's software is right, and is compared with other cores' and with a table. Then the class is
 * executed (common/correctness_run.h), again and again, until its time is over; after each
 * comparison the results are overwritten by their complement, so what is not written is wrong.
 *
 * States: after an idle pause; at once; between bursts of the widest vectors (busy), so that the
 * core draws its full power; with pauses between bursts, so that its clock changes.
 *
 * For tests FAULT_CLASS (2 and more: the class, from 0) makes every FAULT_EVERY-th result wrong on
 * the core FAULT_CORE - 1, and only while all cores work where FAULT_STATE is 2.
 *
 * @kernel
 * flags = ["-O2", "-ffp-contract=off"]
 * fixed = true
 * [define]
 * FAULT_CLASS = 1
 * FAULT_CORE = 1
 * FAULT_EVERY = 1
 * FAULT_STATE = 1
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

// @interface
typedef struct {
  int64_t start_ns;    /* CLOCK_MONOTONIC when its first block began */
  int64_t time_ns;     /* wall time until its last block was compared */
  int64_t operations;  /* results of 64 bits that were compared */
  int64_t wrong;       /* of them */
  int64_t first_index; /* place in the block of the first wrong one; -1: none */
  int64_t cpu;         /* where it ran; -1 if it was moved meanwhile */
  uint64_t expected;   /* of the first wrong one */
  uint64_t found;
  uint64_t checksum; /* of all that was expected: what this core's software says */
} correctness_result;

/* Classes by number; see enum class. 1: this processor has the instructions; 0: it has not. */
int64_t correctness_available(int64_t which);

/* The checksum of what a block has to give, and, unless NULL, all 1024 of it; 0: no such class. */
uint64_t correctness_expected(int64_t which, uint64_t block, uint64_t *expected);

/* n classes, each for class_ns: when begin_ns of CLOCK_MONOTONIC has come, each after idle_ns of
   sleep, sleeping pause_ns after each burst_ns of work (0: never). load: 0 nothing else; 1 the
   widest vectors in between; 2 the same, and all cores do so. 0, or an errno: EINVAL, ENOMEM. */
int64_t correctness_run(const int64_t *classes, int64_t n, uint64_t block, int64_t begin_ns,
                        int64_t class_ns, int64_t idle_ns, int64_t burst_ns, int64_t pause_ns,
                        int64_t load, correctness_result *results);
// @end

#include "common/core_clock.h"
#include "common/correctness_run.h"

enum { BUSY_STEPS = 2000 }; // cycles, about, between two blocks
enum { TOGETHER = 2 };

static battery *made; // this process's, of its newest block
static uint64_t *expected[CLASSES];

static uint64_t checksum_of(const uint64_t *words) {
  uint64_t found = 0;
  for (int i = 0; i < OPS; i++)
    found = rotate(found, 5) ^ words[i];
  return splitmix(found);
}

// The inputs of a block, and the memory that its classes read.
static int make_block(uint64_t block) {
  if (made == NULL) {
    made = aligned_alloc(_Alignof(battery), sizeof *made);
    if (made == NULL)
      return ENOMEM;
    memset(made, 0, sizeof *made);
    made->memory = aligned_alloc(64, MEMORY_LINES * 64);
    if (made->memory == NULL) {
      free(made);
      made = NULL;
      return ENOMEM;
    }
    memset(made->memory, 0, MEMORY_LINES * 64);
  } else if (made->block == block) {
    return 0;
  }
  for (int i = 0; i < CLASSES; i++) {
    free(expected[i]);
    expected[i] = NULL;
  }
  made->block = block;
  make_inputs(&made->in, block);
  for (uint64_t i = 0; i < CROSSED_WORDS / 2; i++)
    made->crossed[i] = table_word(block, i);
  for (uint64_t i = 0; i < TABLE_WORDS; i++)
    made->table[i] = table_word(block, i);
  return 0;
}

static int make_expected(enum class which, uint64_t block) {
  int error = make_block(block);
  if (error || expected[which] != NULL)
    return error;
  expected[which] = calloc(OPS, sizeof(uint64_t));
  if (expected[which] == NULL)
    return ENOMEM;
  expect(which, &made->in, block, expected[which]);
  return 0;
}

int64_t correctness_available(int64_t which) {
  return which >= 0 && which < CLASSES && available((enum class)which);
}

uint64_t correctness_expected(int64_t which, uint64_t block, uint64_t *to) {
  if (which < 0 || which >= CLASSES || make_expected((enum class)which, block))
    return 0;
  if (to != NULL)
    memcpy(to, expected[which], OPS * sizeof *to);
  return checksum_of(expected[which]);
}

static void sleep_until(int64_t until_ns) {
  struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
    ;
}

// Each test of the experiment has its own fault; a build without one has none of this.
static inline void spoil(enum class which, int64_t cpu, int64_t load, uint64_t *found) {
#if FAULT_CLASS > 1
  static uint64_t count;
  if (which != FAULT_CLASS - 2 || cpu != FAULT_CORE - 1 || (FAULT_STATE == 2 && load != TOGETHER))
    return;
  for (int i = 0; i < OPS; i++)
    if (++count % FAULT_EVERY == 0)
      found[i] ^= 1u << 17;
#else
  (void)which, (void)cpu, (void)load, (void)found;
#endif
}

static inline void compare(const uint64_t *right, uint64_t *found, correctness_result *result) {
  int64_t wrong = 0;
  for (int i = 0; i < OPS; i++)
    wrong += found[i] != right[i];
  for (int i = 0; wrong != 0 && result->first_index < 0 && i < OPS; i++)
    if (found[i] != right[i]) {
      result->first_index = i;
      result->expected = right[i];
      result->found = found[i];
    }
  for (int i = 0; i < OPS; i++)
    found[i] = ~right[i];
  result->wrong += wrong;
  result->operations += OPS;
}

int64_t correctness_run(const int64_t *classes, int64_t n, uint64_t block, int64_t begin_ns,
                        int64_t class_ns, int64_t idle_ns, int64_t burst_ns, int64_t pause_ns,
                        int64_t load, correctness_result *results) {
  static _Alignas(64) uint64_t found[OPS];
  if (classes == NULL || results == NULL || n < 1 || class_ns < 1)
    return EINVAL;
  for (int64_t i = 0; i < n; i++) {
    if (!correctness_available(classes[i]))
      return EINVAL;
    int error = make_expected((enum class)classes[i], block);
    if (error)
      return error;
  }
  sleep_until(begin_ns);
  for (int64_t i = 0; i < n; i++) {
    enum class which = (enum class)classes[i];
    const uint64_t *right = expected[which];
    correctness_result *result = &results[i];
    *result = (correctness_result){.first_index = -1, .checksum = checksum_of(right)};
    memset(found, 0, sizeof found);
    if (idle_ns > 0)
      sleep_until(clock_ns() + idle_ns);
    int64_t cpu = sched_getcpu(), now_ns = clock_ns(), burst_end_ns = now_ns + burst_ns;
    result->start_ns = now_ns;
    do {
      made->flip = ~made->flip;
      RUNNERS[which](made, found);
      spoil(which, cpu, load, found);
      compare(right, found, result);
      if (load)
        busy(BUSY_STEPS);
      now_ns = clock_ns();
      if (pause_ns > 0 && now_ns > burst_end_ns) {
        sleep_until(now_ns + pause_ns);
        now_ns = clock_ns();
        burst_end_ns = now_ns + burst_ns;
      }
    } while (now_ns < result->start_ns + class_ns);
    result->time_ns = now_ns - result->start_ns;
    result->cpu = sched_getcpu() == cpu ? cpu : -1;
  }
  return 0;
}
