/*
 * What the threads of a job did: from the events of the scheduler and of futexes to intervals in
 * which a thread is in one state. Nothing is measured here: this is a kernel because a recording
 * has millions of events.
 *
 * The state machine keeps one open interval a thread, however many events there are. Events come in
 * the order of time; a few nanoseconds of disorder between CPUs make intervals empty, which are
 * left out. A thread's intervals follow each other without a gap from its birth to its death. An
 * event that cannot be (a thread leaves a CPU that it was not on) means that others are missing:
 * the thread's state is unknown since its last event.
 *
 * tests/reference/thread_states.py says the same in plain Python.
 *
 * @kernel
 * flags = ["-O2"]
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// @interface
typedef struct {
  int64_t start_ns, end_ns;
  uint8_t state, flags;
  int16_t cpu;
  int32_t lock, other, stack; /* -1: none */
} thread_interval;

typedef struct {
  int64_t time_ns;
  uint8_t kind;
  int16_t cpu;
  int32_t tid, pid;
  int64_t a, b;
  int32_t stack;
} thread_event;

typedef struct {
  int64_t time_ns;
  int32_t thread, stack; /* its row */
  int64_t weight_ns;
} thread_sample;

typedef struct {
  int32_t tid, pid;
  int32_t name; /* number of its last one; -1: not known */
  int32_t alive;
  int64_t start_ns, end_ns;
} thread_life;

typedef struct {
  int64_t address, op; /* the operation of the first wait */
  int32_t pid, stack;  /* the first that is known */
} thread_key;

typedef struct {
  int64_t start_ns, end_ns;
  int32_t cpu;
  int64_t number;
} thread_lost;

/* What is known after a call; intervals and samples are those of that call alone. */
typedef struct {
  thread_interval *intervals;
  int32_t *rows; /* whose they are */
  thread_sample *samples;
  thread_life *threads;
  thread_key *keys; /* what `lock` in the intervals is the number of */
  thread_lost *lost;
  int64_t n_intervals, n_samples, n_threads, n_keys, n_lost;
  int64_t others_busy_ns; /* CPU time of other processes that a ready thread could have had */
  int64_t impossible;     /* events that cannot be */
} thread_found;

typedef struct thread_states thread_states;

/*
 * cpus[c]: whether the job may use CPU c. The calls that return int return -1 for lack of memory;
 * a state of -1 is not known.
 */
thread_states *thread_states_open(int64_t start_ns, int follow, const uint8_t *cpus,
                                  int64_t n_cpus);
void thread_states_close(thread_states *s);
int thread_states_process(thread_states *s, int32_t pid);
int thread_states_feed(thread_states *s, const thread_event *events, int64_t n,
                       const uint8_t *spins, int64_t n_spins);
int thread_states_finish(thread_states *s, int64_t end_ns);
const thread_found *thread_states_found(const thread_states *s);
// @end

enum { RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN };
enum { SWITCH = 1, WAKING, FUTEX_WAIT, FUTEX_EXIT, SAMPLE, FORK, EXIT, COMM, LOST };
enum { FLAG_LOST = 1 };

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- numbers by pairs of numbers ---------------------------------------------------------------
 */

typedef struct {
  int64_t first, second;
  int32_t number, used;
} slot;

typedef struct {
  slot *slots;
  size_t n, n_slots;
} map;

static slot *slot_of(const map *m, int64_t first, int64_t second) {
  uint64_t hash = (uint64_t)first * 0x9e3779b97f4a7c15u ^ (uint64_t)second * 0xff51afd7ed558ccdu;
  hash ^= hash >> 32;
  size_t i = hash & (m->n_slots - 1);
  while (m->slots[i].used && (m->slots[i].first != first || m->slots[i].second != second))
    i = (i + 1) & (m->n_slots - 1);
  return &m->slots[i];
}

/* -1: there is none. */
static int32_t look_up(const map *m, int64_t first, int64_t second) {
  if (m->n_slots == 0)
    return -1;
  slot *found = slot_of(m, first, second);
  return found->used ? found->number : -1;
}

