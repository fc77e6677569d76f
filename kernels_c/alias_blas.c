/*
 * What does the distance between matrix and result cost a library's matrix-vector product?
 * y = Ax by cblas_dgemv of a library that is named when the kernel runs.
 *
 * Stressed: the comparison of loads of A with earlier stores to y, as far as the library has any
 * in flight. Kept constant: the work, A and x and their places; only y moves (or, for the null
 * test, A and y together). A and y lie in one mapping, made anew for every sweep, x in another.
 *
 * The library is opened by its path, for itself (RTLD_LOCAL), in a worker of its own: two BLAS in
 * one process would share symbols. It is told to use one thread by its own function, where it has
 * one; that it does is seen by the CPU time of the process's other threads.
 *
 * Whole numbers in the interface are declared as 64 bits wide. So one declaration serves libraries
 * built for 32-bit and for 64-bit integers: x86-64 and Linux on aarch64 pass each argument in a
 * register or a slot of its own, of which a callee with narrower integers reads the lower half, and
 * none is negative.
 *
 * Checksum: the sum of (row % 7 + 1) * y[row], as bits. A and x hold small whole numbers, so that
 * every order of the additions gives the same:
 *     A[row, column] = (7 * row + 3 * column) % 17 - 8,   x[column] = column % 5 - 2.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-ldl"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RUSAGE_THREAD, sched_getcpu
#endif
#include <stdint.h>

#include "common/bracket.h"

// Answers are 0, or stage * 65536 + errno, with the stage: 1 the arguments, 2 the memory, 3 the
// library (ENOENT: not opened, ENOSYS: no such function, ENXIO: none was opened), 4 the result.
// @interface
typedef struct {
  uint64_t first, second; /* addresses of A and of y */
  bracket timed;          /* of all calls */
  int64_t calls;
  int64_t others_ns; /* CPU time of the process's other threads meanwhile */
  uint64_t checksum;
  int64_t involuntary_switches; /* of the thread, in the timed part */
  int64_t cpu;                  /* where it ran; -1 if it migrated meanwhile */
} offset_sample;

/* Open a library and look its functions up: `dgemv`, and `set_threads` where that is not empty.
   What the loader says of a failure goes to `said`. */
int64_t blas_open(const char *library, const char *dgemv, const char *set_threads, char *said,
                  int64_t said_bytes);

/* Time y = Ax, n by n, A stored by columns or by rows: see offsets_sweep in alias_offsets.c. The
   offsets are multiples of 8. */
int64_t blas_sweep(int by_column, int64_t n, const int64_t *offsets, int64_t count, int together,
                   int64_t warm_calls, int64_t calls, offset_sample *out);
// @end

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/two_buffers.h"

enum { BLAS_ROW_MAJOR = 101, BLAS_COLUMN_MAJOR = 102, BLAS_NO_TRANSPOSITION = 111 };
enum { BLAS_MOST = 1 << 15, BLAS_X_PLACE = 3072 };

typedef void (*blas_dgemv)(int64_t order, int64_t transposition, int64_t rows, int64_t columns,
                           double alpha, const double *a, int64_t lda, const double *x,
                           int64_t x_step, double beta, double *y, int64_t y_step);

typedef struct {
  int64_t order, n;
  const double *x;
} blas_product;

static blas_dgemv blas_function;

int64_t blas_open(const char *library, const char *dgemv, const char *set_threads, char *said,
                  int64_t said_bytes) {
  if (library == NULL || dgemv == NULL || set_threads == NULL || said == NULL || said_bytes < 1)
    return two_failed(TWO_ARGUMENT, EINVAL);
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    snprintf(said, (size_t)said_bytes, "%s", dlerror());
    return two_failed(TWO_LIBRARY, ENOENT);
  }
  *(void **)&blas_function = dlsym(handle, dgemv);
  void (*one_thread)(int64_t) = NULL;
  if (set_threads[0] != '\0')
    *(void **)&one_thread = dlsym(handle, set_threads);
  if (blas_function == NULL || (set_threads[0] != '\0' && one_thread == NULL)) {
    snprintf(said, (size_t)said_bytes, "%s", dlerror());
    return two_failed(TWO_LIBRARY, ENOSYS);
  }
  if (one_thread != NULL)
    one_thread(1);
  return 0;
}

static void blas_call(void *context, unsigned char *first, unsigned char *second) {
  const blas_product *product = context;
  blas_function(product->order, BLAS_NO_TRANSPOSITION, product->n, product->n, 1.0,
                (const double *)(void *)first, product->n, product->x, 1, 0.0,
                (double *)(void *)second, 1);
}

static void blas_fill(void *context, unsigned char *first) {
  const blas_product *product = context;
  double *a = (double *)(void *)first;
  for (int64_t row = 0; row < product->n; row++)
    for (int64_t column = 0; column < product->n; column++) {
      int64_t place = product->order == BLAS_COLUMN_MAJOR ? column * product->n + row
                                                          : row * product->n + column;
      a[place] = (double)((7 * row + 3 * column) % 17 - 8);
    }
}

static uint64_t blas_checksum(void *context, const unsigned char *second) {
  const blas_product *product = context;
  const double *y = (const double *)(const void *)second;
  double sum = 0;
  // Each element has a weight, so that elements in the wrong order are seen.
  for (int64_t row = 0; row < product->n; row++)
    sum += (double)(row % 7 + 1) * y[row];
  uint64_t bits;
  memcpy(&bits, &sum, sizeof bits);
  return bits;
}

int64_t blas_sweep(int by_column, int64_t n, const int64_t *offsets, int64_t count, int together,
                   int64_t warm_calls, int64_t calls, offset_sample *out) {
  if (n < 1 || n > BLAS_MOST)
    return two_failed(TWO_ARGUMENT, ERANGE);
  if (blas_function == NULL)
    return two_failed(TWO_LIBRARY, ENXIO);
  for (int64_t i = 0; offsets != NULL && i < count; i++)
    if (offsets[i] % (int64_t)sizeof(double) != 0)
      return two_failed(TWO_ARGUMENT, EINVAL);
  size_t bytes = (size_t)n * sizeof(double);
  size_t room = two_round_up(bytes + BLAS_X_PLACE);
  unsigned char *own = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED)
    return two_failed(TWO_MEMORY, errno);
  double *x = (double *)(void *)(own + BLAS_X_PLACE);
  for (int64_t column = 0; column < n; column++)
    x[column] = (double)(column % 5 - 2);
  blas_product product = {by_column ? BLAS_COLUMN_MAJOR : BLAS_ROW_MAJOR, n, x};
  two_function function = {blas_call, blas_fill, blas_checksum, &product, (size_t)n * bytes, bytes};
  int64_t failed = two_sweep(&function, offsets, count, together, warm_calls, calls, out);
  munmap(own, room);
  return failed;
}
