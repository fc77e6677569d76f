// Streams through memory, chunk by chunk: what each kind moves, how its bytes are counted, and how
// its results are checked.
//
// Three arrays of doubles, a, b and c, in chunks of 4 KiB. b never changes, a changes its sign
// only, and c is always written from a and b: so any chunk can be checked at any time, whatever was
// done before. A chunk is done in bursts of 8 lines, and after each burst the core may be made to
// wait: that sets the rate. A loop that the compiler cannot turn into memcpy or memset: each line
// ends in a barrier that costs no instruction. Vectors of 16 bytes, which every x86-64 and aarch64
// core has, ask for more than the memory of any of them delivers to one core.
#ifndef LOAD_STREAMS_H
#define LOAD_STREAMS_H

#include <math.h>
#include <stdint.h>

#include "arch.h"

// READ     sum of b                       1 array
// WRITE    c = a constant                 1 array; the processor may fetch each line first
// NT       the same by non-temporal stores, which fetch nothing
// UPDATE   a = -a                         2: each byte read and written, one to one
// COPY     c = a                          2, as STREAM counts: reads and writes of the program
// SCALE    c = 3 a                        2
// ADD      c = a + b                      3
// TRIAD    c = b + 3 a                    3
enum {
  LOAD_READ,
  LOAD_WRITE,
  LOAD_NT,
  LOAD_UPDATE,
  LOAD_COPY,
  LOAD_SCALE,
  LOAD_ADD,
  LOAD_TRIAD,
  LOAD_KINDS
};
enum { LOAD_CHUNK = 4096, LOAD_DOUBLES = LOAD_CHUNK / 8, LOAD_BURSTS = 8, LOAD_LINES = 8 };
enum { LOAD_SCALAR = 3, LOAD_VECTORS = 4 }; // of 16 bytes, in a line

static const int load_arrays_moved[LOAD_KINDS] = {1, 1, 1, 2, 2, 2, 3, 3};

typedef arch_pair load_vec;

static inline double load_a(int i) { return i + 1; } // of chunk's double i, without its sign
static inline double load_b(int i) { return 2 * (i + 1); }
static const double load_constant = 7;
static const double load_sum_of_b = (double)LOAD_DOUBLES * (LOAD_DOUBLES + 1);

// So many steps, each waiting for the one before, a cycle each. Loads go on meanwhile.
static inline void load_wait(int64_t steps) {
  for (; steps > 0; steps--)
    __asm__ volatile("" : "+r"(steps));
}

// A chunk of one kind; a, b and c point to the first double of its own chunk. LINE is done with
// each line: i counts vectors.
#define LOAD_STREAM(name, LINE)                                                                    \
  static inline double load_##name(load_vec *a, const load_vec *b, load_vec *c, int64_t delay) {   \
    load_vec s[LOAD_VECTORS] = {{0}};                                                              \
    (void)a, (void)b, (void)c;                                                                     \
    for (int burst = 0; burst < LOAD_BURSTS; burst++) {                                            \
      for (int line = 0; line < LOAD_LINES; line++) {                                              \
        int i = (burst * LOAD_LINES + line) * LOAD_VECTORS;                                        \
        LINE;                                                                                      \
        __asm__ volatile("" ::: "memory");                                                         \
      }                                                                                            \
      load_wait(delay);                                                                            \
    }                                                                                              \
    load_vec all = (s[0] + s[1]) + (s[2] + s[3]);                                                  \
    return all[0] + all[1];                                                                        \
  }
#define LOAD_FOUR(EACH) EACH(0), EACH(1), EACH(2), EACH(3)

#define LOAD_EACH(v) s[v] += b[i + (v)]
LOAD_STREAM(read, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH
#define LOAD_EACH(v)                                                                               \
  c[i + (v)] = (load_vec) { load_constant, load_constant }
LOAD_STREAM(write, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH
LOAD_STREAM(nt, arch_stream(&c[i], (load_vec){load_constant, load_constant}))
#define LOAD_EACH(v) a[i + (v)] = -a[i + (v)]
LOAD_STREAM(update, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH
#define LOAD_EACH(v) c[i + (v)] = a[i + (v)]
LOAD_STREAM(copy, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH
#define LOAD_EACH(v) c[i + (v)] = LOAD_SCALAR * a[i + (v)]
LOAD_STREAM(scale, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH
#define LOAD_EACH(v) c[i + (v)] = a[i + (v)] + b[i + (v)]
LOAD_STREAM(add, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH
#define LOAD_EACH(v) c[i + (v)] = b[i + (v)] + LOAD_SCALAR * a[i + (v)]
LOAD_STREAM(triad, LOAD_FOUR(LOAD_EACH))
#undef LOAD_EACH

// The three arrays' chunk of that number is done; how many doubles were not what they should be, as
// far as is seen while it is done.
static inline int64_t load_chunk(int kind, double *a, double *b, double *c, int64_t delay) {
  load_vec *va = (load_vec *)a, *vb = (load_vec *)b, *vc = (load_vec *)c;
  switch (kind) {
  case LOAD_READ:
    return load_read(va, vb, vc, delay) == load_sum_of_b ? 0 : 1;
  case LOAD_WRITE:
    load_write(va, vb, vc, delay);
    break;
  case LOAD_NT:
    load_nt(va, vb, vc, delay);
    break;
  case LOAD_UPDATE:
    load_update(va, vb, vc, delay);
    break;
  case LOAD_COPY:
    load_copy(va, vb, vc, delay);
    break;
  case LOAD_SCALE:
    load_scale(va, vb, vc, delay);
    break;
  case LOAD_ADD:
    load_add(va, vb, vc, delay);
    break;
  default:
    load_triad(va, vb, vc, delay);
  }
  return 0;
}

static inline void load_fill_chunk(double *a, double *b, double *c) {
  for (int i = 0; i < LOAD_DOUBLES; i++) {
    a[i] = load_a(i);
    b[i] = load_b(i);
    c[i] = load_constant;
  }
}

// How many doubles of a chunk are not what a kind leaves there.
static inline int64_t load_wrong(int kind, const double *a, const double *b, const double *c) {
  int64_t wrong = 0;
  for (int i = 0; i < LOAD_DOUBLES; i++) {
    double expected = c[i]; // READ and UPDATE write none
    if (kind == LOAD_WRITE || kind == LOAD_NT)
      expected = load_constant;
    else if (kind == LOAD_COPY)
      expected = a[i];
    else if (kind == LOAD_SCALE)
      expected = LOAD_SCALAR * a[i];
    else if (kind == LOAD_ADD)
      expected = a[i] + b[i];
    else if (kind == LOAD_TRIAD)
      expected = b[i] + LOAD_SCALAR * a[i];
    wrong += fabs(a[i]) != load_a(i) || b[i] != load_b(i) || c[i] != expected;
  }
  return wrong;
}

#endif