static int set(map *m, int64_t first, int64_t second, int32_t number) {
  if (2 * m->n >= m->n_slots) {
    map bigger = {.n = m->n, .n_slots = m->n_slots ? 2 * m->n_slots : 64};
    bigger.slots = calloc(bigger.n_slots, sizeof *bigger.slots);
    if (bigger.slots == NULL)
      return -1;
    for (size_t i = 0; i < m->n_slots; i++)
      if (m->slots[i].used)
        *slot_of(&bigger, m->slots[i].first, m->slots[i].second) = m->slots[i];
    free(m->slots);
    *m = bigger;
  }
  slot *found = slot_of(m, first, second);
  m->n += !found->used;
  *found = (slot){first, second, number, 1};
  return 0;
}

/* --- the state machine -------------------------------------------------------------------------
 */

enum { CPUS = 1 << 15 };
#define LATEST_NS (1ll << 61) /* of times: what lies beyond is no time, and sums would overflow */
enum { IDLE, OURS, OTHERS };  /* who has a CPU */
enum { FOREIGN, EXPECTED, MEMBER };           /* processes; an expected one is not yet born */
enum { NO_WAKER = -2, NOBODY = -1 };          /* in place of a row */
enum { EXEC = 1, EXEC_OF_AN_IGNORED = 2 };    /* b of COMM */
enum { STATE_BITS = 0xff, DEAD_BITS = 0x30 }; /* of a thread that leaves a CPU */

typedef struct {
  int64_t since, certain; /* begin of its state, and the last event that agreed with it */
  int64_t spin_from, spin_until;
  int32_t state, cpu, lock, other, stack, flags;
  int32_t process;
  int32_t futex, futex_stack; /* within a wait for a futex; -1: not in one */
  int32_t early_waker;        /* who woke it when it was still running; NO_WAKER */
  int32_t fresh;              /* no event has told its state */
  int32_t dying;              /* it has ended, but for its last switch */
} thread;

typedef struct {
  int32_t kind, alive;
} process;

struct thread_states {
  thread_found found;
  size_t intervals_room, rows_room, samples_room, lives_room, keys_room, lost_room;
  thread *threads;
  size_t threads_room;
  process *processes;
  size_t n_processes, processes_room;
  map tids, pids, addresses;
  int64_t start_ns, at_ns;
  int32_t n_ready, n_others;
  int follow, no_memory;
  uint8_t usable[CPUS], who[CPUS];
};

/* Room for one more element than there are. */
static int grow(thread_states *s, void *array, size_t *room, size_t n, size_t size) {
  if (n < *room)
    return 1;
  size_t more = *room ? 2 * *room : 256;
  void *old, *bigger;
  memcpy(&old, array, sizeof old);
  bigger = realloc(old, more * size);
  if (bigger == NULL) {
    s->no_memory = 1;
    return 0;
  }
  memcpy(array, &bigger, sizeof bigger);
  *room = more;
  return 1;
}

static void emit(thread_states *s, int32_t row, int64_t start, int64_t end, int state) {
  const thread *t = &s->threads[row];
  thread_found *f = &s->found;
  size_t n = (size_t)f->n_intervals;
  if (end <= start || !grow(s, &f->intervals, &s->intervals_room, n, sizeof *f->intervals) ||
      !grow(s, &f->rows, &s->rows_room, n, sizeof *f->rows))
    return;
  f->intervals[n] = (thread_interval){.start_ns = start,
                                      .end_ns = end,
                                      .state = (uint8_t)state,
                                      .flags = (uint8_t)t->flags,
                                      .cpu = (int16_t)t->cpu,
                                      .lock = t->lock,
                                      .other = t->other,
                                      .stack = t->stack};
  f->rows[n] = row;
  f->n_intervals++;
}

/* What is spun of a run so far is written, and what lies before it. */
static void emit_spinning(thread_states *s, int32_t row, int64_t end) {
  thread *t = &s->threads[row];
  if (t->spin_until <= t->since)
    return;
  int64_t until = earlier(t->spin_until, end);
  int32_t stack = t->stack;
  t->stack = -1;
  emit(s, row, t->since, t->spin_from, RUNNING);
  t->stack = stack;
  emit(s, row, later(t->spin_from, t->since), until, SPINNING);
  t->stack = -1;
  t->since = later(t->since, until);
}

