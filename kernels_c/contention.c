/*
 * What does it cost cores to use the same line, the same counter, the same lock? Threads, each on a
 * core of its own, do one operation again and again for a set time, all at once.
 *
 * Stressed: the way by which a line goes from core to core, and, of the locks, how they hand over.
 * Kept constant: what each thread does by itself, one addition to a counter of 8 bytes; only where
 * the counter lies, or what protects it, differs. Everything else that threads write is alone on
 * its lines, 256 bytes apart, for prefetchers fetch lines in pairs. By kind:
 *
 *     OWN_LINES        an ordinary addition to a counter of the thread's own: the control
 *     NEIGHBOUR_LINES  the same, the counters on neighbouring lines of 64 bytes
 *     ONE_LINE         the same, the counters side by side: false sharing. A line has room for
 *                      eight, so threads share one in eights, in the order of the cores given
 *     ATOMIC_OWN       an atomic addition to a counter of the thread's own: the next one's control
 *     FETCH_ADD        an atomic addition to the counter of all
 *     CAS              the same by compare-and-swap, tried until it succeeds
 *     SPIN             a lock of one word: looked at until it is free, then tried
 *     TICKET           a lock that serves in the order of asking: two words on one line
 *                      (Mellor-Crummey and Scott 1991)
 *     MCS              a queue of waiting threads, each looking at a line of its own (ibid.)
 *     PTHREAD          the C library's default mutex: whoever waits sleeps
 *     FUTEX            the smallest lock that sleeps (Drepper, Futexes are tricky, mutex2)
 *
 * Under a lock the counter of all is added to, on a line that is not the lock's. Between two
 * operations a thread makes so many dependent additions, a cycle each. All begin at one moment and
 * end at another, each by its own look at the clock, some microseconds apart: a flag would be one
 * more line that they share.
 *
 * Checksum: what the counters were found to have counted; it must be the number of operations.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-lpthread"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "common/bracket.h"

// @interface
typedef struct {
  int64_t start_ns;     /* CLOCK_MONOTONIC */
  int64_t time_ns;      /* of all its operations */
  int64_t cpu_time_ns;  /* that the thread ran meanwhile: less where a lock lets it sleep */
  int64_t run_delay_ns; /* ready to run, but waiting for the core; -1: the kernel does not say */
  int64_t operations;
  int64_t involuntary_switches;
  int64_t cpu; /* where it ran; -1 if it was moved meanwhile */
} contention_account;

/* Kinds: 0 OWN_LINES, 1 NEIGHBOUR_LINES, 2 ONE_LINE, 3 ATOMIC_OWN, 4 FETCH_ADD, 5 CAS, 6 SPIN,
   7 TICKET, 8 MCS, 9 PTHREAD, 10 FUTEX. A thread on each of n cores, outside steps of a cycle
   between two operations, successive samples of sample_ns each: accounts[sample * n + thread], and
   of each sample what the counters counted. 0, or stage * 65536 + errno with the stages 1 argument
   (EINVAL; ERANGE: too many), 2 memory, 3 core (EINVAL: offline, not allowed, or given twice),
   4 thread, 5 a thread that did not get to run in time. */
int64_t contention_run(int kind, const int64_t *cpus, int64_t n, int64_t outside, int64_t sample_ns,
                       int64_t samples, contention_account *accounts, int64_t *counted);
// @end

#include "common/arch.h"
#include "common/pinned.h"
#include "common/switches.h"
#include "common/text_pages.h"

enum {
  OWN_LINES,
  NEIGHBOUR_LINES,
  ONE_LINE,
  ATOMIC_OWN,
  FETCH_ADD,
  CAS,
  SPIN,
  TICKET,
  MCS,
  PTHREAD,
  FUTEX,
  KINDS
};
enum { CORE = TEXT_MAP + 1, THREAD, LATE }; // stages, after those of the arguments and the memory
enum { PLACES = 1024 };                     // of 256 bytes, in which all of it may begin
enum { APART = 256, LINE = 64, WORD = 8, MOST_SAMPLES = 100000, MOST_OUTSIDE = 1000000000 };
enum { POLL_NS = 20000, START_NS = 500000000 };
enum { BEGIN_NS = 100000, PREPARE_NS = 30000 }; // the caller, who set it, has left its core by then
enum { LOOK_NS = 2000 };                        // at the clock

#define MOST_SAMPLE_NS ((int64_t)10000000000)

typedef struct mcs_node {
  _Alignas(APART) struct mcs_node *next;
  int waits;
} mcs_node;

