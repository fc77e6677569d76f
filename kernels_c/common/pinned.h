// A thread on a core of one's choice: this one for a while, and back among all those that it was
// allowed before; or a new one.
#ifndef PINNED_H
#define PINNED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_setaffinity, sched_getcpu, pthread_attr_setaffinity_np
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

// More than Linux can be built for (8192): a cpu_set_t ends at 1024, and the kernel then says
// EINVAL on a larger machine.
enum { PINNED_MOST = 16384 };

typedef struct {
  int pinned; // 0: the thread was left where it was
  unsigned long before[PINNED_MOST / (8 * sizeof(unsigned long))];
} pinned_thread;

static inline int pin_thread(pinned_thread *thread, int cpu) {
  thread->pinned = 0;
  if (cpu < 0 || cpu >= PINNED_MOST)
    return EINVAL;
  unsigned long wanted[PINNED_MOST / (8 * sizeof(unsigned long))] = {0};
  size_t word = 8 * sizeof(unsigned long);
  wanted[(size_t)cpu / word] = 1ul << (size_t)cpu % word;
  memset(thread->before, 0, sizeof thread->before);
  if (sched_getaffinity(0, sizeof thread->before, (cpu_set_t *)thread->before) != 0 ||
      sched_setaffinity(0, sizeof wanted, (const cpu_set_t *)wanted) != 0)
    return errno;
  thread->pinned = 1;
  return 0;
}

// Where none of the cores of before is left there is nothing to go back to: the kernel has then
// given the thread others already.
static inline void unpin_thread(const pinned_thread *thread) {
  if (thread->pinned)
    (void)!sched_setaffinity(0, sizeof thread->before, (const cpu_set_t *)thread->before);
}

// A new thread that never ran elsewhere. 0 or errno: EINVAL where the core is offline or not
// allowed.
static inline int start_pinned(pthread_t *thread, int cpu, void *(*work)(void *), void *argument) {
  cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
  if (set == NULL)
    return ENOMEM;
  size_t set_bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
  CPU_ZERO_S(set_bytes, set);
  CPU_SET_S((size_t)cpu, set_bytes, set);
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (!error) {
    error = pthread_attr_setaffinity_np(&attributes, set_bytes, set);
    if (!error)
      error = pthread_create(thread, &attributes, work, argument);
    pthread_attr_destroy(&attributes);
  }
  CPU_FREE(set);
  return error;
}

#endif
