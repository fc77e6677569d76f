/*
 * How much do cores move from and to memory at once, and at which rate? Threads, each on a core of
 * its own, stream through memory until they are stopped, while another process measures the latency
 * of dependent loads (memory_chase.c), or nobody does.
 *
 * Stressed: the way from the cores to memory. Kept constant: the order, ascending; lines of 64
 * bytes, each moved whole. What is moved, and how it is counted: common/load_streams.h. The rate is
 * set by a wait between bursts of 512 bytes of each array, and what comes of it is measured: each
 * thread notes, about every 25 microseconds at most as many times as its notebook has lines, the
 * time, what it has moved and its CPU time. So what was moved between any two moments is known, and
 * whether the thread had its core meanwhile. (A clock is read after 64 chunks of 4 KiB at the
 * soonest: it waits for all loads before it.)
 *
 * An arena is three arrays, touched first from one core, so that they come to lie on its NUMA node.
 * n threads have an nth of each array each, and begin where the last ones ended, so that no line is
 * still in a cache from the time before if an array is larger than the caches. With a short segment
 * each thread stays in its core's own cache instead: the control, which keeps the cores as busy and
 * leaves memory alone.
 *
 * The threads end when they are told to, at a limit of time, or with their process.
 *
 * Checksum: wrong, how many doubles (READ: chunks) were not what they should be: of READ each
 * chunk's sum is compared, of the others some chunks afterwards.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-lpthread", "-lm"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "common/bracket.h"
#include "common/load_streams.h"
#include "common/text_pages.h"

// All return 0, or stage * 65536 + errno, with the stage: 1 the arguments, 2 the memory, 3 the
// advice about its pages, 4 the collapse into huge pages, 7 a core (EINVAL: offline or not
// allowed), 8 a thread, 9 a thread that did not get to run in time, 10 no threads were begun.
// @interface
typedef struct {
  uint64_t begin, end;  /* what was mapped, in whole pages of 2 MiB */
  uint64_t array_bytes; /* of each of the three arrays, in whole chunks of 4096 */
  int64_t cpu;          /* where it was touched first; -1 if the thread was moved meanwhile */
} load_arena;

typedef struct {
  double bytes;       /* moved between two moments; -1: it was not at work all of the time */
  double cpu_time_ns; /* that the thread had its core meanwhile */
} load_account;

typedef struct {
  int64_t chunks; /* done in all */
  int64_t wrong;  /* doubles, or sums of chunks, that were not what they should be */
  int64_t cpu;    /* where it ran; -1 if it was moved meanwhile */
  int64_t begin_ns, end_ns;
  int64_t probe_before_ns, probe_after_ns; /* was the core alone? See common/bracket.h */
  int64_t chain_before_ns, chain_after_ns;
} load_result;

/* Three arrays of so many bytes (rounded up to chunks) on pages of a backing (1 4k, 2 thp,
   3 collapse), touched first on a core (-1: wherever the thread is). The arena must be zero or one
   that was placed, which is released. */
int64_t load_place(uint64_t array_bytes, int backing, int cpu, load_arena *arena);
int64_t load_release(load_arena *arena);

/* Begin to stream, one thread on each of the cores: a kind (0 read, 1 write, 2 non-temporal write,
   3 update, 4 copy, 5 scale, 6 add, 7 triad), so many steps of waiting (a cycle each) after each
   burst, from a chunk on, through segment_chunks for each thread (0: the arena shared among them).
   Those begun before are stopped. It returns when all are at work; they end at limit_ns at the
   latest. */
int64_t load_begin(const load_arena *arena, int kind, int64_t delay, uint64_t first_chunk,
                   uint64_t segment_chunks, const int64_t *cpus, int64_t n, int64_t limit_ns);

/* Stop, and account for each thread between each two moments, of CLOCK_MONOTONIC:
   accounts[window * n + thread]. */
int64_t load_end(const int64_t *from_ns, const int64_t *to_ns, int64_t windows,
                 load_account *accounts, load_result *results, int64_t n);

// @end

#include "common/pinned.h"

