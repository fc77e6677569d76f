/* What job.c calls for each event. */
#ifndef JOB_H
#define JOB_H
#include <stdint.h>

// Compute one event, some 20 ms, and return what came out; by number its size varies a little.
double work(uint64_t number, int special);

// The next number of a sequence (splitmix64).
static inline uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The same as a number from 0 to 1.
static inline double next_uniform(uint64_t *state) {
  return (double)(next_random(state) >> 11) * 0x1p-53;
}
#endif
