/*
 * Where does malloc put two buffers of one size, and what does that cost? It runs with the C
 * library's malloc or with one that is preloaded.
 *
 * Pairs are either new (nothing was freed before; all stay) or again (each is freed before the
 * next): allocators treat what was freed in ways of their own. Nothing is written to these.
 *
 * Timed are a convolution and a copy that read the first buffer and write the second. Stressed: the
 * comparison of a load with earlier stores by the low 12 bits of their addresses. Kept constant:
 * the work, and the first buffer, which malloc gave. The second is, in the order asked for, the one
 * that malloc gave, or one of two places in a mapping of ours: at the same distance from the first
 * modulo 4096, or 2048 bytes from where it would alias, and at the same place in a cache line. The
 * two differ by nothing but the distance, whatever else (page sizes, physical pages) the allocator
 * brings with it.
 *
 * Fusing multiplications with additions is forbidden, so that all builds compute the same bits; the
 * copy must stay a loop. Checksum: of the output (common/five_taps.h). The functions are not
 * inlined into the loop that times them.
 *
 * As a program it is told on its standard input what to do, one command a line, and answers on its
 * standard output. It begins with a line each for the files that malloc and the C library come
 * from. Its own input and output allocate nothing.
 *
 *   new BYTES PAIRS       allocate pairs that stay: a line "FIRST SECOND" each
 *   again BYTES PAIRS     the same, each pair freed before the next
 *   time FUNCTION N SAMPLE_NS PLACES
 *                         a line "FIRST SECOND CALLS CPU CHECKSUM" and a bracket's fields a place;
 *                         PLACES are digits
 *   release               free all that stayed: a line with their number
 *
 * @kernel
 * flags = ["-O2", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns", "-fno-builtin-malloc"]
 * link = ["-ldl"]
 * bundle = ["program"]
 * [variants.O0]
 * flags = ["-O0", "-ffp-contract=off"]
 * [variants.O2]
 * flags = ["-O2", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns", "-fno-builtin-malloc"]
 * [variants.O3]
 * flags = ["-O3", "-ffp-contract=off", "-fno-tree-loop-distribute-patterns", "-fno-builtin-malloc"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr, sched_getcpu
#endif
#include <stdint.h>

#include "common/bracket.h"

// Answers are 0, or stage * 65536 + errno, with the stage: 1 the arguments, 2 the memory.
// @interface
typedef struct {
  uint64_t first, second; /* addresses */
} allocator_pair;

typedef struct {
  uint64_t first, second; /* addresses of what is read and of what is written */
  bracket timed;          /* of all calls */
  int64_t calls;
  int64_t cpu; /* where it ran; -1 if it migrated meanwhile */
  uint64_t checksum;
} allocator_sample;

/* The files that malloc and the C library come from, a line each; how long that is, or -1. */
int64_t allocator_files(char *out, int64_t bytes);

/* Allocate `pairs` pairs of buffers of `bytes` and note where they lie. keep: they stay until
   allocator_release; else each pair is freed before the next. */
int64_t allocator_pairs(int64_t bytes, int64_t pairs, int keep, allocator_pair *out);

/* Time a function (0 convolution, 1 copy) of n floats (at least 16) from one buffer of malloc's to
   each of `count` places: 0 malloc's second buffer, 1 a buffer of ours at that distance from the
   first modulo 4096, 2 one of ours far from aliasing. As many calls as take about sample_ns. The
   pair stays until allocator_release. */
int64_t allocator_time(int function, int64_t n, int64_t sample_ns, const int32_t *places,
                       int64_t count, allocator_sample *out);

/* Free what stayed, the oldest first; how many buffers. */
int64_t allocator_release(void);
// @end

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/five_taps.h"

enum { PAGE_BYTES = 4096, LINE_BYTES = 64, MOST_KEPT = 1 << 15, MOST_CALLS = 1000000 };
enum { STAGE_ARGUMENT = 1, STAGE_MEMORY };
enum { PLACE_GIVEN, PLACE_SAME, PLACE_FAR, PLACES };

static void *kept[MOST_KEPT]; // not allocated: it must not move what is measured
static int64_t kept_count;

static int64_t failed(int stage, int error) { return (int64_t)stage * 65536 + error; }

