// The core's own clock, where there is no cycle counter: how fast it makes additions that each wait
// for the one before. Such an addition takes one cycle on every x86-64 core.
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Takes about 20 microseconds: long beside the clock's cost, short beside a change of frequency.
// The additions are of two registers: recent cores make those of a small constant for nothing,
// when they rename the register. Assembler, because a compiler would sum them up.
static inline double core_mhz(void) {
  enum { LOOPS = 1000, ADDITIONS = 64 };
  uint64_t sum = 1, one = 1, left = LOOPS;
  int64_t before_ns = clock_ns();
  __asm__ volatile("1:\n"
                   ".rept %c[additions]\n"
                   "add %[one], %[sum]\n"
                   ".endr\n"
                   "dec %[left]\n"
                   "jnz 1b\n"
                   : [sum] "+r"(sum), [left] "+r"(left)
                   : [one] "r"(one), [additions] "i"(ADDITIONS)
                   : "cc");
  int64_t time_ns = clock_ns() - before_ns;
  return time_ns > 0 ? 1e3 * LOOPS * ADDITIONS / (double)time_ns : 0.0;
}

#endif