enum { LOAD_PINNING = TEXT_MOVE + 1, LOAD_THREAD, LOAD_LATE, LOAD_NONE };
enum { LOAD_APART = 21 * 64 };            // the arrays' addresses do not agree in their low 12 bits
enum { LOAD_MOST_LOOK = 64 };             // chunks between two readings of the clock
enum { LOAD_STEPS_LOOK = 80000 };         // of waiting between two, about 25 microseconds
enum { LOAD_NOTES = 1 << 14 };            // a thread's notebook
enum { LOAD_LEAST_NOTE_NS = 25000 };      // from one note to the next
enum { LOAD_START_NS = 500000000 };       // in which all threads must get to run
enum { LOAD_POLL_NS = 50000 };            // the caller sleeps meanwhile
enum { LOAD_CHECKED = 16 };               // chunks, afterwards
enum { LOAD_MOST_THREADS = PINNED_MOST }; // one a core

typedef struct {
  int64_t time_ns, cpu_ns, chunks;
} load_note;

typedef struct {
  pthread_t thread;
  double *a, *b, *c;
  uint64_t total, first, segment; // chunks of an array, where it begins, how many are its own
  int64_t delay, look, limit_ns, note_ns;
  int kind, started;
  int64_t wrong, cpu;
  bracket_probe before, after;
  double first_sign;
  load_note *notes;
  int64_t noted;
} load_worker;

typedef struct {
  load_worker *workers;
  int64_t n;
  int stop;
} load_team;

static load_team team;

// --- the arena -----------------------------------------------------------------------------------

static inline double *load_array(const load_arena *arena, int which) {
  return (double *)(arena->begin + (uint64_t)which * (arena->array_bytes + LOAD_APART));
}

int64_t load_release(load_arena *arena) {
  if (arena == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (arena->begin != 0 && munmap((void *)arena->begin, arena->end - arena->begin) != 0)
    return text_failed(TEXT_MAP, errno);
  *arena = (load_arena){0};
  return 0;
}

// On the core where the thread is. Pages are touched in ascending order, as programs do.
static int64_t load_place_here(uint64_t array_bytes, int backing, load_arena *arena) {
  int cpu = sched_getcpu();
  size_t bytes = text_round_up(3 * (array_bytes + LOAD_APART));
  unsigned char *memory = text_map(bytes, PROT_READ | PROT_WRITE);
  if (memory == NULL)
    return text_failed(TEXT_MAP, errno);
  int advice = backing == TEXT_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
  int64_t failed = 0;
  if (backing != TEXT_COLLAPSE && madvise(memory, bytes, advice) != 0 &&
      (backing == TEXT_THP || errno != EINVAL)) // no THP in this kernel: none to be told off
    failed = text_failed(TEXT_ADVISE, errno);
  load_arena made = {(uintptr_t)memory, (uintptr_t)memory + bytes, array_bytes, -1};
  double *a = load_array(&made, 0), *b = load_array(&made, 1), *c = load_array(&made, 2);
  for (uint64_t i = 0; !failed && i < array_bytes / 8; i += LOAD_DOUBLES)
    load_fill_chunk(a + i, b + i, c + i);
  size_t used = 3 * (array_bytes + LOAD_APART);
  if (!failed)
    memset(memory + used, 0xcc, bytes - used); // no page is left out: where each lies is verified
  int error = failed || backing != TEXT_COLLAPSE ? 0 : text_collapse(memory, bytes);
  if (error != 0)
    failed = text_failed(TEXT_COLLAPSING, error);
  if (failed) {
    munmap(memory, bytes);
    return failed;
  }
  made.cpu = cpu == sched_getcpu() ? cpu : -1;
  *arena = made;
  return 0;
}

int64_t load_place(uint64_t array_bytes, int backing, int cpu, load_arena *arena) {
  if (arena == NULL || array_bytes < 1 || array_bytes > (uint64_t)1 << 44 || cpu < -1 ||
      backing < TEXT_4K || backing > TEXT_COLLAPSE)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  int64_t failed = load_release(arena);
  if (failed)
    return failed;
  pinned_thread thread = {0};
  int error = cpu < 0 ? 0 : pin_thread(&thread, cpu);
  if (error != 0)
    return text_failed(LOAD_PINNING, error);
  failed =
      load_place_here((array_bytes + LOAD_CHUNK - 1) / LOAD_CHUNK * LOAD_CHUNK, backing, arena);
  unpin_thread(&thread);
  return failed;
}

// --- a thread ------------------------------------------------------------------------------------

static void load_write_down(load_worker *w, int64_t now_ns, int64_t chunks) {
  if (w->noted == LOAD_NOTES)
    return;
  w->notes[w->noted] = (load_note){now_ns, bracket_cpu_ns(), chunks};
  __atomic_store_n(&w->noted, w->noted + 1, __ATOMIC_RELEASE);
}

static inline uint64_t load_at(const load_worker *w, uint64_t chunk) {
  return (w->first + chunk) % w->total * LOAD_DOUBLES;
}

static void *load_main(void *argument) {
  load_worker *w = argument;
  w->cpu = sched_getcpu();
  w->before = bracket_look();
  uint64_t chunk = 0;
  int64_t chunks = 0, look = 0, now_ns = clock_ns(), noted_ns = now_ns;
  load_write_down(w, now_ns, 0);
  while (now_ns < w->limit_ns && !__atomic_load_n(&team.stop, __ATOMIC_RELAXED)) {
    uint64_t at = load_at(w, chunk);
    w->wrong += load_chunk(w->kind, w->a + at, w->b + at, w->c + at, w->delay);
    chunks++;
    chunk = chunk + 1 == w->segment ? 0 : chunk + 1;
    if (++look < w->look)
      continue;
    look = 0;
    now_ns = clock_ns();
    if (now_ns - noted_ns >= w->note_ns) {
      load_write_down(w, now_ns, chunks);
      noted_ns = now_ns;
    }
  }
  arch_fence_stores();
  load_write_down(w, clock_ns(), chunks);
  w->after = bracket_look();
  if (w->cpu != sched_getcpu())
    w->cpu = -1;
  return NULL;
}

static int load_start(load_worker *w, int cpu) {
  int error = start_pinned(&w->thread, cpu, load_main, w);
  w->started = !error;
  return error;
}

// --- the team ------------------------------------------------------------------------------------

static void load_stop(void) {
  __atomic_store_n(&team.stop, 1, __ATOMIC_RELAXED);
  for (int64_t i = 0; i < team.n; i++)
    if (team.workers[i].started)
      pthread_join(team.workers[i].thread, NULL);
}

static void load_forget(void) {
  for (int64_t i = 0; i < team.n; i++)
    free(team.workers[i].notes);
  free(team.workers);
  team = (load_team){0};
}

static int load_await(void) {
  int64_t deadline_ns = clock_ns() + LOAD_START_NS;
  for (int64_t i = 0; i < team.n; i++)
    while (__atomic_load_n(&team.workers[i].noted, __ATOMIC_ACQUIRE) == 0) {
      if (clock_ns() > deadline_ns)
        return ETIMEDOUT;
      nanosleep(&(struct timespec){0, LOAD_POLL_NS}, NULL);
    }
  return 0;
}

static int64_t load_start_all(const int64_t *cpus) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the program's own threads
  int error = 0;
  for (int64_t i = 0; i < team.n && !error; i++)
    error = load_start(&team.workers[i], (int)cpus[i]);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error)
    return text_failed(error == EINVAL ? LOAD_PINNING : LOAD_THREAD, error);
  error = load_await();
  return error ? text_failed(LOAD_LATE, error) : 0;
}

