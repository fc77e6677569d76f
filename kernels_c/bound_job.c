/*
 * A job that is bound by one thing, for `sensitivity`: what is it that others take away from it?
 *
 *     bound_job compute|chase|triad|walk BYTES PASSES
 *
 * compute  a chain of multiplications in registers: by the core alone. BYTES means nothing
 * chase    every line of BYTES, each load waiting for the one before: by the cache that holds them.
 *          32 neighbouring pages at random, then other 32: few TLB misses, and no prefetcher helps
 * triad    c = b + 3 a over three arrays of BYTES together: by the bandwidth of memory, where they
 *          are larger than the caches
 * walk     a line in each page of BYTES, at random, each load waiting for the one before: by the
 *          translation of addresses, where the pages are more than a TLB holds. The lines
 *          themselves fit into a core's own cache
 *
 * Kept constant: the pages. Those of chase and triad must not become huge, those of walk shall: it
 * is bound only where it is not allowed to have them. Loads depend on each other, and every value
 * is part of the checksum, which is printed: the compiler can leave nothing out.
 *
 * @kernel
 * flags = ["-O2"]
 * bundle = ["program"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS, madvise
#endif
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// @interface
/* The checksum of a job: 0 compute, 1 chase, 2 triad, 3 walk; 0 without memory for it. */
uint64_t bound_job(int kind, uint64_t bytes, int64_t passes);
// @end

enum { COMPUTE, CHASE, TRIAD, WALK, KINDS };
enum { LINE = 64, PAGE = 4096, WINDOW = 32 * PAGE / LINE, STEPS = 1 << 16 };
static const uint64_t huge = 2 << 20;

static uint64_t next(uint64_t *state) {
  return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

static uint64_t compute(int64_t passes) {
  uint64_t state = 1;
  for (int64_t i = 0; i < passes * STEPS; i++) {
    next(&state);
    __asm__ volatile("" : "+r"(state)); // a chain that is not shortened
  }
  return state;
}

// Memory at a multiple of 2 MiB; NULL: there is none.
static char *mapped(uint64_t bytes, int advice) {
  char *place =
      mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED)
    return NULL;
  place += -(uintptr_t)place % huge;
  madvise(place, bytes, advice); // a kernel without huge pages has nothing to refuse
  return place;
}

// The order of n visits: each window of them shuffled (Fisher and Yates).
static void shuffled(uint32_t *order, uint64_t n, uint64_t window) {
  uint64_t state = 1;
  for (uint64_t i = 0; i < n; i++)
    order[i] = (uint32_t)i;
  for (uint64_t begin = 0; begin < n; begin += window) {
    uint64_t count = n - begin < window ? n - begin : window;
    for (uint64_t i = count - 1; i > 0 && count > 0; i--) {
      uint64_t j = (next(&state) >> 33) % (i + 1);
      uint32_t one = order[begin + i];
      order[begin + i] = order[begin + j];
      order[begin + j] = one;
    }
  }
}

// Each line holds the offset of the next, and its own number behind it.
static uint64_t chased(uint64_t bytes, int64_t passes, int walk) {
  uint64_t n = bytes / (walk ? PAGE : LINE), sum = 0, at = 0;
  char *place = mapped(bytes, walk ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  uint32_t *order = malloc((n + 1) * sizeof *order);
  if (place == NULL || order == NULL || n == 0)
    return 0;
  shuffled(order, n, walk ? n : WINDOW);
#define OFFSET(i) (walk ? (i) * PAGE + (i) % (PAGE / LINE) * LINE : (i) * LINE)
  for (uint64_t i = 0; i < n; i++) {
    uint64_t next_at = OFFSET((uint64_t)order[(i + 1) % n]);
    memcpy(place + OFFSET((uint64_t)order[i]), &next_at, sizeof next_at);
  }
  at = OFFSET((uint64_t)order[0]);
  free(order);
  for (int64_t pass = 0; pass < passes; pass++)
    for (uint64_t i = 0; i < n; i++) {
      memcpy(&at, place + at, sizeof at);
      sum = sum * 3 + at;
    }
  return sum;
}

static uint64_t triad(uint64_t bytes, int64_t passes) {
  uint64_t n = bytes / (3 * sizeof(double));
  double *a = (double *)mapped(bytes, MADV_NOHUGEPAGE), *b = a + n, *c = b + n, sum = 0;
  if (a == NULL || n == 0)
    return 0;
  for (uint64_t i = 0; i < n; i++) {
    a[i] = (double)(i % 1000);
    b[i] = 1;
  }
  for (int64_t pass = 0; pass < passes; pass++) {
    for (uint64_t i = 0; i < n; i++)
      c[i] = b[i] + 3 * a[i];
    sum += c[(uint64_t)pass % n] + c[n - 1];
    __asm__ volatile("" : : "r"(c) : "memory"); // every pass is made
  }
  return (uint64_t)sum;
}

uint64_t bound_job(int kind, uint64_t bytes, int64_t passes) {
  switch (kind) {
  case COMPUTE:
    return compute(passes);
  case CHASE:
  case WALK:
    return chased(bytes, passes, kind == WALK);
  case TRIAD:
    return triad(bytes, passes);
  default:
    return 0;
  }
}

#ifdef PERFLIB_MAIN
int main(int argc, char **argv) {
  static const char *const names[KINDS] = {"compute", "chase", "triad", "walk"};
  int kind = 0;
  while (argc == 4 && kind < KINDS && strcmp(argv[1], names[kind]) != 0)
    kind++;
  if (argc != 4 || kind == KINDS) {
    fputs("usage: bound_job compute|chase|triad|walk BYTES PASSES\n", stderr);
    return 2;
  }
  uint64_t sum = bound_job(kind, strtoull(argv[2], NULL, 10), strtoll(argv[3], NULL, 10));
  printf("checksum %016" PRIx64 "\n", sum);
  return sum ? 0 : 1;
}
#endif
