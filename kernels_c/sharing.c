/*
 * What does a core share with others? One thread, the listener, does the same piece of work again
 * and again and times each. Threads on other cores are busy for a while and pause for a while.
 *
 * Stressed: by resource, what a core has for its hardware threads, or a group for its cores.
 *
 *     PORTS   all fill their execution ports: only threads of one core feel each other
 *     CACHE   the listener chases pointers round a set of lines; the others read their own arrays
 *             again and again. With a set that an L1 (L2) holds, and arrays that only an L2 holds,
 *             the chase gets slower where they evict its lines: where they have that cache, too
 *     MEMORY  all read arrays that no cache holds; each thread's own, touched by itself first, so
 *             that it is in the memory next to its core
 *
 * Kept constant: the listener's work, and the threads: a busy one does not sleep when it pauses, or
 * other programs would run there, and be as busy. The first group is busy in the states 1, 2, 5, 6
 * ... of half_ns each, the second one in the states 0, 3, 4, 7 ...: so a drift is even, and with
 * equal groups the clock, which follows how many cores work, stays. All go by the same clock,
 * begin together and end together, after half a second at most: where the process has real-time
 * priority, nothing else of the system runs on these cores meanwhile.
 *
 * Checksum: the line at which the chase ended, which follows from seed and number of steps.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-lpthread"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/bracket.h"

// @interface
typedef struct {
  int64_t start_ns;   /* CLOCK_MONOTONIC */
  double quiet_ns;    /* a piece of work while the second group was busy: the lower quartile */
  double busy_ns;     /* while the first one was */
  double chain_ratio; /* dependent additions, busy over quiet: the clock */
  double chain_ns;    /* BRACKET_ADDITIONS of them, while the second one was busy */
} sharing_alternation;

typedef struct {
  double held;     /* the least share of the time that a thread of the groups had its core */
  int64_t moved;   /* threads that did not end on their core */
  int64_t steps;   /* of the chase */
  int64_t at_line; /* where it ended */
  int64_t chunks;  /* of LOAD_CHUNK bytes, read by all */
  int64_t wrong;   /* those whose sum was not what it must be: or the compiler would read nothing */
} sharing_account;

/* Resources: 0 PORTS; 1 CACHE, with a chase through chase_bytes (lines of 64), arrays of
   read_bytes; 2 MEMORY, where the listener reads chase_bytes. cpus: the listener, first cores of
   the first group, then second of the second. 0, or stage * 65536 + errno with the stages 1
   argument (EINVAL; ERANGE: too much), 2 memory, 3 core (EINVAL: offline, not allowed, or given
   twice), 4 thread, 5 a thread that did not get to run in time. */
int64_t sharing_run(int resource, const int64_t *cpus, int64_t first, int64_t second,
                    int64_t chase_bytes, int64_t read_bytes, int64_t half_ns, int64_t alternations,
                    uint64_t seed, sharing_alternation *found, sharing_account *account);
// @end

#include "common/arch.h"
#include "common/load_streams.h"
#include "common/pinned.h"
#include "common/text_pages.h"

enum { PORTS, CACHE, MEMORY, RESOURCES };
enum { CORE = TEXT_MAP + 1, THREAD, LATE };
enum { LINE = 64, STEPS = 1000, CHUNKS = 64, PAUSES = 32, MOST_SLICES = 4096, LEAST_SLICES = 20 };
enum { POLL_NS = 50000, BEGIN_NS = 1000000, SPIN_NS = 200000, SETTLE_NS = 200000 };

#define START_NS ((int64_t)2000000000)
#define MOST_NS ((int64_t)500000000)
#define MOST_BYTES ((int64_t)1 << 30)

typedef struct {
  int64_t begin_ns, end_ns; // 0: not known yet; an end before the beginning: nothing is done
  int64_t ready, half_ns, alternations, chase_bytes, read_bytes;
  int resource;
  uint64_t seed;
  sharing_alternation *found;
} sharing;

typedef struct {
  sharing *all;
  pthread_t thread;
  int group, cpu, moved; // group 0: the listener
  double held;
  unsigned char *memory;
  int64_t bytes, chunk, chunks, wrong, steps, at_line, failed;
  int32_t work_ns[MOST_SLICES], chain_ns[MOST_SLICES];
} sharer;

