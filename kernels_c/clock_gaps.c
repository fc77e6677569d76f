/*
 * Who takes this core away from a program that wants nothing but the core? The program reads the
 * clock as fast as it can and notes every step that is longer than a threshold: an interrupt, the
 * scheduler, the firmware or the hypervisor was running instead.
 *
 * The loop touches nothing but the clock, two registers and, after a gap, the next element of a
 * buffer that was written before the start (a first touch would be a gap of our own making). After
 * a gap it asks the kernel how often this thread was switched out, which tells "another task ran"
 * from "an interrupt, or something below the kernel". The time for asking is left out, unless it
 * took longer than asking and the threshold together: then the thread lost the core while it asked,
 * which is a gap as well. The clock is read anew before the next step. The clock is
 * CLOCK_MONOTONIC, the one that perf writes with "-k CLOCK_MONOTONIC", so that a gap can be looked
 * up in a trace. The compiler cannot remove the loop: each step ends in a call.
 *
 * Checksum: the sum over all gaps of (rank of the gap, from 1) * length_ns, modulo 2^62; -1 for
 * arguments out of range (threshold_ns < 1, duration_ns < 0, capacity < 0).
 *
 * @kernel
 * flags = ["-O2"]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

// @interface
typedef struct {
  int64_t start_ns;  /* since the first reading of the clock */
  int64_t length_ns; /* of the step, one ordinary step of the loop included */
  int64_t switches;  /* how often the thread was switched out in it (0 for recorded stamps) */
} clock_gap;

typedef struct {
  int64_t steps;       /* steps of the clock, gaps among them */
  int64_t gaps;        /* all gaps, also those beyond the capacity */
  int64_t gap_ns;      /* their summed length */
  int64_t longest_ns;  /* the longest step */
  int64_t shortest_ns; /* the shortest step: the clock's cost, or its resolution */
  int64_t duration_ns; /* the summed length of all steps */
  int64_t first_ns;    /* the first reading of the clock */
} clock_gaps_result;

/* Spin for duration_ns on the core that the caller was pinned to. */
int64_t clock_gaps(int64_t duration_ns, int64_t threshold_ns, clock_gap *gaps, int64_t capacity,
                   clock_gaps_result *result);

/* The same search in n recorded readings of a clock. */
int64_t clock_gaps_in(const int64_t *stamps_ns, int64_t n, int64_t threshold_ns, clock_gap *gaps,
                      int64_t capacity, clock_gaps_result *result);
// @end

typedef struct {
  int64_t threshold_ns;
  clock_gap *gaps;
  int64_t capacity;
  clock_gaps_result result;
  uint64_t checksum;
} search;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t switches(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

/* The shortest of a few askings with their clock. */
static int64_t asking_ns(void) {
  int64_t shortest_ns = INT64_MAX;
  for (int i = 0; i < 8; i++) {
    int64_t before_ns = now_ns();
    switches();
    int64_t took_ns = now_ns() - before_ns;
    if (took_ns < shortest_ns)
      shortest_ns = took_ns;
  }
  return shortest_ns;
}

static void start(search *s, int64_t threshold_ns, clock_gap *gaps, int64_t capacity,
                  int64_t first_ns) {
  *s = (search){.threshold_ns = threshold_ns, .gaps = gaps, .capacity = capacity};
  s->result.first_ns = first_ns;
  s->result.shortest_ns = INT64_MAX;
}

/* One step of the clock; says whether it was a gap. */
static inline int step(search *s, int64_t before_ns, int64_t after_ns) {
  clock_gaps_result *r = &s->result;
  int64_t length_ns = after_ns - before_ns;
  r->steps++;
  r->duration_ns += length_ns;
  if (length_ns < r->shortest_ns)
    r->shortest_ns = length_ns;
  if (length_ns > r->longest_ns)
    r->longest_ns = length_ns;
  if (length_ns <= s->threshold_ns)
    return 0;
  if (r->gaps < s->capacity)
    s->gaps[r->gaps] = (clock_gap){before_ns - r->first_ns, length_ns, 0};
  r->gaps++;
  r->gap_ns += length_ns;
  s->checksum += (uint64_t)r->gaps * (uint64_t)length_ns;
  return 1;
}

static int64_t finish(search *s, clock_gaps_result *result) {
  if (s->result.steps == 0)
    s->result.shortest_ns = 0;
  *result = s->result;
  return (int64_t)(s->checksum & ((1ull << 62) - 1));
}

int64_t clock_gaps(int64_t duration_ns, int64_t threshold_ns, clock_gap *gaps, int64_t capacity,
                   clock_gaps_result *result) {
  if (threshold_ns < 1 || duration_ns < 0 || capacity < 0)
    return -1;
  for (int64_t i = 0; i < capacity; i++)
    gaps[i] = (clock_gap){-1, -1, -1};
  int64_t ask_ns = asking_ns();
  int64_t switched = switches();
  int64_t before_ns = now_ns();
  search s;
  start(&s, threshold_ns, gaps, capacity, before_ns);
  while (before_ns - s.result.first_ns < duration_ns) {
    int64_t after_ns = now_ns();
    int gap = step(&s, before_ns, after_ns);
    while (gap) {
      int64_t switched_now = switches();
      if (s.result.gaps <= capacity)
        gaps[s.result.gaps - 1].switches = switched_now - switched;
      switched = switched_now;
      int64_t asked_ns = now_ns();
      gap = asked_ns - after_ns > threshold_ns + ask_ns && step(&s, after_ns, asked_ns);
      after_ns = asked_ns;
    }
    before_ns = after_ns;
  }
  return finish(&s, result);
}

int64_t clock_gaps_in(const int64_t *stamps_ns, int64_t n, int64_t threshold_ns, clock_gap *gaps,
                      int64_t capacity, clock_gaps_result *result) {
  if (threshold_ns < 1 || n < 0 || capacity < 0)
    return -1;
  search s;
  start(&s, threshold_ns, gaps, capacity, n > 0 ? stamps_ns[0] : 0);
  for (int64_t i = 1; i < n; i++)
    step(&s, stamps_ns[i - 1], stamps_ns[i]);
  return finish(&s, result);
}