/* Its state ends. Where time goes back by a little, it ends when it began. */
static void end_state(thread_states *s, int32_t row, int64_t time) {
  thread *t = &s->threads[row];
  time = later(time, t->since);
  if (t->state == RUNNING)
    emit_spinning(s, row, time);
  emit(s, row, t->since, time, t->state);
  t->since = t->certain = time;
}

/* CPU time of others is counted while a thread of the job is ready, one CPU for each at most. */
static void count_others(thread_states *s, int64_t time) {
  if (time > s->at_ns) {
    int64_t busy_ns, *sum = &s->found.others_busy_ns;
    if (__builtin_mul_overflow(time - s->at_ns, earlier(s->n_ready, s->n_others), &busy_ns) ||
        __builtin_add_overflow(*sum, busy_ns, sum))
      *sum = INT64_MAX;
    s->at_ns = time;
  }
}

static void begin_state(thread_states *s, int32_t row, int state, int32_t cpu) {
  thread *t = &s->threads[row];
  if ((t->state == READY) != (state == READY)) {
    count_others(s, t->since);
    s->n_ready += state == READY ? 1 : -1;
  }
  t->state = state;
  t->cpu = cpu;
  t->lock = t->other = t->stack = -1;
  t->flags = t->fresh = 0;
  t->spin_until = INT64_MIN;
}

/* Events are missing: what it did since the last one that agreed with its state is not known. */
static void lose_track(thread_states *s, int32_t row, int64_t time) {
  thread *t = &s->threads[row];
  s->found.impossible++;
  end_state(s, row, t->certain);
  begin_state(s, row, UNKNOWN, -1);
  t->flags = FLAG_LOST;
  end_state(s, row, time);
  t->futex = -1;
}

/* It did something, so it is running on this CPU. */
static void is_running(thread_states *s, int32_t row, int64_t time, int32_t cpu) {
  thread *t = &s->threads[row];
  if (t->fresh) { /* and it has been since its first time */
    int64_t since = t->since;
    begin_state(s, row, RUNNING, cpu);
    t->since = since;
  } else if (t->state != RUNNING || (t->cpu >= 0 && t->cpu != cpu)) {
    lose_track(s, row, time);
    begin_state(s, row, RUNNING, cpu);
  }
  t->cpu = cpu;
  t->certain = later(time, t->certain);
}

static void end_life(thread_states *s, int32_t row, int64_t time) {
  thread *t = &s->threads[row];
  end_state(s, row, time);
  begin_state(s, row, UNKNOWN, -1);
  s->found.threads[row].end_ns = t->since;
  s->found.threads[row].alive = 0;
  s->processes[t->process].alive--;
}

static int is_member(thread_states *s, int64_t pid) {
  int32_t number = look_up(&s->pids, pid, 0);
  return number >= 0 && s->processes[number].kind != FOREIGN;
}

static int32_t add_process(thread_states *s, int32_t pid, int kind) {
  if (!grow(s, &s->processes, &s->processes_room, s->n_processes, sizeof *s->processes))
    return -1;
  int32_t number = (int32_t)s->n_processes++;
  s->processes[number] = (process){.kind = kind};
  if (set(&s->pids, pid, 0, number) < 0) {
    s->no_memory = 1;
    return -1;
  }
  return number;
}

/* A thread of a process of the job, from a time on; -1: no memory. */
static int32_t add_thread(thread_states *s, int32_t tid, int32_t pid, int32_t name, int64_t time) {
  thread_found *f = &s->found;
  size_t n = (size_t)f->n_threads;
  if (!grow(s, &f->threads, &s->lives_room, n, sizeof *f->threads) ||
      !grow(s, &s->threads, &s->threads_room, n, sizeof *s->threads))
    return -1;
  int32_t row = (int32_t)n;
  if (set(&s->tids, tid, 0, row) < 0) {
    s->no_memory = 1;
    return -1;
  }
  f->n_threads++;
  f->threads[row] = (thread_life){.tid = tid, .pid = pid, .name = name, .alive = 1};
  f->threads[row].start_ns = f->threads[row].end_ns = time;
  s->threads[row] = (thread){.since = time,
                             .certain = time,
                             .spin_until = INT64_MIN,
                             .state = UNKNOWN,
                             .cpu = -1,
                             .lock = -1,
                             .other = -1,
                             .stack = -1,
                             .process = look_up(&s->pids, pid, 0),
                             .futex = -1,
                             .futex_stack = -1,
                             .early_waker = NO_WAKER,
                             .fresh = 1};
  s->processes[s->threads[row].process].alive++;
  return row;
}