static void sleep_until(int64_t ns) {
  struct timespec until = {ns / 1000000000, ns % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
    ;
}

static int group_busy(int64_t state) { return ((state + 1) / 2) % 2 == 1 ? 1 : 2; }

// --- the listener --------------------------------------------------------------------------------

// A cycle through all lines in random order; each holds the next one's address and its own number.
static void lay_chase(unsigned char *memory, uint32_t lines, uint32_t *order, uint64_t seed) {
  text_shuffle(order, lines, &seed);
  for (uint32_t i = 0; i < lines; i++) {
    uint64_t *line = (uint64_t *)(memory + (size_t)order[i] * LINE);
    line[0] = (uint64_t)(uintptr_t)(memory + (size_t)order[(i + 1) % lines] * LINE);
    line[1] = order[i];
  }
}

static const uint64_t *chase(const uint64_t *at) {
  for (int i = 0; i < STEPS; i++)
    at = (const uint64_t *)(uintptr_t)*(const volatile uint64_t *)at;
  return at;
}

static int by_size(const void *a, const void *b) {
  int32_t one = *(const int32_t *)a, other = *(const int32_t *)b;
  return (one > other) - (one < other);
}

// The mean of the slices about the lower quartile: their clock counts whole ns, or tens of them. A
// neighbour on the host takes other slices; who shares the core takes these, too.
static double lower_quartile(int32_t *values, int64_t n) {
  if (n < LEAST_SLICES)
    return 0;
  qsort(values, (size_t)n, sizeof *values, by_size);
  double sum = 0;
  for (int64_t i = n / 8; i < 3 * n / 8; i++)
    sum += values[i];
  return sum / (double)(3 * n / 8 - n / 8);
}

static void read_chunk(sharer *mine) {
  double *at = (double *)(mine->memory + mine->chunk * LOAD_CHUNK);
  mine->wrong += load_chunk(LOAD_READ, at, at, at, 0);
  mine->chunks++;
  mine->chunk = (mine->chunk + 1) % (mine->bytes / LOAD_CHUNK);
}

// Slices that lie wholly in a state, its first moments left out: the others have come by then.
static void listen(sharer *mine) {
  sharing *all = mine->all;
  const uint64_t *at = all->resource == CACHE ? (const uint64_t *)mine->memory : NULL;
  double chain[2] = {0, 0};
  for (int64_t state = 0; state < 2 * all->alternations; state++) {
    int64_t begin_ns = all->begin_ns + state * all->half_ns + SETTLE_NS, n = 0;
    int64_t end_ns = all->begin_ns + (state + 1) * all->half_ns;
    sharing_alternation *found = &all->found[state / 2];
    if (state % 2 == 0)
      found->start_ns = clock_ns();
    for (;;) {
      int64_t before_ns = clock_ns();
      if (all->resource == PORTS) {
        bracket_fill_ports();
      } else if (all->resource == CACHE) {
        at = chase(at);
        mine->steps += STEPS;
      } else {
        for (int i = 0; i < CHUNKS; i++)
          read_chunk(mine);
      }
      int64_t middle_ns = clock_ns();
      core_add(BRACKET_ADDITIONS / CORE_ADDITIONS);
      int64_t after_ns = clock_ns();
      if (after_ns > end_ns)
        break;
      if (before_ns >= begin_ns && n < MOST_SLICES && after_ns - before_ns < INT32_MAX) {
        mine->work_ns[n] = (int32_t)(middle_ns - before_ns);
        mine->chain_ns[n++] = (int32_t)(after_ns - middle_ns);
      }
    }
    int busy = group_busy(state) == 1;
    *(busy ? &found->busy_ns : &found->quiet_ns) = lower_quartile(mine->work_ns, n);
    chain[busy] = lower_quartile(mine->chain_ns, n);
    if (state % 2 == 1)
      found->chain_ratio = chain[0] > 0 ? chain[1] / chain[0] : 0;
    found->chain_ns = chain[0];
  }
  if (at != NULL)
    mine->at_line = (int64_t)at[1];
}

// --- the others ----------------------------------------------------------------------------------

static void be_busy(sharer *mine) {
  if (mine->all->resource == PORTS)
    bracket_fill_ports();
  else
    read_chunk(mine);
}

static void alternate(sharer *mine) {
  sharing *all = mine->all;
  int64_t now_ns;
  while ((now_ns = clock_ns()) < all->end_ns) {
    if (group_busy((now_ns - all->begin_ns) / all->half_ns) == mine->group)
      be_busy(mine);
    else
      for (int i = 0; i < PAUSES; i++)
        spin_pause();
  }
}

// --- all of them ---------------------------------------------------------------------------------

static int64_t prepare(sharer *mine) {
  sharing *all = mine->all;
  if (all->resource == PORTS)
    return 0;
  mine->bytes = mine->group == 0 ? all->chase_bytes : all->read_bytes;
  size_t bytes = (size_t)mine->bytes;
  mine->memory = text_map(text_round_up(bytes), PROT_READ | PROT_WRITE);
  if (mine->memory == NULL)
    return text_failed(TEXT_MAP, errno);
  // Huge pages where there are any: a second-level TLB has room for less than an L2.
  (void)!madvise(mine->memory, text_round_up(bytes), MADV_HUGEPAGE);
  if (mine->group != 0 || all->resource == MEMORY) {
    for (size_t i = 0; i < bytes / LOAD_CHUNK; i++) {
      double *at = (double *)(mine->memory + i * LOAD_CHUNK);
      for (int k = 0; k < LOAD_DOUBLES; k++)
        at[k] = load_b(k);
    }
    return 0;
  }
  uint32_t lines = (uint32_t)(bytes / LINE), *order = malloc(lines * sizeof *order);
  if (order == NULL)
    return text_failed(TEXT_MAP, ENOMEM);
  lay_chase(mine->memory, lines, order, all->seed);
  free(order);
  return 0;
}

static void *sharer_main(void *argument) {
  sharer *mine = argument;
  sharing *all = mine->all;
  mine->failed = prepare(mine);
  __atomic_fetch_add(&all->ready, 1, __ATOMIC_RELEASE);
  int64_t begin_ns;
  while ((begin_ns = __atomic_load_n(&all->begin_ns, __ATOMIC_ACQUIRE)) == 0)
    sleep_until(clock_ns() + POLL_NS);
  if (begin_ns > all->end_ns)
    return NULL;
  sleep_until(begin_ns - SPIN_NS);
  while (clock_ns() < begin_ns)
    spin_pause();
  int64_t cpu_ns = bracket_cpu_ns();
  if (mine->group == 0)
    listen(mine);
  else
    alternate(mine);
  cpu_ns = bracket_cpu_ns() - cpu_ns;
  // Who came late had no core before.
  mine->held = (double)cpu_ns / (double)(clock_ns() - begin_ns);
  mine->moved = sched_getcpu() != mine->cpu;
  return NULL;
}

static int64_t run_all(sharing *all, sharer *threads, const int64_t *cpus, int64_t n) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before); // signals are for the program's own threads
  int error = 0;
  int64_t started = 0;
  for (; started < n && !error; started += !error)
    error =
        start_pinned(&threads[started].thread, (int)cpus[started], sharer_main, &threads[started]);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  int64_t failed = error ? text_failed(error == EINVAL ? CORE : THREAD, error) : 0;
  int64_t deadline_ns = clock_ns() + START_NS;
  while (!failed && __atomic_load_n(&all->ready, __ATOMIC_ACQUIRE) < n) {
    if (clock_ns() > deadline_ns)
      failed = text_failed(LATE, ETIMEDOUT);
    sleep_until(clock_ns() + POLL_NS);
  }
  for (int64_t i = 0; i < n && !failed; i++)
    failed = threads[i].failed;
  int64_t begin_ns = clock_ns() + BEGIN_NS;
  all->end_ns = failed ? begin_ns - 1 : begin_ns + 2 * all->alternations * all->half_ns;
  __atomic_store_n(&all->begin_ns, begin_ns, __ATOMIC_RELEASE);
  for (int64_t i = 0; i < started; i++)
    pthread_join(threads[i].thread, NULL);
  return failed;
}

