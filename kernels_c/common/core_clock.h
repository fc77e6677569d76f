// The core's own clock, where there is no cycle counter: how fast it makes additions that each wait
// for the one before. Such an addition takes one cycle on every core of x86-64 and of aarch64.
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "arch.h"

enum { CORE_ADDITIONS = 64 }; // of a loop

static inline int64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Assembler, because a compiler would sum them up.
static inline void core_add(uint64_t loops) {
  uint64_t sum = 1, one = 1;
  __asm__ volatile(".p2align 6\n"
                   "1:\n"
                   ".rept %c[additions]\n" ARCH_ADD("sum") ".endr\n" ARCH_REPEAT
                   : [sum] "+r"(sum), [left] "+r"(loops)
                   : [one] "r"(one), [additions] "i"(CORE_ADDITIONS)
                   : "cc");
}

// Takes about 20 microseconds: long beside the clock's cost, short beside a change of frequency.
static inline double core_mhz(void) {
  enum { LOOPS = 1000 };
  int64_t before_ns = clock_ns();
  core_add(LOOPS);
  int64_t time_ns = clock_ns() - before_ns;
  return time_ns > 0 ? 1e3 * LOOPS * CORE_ADDITIONS / (double)time_ns : 0.0;
}

#endif
