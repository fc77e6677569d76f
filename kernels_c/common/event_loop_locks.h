// The locks of the event loop, and the account of who waited for which how long.
//
// A lock is tried first: only a try that fails costs more than the two clock reads that say how
// long the lock was held. Waiting is from the failed try until the thread runs again with the lock
// (or with its task done): blocked and ready without a core. Spinning is counted by itself.
#ifndef EVENT_LOOP_LOCKS_H
#define EVENT_LOOP_LOCKS_H

#include <errno.h>

#include "common/arch.h"
#include "common/event_loop_types.h"

typedef struct {
  _Alignas(64) pthread_mutex_t mutex;
} event_lock;

typedef struct event_task {
  struct event_task *next;
  event_worker *owner;
  event_jet *jet;
  atomic_int done;
} event_task;

// Tasks run one at a time, in the order in which they came, by the thread that found the queue
// idle.
typedef struct {
  _Alignas(64) pthread_mutex_t mutex;
  pthread_cond_t done;
  event_task *first, **last;
  int busy;
} event_queue;

// Each has a symbol of its own, by which a profiler names it.
static event_lock formula_lock = {PTHREAD_MUTEX_INITIALIZER};
static event_lock interface_lock = {PTHREAD_MUTEX_INITIALIZER};
static event_lock output_module = {PTHREAD_MUTEX_INITIALIZER};
static event_lock monitor_module = {PTHREAD_MUTEX_INITIALIZER};
static event_lock class_lock = {PTHREAD_MUTEX_INITIALIZER};
static event_queue task_queue = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                 .done = PTHREAD_COND_INITIALIZER};

static const struct {
  const char *name;
  int point;
  pthread_mutex_t *mutex;
} event_locks[EVENT_LOCKS] = {
    [FORMULA_LOCK] = {"formula_lock", POINT_FORMULA, &formula_lock.mutex},
    [INTERFACE_LOCK] = {"interface_lock", POINT_INTERFACE, &interface_lock.mutex},
    [OUTPUT_MODULE] = {"output_module", POINT_OUTPUT, &output_module.mutex},
    [MONITOR_MODULE] = {"monitor_module", POINT_OUTPUT, &monitor_module.mutex},
    [CLASS_LOCK] = {"class_lock", POINT_CHECKSUM, &class_lock.mutex},
    [TASK_QUEUE] = {"task_queue", POINT_QUEUE, &task_queue.mutex},
};

static const char *const lock_kinds[] = {"mutex", "adaptive", "recursive", "robust", NULL};