static int64_t check(const sharing *all, const int64_t *cpus, int64_t first, int64_t second) {
  if (all->resource < 0 || all->resource >= RESOURCES || cpus == NULL || first < 1 || second < 0 ||
      all->half_ns < 2 * SETTLE_NS || all->alternations < 1)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (all->resource != PORTS && (all->chase_bytes < (all->resource == CACHE ? LINE : LOAD_CHUNK) ||
                                 all->read_bytes < LOAD_CHUNK))
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (first > PINNED_MOST || second > PINNED_MOST || all->half_ns > MOST_NS ||
      all->alternations > MOST_NS / all->half_ns / 2 || all->chase_bytes > MOST_BYTES ||
      all->read_bytes > MOST_BYTES)
    return text_failed(TEXT_ARGUMENT, ERANGE);
  for (int64_t i = 0; i < 1 + first + second; i++) {
    if (cpus[i] < 0 || cpus[i] >= PINNED_MOST)
      return text_failed(CORE, EINVAL);
    for (int64_t j = 0; j < i; j++)
      if (cpus[i] == cpus[j])
        return text_failed(CORE, EINVAL);
  }
  return 0;
}

int64_t sharing_run(int resource, const int64_t *cpus, int64_t first, int64_t second,
                    int64_t chase_bytes, int64_t read_bytes, int64_t half_ns, int64_t alternations,
                    uint64_t seed, sharing_alternation *found, sharing_account *account) {
  if (found == NULL || account == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  sharing all = {.half_ns = half_ns,
                 .alternations = alternations,
                 .chase_bytes = chase_bytes,
                 .read_bytes = read_bytes,
                 .resource = resource,
                 .seed = seed,
                 .found = found};
  int64_t failed = check(&all, cpus, first, second), n = 1 + first + second;
  if (failed)
    return failed;
  sharer *threads = calloc((size_t)n, sizeof *threads);
  if (threads == NULL)
    return text_failed(TEXT_MAP, ENOMEM);
  for (int64_t i = 0; i < n; i++) {
    threads[i].all = &all;
    threads[i].cpu = (int)cpus[i];
    threads[i].group = i == 0 ? 0 : i <= first ? 1 : 2;
  }
  failed = run_all(&all, threads, cpus, n);
  *account = (sharing_account){.held = 1, .steps = threads[0].steps, .at_line = threads[0].at_line};
  for (int64_t i = 0; i < n; i++) {
    account->moved += threads[i].moved;
    account->chunks += threads[i].chunks;
    account->wrong += threads[i].wrong;
    if (i > 0 && threads[i].held < account->held)
      account->held = threads[i].held;
    if (threads[i].memory != NULL)
      munmap(threads[i].memory, text_round_up((size_t)threads[i].bytes));
  }
  free(threads);
  return failed;
}