/* The row of a thread that lives; -1: it is not of the job, or not known. */
static int32_t row_of(const thread_states *s, int64_t tid) {
  int32_t row = tid > 0 ? look_up(&s->tids, tid, 0) : -1;
  return row >= 0 && s->found.threads[row].alive ? row : -1;
}

/* The row of the thread whose event it is; one of the job that was not known is added. */
static int32_t row_of_event(thread_states *s, const thread_event *e, int64_t time) {
  int32_t row = e->tid > 0 ? look_up(&s->tids, e->tid, 0) : -1;
  if (row >= 0) {
    thread_life *life = &s->found.threads[row];
    if (!life->alive && s->threads[row].dying)
      return -1;
    if (life->alive && (e->pid <= 0 || e->pid == life->pid))
      return row;
    if (life->alive) { /* the number was given anew, and the end of the old thread is lost */
      s->found.impossible++;
      end_life(s, row, s->threads[row].certain);
    }
  }
  if (e->tid <= 0 || e->pid <= 0 || !is_member(s, e->pid))
    return -1;
  /* Without lost events it has been there from the beginning. */
  return add_thread(s, e->tid, e->pid, -1, s->found.n_lost ? time : s->start_ns);
}

static void on_switch(thread_states *s, const thread_event *e, int64_t time) {
  int32_t row = row_of_event(s, e, time);
  if (row >= 0) {
    is_running(s, row, time, e->cpu);
    thread *t = &s->threads[row];
    int goes_on = (e->b & STATE_BITS) == 0;
    if (e->b & DEAD_BITS) {
      end_life(s, row, time);
    } else {
      end_state(s, row, time);
      begin_state(s, row, goes_on ? READY : t->futex >= 0 ? WAITING : SLEEPING, -1);
      t->lock = t->futex;
      t->stack = t->futex >= 0 && t->futex_stack >= 0 ? t->futex_stack : goes_on ? -1 : e->stack;
    }
  } else if (e->tid > 0 && (row = look_up(&s->tids, e->tid, 0)) >= 0) {
    s->threads[row].dying = 0; /* from here on the number may be another thread's */
  }
  row = row_of(s, e->a);
  count_others(s, time);
  if (e->cpu >= 0 && s->usable[e->cpu]) {
    s->n_others -= s->who[e->cpu] == OTHERS;
    s->who[e->cpu] = e->a == 0 ? IDLE : row >= 0 ? OURS : OTHERS;
    s->n_others += s->who[e->cpu] == OTHERS;
  }
  if (row < 0)
    return;
  thread *t = &s->threads[row];
  if (t->fresh) { /* nobody woke it, so it has been ready since its first time */
    t->state = READY;
    s->n_ready++;
  } else if (t->state == RUNNING) {
    lose_track(s, row, time);
  } else if (t->state != READY && t->early_waker != NO_WAKER) {
    t->other = t->early_waker; /* it was woken on its way off the CPU */
    t->state = READY;
    s->n_ready++;
  } else if (t->state != READY) {
    t->flags |= FLAG_LOST; /* who woke it, and when, is missing */
  }
  end_state(s, row, time);
  begin_state(s, row, RUNNING, e->cpu);
  t->lock = t->futex;
  t->early_waker = NO_WAKER;
}

static void on_waking(thread_states *s, const thread_event *e, int64_t time) {
  int32_t row = row_of(s, e->a), waker = row_of(s, e->tid);
  if (row < 0)
    return;
  thread *t = &s->threads[row];
  if (t->state == RUNNING)
    t->early_waker = waker;
  if (t->state == RUNNING || t->state == READY)
    return;
  t->other = waker;
  end_state(s, row, time);
  int32_t lock = t->state == WAITING ? t->lock : -1, stack = t->stack;
  begin_state(s, row, READY, -1);
  t->lock = lock;
  t->stack = stack;
  t->other = waker;
}