int64_t load_begin(const load_arena *arena, int kind, int64_t delay, uint64_t first_chunk,
                   uint64_t segment_chunks, const int64_t *cpus, int64_t n, int64_t limit_ns) {
  if (arena == NULL || arena->begin == 0 || kind < 0 || kind >= LOAD_KINDS || delay < 0 ||
      cpus == NULL || n < 1 || n > LOAD_MOST_THREADS || limit_ns < 1)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  for (int64_t i = 0; i < n; i++)
    if (cpus[i] < 0 || cpus[i] >= PINNED_MOST)
      return text_failed(LOAD_PINNING, EINVAL);
  uint64_t total = arena->array_bytes / LOAD_CHUNK;
  uint64_t segment = segment_chunks > 0 ? segment_chunks : total / (uint64_t)n;
  if (segment < 1 || segment * (uint64_t)n > total)
    return text_failed(TEXT_ARGUMENT, ERANGE);
  load_stop();
  load_forget();
  team.workers = calloc((size_t)n, sizeof *team.workers);
  if (team.workers == NULL)
    return text_failed(TEXT_MAP, ENOMEM);
  team.n = n;
  int64_t look = delay > 0 ? LOAD_STEPS_LOOK / (delay * LOAD_BURSTS) : LOAD_MOST_LOOK;
  int64_t note_ns = limit_ns / (LOAD_NOTES - 2);
  for (int64_t i = 0; i < n; i++) {
    load_worker *w = &team.workers[i];
    *w = (load_worker){
        .a = load_array(arena, 0),
        .b = load_array(arena, 1),
        .c = load_array(arena, 2),
        .total = total,
        .first = (first_chunk + (uint64_t)i * segment) % total,
        .segment = segment,
        .delay = delay,
        .look = look < 1                ? 1
                : look > LOAD_MOST_LOOK ? LOAD_MOST_LOOK
                                        : look,
        .limit_ns = clock_ns() + limit_ns,
        .note_ns = note_ns > LOAD_LEAST_NOTE_NS ? note_ns : LOAD_LEAST_NOTE_NS,
        .kind = kind,
        .notes = calloc(LOAD_NOTES, sizeof(load_note)),
    };
    w->first_sign = w->a[load_at(w, 0)];
    if (w->notes == NULL) {
      load_forget();
      return text_failed(TEXT_MAP, ENOMEM);
    }
  }
  int64_t failed = load_start_all(cpus);
  if (failed) {
    load_stop();
    load_forget();
  }
  return failed;
}

