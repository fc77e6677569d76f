// Two or three threads, each held on a processor of its own, that act one after the other, and a
// caller who gets an answer in time whatever becomes of them.
//
// A thread may never come back: its processor is taken away, or another program of a higher
// priority keeps it. So every wait ends at the deadline, the caller sleeps no longer than that (it
// does not spin, for it may share a processor with one of them), and all that the threads touch
// belongs to the team, which whoever leaves last gives back.
#ifndef COHERENCE_TEAM_H
#define COHERENCE_TEAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pthread_attr_setaffinity_np, sched_getcpu
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "core_clock.h"
#include "switches.h"
#include "text_pages.h"

enum { REQUESTER, OWNER, THIRD, ROLES, NOBODY = -1 };
enum { TEAM_SPINS = 4096, TEAM_GRACE_NS = 200000000 };

typedef struct team {
  // Alone on its lines: whose turn it is. Everybody who waits keeps a copy and writes nothing.
  _Alignas(256) int64_t turn;
  _Alignas(256) int64_t deadline_ns;
  int members;
  int cpus[ROLES];
  int (*work)(struct team *, int role); // 1 when all is done, 0 when the deadline came first
  void *job;                            // what the work is done on
  unsigned char *memory;
  size_t memory_bytes;
  int64_t repeats, done;     // samples wanted, and complete
  coherence_sample *samples; // the first is the warm-up
  int64_t switches[ROLES];   // of the threads, when they began on the sample
  pthread_mutex_t lock;
  pthread_cond_t left;
  int present, finished; // under the lock: who still holds the team, and who did all
} team;

typedef struct {
  team *t;
  int role;
} team_member;

static inline int team_late(const team *t) {
  return clock_ns() >= __atomic_load_n(&t->deadline_ns, __ATOMIC_RELAXED);
}

// The clock is looked at so rarely that a wait of less than some microseconds never pays for it.
static inline int team_gives_up(const team *t, uint32_t *spins) {
  return ++*spins % TEAM_SPINS == 0 && team_late(t);
}

static inline int team_wait(const team *t, int64_t turn) {
  uint32_t spins = 0;
  while (__atomic_load_n(&t->turn, __ATOMIC_ACQUIRE) != turn) {
    if (team_gives_up(t, &spins))
      return 0;
    spin_pause();
  }
  return 1;
}

static inline void team_pass(team *t, int64_t turn) {
  __atomic_store_n(&t->turn, turn, __ATOMIC_RELEASE);
}

// A thread begins on its sample, and says at each end of an act what became of it since.
static inline void team_begin(team *t, int role, coherence_sample *sample) {
  t->switches[role] = involuntary_switches();
  sample->cpus[role] = sched_getcpu();
}

static inline void team_note(team *t, int role, coherence_sample *sample) {
  sample->involuntary_switches[role] = involuntary_switches() - t->switches[role];
  if (sample->cpus[role] != sched_getcpu())
    sample->cpus[role] = -1;
}

// What one look at a clock takes. Many in a row, for a clock may advance in steps (of 10 ns on
// AMD's Zen 4); the best of some rows, for one may be interrupted.
static inline double team_empty_ns(int64_t (*stamp_ns)(void)) {
  enum { ROWS = 3, STAMPS = 32 };
  double best_ns = 0;
  for (int row = 0; row < ROWS; row++) {
    int64_t begin_ns = stamp_ns();
    for (int i = 1; i < STAMPS; i++)
      stamp_ns();
    double each_ns = (double)(stamp_ns() - begin_ns) / STAMPS;
    if (row == 0 || each_ns < best_ns)
      best_ns = each_ns;
  }
  return best_ns;
}

static inline void team_free(team *t) {
  if (t->memory != NULL)
    munmap(t->memory, t->memory_bytes);
  pthread_mutex_destroy(&t->lock);
  pthread_cond_destroy(&t->left);
  free(t->samples);
  free(t->job);
  free(t);
}

static inline void team_leave(team *t, int finished) {
  pthread_mutex_lock(&t->lock);
  t->finished += finished;
  int present = --t->present;
  pthread_cond_signal(&t->left);
  pthread_mutex_unlock(&t->lock);
  if (present == 0)
    team_free(t);
}