// All that threads share, each part alone on its lines.
typedef struct {
  _Alignas(APART) int phase;     // samples that may begin; more than there are: none will
  int64_t begin_ns, end_ns;      // of the newest
  _Alignas(APART) int64_t ready; // how often a thread has come to wait for a sample, or ended
  _Alignas(APART) int64_t counter;
  _Alignas(APART) int spin;
  _Alignas(APART) struct {
    uint32_t next, serving;
  } ticket;
  _Alignas(APART) mcs_node *mcs;
  _Alignas(APART) pthread_mutex_t mutex;
  _Alignas(APART) int futex;
  _Alignas(APART) unsigned char *counters;
  size_t apart;
  mcs_node *nodes;
  int64_t n, outside, samples;
  int kind;
  contention_account *accounts;
} contention;

typedef struct {
  contention *all;
  int64_t number;
  pthread_t thread;
} contender;

// --- the locks -----------------------------------------------------------------------------------

static inline void spin_lock(int *lock) {
  while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0)
    while (__atomic_load_n(lock, __ATOMIC_RELAXED) != 0)
      spin_pause();
}

static inline void ticket_lock(contention *all) {
  uint32_t mine = __atomic_fetch_add(&all->ticket.next, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(&all->ticket.serving, __ATOMIC_ACQUIRE) != mine)
    spin_pause();
}

static inline void ticket_unlock(contention *all) {
  __atomic_store_n(&all->ticket.serving, all->ticket.serving + 1, __ATOMIC_RELEASE);
}

static inline void mcs_lock(mcs_node **tail, mcs_node *mine) {
  mine->next = NULL;
  mine->waits = 1;
  mcs_node *before = __atomic_exchange_n(tail, mine, __ATOMIC_ACQ_REL);
  if (before == NULL)
    return;
  __atomic_store_n(&before->next, mine, __ATOMIC_RELEASE);
  while (__atomic_load_n(&mine->waits, __ATOMIC_ACQUIRE))
    spin_pause();
}