static void on_futex(thread_states *s, const thread_event *e, int64_t time) {
  int32_t row = row_of_event(s, e, time);
  if (row < 0)
    return;
  is_running(s, row, time, e->cpu);
  thread *t = &s->threads[row];
  if (t->lock >= 0 || e->kind == FUTEX_WAIT) {
    /* The kernel's way into the wait and out of it belongs to the operation on the lock. */
    end_state(s, row, time);
    begin_state(s, row, RUNNING, e->cpu);
  }
  t->futex = -1;
  if (e->kind == FUTEX_EXIT)
    return;
  thread_found *f = &s->found;
  int32_t pid = f->threads[row].pid, key = look_up(&s->addresses, e->a, pid);
  if (key < 0) {
    key = (int32_t)f->n_keys;
    if (!grow(s, &f->keys, &s->keys_room, (size_t)key, sizeof *f->keys))
      return;
    if (set(&s->addresses, e->a, pid, key) < 0) {
      s->no_memory = 1;
      return;
    }
    f->keys[key] = (thread_key){.address = e->a, .op = e->b, .pid = pid, .stack = -1};
    f->n_keys++;
  }
  if (f->keys[key].stack < 0)
    f->keys[key].stack = e->stack;
  t->futex = t->lock = key;
  t->futex_stack = e->stack;
}

static void on_sample(thread_states *s, const thread_event *e, int64_t time, int spins) {
  int32_t row = row_of_event(s, e, time);
  thread_found *f = &s->found;
  if (row < 0 || !grow(s, &f->samples, &s->samples_room, (size_t)f->n_samples, sizeof *f->samples))
    return;
  int64_t weight_ns = later(earlier(e->a, LATEST_NS), -LATEST_NS);
  is_running(s, row, time, e->cpu);
  f->samples[f->n_samples++] =
      (thread_sample){.time_ns = time, .thread = row, .stack = e->stack, .weight_ns = weight_ns};
  if (!spins)
    return;
  thread *t = &s->threads[row];
  int64_t from = later(time - weight_ns / 2, t->since);
  int64_t until = time + weight_ns - weight_ns / 2;
  if (t->spin_until < from) { /* no sample before, or one that ends before this one begins */
    emit_spinning(s, row, INT64_MAX);
    t->spin_from = from;
    t->stack = e->stack;
  }
  t->spin_until = until;
}

/* All threads of a process end but one. */
static void end_others(thread_states *s, int32_t number, int32_t but, int64_t time) {
  for (int32_t row = 0; row < s->found.n_threads && s->processes[number].alive > (but >= 0); row++)
    if (row != but && s->found.threads[row].alive && s->threads[row].process == number)
      end_life(s, row, time);
}

static void on_fork(thread_states *s, const thread_event *e, int64_t time) {
  if (e->tid <= 0)
    return;
  int32_t parent = row_of(s, e->b), old = look_up(&s->tids, e->tid, 0);
  if (old >= 0 && s->found.threads[old].alive) {
    /* perf lists those that exist already, as if they were born; else the end of one is lost. */
    if (e->time_ns < s->start_ns)
      return;
    s->found.impossible++;
    end_life(s, old, s->threads[old].certain);
  }
  if (old >= 0)
    s->threads[old].dying = 0;
  if (e->tid == e->pid) {
    int32_t known = look_up(&s->pids, e->pid, 0);
    int ours =
        (s->follow && is_member(s, e->a)) || (known >= 0 && s->processes[known].kind == EXPECTED);
    if (known >= 0)
      s->processes[known].kind = FOREIGN; /* the one that had this number before */
    if (ours && add_process(s, e->pid, MEMBER) < 0)
      return;
  }
  if (!is_member(s, e->pid))
    return;
  int32_t name = parent >= 0 ? s->found.threads[parent].name : -1;
  int32_t row = add_thread(s, e->tid, e->pid, name, time);
  if (row >= 0 && e->time_ns >= s->start_ns) {
    begin_state(s, row, READY, -1);
    s->threads[row].other = parent;
  }
}

static void on_end(thread_states *s, const thread_event *e, int64_t time) {
  int32_t row = row_of_event(s, e, time);
  if (row < 0)
    return;
  is_running(s, row, time, e->cpu);
  end_life(s, row, time);
  s->threads[row].dying = 1;
}