// --- what was done -------------------------------------------------------------------------------

// Between two notes as if all had gone on evenly.
static int load_until(const load_worker *w, int64_t at_ns, double *chunks, double *cpu_ns) {
  const load_note *notes = w->notes;
  int64_t low = 0, high = w->noted - 1;
  if (at_ns < notes[0].time_ns || at_ns > notes[high].time_ns)
    return 0;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (notes[middle].time_ns <= at_ns)
      low = middle;
    else
      high = middle;
  }
  double span = (double)(notes[high].time_ns - notes[low].time_ns);
  double part = span > 0 ? (double)(at_ns - notes[low].time_ns) / span : 0;
  *chunks = (double)notes[low].chunks + part * (double)(notes[high].chunks - notes[low].chunks);
  *cpu_ns = (double)notes[low].cpu_ns + part * (double)(notes[high].cpu_ns - notes[low].cpu_ns);
  return 1;
}

static load_account load_between(const load_worker *w, int64_t from_ns, int64_t to_ns) {
  double chunks[2], cpu_ns[2];
  if (from_ns > to_ns || !load_until(w, from_ns, &chunks[0], &cpu_ns[0]) ||
      !load_until(w, to_ns, &chunks[1], &cpu_ns[1]))
    return (load_account){-1, 0};
  double moved = (double)load_arrays_moved[w->kind] * LOAD_CHUNK;
  return (load_account){(chunks[1] - chunks[0]) * moved, cpu_ns[1] - cpu_ns[0]};
}

// Chunks spread evenly over those that were done; and whether a's sign changed as often.
static int64_t load_check(const load_worker *w, int64_t chunks) {
  uint64_t done = (uint64_t)chunks < w->segment ? (uint64_t)chunks : w->segment;
  int64_t wrong = w->wrong;
  for (uint64_t i = 0; i < LOAD_CHECKED && done > 0; i++) {
    uint64_t at = load_at(w, i * (done - 1) / (LOAD_CHECKED - 1));
    wrong += load_wrong(w->kind, w->a + at, w->b + at, w->c + at);
  }
  int64_t visits = (chunks + (int64_t)w->segment - 1) / (int64_t)w->segment;
  int changed = w->kind == LOAD_UPDATE && visits % 2 == 1;
  return wrong + (w->a[load_at(w, 0)] != (changed ? -w->first_sign : w->first_sign));
}

int64_t load_end(const int64_t *from_ns, const int64_t *to_ns, int64_t windows,
                 load_account *accounts, load_result *results, int64_t n) {
  if (windows < 0 || (windows > 0 && (from_ns == NULL || to_ns == NULL || accounts == NULL)) ||
      results == NULL || (team.n > 0 && n != team.n))
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (team.n == 0)
    return text_failed(LOAD_NONE, ENODATA);
  load_stop();
  for (int64_t i = 0; i < n; i++) {
    const load_worker *w = &team.workers[i];
    const load_note *last = &w->notes[w->noted - 1];
    for (int64_t k = 0; k < windows; k++)
      accounts[k * n + i] = load_between(w, from_ns[k], to_ns[k]);
    results[i] = (load_result){
        .chunks = last->chunks,
        .wrong = load_check(w, last->chunks),
        .cpu = w->cpu,
        .begin_ns = w->notes[0].time_ns,
        .end_ns = last->time_ns,
        .probe_before_ns = w->before.ports_ns,
        .probe_after_ns = w->after.ports_ns,
        .chain_before_ns = w->before.chain_ns,
        .chain_after_ns = w->after.chain_ns,
    };
  }
  load_forget();
  return 0;
}
