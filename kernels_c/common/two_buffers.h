// Two buffers at a controlled distance, in one mapping: a function is timed at one distance after
// the other. What the function is, its kernel says.
#ifndef TWO_BUFFERS_H
#define TWO_BUFFERS_H

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "bracket.h"
#include "switches.h"

enum { TWO_PAGE = 4096, TWO_MOST_OFFSET = 1 << 20 };
enum { TWO_ARGUMENT = 1, TWO_MEMORY, TWO_LIBRARY, TWO_RESULT }; // stages of an answer

static inline int64_t two_failed(int stage, int error) { return (int64_t)stage * 65536 + error; }

// A function and its buffers: `first` is what it reads, `second` what it writes.
typedef struct {
  void (*call)(void *context, unsigned char *first, unsigned char *second);
  void (*fill)(void *context, unsigned char *first);
  uint64_t (*checksum)(void *context, const unsigned char *second);
  void *context;
  size_t first_bytes, second_bytes;
} two_function;

static inline size_t two_round_up(size_t bytes) {
  return (bytes + TWO_PAGE - 1) / TWO_PAGE * TWO_PAGE;
}

// CPU time of the whole process but this thread: nothing, or a library that has threads. The two
// clocks are read one after the other, and what happens in between counts: the least of some.
static inline int64_t two_others_ns(void) {
  int64_t least_ns = INT64_MAX;
  for (int i = 0; i < 3; i++) {
    struct timespec mine, all;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    int64_t others_ns = (int64_t)(all.tv_sec - mine.tv_sec) * 1000000000;
    others_ns += all.tv_nsec - mine.tv_nsec;
    if (others_ns < least_ns)
      least_ns = others_ns;
  }
  return least_ns;
}

static inline void two_calls(const two_function *function, unsigned char *first,
                             unsigned char *second, int64_t calls) {
  for (int64_t i = 0; i < calls; i++)
    function->call(function->context, first, second);
}

// Where the buffers of an offset lie. Without `together` the first stays and the distance is the
// offset, modulo 4096; with it both move and the distance is 2048, modulo 4096, always.
static inline void two_places(const two_function *function, unsigned char *base, int64_t offset,
                              int together, unsigned char **first, unsigned char **second) {
  size_t gap = two_round_up(function->first_bytes + TWO_MOST_OFFSET);
  *first = base + (together ? offset : 0);
  *second = base + gap + offset + (together ? TWO_PAGE / 2 : 0);
}

static inline size_t two_span(const two_function *function) {
  return two_round_up(function->first_bytes + TWO_MOST_OFFSET) +
         two_round_up(function->second_bytes + TWO_MOST_OFFSET + TWO_PAGE / 2);
}

// The mapping begins at a page. All of it is written once, so that no sample finds a page absent.
static inline unsigned char *two_map(const two_function *function) {
  size_t span = two_span(function);
  void *base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return NULL;
  memset(base, 0, span);
  function->fill(function->context, base);
  return base;
}

// Whether the probe after a sample may be the one before the next: what comes between is short.
static inline int two_shares_probe(int together, int64_t warm_calls, int64_t calls) {
  return !together && 5 * warm_calls <= calls;
}

// Sweep over offsets in the order given. The buffers are mapped anew, so that which physical
// pages they get varies from sweep to sweep, and is not an offset's.
static inline int64_t two_sweep(const two_function *function, const int64_t *offsets, int64_t count,
                                int together, int64_t warm_calls, int64_t calls,
                                offset_sample *out) {
  if (offsets == NULL || out == NULL || count < 1 || calls < 1 || warm_calls < 0)
    return two_failed(TWO_ARGUMENT, EINVAL);
  for (int64_t i = 0; i < count; i++)
    if (offsets[i] < 0 || offsets[i] > TWO_MOST_OFFSET)
      return two_failed(TWO_ARGUMENT, ERANGE);
  unsigned char *base = two_map(function), *first, *second;
  if (base == NULL)
    return two_failed(TWO_MEMORY, errno);
  memset(out, 0, (size_t)count * sizeof *out);
  two_places(function, base, offsets[0], 0, &first, &second);
  two_calls(function, first, second, 1);
  bracket timed = {0};
  for (int64_t i = 0; i < count; i++) {
    two_places(function, base, offsets[i], together, &first, &second);
    if (together)
      function->fill(function->context, first);
    two_calls(function, first, second, warm_calls);
    int64_t switches = involuntary_switches(), others_ns = two_others_ns();
    int on = sched_getcpu();
    if (i > 0 && two_shares_probe(together, warm_calls, calls))
      bracket_next(&timed, &timed);
    else
      bracket_begin(&timed);
    two_calls(function, first, second, calls);
    bracket_end(&timed);
    on = on == sched_getcpu() ? on : -1;
    others_ns = two_others_ns() - others_ns;
    switches = involuntary_switches() - switches;
    out[i] = (offset_sample){
        .first = (uintptr_t)first,
        .second = (uintptr_t)second,
        .timed = timed,
        .calls = calls,
        .others_ns = others_ns,
        .checksum = function->checksum(function->context, second),
        .involuntary_switches = switches,
        .cpu = on,
    };
  }
  munmap(base, two_span(function));
  return 0;
}

#endif