static inline void *team_member_main(void *argument) {
  team_member member = *(team_member *)argument;
  free(argument);
  team_leave(member.t, member.t->work(member.t, member.role));
  return NULL;
}

// A team with room for its samples and with memory that nobody has touched; NULL, and errno.
static inline team *team_make(size_t job_bytes, int64_t repeats, size_t memory_bytes) {
  team *t = aligned_alloc(_Alignof(team), sizeof *t);
  if (t == NULL)
    return NULL;
  *t = (team){.repeats = repeats, .present = 1, .memory_bytes = text_round_up(memory_bytes)};
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&t->left, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&t->lock, NULL);
  t->job = calloc(1, job_bytes);
  t->samples = calloc((size_t)repeats + 1, sizeof *t->samples);
  t->memory = text_map(t->memory_bytes, PROT_READ | PROT_WRITE);
  if (t->job == NULL || t->samples == NULL || t->memory == NULL) {
    team_free(t);
    errno = ENOMEM;
    return NULL;
  }
  madvise(t->memory, t->memory_bytes, MADV_NOHUGEPAGE); // no THP in this kernel: none to refuse
  return t;
}

// 0, or the error of a processor that this process may not use, or of a thread that is refused.
static inline int team_start_one(team *t, int role) {
  team_member *member = malloc(sizeof *member);
  cpu_set_t *set = CPU_ALLOC(t->cpus[role] + 1);
  size_t set_bytes = CPU_ALLOC_SIZE(t->cpus[role] + 1);
  pthread_attr_t attributes;
  pthread_t thread;
  int error = member == NULL || set == NULL ? ENOMEM : pthread_attr_init(&attributes);
  if (!error) {
    *member = (team_member){t, role};
    CPU_ZERO_S(set_bytes, set);
    CPU_SET_S(t->cpus[role], set_bytes, set);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_attr_setaffinity_np(&attributes, set_bytes, set);
    pthread_mutex_lock(&t->lock);
    t->present++;
    pthread_mutex_unlock(&t->lock);
    if (!error)
      error = pthread_create(&thread, &attributes, team_member_main, member);
    if (error) {
      pthread_mutex_lock(&t->lock);
      t->present--;
      pthread_mutex_unlock(&t->lock);
    }
    pthread_attr_destroy(&attributes);
  }
  if (error)
    free(member);
  if (set != NULL)
    CPU_FREE(set);
  return error;
}

// Until only the caller is left, or until the deadline and some grace have passed.
static inline void team_await(team *t) {
  pthread_mutex_lock(&t->lock);
  for (int error = 0; t->present > 1 && error == 0;) {
    int64_t until_ns = __atomic_load_n(&t->deadline_ns, __ATOMIC_RELAXED) + TEAM_GRACE_NS;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    error = pthread_cond_timedwait(&t->left, &t->lock, &until);
  }
  pthread_mutex_unlock(&t->lock);
}

// Runs the work in all members and copies the samples that are complete: 0, or
// stage * 65536 + errno. The team is gone afterwards, or is left to a thread that hangs.
static inline int64_t team_run(team *t, int64_t timeout_ns, coherence_sample *out) {
  t->deadline_ns = clock_ns() + timeout_ns;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the program's own threads
  int64_t failed = 0;
  for (int role = 0; role < t->members && !failed; role++) {
    int error = team_start_one(t, role);
    if (error)
      failed = text_failed(error == EINVAL ? COHERENCE_CPU : COHERENCE_THREAD, error);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) // those who wait for the one that is missing
    __atomic_store_n(&t->deadline_ns, clock_ns(), __ATOMIC_RELAXED);
  team_await(t);
  pthread_mutex_lock(&t->lock);
  if (!failed && t->finished < t->members)
    failed = text_failed(COHERENCE_LATE, ETIMEDOUT);
  pthread_mutex_unlock(&t->lock);
  int64_t done = __atomic_load_n(&t->done, __ATOMIC_ACQUIRE);
  for (int64_t i = 0; i < t->repeats; i++)
    out[i] = i < done ? t->samples[i + 1] : (coherence_sample){.count = 0};
  team_leave(t, 0);
  return failed;
}

#endif
