// How often the thread was pushed aside: it would have gone on, and another ran in its place.
#ifndef SWITCHES_H
#define SWITCHES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RUSAGE_THREAD
#endif
#include <stdint.h>
#include <sys/resource.h>

static inline int64_t involuntary_switches(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

#endif
