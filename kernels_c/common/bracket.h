// A sample that knows whether its core was alone: short, with a probe before and one after it, its
// wall time, its CPU time, and how long its thread waited for the core.
//
// Where the hypervisor hides which cores are threads of one physical core, no counter, clock or
// steal time tells that the other thread works. The execution ports do: a loop that fills them
// takes half as long again, or twice as long, while another thread uses them too. A chain of
// additions, each waiting for the one before, hardly feels the other thread, and takes longer where
// the clock is lower: the ratio of the two tells one from the other. What is "long" is not known
// here; perflib.stats.alone finds it in the distribution of the run's probes.
//
// C99 and C++11, for other people's programs, too (bracket_samples.h).
#ifndef BRACKET_H
#define BRACKET_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// @interface
typedef struct {
  int64_t start_ns;        /* CLOCK_MONOTONIC when it began */
  int64_t time_ns;         /* wall time */
  int64_t cpu_time_ns;     /* CLOCK_THREAD_CPUTIME_ID spent in it */
  int64_t run_delay_ns;    /* ready to run, but waiting for the core; -1: the kernel does not say */
  int64_t throttled_ns;    /* stopped because a quota of CPU time was spent; -1: not watched */
  int64_t probe_before_ns; /* a loop that fills the execution ports */
  int64_t probe_after_ns;
  int64_t chain_before_ns; /* BRACKET_ADDITIONS dependent additions, a cycle each */
  int64_t chain_after_ns;
} bracket;

#define BRACKET_ADDITIONS 6400
// @end

#include "core_clock.h"

enum { BRACKET_PORT_LOOPS = 4000 };
enum { BRACKET_LOOKS_THROTTLED_NS = 100000 }; // shorter gaps are no quota's

typedef struct {
  int64_t ports_ns, chain_ns;
} bracket_probe;

// Ten additions that wait for nothing beside a multiplication that waits for the last one: more
// than the ports of any core of today take at once. About 4 microseconds.
static inline void bracket_fill_ports(void) {
  uint64_t a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1, h = 1, i = 1, j = 1;
  uint64_t product = 3, one = 1, left = BRACKET_PORT_LOOPS;
  __asm__ volatile(
      ".p2align 6\n"
      "1:\n" ARCH_MULTIPLY ARCH_ADD("a") ARCH_ADD("b") ARCH_ADD("c") ARCH_ADD("d") ARCH_ADD("e")
          ARCH_ADD("f") ARCH_ADD("g") ARCH_ADD("h") ARCH_ADD("i") ARCH_ADD("j") ARCH_REPEAT
      : [product] "+r"(product), [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [e] "+r"(e),
        [f] "+r"(f), [g] "+r"(g), [h] "+r"(h), [i] "+r"(i), [j] "+r"(j), [left] "+r"(left)
      : [one] "r"(one)
      : "cc");
}

// And 2 microseconds for the chain.
static inline bracket_probe bracket_look(void) {
  int64_t begin_ns = clock_ns();
  bracket_fill_ports();
  int64_t middle_ns = clock_ns();
  core_add(BRACKET_ADDITIONS / CORE_ADDITIONS);
  bracket_probe found = {middle_ns - begin_ns, clock_ns() - middle_ns};
  return found;
}

static inline int64_t bracket_cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline ssize_t bracket_read(const char *path, int *file, char *text, size_t size) {
  if (*file == 0) // never descriptor 0: that is the standard input
    *file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = *file < 0 ? -1 : pread(*file, text, size - 1, 0);
  if (length >= 0)
    text[length] = '\0';
  return length;
}

// The second number of the thread's schedstat.
static inline int64_t bracket_run_delay_ns(void) {
  static __thread int file;
  char text[128];
  if (bracket_read("/proc/thread-self/schedstat", &file, text, sizeof text) <= 0)
    return -1;
  char *space = strchr(text, ' ');
  return space == NULL ? -1 : strtoll(space, NULL, 10);
}

// How long this group's tasks were stopped by its quota of CPU time; -1 where none is in force.
// PERFLIB_CPU_STAT names the file of the group that has it (perflib/measure/process.py).
static inline int64_t bracket_throttled_ns(void) {
  static __thread int file;
  char text[512];
  if (bracket_read(getenv("PERFLIB_CPU_STAT"), &file, text, sizeof text) <= 0)
    return -1;
  char *found = strstr(text, "throttled_usec ");
  if (found != NULL)
    return 1000 * strtoll(found + strlen("throttled_usec "), NULL, 10);
  found = strstr(text, "throttled_time ");
  return found == NULL ? -1 : strtoll(found + strlen("throttled_time "), NULL, 10);
}

// The CPU time is read within the wall time: to read it the kernel brings its account up to date,
// and may find just then that the thread's slice or its quota is spent. Most stops come there.
static inline void bracket_start(bracket *b, bracket_probe before) {
  b->probe_before_ns = before.ports_ns;
  b->chain_before_ns = before.chain_ns;
  b->throttled_ns = bracket_throttled_ns();
  b->run_delay_ns = bracket_run_delay_ns();
  b->start_ns = clock_ns();
  b->cpu_time_ns = bracket_cpu_ns();
}

static inline void bracket_begin(bracket *b) { bracket_start(b, bracket_look()); }

static inline void bracket_end(bracket *b) {
  b->cpu_time_ns = bracket_cpu_ns() - b->cpu_time_ns;
  b->time_ns = clock_ns() - b->start_ns;
  int64_t delay_ns = bracket_run_delay_ns();
  b->run_delay_ns = delay_ns < 0 || b->run_delay_ns < 0 ? -1 : delay_ns - b->run_delay_ns;
  // The file of a quota is long: it is read again only where the thread did not have the core.
  if (b->throttled_ns >= 0)
    b->throttled_ns = b->time_ns - b->cpu_time_ns > BRACKET_LOOKS_THROTTLED_NS
                          ? bracket_throttled_ns() - b->throttled_ns
                          : 0;
  bracket_probe after = bracket_look();
  b->probe_after_ns = after.ports_ns;
  b->chain_after_ns = after.chain_ns;
}

// The next sample follows at once: the probe after the last one is the one before it.
static inline void bracket_next(const bracket *last, bracket *b) {
  bracket_probe before = {last->probe_after_ns, last->chain_after_ns};
  bracket_start(b, before);
}

#endif