static void on_comm(thread_states *s, const thread_event *e, int64_t time) {
  int32_t row = row_of(s, e->tid);
  if (row < 0 && e->b && e->tid == e->pid && is_member(s, e->pid)) {
    /* Another thread of the process has called exec, and has the first one's number now. */
    row = add_thread(s, e->tid, e->pid, -1, time);
    if (row >= 0)
      begin_state(s, row, RUNNING, e->cpu);
  } else {
    row = row_of_event(s, e, time);
  }
  if (row < 0)
    return;
  s->found.threads[row].name = (int32_t)e->a;
  int32_t number = s->threads[row].process;
  if (e->b == EXEC && e->time_ns > 0) { /* at 0 perf lists what is there already */
    s->threads[row].futex = -1;
    end_others(s, number, row, time);
  } else if (e->b == EXEC_OF_AN_IGNORED) {
    end_others(s, number, -1, time);
    s->processes[number].kind = FOREIGN;
  }
}

static void on_lost(thread_states *s, const thread_event *e, int64_t time) {
  thread_found *f = &s->found;
  if (!grow(s, &f->lost, &s->lost_room, (size_t)f->n_lost, sizeof *f->lost))
    return;
  f->lost[f->n_lost++] =
      (thread_lost){.start_ns = e->b, .end_ns = e->time_ns, .cpu = e->cpu, .number = e->a};
  for (int32_t row = 0; row < f->n_threads; row++) { /* the end of a wait may be among them */
    thread *t = &s->threads[row];
    if (!f->threads[row].alive || t->state != RUNNING || t->cpu != e->cpu)
      continue;
    if (t->lock >= 0) {
      end_state(s, row, time);
      begin_state(s, row, RUNNING, e->cpu);
    }
    t->futex = -1;
  }
}

thread_states *thread_states_open(int64_t start_ns, int follow, const uint8_t *cpus,
                                  int64_t n_cpus) {
  thread_states *s = calloc(1, sizeof *s);
  if (s == NULL)
    return NULL;
  s->start_ns = s->at_ns = start_ns;
  s->follow = follow;
  memcpy(s->usable, cpus, (size_t)earlier(n_cpus, CPUS));
  return s;
}

void thread_states_close(thread_states *s) {
  if (s == NULL)
    return;
  free(s->found.intervals);
  free(s->found.rows);
  free(s->found.samples);
  free(s->found.threads);
  free(s->found.keys);
  free(s->found.lost);
  free(s->threads);
  free(s->processes);
  free(s->tids.slots);
  free(s->pids.slots);
  free(s->addresses.slots);
  free(s);
}

int thread_states_process(thread_states *s, int32_t pid) {
  return add_process(s, pid, EXPECTED) < 0 ? -1 : 0;
}

int thread_states_feed(thread_states *s, const thread_event *events, int64_t n,
                       const uint8_t *spins, int64_t n_spins) {
  s->found.n_intervals = s->found.n_samples = 0;
  for (int64_t i = 0; i < n && !s->no_memory; i++) {
    const thread_event *e = &events[i];
    int64_t time = later(earlier(e->time_ns, LATEST_NS), s->start_ns);
    switch (e->kind) {
    case SWITCH:
      on_switch(s, e, time);
      break;
    case WAKING:
      on_waking(s, e, time);
      break;
    case FUTEX_WAIT:
    case FUTEX_EXIT:
      on_futex(s, e, time);
      break;
    case SAMPLE:
      on_sample(s, e, time, e->stack >= 0 && e->stack < n_spins && spins[e->stack]);
      break;
    case FORK:
      on_fork(s, e, time);
      break;
    case EXIT:
      on_end(s, e, time);
      break;
    case COMM:
      on_comm(s, e, time);
      break;
    case LOST:
      on_lost(s, e, time);
      break;
    default:
      break;
    }
  }
  return s->no_memory ? -1 : 0;
}

int thread_states_finish(thread_states *s, int64_t end_ns) {
  s->found.n_intervals = s->found.n_samples = 0;
  for (int32_t row = 0; row < s->found.n_threads; row++)
    if (s->found.threads[row].alive) {
      if (s->threads[row].fresh) /* it never came to a CPU nor left one */
        s->threads[row].state = SLEEPING;
      end_state(s, row, end_ns);
      s->found.threads[row].end_ns = s->threads[row].since;
    }
  count_others(s, end_ns);
  return s->no_memory ? -1 : 0;
}

const thread_found *thread_states_found(const thread_states *s) { return &s->found; }
