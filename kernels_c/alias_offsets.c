/*
 * What does the distance between two buffers cost? A convolution, and copies, from one buffer to
 * another whose address is a chosen number of bytes away, modulo 4096.
 *
 * Stressed: the comparison of a load with earlier stores. Where a processor compares the low 12
 * bits of the addresses first, a load that follows a store to another page but to the same place in
 * it waits for nothing. The convolution is that of Jensen and Simonsen 2017: five taps, the sum
 * kept in memory, so that each step loads and stores. Kept constant: the work, the input and its
 * place; only the output shifts (or both together: the null test). Both lie in one mapping, made
 * anew for every sweep.
 *
 * It is built without optimisation, with -O2 and with -O3, each with and without `restrict`, which
 * tells the compiler that the buffers do not overlap. Fusing multiplications with additions is
 * forbidden, so that all builds compute the same bits. The plain copy must stay a loop: gcc would
 * make a call of memcpy of it (function 2), which has remedies of its own.
 *
 * Checksum: up to 1021 of the output's elements, spread over it,
 *     checksum = rotate_left(checksum, 5) ^ bits(out[2 + k * (n - 4) / samples]).
 * The functions are never inlined into the loop that times them, which calls them by a pointer.
 *
 * As a program (simulated aliases): alias_offsets FUNCTION N OFFSET CALLS.
 *
 * @kernel
 * flags = ["-O2", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns"]
 * bundle = ["library", "program"]
 * [variants.O0]
 * flags = ["-O0", "-ffp-contract=off"]
 * [variants.O0-restrict]
 * flags = ["-O0", "-ffp-contract=off", "-DAPART=restrict"]
 * [variants.O2]
 * flags = ["-O2", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns"]
 * [variants.O2-restrict]
 * flags = ["-O2", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns", "-DAPART=restrict"]
 * [variants.O3]
 * flags = ["-O3", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns"]
 * [variants.O3-restrict]
 * flags = ["-O3", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns", "-DAPART=restrict"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RUSAGE_THREAD, sched_getcpu
#endif
#include <stdint.h>

#include "common/bracket.h"

// Answers are 0, or stage * 65536 + errno, with the stage: 1 the arguments, 2 the memory.
// @interface
typedef struct {
  uint64_t first, second; /* addresses of what is read and of what is written */
  bracket timed;          /* of all calls */
  int64_t calls;
  int64_t others_ns; /* CPU time of the process's other threads meanwhile */
  uint64_t checksum;
  int64_t involuntary_switches; /* of the thread, in the timed part */
  int64_t cpu;                  /* where it ran; -1 if it migrated meanwhile */
} offset_sample;

/* Time a function (0 convolution, 1 copy by a loop, 2 memcpy) of n floats (at least 16) at `count`
   offsets of 0 to 1 MiB, in bytes, multiples of 4, in the order given: `calls` calls after
   `warm_calls` at each. together: both buffers move, their distance stays. */
int64_t offsets_sweep(int function, int64_t n, const int64_t *offsets, int64_t count, int together,
                      int64_t warm_calls, int64_t calls, offset_sample *out);

/* One convolution of n floats, as a user would call it. */
void offsets_convolution(int n, const float *in, float *out);

/* A bracket around calls of whatever function: begin, end. */
void offsets_begin(bracket *out);
void offsets_end(bracket *out);
// @end

#include "common/five_taps.h"
#include "common/two_buffers.h"

enum { OFFSETS_CONVOLUTION, OFFSETS_COPY, OFFSETS_MEMCPY, OFFSETS_FUNCTIONS };

static void call_convolution(void *n, unsigned char *first, unsigned char *second) {
  convolution(*(int *)n, (const float *)(void *)first, (float *)(void *)second);
}

static void call_copy(void *n, unsigned char *first, unsigned char *second) {
  copy(*(int *)n, (const float *)(void *)first, (float *)(void *)second);
}

static void call_memcpy(void *n, unsigned char *first, unsigned char *second) {
  memcpy(second, first, (size_t)*(int *)n * sizeof(float));
  __asm__ volatile("" ::: "memory");
}

static void offsets_fill(void *n, unsigned char *first) {
  five_taps_fill(*(int *)n, (float *)(void *)first);
}

static uint64_t offsets_checksum(void *n, const unsigned char *second) {
  return five_taps_checksum(*(int *)n, (const float *)(const void *)second);
}

static int offsets_function(int function, int *n, two_function *out) {
  static void (*const calls[OFFSETS_FUNCTIONS])(void *, unsigned char *, unsigned char *) = {
      [OFFSETS_CONVOLUTION] = call_convolution,
      [OFFSETS_COPY] = call_copy,
      [OFFSETS_MEMCPY] = call_memcpy,
  };
  if (function < 0 || function >= OFFSETS_FUNCTIONS)
    return EINVAL;
  size_t bytes = (size_t)*n * sizeof(float);
  *out = (two_function){calls[function], offsets_fill, offsets_checksum, n, bytes, bytes};
  return 0;
}

int64_t offsets_sweep(int function, int64_t n, const int64_t *offsets, int64_t count, int together,
                      int64_t warm_calls, int64_t calls, offset_sample *out) {
  if (n < FIVE_TAPS_LEAST || n > INT32_MAX)
    return two_failed(TWO_ARGUMENT, ERANGE);
  int elements = (int)n;
  two_function wanted;
  int error = offsets_function(function, &elements, &wanted);
  if (error != 0)
    return two_failed(TWO_ARGUMENT, error);
  for (int64_t i = 0; offsets != NULL && i < count; i++)
    if (offsets[i] % (int64_t)sizeof(float) != 0)
      return two_failed(TWO_ARGUMENT, EINVAL);
  return two_sweep(&wanted, offsets, count, together, warm_calls, calls, out);
}

void offsets_convolution(int n, const float *in, float *out) { convolution(n, in, out); }

void offsets_begin(bracket *out) { bracket_begin(out); }

void offsets_end(bracket *out) { bracket_end(out); }

#ifdef PERFLIB_MAIN
#include <stdio.h>
#include <stdlib.h>

// Times are not printed, so that two runs print the same. The addresses are the first buffer's and
// the second's.
int main(int count, char **words) {
  if (count != 5) {
    fprintf(stderr, "usage: alias_offsets FUNCTION N OFFSET CALLS\n"
                    "FUNCTION: 0 convolution, 1 copy, 2 memcpy. N floats, the output OFFSET bytes\n"
                    "from the input, modulo 4096. Prints the two addresses and the checksum.\n");
    return 2;
  }
  long n = strtol(words[2], NULL, 10), offset = strtol(words[3], NULL, 10);
  long calls = strtol(words[4], NULL, 10);
  two_function wanted;
  int elements = (int)n;
  if (n < FIVE_TAPS_LEAST || n > INT32_MAX || offset < 0 || offset > TWO_MOST_OFFSET ||
      offset % 4 || calls < 0 || offsets_function(atoi(words[1]), &elements, &wanted) != 0) {
    fprintf(stderr, "alias_offsets: an argument is out of range\n");
    return 2;
  }
  unsigned char *base = two_map(&wanted), *first, *second;
  if (base == NULL) {
    perror("alias_offsets: mmap");
    return 1;
  }
  two_places(&wanted, base, offset, 0, &first, &second);
  two_calls(&wanted, first, second, calls);
  printf("%#lx %#lx %#lx\n", (unsigned long)(uintptr_t)first, (unsigned long)(uintptr_t)second,
         (unsigned long)offsets_checksum(&elements, second));
  return 0;
}
#endif
