/*
 * Brackets around what is not C: Python calls these functions before and after a piece of work, and
 * perflib.lab.bench keeps the record.
 *
 * As a program it is the job of the experiment "bracketed" that needs no program of the user's:
 * three pieces in turns, chains of dependent multiplications, whose lengths are known. "again"
 * computes what "first" does; "longer" a twentieth more. Constant: the loop and its code. The
 * compiler cannot remove it, because its end is printed: the checksum.
 *
 * @kernel
 * flags = ["-O2"]
 * bundle = ["library", "program"]
 */
#include "common/bracket_samples.h"

// @interface
void bracketed_begin(bracket *b);
void bracketed_end(bracket *b);
int bracketed_cpu(void);
// @end

void bracketed_begin(bracket *b) { bracket_begin(b); }
void bracketed_end(bracket *b) { bracket_end(b); }
int bracketed_cpu(void) { return sched_getcpu(); }

#ifdef PERFLIB_MAIN
enum { ROUNDS = 20, STEPS = 60000 };

__attribute__((noinline)) static uint64_t multiplied(uint64_t value, int steps) {
  for (int i = 0; i < steps; i++)
    value = value * 6364136223846793005u + 1442695040888963407u;
  return value;
}

int main(void) {
  uint64_t value = 1;
  for (int i = 0; i < ROUNDS; i++) {
    PERFLIB_SAMPLE("first") { value = multiplied(value, STEPS); }
    PERFLIB_SAMPLE("again") { value = multiplied(value, STEPS); }
    PERFLIB_SAMPLE("longer") { value = multiplied(value, STEPS + STEPS / 20); }
  }
  printf("%llu\n", (unsigned long long)value);
  return 0;
}
#endif