static const char *file_of(const char *symbol) {
  Dl_info found;
  void *address = dlsym(RTLD_DEFAULT, symbol);
  return address != NULL && dladdr(address, &found) != 0 ? found.dli_fname : "?";
}

int64_t allocator_files(char *out, int64_t bytes) {
  if (out == NULL || bytes < 1)
    return -1;
  int length = snprintf(out, (size_t)bytes, "%s\n%s\n", file_of("malloc"), file_of("getppid"));
  return length < bytes ? length : -1;
}

static int allocate_pair(size_t bytes, void **first, void **second) {
  *first = malloc(bytes);
  *second = malloc(bytes);
  if (*first != NULL && *second != NULL)
    return 1;
  free(*first);
  free(*second);
  return 0;
}

int64_t allocator_pairs(int64_t bytes, int64_t pairs, int keep, allocator_pair *out) {
  if (out == NULL || bytes < 1 || pairs < 1)
    return failed(STAGE_ARGUMENT, EINVAL);
  if (keep && kept_count + 2 * pairs > MOST_KEPT)
    return failed(STAGE_ARGUMENT, ERANGE);
  for (int64_t i = 0; i < pairs; i++) {
    void *first, *second;
    if (!allocate_pair((size_t)bytes, &first, &second))
      return failed(STAGE_MEMORY, ENOMEM);
    out[i] = (allocator_pair){(uintptr_t)first, (uintptr_t)second};
    if (keep) {
      kept[kept_count++] = first;
      kept[kept_count++] = second;
    } else {
      free(first);
      free(second);
    }
  }
  return 0;
}

int64_t allocator_release(void) {
  int64_t count = kept_count;
  for (int64_t i = 0; i < count; i++)
    free(kept[i]);
  kept_count = 0;
  return count;
}

static void call(int function, int n, const float *in, float *out, int64_t calls) {
  void (*const wanted)(int, const float *, float *) = function == 0 ? convolution : copy;
  for (int64_t i = 0; i < calls; i++) {
    wanted(n, in, out);
    __asm__ volatile("" ::: "memory");
  }
}

// Warm: the buffers are in the caches that hold them, and the clock is up.
static int64_t calls_for(int function, int n, const float *in, float *out, int64_t sample_ns) {
  call(function, n, in, out, 2);
  int64_t begin_ns = clock_ns();
  call(function, n, in, out, 1);
  int64_t each_ns = clock_ns() - begin_ns;
  int64_t calls = sample_ns / (each_ns > 0 ? each_ns : 1);
  return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : calls;
}

int64_t allocator_time(int function, int64_t n, int64_t sample_ns, const int32_t *places,
                       int64_t count, allocator_sample *out) {
  if (function < 0 || function > 1 || places == NULL || out == NULL || count < 1 || sample_ns < 1)
    return failed(STAGE_ARGUMENT, EINVAL);
  if (n < FIVE_TAPS_LEAST || n > INT32_MAX || kept_count + 2 > MOST_KEPT)
    return failed(STAGE_ARGUMENT, ERANGE);
  for (int64_t i = 0; i < count; i++)
    if (places[i] < 0 || places[i] >= PLACES)
      return failed(STAGE_ARGUMENT, EINVAL);
  size_t bytes = (size_t)n * sizeof(float);
  size_t span = (bytes + 2 * PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
  void *first, *second;
  if (!allocate_pair(bytes, &first, &second))
    return failed(STAGE_MEMORY, ENOMEM);
  kept[kept_count++] = first;
  kept[kept_count++] = second;
  void *ours = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ours == MAP_FAILED)
    return failed(STAGE_MEMORY, errno);
  // All is written once, so that no sample finds a page absent.
  memset(second, 0, bytes);
  memset(ours, 0, span);
  five_taps_fill((int)n, first);
  uintptr_t distance = (uintptr_t)second - (uintptr_t)first;
  uintptr_t far = (uintptr_t)first + PAGE_BYTES / 2 + distance % LINE_BYTES;
  float *const targets[PLACES] = {
      [PLACE_GIVEN] = second,
      [PLACE_SAME] = (float *)(void *)((unsigned char *)ours + (uintptr_t)second % PAGE_BYTES),
      [PLACE_FAR] = (float *)(void *)((unsigned char *)ours + far % PAGE_BYTES),
  };
  int64_t calls = calls_for(function, (int)n, first, targets[PLACE_FAR], sample_ns);
  bracket timed = {0};
  for (int64_t i = 0; i < count; i++) {
    float *target = targets[places[i]];
    call(function, (int)n, first, target, 1 + calls / 10);
    int on = sched_getcpu();
    if (i > 0 && calls > 1) // a long call has been warmed by a long one
      bracket_next(&timed, &timed);
    else
      bracket_begin(&timed);
    call(function, (int)n, first, target, calls);
    bracket_end(&timed);
    out[i] = (allocator_sample){
        .first = (uintptr_t)first,
        .second = (uintptr_t)target,
        .timed = timed,
        .calls = calls,
        .cpu = on == sched_getcpu() ? on : -1,
        .checksum = five_taps_checksum((int)n, target),
    };
  }
  munmap(ours, span);
  return 0;
}