// Make every lock anew, as one of lock_kinds.
static void make_locks(int kind) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  if (kind == 1)
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
  if (kind == 2)
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  if (kind == 3)
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  for (int i = 0; i < EVENT_LOCKS; i++)
    pthread_mutex_init(event_locks[i].mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

static void count_wait(lock_account *account, int64_t begin_ns, int64_t end_ns) {
  int64_t waited_ns = end_ns - begin_ns;
  account->waits++;
  account->waiting_ns += waited_ns;
  account->longest_ns = waited_ns > account->longest_ns ? waited_ns : account->longest_ns;
}

// --- one lock ----------------------------------------------------------------------------------

// Up to so many tries; 1 if one of them took the lock.
EVENT_PART int spin_for_lock(pthread_mutex_t *mutex, int64_t tries, lock_account *account) {
  int64_t begin_ns = event_clock(CLOCK_MONOTONIC);
  int taken = 0;
  for (int64_t i = 0; i < tries && !taken; i++) {
    spin_pause();
    taken = pthread_mutex_trylock(mutex) == 0;
  }
  account->spinning_ns += event_clock(CLOCK_MONOTONIC) - begin_ns;
  return taken;
}

EVENT_PART void wait_for_lock(pthread_mutex_t *mutex, lock_account *account) {
  int64_t begin_ns = event_clock(CLOCK_MONOTONIC);
  pthread_mutex_lock(mutex);
  count_wait(account, begin_ns, event_clock(CLOCK_MONOTONIC));
}

static void lock_mutex(pthread_mutex_t *mutex, int64_t tries, lock_account *account) {
  if (pthread_mutex_trylock(mutex) != 0 && (tries == 0 || !spin_for_lock(mutex, tries, account)))
    wait_for_lock(mutex, account);
}

static int is_serialised(const event_worker *w, int lock) {
  return w->job->points >> event_locks[lock].point & 1;
}

// Where a point is off, its lock is left alone.
EVENT_PART void take_lock(event_worker *w, int lock) {
  if (!is_serialised(w, lock))
    return;
  lock_account *account = &w->locks[lock];
  lock_mutex(event_locks[lock].mutex, w->job->spin, account);
  account->taken++;
  account->since_ns = event_clock(CLOCK_MONOTONIC);
}

EVENT_PART void release_lock(event_worker *w, int lock) {
  if (!is_serialised(w, lock))
    return;
  lock_account *account = &w->locks[lock];
  account->held_ns += event_clock(CLOCK_MONOTONIC) - account->since_ns;
  pthread_mutex_unlock(event_locks[lock].mutex);
}

// --- the queue ---------------------------------------------------------------------------------

static void item_evaluate(event_worker *w, event_jet *jet);

// Run what is in the queue; the caller has its mutex, and has it again afterwards.
EVENT_PART void task_queue_run(event_worker *w) {
  lock_account *account = &w->locks[TASK_QUEUE];
  task_queue.busy = 1;
  while (task_queue.first != NULL) {
    event_task *task = task_queue.first;
    task_queue.first = task->next;
    pthread_mutex_unlock(&task_queue.mutex);
    int64_t since_ns = event_clock(CLOCK_MONOTONIC);
    item_evaluate(w, task->jet);
    account->held_ns += event_clock(CLOCK_MONOTONIC) - since_ns;
    lock_mutex(&task_queue.mutex, w->job->spin, account);
    int other = task->owner != w; // the task is gone as soon as its owner knows
    atomic_store(&task->done, 1);
    if (other)
      pthread_cond_broadcast(&task_queue.done);
  }
  task_queue.busy = 0;
}

// Up to so many looks at a task that another thread is to run.
EVENT_PART void spin_for_task(event_task *task, int64_t tries, lock_account *account) {
  int64_t begin_ns = event_clock(CLOCK_MONOTONIC);
  for (int64_t i = 0; i < tries && !atomic_load(&task->done); i++)
    spin_pause();
  account->spinning_ns += event_clock(CLOCK_MONOTONIC) - begin_ns;
}

// The caller has the queue's mutex, and has it again afterwards.
EVENT_PART void wait_for_task(event_task *task, lock_account *account) {
  int64_t begin_ns = event_clock(CLOCK_MONOTONIC);
  while (!atomic_load(&task->done))
    pthread_cond_wait(&task_queue.done, &task_queue.mutex);
  count_wait(account, begin_ns, event_clock(CLOCK_MONOTONIC));
}

// Put a task into the queue and come back when it has been run, by whomever.
EVENT_PART void task_queue_push(event_worker *w, event_jet *jet) {
  lock_account *account = &w->locks[TASK_QUEUE];
  event_task task = {.owner = w, .jet = jet};
  int64_t tries = w->job->spin;
  lock_mutex(&task_queue.mutex, tries, account);
  account->taken++;
  if (task_queue.first == NULL)
    task_queue.last = &task_queue.first;
  *task_queue.last = &task;
  task_queue.last = &task.next;
  if (!task_queue.busy) {
    task_queue_run(w);
  } else {
    if (tries > 0) {
      pthread_mutex_unlock(&task_queue.mutex);
      spin_for_task(&task, tries, account);
      lock_mutex(&task_queue.mutex, tries, account);
    }
    if (!atomic_load(&task.done))
      wait_for_task(&task, account);
  }
  pthread_mutex_unlock(&task_queue.mutex);
}

#endif
