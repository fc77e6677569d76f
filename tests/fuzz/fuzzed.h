// What the fuzzed readers share: numbers from the input, memory that is counted, pieces of text.
#ifndef FUZZED_H
#define FUZZED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* sanitizer/allocator_interface.h, which gcc comes without */
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
                                              void (*released)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *at);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PER_BYTE = 64, BESIDE = 4 << 20 }; /* of memory for an input; a reader of text has 2 MiB */

static int64_t live_bytes, most_bytes;

static void allocated(const volatile void *at, size_t size) {
  (void)at;
  live_bytes += (int64_t)size;
  most_bytes = live_bytes > most_bytes ? live_bytes : most_bytes;
}

static void released(const volatile void *at) {
  if (at != NULL)
    live_bytes -= (int64_t)__sanitizer_get_allocated_size(at);
}

static void begin_counting(void) {
  static int hooked;
  if (!hooked)
    hooked = __sanitizer_install_malloc_and_free_hooks(allocated, released);
  live_bytes = most_bytes = 0;
}

/* The memory that was in use at once is bounded by the input's size, and is given back. */
static void end_counting(size_t size) {
  if (most_bytes > (int64_t)(PER_BYTE * size) + BESIDE || live_bytes != 0) {
    fprintf(stderr, "%lld bytes of memory for %zu bytes of input, %lld of them not given back\n",
            (long long)most_bytes, size, (long long)live_bytes);
    abort();
  }
}

/* The rest of an input; beyond its end stand zeros. */
typedef struct {
  const uint8_t *at, *end;
} input;

static uint64_t take_number(input *in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes && in->at < in->end; i++)
    value |= (uint64_t)*in->at++ << 8 * i;
  return value;
}

/* A number of a file: mostly a small one, sometimes any of 64 bits. */
static inline int64_t take_any(input *in) {
  int64_t value = (int8_t)take_number(in, 1);
  return value == -128 ? (int64_t)take_number(in, 8) : value;
}

/* A copy of its own, so that one byte beyond its end is seen. */
static inline void *copied(const void *from, size_t bytes) {
  void *copy = malloc(bytes);
  if (bytes)
    memcpy(copy, from, bytes);
  return copy;
}

/* Reads n bytes, the last ones or not, into room for `capacity` records; how many it took. */
typedef int64_t feeder(void *state, const char *at, int64_t n, int last, int64_t capacity,
                       int *again);

/* Feed a text piece by piece, as perflib.instruments.perf.pieces does. */
static inline void feed_pieces(input in, size_t piece, int64_t capacity, feeder *feed,
                               void *state) {
  const char *at = (const char *)in.at, *end = (const char *)in.end, *known = at;
  for (int last = 0; !last;) {
    last = known == end;
    known = (size_t)(end - known) < piece ? end : known + piece;
    for (int again = 1; again;) {
      char *copy = copied(at, (size_t)(known - at));
      int64_t used = feed(state, copy, known - at, last, capacity, &again);
      free(copy);
      if (used < 0)
        return;
      if (used > known - at)
        abort();
      at += used;
    }
  }
}

#endif