static inline void mcs_unlock(mcs_node **tail, mcs_node *mine) {
  mcs_node *next = __atomic_load_n(&mine->next, __ATOMIC_ACQUIRE);
  if (next == NULL) {
    mcs_node *expected = mine;
    if (__atomic_compare_exchange_n(tail, &expected, NULL, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
      return;
    while ((next = __atomic_load_n(&mine->next, __ATOMIC_ACQUIRE)) == NULL)
      spin_pause();
  }
  __atomic_store_n(&next->waits, 0, __ATOMIC_RELEASE);
}

// 0: free, 1: taken, 2: taken, and somebody may sleep.
static inline int futex_try(int *lock, int from, int to) {
  __atomic_compare_exchange_n(lock, &from, to, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  return from; // what it was
}

static inline void futex_lock(int *lock) {
  int was = futex_try(lock, 0, 1);
  while (was != 0) {
    if (was == 2 || futex_try(lock, 1, 2) != 0)
      syscall(SYS_futex, lock, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    was = futex_try(lock, 0, 2);
  }
}

static inline void futex_unlock(int *lock) {
  if (__atomic_exchange_n(lock, 0, __ATOMIC_RELEASE) == 2)
    syscall(SYS_futex, lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// --- a thread ------------------------------------------------------------------------------------

static inline int64_t *counter_of(const contention *all, int64_t number) {
  return (int64_t *)(all->counters + (size_t)number * all->apart);
}

static inline void add_one(int64_t *counter) { (*(volatile int64_t *)counter)++; }

static inline void add_by_cas(int64_t *counter) {
  int64_t seen = __atomic_load_n(counter, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(counter, &seen, seen + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    ;
}

// Of two registers: recent cores make the addition of a small constant for nothing.
static inline void stay_outside(int64_t steps) {
  uint64_t sum = 1, one = 1;
  for (int64_t i = 0; i < steps; i++)
    __asm__ volatile(ARCH_ADD("sum") : [sum] "+r"(sum) : [one] "r"(one) : "cc");
}

// The operation is written into the loop, so that its kind is not asked for each time.
#define AGAIN(operation)                                                                           \
  do {                                                                                             \
    for (int64_t i = 0; i < times; i++) {                                                          \
      operation;                                                                                   \
      stay_outside(outside);                                                                       \
    }                                                                                              \
    operations += times;                                                                           \
  } while (goes_on(all, &times, &looked_ns))

// Whether there is time left; and how many operations until the next look.
static inline int goes_on(const contention *all, int64_t *times, int64_t *looked_ns) {
  int64_t now_ns = clock_ns(), passed_ns = now_ns - *looked_ns;
  *looked_ns = now_ns;
  if (passed_ns < LOOK_NS)
    *times *= 2;
  else if (passed_ns > 4 * LOOK_NS && *times > 1)
    *times /= 2;
  return now_ns < all->end_ns;
}

// Until time is up: how many operations.
static int64_t contend(contention *all, int64_t number) {
  int64_t operations = 0, times = 1, looked_ns = clock_ns();
  int64_t outside = all->outside, *own = counter_of(all, number), *common = &all->counter;
  mcs_node *node = &all->nodes[number];
  switch (all->kind) {
  case OWN_LINES:
  case NEIGHBOUR_LINES:
  case ONE_LINE:
    AGAIN(add_one(own));
    break;
  case ATOMIC_OWN:
    AGAIN(__atomic_fetch_add(own, 1, __ATOMIC_RELAXED));
    break;
  case FETCH_ADD:
    AGAIN(__atomic_fetch_add(common, 1, __ATOMIC_RELAXED));
    break;
  case CAS:
    AGAIN(add_by_cas(common));
    break;
  case SPIN:
    AGAIN(spin_lock(&all->spin); add_one(common);
          __atomic_store_n(&all->spin, 0, __ATOMIC_RELEASE));
    break;
  case TICKET:
    AGAIN(ticket_lock(all); add_one(common); ticket_unlock(all));
    break;
  case MCS:
    AGAIN(mcs_lock(&all->mcs, node); add_one(common); mcs_unlock(&all->mcs, node));
    break;
  case PTHREAD:
    AGAIN(pthread_mutex_lock(&all->mutex); add_one(common); pthread_mutex_unlock(&all->mutex));
    break;
  default:
    AGAIN(futex_lock(&all->futex); add_one(common); futex_unlock(&all->futex));
  }
  return operations;
}

static void *contender_main(void *argument) {
  contender *mine = argument;
  contention *all = mine->all;
  for (int64_t sample = 0; sample < all->samples; sample++) {
    contention_account *account = &all->accounts[sample * all->n + mine->number];
    int phase;
    __atomic_fetch_add(&all->ready, 1, __ATOMIC_RELEASE);
    while ((phase = __atomic_load_n(&all->phase, __ATOMIC_ACQUIRE)) <= sample)
      syscall(SYS_futex, &all->phase, FUTEX_WAIT_PRIVATE, phase, NULL, NULL, 0);
    if (phase > all->samples) // they never came together
      break;
    while (clock_ns() < all->begin_ns - PREPARE_NS)
      spin_pause();
    int64_t delay_ns = bracket_run_delay_ns(), switches = involuntary_switches();
    account->cpu = sched_getcpu();
    while (clock_ns() < all->begin_ns)
      spin_pause();
    account->cpu_time_ns = bracket_cpu_ns();
    account->start_ns = clock_ns();
    account->operations = contend(all, mine->number);
    account->time_ns = clock_ns() - account->start_ns;
    account->cpu_time_ns = bracket_cpu_ns() - account->cpu_time_ns;
    account->involuntary_switches = involuntary_switches() - switches;
    account->run_delay_ns = delay_ns < 0 ? -1 : bracket_run_delay_ns() - delay_ns;
    if (account->cpu != sched_getcpu())
      account->cpu = -1;
  }
  __atomic_fetch_add(&all->ready, 1, __ATOMIC_RELEASE);
  return NULL;
}

// --- all of them ---------------------------------------------------------------------------------

// The caller sleeps meanwhile: it may share its core with one of them.
static void sleep_ns(int64_t ns) {
  struct timespec left = {ns / 1000000000, ns % 1000000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR)
    ;
}

static int await_ready(const contention *all, int64_t wanted, int64_t limit_ns) {
  int64_t deadline_ns = clock_ns() + limit_ns;
  while (__atomic_load_n(&all->ready, __ATOMIC_ACQUIRE) < wanted) {
    if (clock_ns() > deadline_ns)
      return 0;
    sleep_ns(POLL_NS);
  }
  return 1;
}

static int64_t counted_now(const contention *all) {
  int64_t sum = all->counter;
  for (int64_t i = 0; i < all->n; i++)
    sum += *counter_of(all, i);
  return sum;
}

// Who sleeps until then gets its core at once from a program that has used it; who would spin until
// then would have used it up.
static void open_phase(contention *all, int phase) {
  __atomic_store_n(&all->phase, phase, __ATOMIC_RELEASE);
  syscall(SYS_futex, &all->phase, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// A sample begins when all wait for it. Threads that were late once are waited for: each adds to
// what others need, and the caller has a limit of its own.
static int64_t conduct(contention *all, int64_t sample_ns, int64_t *counted) {
  if (!await_ready(all, all->n, START_NS))
    return text_failed(LATE, ETIMEDOUT);
  for (int64_t sample = 0; sample < all->samples; sample++) {
    int64_t before = counted_now(all);
    all->begin_ns = clock_ns() + BEGIN_NS;
    all->end_ns = all->begin_ns + sample_ns;
    open_phase(all, (int)sample + 1);
    sleep_ns(BEGIN_NS + sample_ns);
    await_ready(all, (sample + 2) * all->n, INT64_MAX / 2);
    counted[sample] = counted_now(all) - before;
  }
  return 0;
}

static int64_t start_all(contention *all, contender *threads, const int64_t *cpus,
                         int64_t *started) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before); // signals are for the program's own threads
  int error = 0;
  for (*started = 0; *started < all->n && !error; *started += !error) {
    contender *thread = &threads[*started];
    *thread = (contender){.all = all, .number = *started};
    error = start_pinned(&thread->thread, (int)cpus[*started], contender_main, thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error ? text_failed(error == EINVAL ? CORE : THREAD, error) : 0;
}

static int64_t run_all(contention *all, contender *threads, const int64_t *cpus, int64_t sample_ns,
                       int64_t *counted) {
  int64_t started, error = start_all(all, threads, cpus, &started);
  if (!error)
    error = conduct(all, sample_ns, counted);
  if (error)
    open_phase(all, (int)all->samples + 1);
  for (int64_t i = 0; i < started; i++)
    pthread_join(threads[i].thread, NULL);
  return error;
}

static int64_t check(int kind, const int64_t *cpus, int64_t n, int64_t outside, int64_t sample_ns,
                     int64_t samples) {
  if (kind < 0 || kind >= KINDS || cpus == NULL || n < 1 || outside < 0 || sample_ns < 1 ||
      samples < 1)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (n > PINNED_MOST || outside > MOST_OUTSIDE || sample_ns > MOST_SAMPLE_NS ||
      samples > MOST_SAMPLES)
    return text_failed(TEXT_ARGUMENT, ERANGE);
  for (int64_t i = 0; i < n; i++) {
    if (cpus[i] < 0 || cpus[i] >= PINNED_MOST)
      return text_failed(CORE, EINVAL);
    for (int64_t j = 0; j < i; j++)
      if (cpus[i] == cpus[j])
        return text_failed(CORE, EINVAL);
  }
  return 0;
}

// How far a line's slice of the last-level cache is depends on its physical address: each call has
// other lines, so that what is said of a kind does not rest on one place.
static size_t place_by_chance(void) {
  return (size_t)(((uint64_t)clock_ns() * 0x9e3779b97f4a7c15u) >> 32) % PLACES;
}

int64_t contention_run(int kind, const int64_t *cpus, int64_t n, int64_t outside, int64_t sample_ns,
                       int64_t samples, contention_account *accounts, int64_t *counted) {
  if (accounts == NULL || counted == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  int64_t error = check(kind, cpus, n, outside, sample_ns, samples);
  if (error)
    return error;
  size_t each = sizeof(mcs_node) + APART; // and a counter
  size_t bytes = sizeof(contention) + (size_t)n * each + PLACES * APART;
  contender *threads = calloc((size_t)n, sizeof *threads);
  unsigned char *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (threads == NULL || memory == MAP_FAILED) {
    error = text_failed(TEXT_MAP, ENOMEM);
  } else {
    unsigned char *begin = memory + place_by_chance() * APART;
    contention *all = (contention *)begin;
    *all = (contention){
        .nodes = (mcs_node *)(begin + sizeof *all),
        .counters = begin + sizeof *all + (size_t)n * sizeof(mcs_node),
        .apart = kind == ONE_LINE          ? WORD
                 : kind == NEIGHBOUR_LINES ? LINE
                                           : APART,
        .n = n,
        .outside = outside,
        .samples = samples,
        .kind = kind,
        .accounts = accounts,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
    };
    error = run_all(all, threads, cpus, sample_ns, counted);
    pthread_mutex_destroy(&all->mutex);
  }
  if (memory != MAP_FAILED)
    munmap(memory, bytes);
  free(threads);
  return error;
}