#ifdef PERFLIB_MAIN
#include <inttypes.h>

enum { MOST_ANSWERS = 4096, LINE = 4096 };

static int refuse(const char *line, int64_t answer) {
  const char *const stages[] = {"it is no command", "its arguments", "its memory"};
  fprintf(stderr, "allocator_pairs: %.*s: %s: %s\n", (int)strcspn(line, "\n"), line,
          stages[answer >> 16], strerror((int)(answer & 0xffff)));
  return 1;
}

static int64_t do_pairs(int64_t bytes, int64_t pairs, int keep) {
  static allocator_pair found[MOST_ANSWERS];
  int64_t answer = pairs > MOST_ANSWERS ? failed(STAGE_ARGUMENT, ERANGE)
                                        : allocator_pairs(bytes, pairs, keep, found);
  for (int64_t i = 0; answer == 0 && i < pairs; i++)
    printf("%" PRIu64 " %" PRIu64 "\n", found[i].first, found[i].second);
  return answer;
}

static void print_sample(const allocator_sample *s) {
  const bracket *b = &s->timed;
  printf("%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64, s->first, s->second, s->calls,
         s->cpu, s->checksum);
  const int64_t fields[] = {b->start_ns,       b->time_ns,         b->cpu_time_ns,
                            b->run_delay_ns,   b->throttled_ns,    b->probe_before_ns,
                            b->probe_after_ns, b->chain_before_ns, b->chain_after_ns};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    printf(" %" PRId64, fields[i]);
  putchar('\n');
}

static int64_t do_time(int function, int64_t n, int64_t sample_ns, const char *digits) {
  static allocator_sample found[MOST_ANSWERS];
  static int32_t places[MOST_ANSWERS];
  int64_t count = (int64_t)strlen(digits);
  for (int64_t i = 0; i < count; i++)
    places[i] = digits[i] - '0';
  int64_t answer = allocator_time(function, n, sample_ns, places, count, found);
  for (int64_t i = 0; answer == 0 && i < count; i++)
    print_sample(&found[i]);
  return answer;
}

int main(void) {
  static char input[1 << 16], output[1 << 16], line[LINE], digits[LINE];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOFBF, sizeof output);
  int64_t length = allocator_files(line, LINE);
  if (length < 0)
    return refuse("the files of malloc", failed(STAGE_MEMORY, ENAMETOOLONG));
  fputs(line, stdout);
  fflush(stdout);
  while (fgets(line, LINE, stdin) != NULL) {
    int64_t bytes, pairs, sample_ns, answer = 0;
    int function;
    if (sscanf(line, "new %" SCNd64 " %" SCNd64, &bytes, &pairs) == 2)
      answer = do_pairs(bytes, pairs, 1);
    else if (sscanf(line, "again %" SCNd64 " %" SCNd64, &bytes, &pairs) == 2)
      answer = do_pairs(bytes, pairs, 0);
    else if (sscanf(line, "time %d %" SCNd64 " %" SCNd64 " %4000[0-9]", &function, &bytes,
                    &sample_ns, digits) == 4)
      answer = do_time(function, bytes, sample_ns, digits);
    else if (strncmp(line, "release", 7) == 0)
      printf("%" PRId64 "\n", allocator_release());
    else
      answer = EINVAL;
    if (answer != 0)
      return refuse(line, answer);
  }
  return 0;
}
#endif
