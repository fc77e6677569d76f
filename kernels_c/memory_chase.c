/*
 * What does a load cost that has to wait for the one before? Each line of an array holds the
 * address of the next one to be loaded, and all lines are one cycle.
 *
 * Stressed: the data caches, from the first level to memory, as the array grows; and the data TLB
 * and the prefetchers, more or less by the order of the lines. Kept constant: one load of 8 bytes
 * a line, at the line's beginning. A load's address is the value of the one before, so neither the
 * compiler nor the core can begin it earlier. The orders:
 *   random      any line after any other: beyond the TLB's reach nearly every load misses it, too
 *   page        all lines of a page of 4 KiB at random, then those of another one: one TLB miss in
 *               as many loads as a page has lines; but some cores fetch what else is in a page
 *   sequential  ascending: the prefetcher's work
 *   lmbench     the pattern of lmbench's "lat_mem_rd -t": another page with each load, in an order
 *               of the pages that is random but stays the same in each round through them; the
 *               place in the page goes on by one with each load, through the lines of a page in
 *               the order of their numbers with the bits reversed. An array that is not whole pages
 *               is gone through by reversed bits alone. (There, a number of lines that is no power
 *               of two makes lmbench lose some of them; here all take part.)
 *   window      all lines of 32 neighbouring pages at random, then those of other 32: as few TLB
 *               misses as in the order "page" while the pages fit into the TLB, but neighbouring
 *               lines are far apart in time, so that fetching a page ahead does not help
 *   spread      one line of 64 bytes in each page (of line_bytes, up to 2 MiB) at random: each load
 *               needs a translation of its own. A line's place in its page goes on by a line from
 *               page to page: so the lines use the sets of the caches as lines side by side do
 * The array's pages can lie scattered over a larger span of addresses, as lmbench's do, which draws
 * them from the largest array that it is asked for: then page tables are used less densely.
 *
 * The order of the visits is made first, shuffled by Fisher and Yates, and each line is then made
 * to point to the one that is visited next. So they are one cycle if no line is visited twice,
 * which is checked, and all cycles are equally likely in the order "random". (To draw each line's
 * successor, and to take the next free one where it is taken, makes a line be followed by its
 * neighbour more often than by chance, mostly towards the end: of 4096 lines some 30 instead of 1.)
 *
 * The memory is touched first by the calling thread on the core that was asked for, so that it
 * comes to lie on that core's NUMA node, and it is read-only once it is laid. Each timed part is a
 * slice between two probes (common/bracket.h), which tell whether the core was alone. The time is
 * read from CLOCK_MONOTONIC, by which a slice can be looked up in a trace, between fences that keep
 * loads from passing it. (The time-stamp counter costs less to read, but would have to be
 * calibrated, and a slice is long beside either.) Between slices some lines leave the caches, for
 * the kernel's code and data when the accounts are read: dozens of a slice's 100,000 loads.
 *
 * Checksum: reached_bytes, where in the array the chase stood after the timed part.
 *
 * @kernel
 * flags = ["-O2"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <stdint.h>

#include "common/bracket.h"

// All return 0, or stage * 65536 + errno, with the stage: 1 the arguments, 2 the memory, 3 the
// advice about its pages, 4 the collapse into huge pages, 5 the protection, 7 the pinning (EINVAL:
// a core that is offline or not allowed), 8 the check that the lines are one cycle.
// @interface
typedef struct {
  uint64_t begin, end; /* what was mapped, in whole pages of 2 MiB or 1 GiB */
  uint64_t lines, line_bytes;
  uint64_t at; /* the line to be loaded next */
  int64_t cpu; /* where it was laid; -1 if the thread was moved meanwhile */
} chase_array;

typedef struct {
  int64_t loads;
  uint64_t reached_bytes;       /* checksum: where in the array the next load would be */
  int64_t involuntary_switches; /* of the thread, probes included */
  int64_t cpu;                  /* where it ran; -1 if it was moved meanwhile */
  bracket sample;               /* its times, and the probes around it */
} chase_sample;

/* Lay lines of line_bytes (a power of two from 8 to 4096; of "spread" from 64 to 2 MiB) in an order
   (0 random, 1 page, 2 sequential, 3 lmbench, 4 window, 5 spread, which has no span) on pages of a
   backing (1 4k, 2 thp, 3 collapse, 4 hugetlb, 5 hugetlb_1g), from a core (-1: wherever the thread
   is).
   span_bytes (0: bytes): where it is more, each 4 KiB of the array lie somewhere in so much memory,
   all of which is mapped and touched. The array must be zero or one that was laid, which is
   released; there can be any number. It stays as it was if the arguments are wrong; if laying fails
   it is empty. */
int64_t chase_lay(int order, uint64_t bytes, uint64_t span_bytes, uint64_t line_bytes, int backing,
                  uint64_t seed, int cpu, chase_array *array);

/* From a core (-1: wherever the thread is): warm_loads once, then so many loads in a bracket,
   repeats times. Each goes on where the last one ended, so that all of a large array is used in the
   end even if loads is less than its lines. Warm-up of less than one lap leaves lines in the caches
   as the laying did. 2 and ENODATA: the array is empty. */
int64_t chase_run(chase_array *array, int cpu, int64_t warm_loads, int64_t loads, int64_t repeats,
                  chase_sample *out);

/* Give the memory back. */
int64_t chase_release(chase_array *array);

/* How far an entry of the TLB reaches on such pages: see common/page_reach.h. */
int64_t chase_page_reach(int backing, uint64_t seed, double *out, uint64_t *range);
// @end

#include "common/page_reach.h"
#include "common/pinned.h"
#include "common/switches.h"
#include "common/text_pages.h"

enum {
  CHASE_RANDOM,
  CHASE_PAGE,
  CHASE_SEQUENTIAL,
  CHASE_LMBENCH,
  CHASE_WINDOW,
  CHASE_SPREAD,
  CHASE_ORDERS
};
enum { CHASE_LINE = 64 };
enum { CHASE_PINNING = TEXT_MOVE + 1, CHASE_CYCLE };
// First-level data TLBs have more entries (64 on x86-64, 40 to 48 on Neoverse): some stay for other
// data. (A Cortex-A72 has 32, and waits for its second level now and then.)
enum { CHASE_WINDOW_PAGES = 32 };
enum { CHASE_UNROLLED = 64, CHASE_MOST_LINES = 1 << 30 };

// --- the order of the visits ---------------------------------------------------------------------

// The numbers below n, ordered by their reversed bits.
static void chase_reversed(uint32_t *visits, uint32_t n) {
  uint32_t found = 0, most = 1;
  while (most < n)
    most *= 2;
  for (uint32_t reversed = 0; found < n;) {
    if (reversed < n)
      visits[found++] = reversed;
    // One is added from the upper end.
    uint32_t bit = most / 2;
    while (reversed & bit) {
      reversed ^= bit;
      bit /= 2;
    }
    reversed |= bit;
  }
}

// Lines of a block at random, blocks at random; the last block may be a part of one.
static void chase_by_block(uint32_t *visits, uint32_t lines, const uint32_t *blocks, uint32_t n,
                           uint32_t in_block, uint64_t *seed) {
  for (uint32_t block = 0; block < n; block++) {
    uint32_t first = blocks[block] * in_block;
    uint32_t here = lines - first < in_block ? lines - first : in_block;
    text_shuffle(visits, here, seed);
    for (uint32_t i = 0; i < here; i++)
      *visits++ += first;
  }
}

static void chase_by_lmbench(uint32_t *visits, const uint32_t *pages, uint32_t n,
                             uint32_t in_page) {
  uint32_t words[TEXT_PAGE / sizeof(void *)];
  chase_reversed(words, in_page);
  for (uint32_t round = 0; round < in_page; round++)
    for (uint32_t page = 0; page < n; page++)
      *visits++ = pages[page] * in_page + words[(page + round) % in_page];
}

static int chase_plan(uint32_t *visits, int order, uint32_t lines, uint32_t in_page,
                      uint64_t *seed) {
  if (order == CHASE_RANDOM || order == CHASE_SPREAD) {
    text_shuffle(visits, lines, seed);
  } else if (order == CHASE_SEQUENTIAL) {
    for (uint32_t i = 0; i < lines; i++)
      visits[i] = i;
  } else if (order == CHASE_LMBENCH && lines % in_page != 0) {
    chase_reversed(visits, lines);
  } else {
    uint32_t in_block = order == CHASE_WINDOW ? CHASE_WINDOW_PAGES * in_page : in_page;
    uint32_t n = (lines + in_block - 1) / in_block;
    uint32_t *blocks = malloc(n * sizeof *blocks);
    if (blocks == NULL)
      return ENOMEM;
    text_shuffle(blocks, n, seed);
    if (order == CHASE_LMBENCH)
      chase_by_lmbench(visits, blocks, n, in_page);
    else
      chase_by_block(visits, lines, blocks, n, in_block, seed);
    free(blocks);
  }
  return 0;
}

// Is each line visited once? Then one after the other they are one cycle.
static int chase_check(const uint32_t *visits, uint32_t lines) {
  unsigned char *seen = calloc(lines / 8 + 1, 1);
  if (seen == NULL)
    return ENOMEM;
  int error = 0;
  for (uint32_t i = 0; i < lines && !error; i++) {
    unsigned char bit = (unsigned char)(1u << visits[i] % 8);
    if (visits[i] >= lines || (seen[visits[i] / 8] & bit))
      error = EDOM;
    else
      seen[visits[i] / 8] |= bit;
  }
  free(seen);
  return error;
}

// --- laying --------------------------------------------------------------------------------------

typedef struct {
  uint32_t *visits; // of the lines, by their numbers
  uint32_t *places; // of the array's pages in the span; NULL: one after the other
  uint32_t lines;
  size_t line_bytes, span_bytes;
  int spread; // each line lies a line further on in its line_bytes than the one before
} chase_content;

static inline size_t chase_place(const chase_content *content, uint32_t line) {
  size_t byte = line * content->line_bytes;
  if (content->spread)
    return byte + line * (size_t)CHASE_LINE % content->line_bytes;
  if (content->places == NULL)
    return byte;
  return content->places[byte / TEXT_PAGE] * TEXT_PAGE + byte % TEXT_PAGE;
}

// 0, or stage * 65536 + errno; to be freed also where it failed.
static int64_t chase_plan_content(chase_content *content, int order, uint64_t seed) {
  uint32_t pages = (uint32_t)((content->span_bytes + TEXT_PAGE - 1) / TEXT_PAGE);
  content->visits = malloc(content->lines * sizeof *content->visits);
  if (content->visits == NULL)
    return text_failed(TEXT_MAP, ENOMEM);
  if (content->span_bytes > content->lines * content->line_bytes) {
    content->places = malloc(pages * sizeof *content->places);
    if (content->places == NULL)
      return text_failed(TEXT_MAP, ENOMEM);
    text_shuffle(content->places, pages, &seed);
  }
  uint32_t in_page = (uint32_t)(TEXT_PAGE / content->line_bytes);
  int error = chase_plan(content->visits, order, content->lines, in_page, &seed);
  if (error == 0)
    error = chase_check(content->visits, content->lines);
  return error == 0 ? 0 : text_failed(error == EDOM ? CHASE_CYCLE : TEXT_MAP, error);
}

static void chase_fill(unsigned char *copy, size_t bytes, const void *context) {
  const chase_content *content = context;
  memset(copy, 0xcc, bytes);
  unsigned char *line = copy + chase_place(content, content->visits[content->lines - 1]);
  for (uint32_t i = 0; i < content->lines; i++) {
    unsigned char *next = copy + chase_place(content, content->visits[i]);
    memcpy(line, &next, sizeof next);
    line = next;
  }
}

// On the core where the thread is.
static int64_t chase_lay_here(const chase_content *content, int backing, uint64_t seed,
                              chase_array *array) {
  int cpu = sched_getcpu();
  size_t bytes = text_round_up(content->span_bytes), room = text_room(bytes, backing);
  unsigned char *copy = text_map_for(bytes, backing);
  if (copy == NULL)
    return text_failed(TEXT_MAP, errno);
  int64_t failed = text_fill_copy(copy, bytes, backing, seed, chase_fill, content);
  // What is read-only is not joined in smaps with writable memory beside it.
  if (!failed && mprotect(copy, room, PROT_READ) != 0)
    failed = text_failed(TEXT_PROTECT, errno);
  if (failed) {
    munmap(copy, room);
    return failed;
  }
  *array = (chase_array){
      .begin = (uintptr_t)copy,
      .end = (uintptr_t)copy + room,
      .lines = content->lines,
      .line_bytes = content->line_bytes,
      .at = (uintptr_t)copy + chase_place(content, content->visits[0]),
      .cpu = cpu == sched_getcpu() ? cpu : -1,
  };
  return 0;
}

int64_t chase_release(chase_array *array) {
  if (array == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (array->begin != 0 && munmap((void *)array->begin, array->end - array->begin) != 0)
    return text_failed(TEXT_MAP, errno);
  *array = (chase_array){0};
  return 0;
}

static int chase_line_fits(int order, uint64_t line_bytes) {
  int spread = order == CHASE_SPREAD;
  uint64_t least = spread ? CHASE_LINE : sizeof(void *), most = spread ? TEXT_HUGE : TEXT_PAGE;
  return line_bytes >= least && line_bytes <= most && (line_bytes & (line_bytes - 1)) == 0;
}

int64_t chase_lay(int order, uint64_t bytes, uint64_t span_bytes, uint64_t line_bytes, int backing,
                  uint64_t seed, int cpu, chase_array *array) {
  if (span_bytes == 0)
    span_bytes = bytes;
  if (order < 0 || order >= CHASE_ORDERS || backing <= TEXT_LOADED || backing >= TEXT_BACKINGS ||
      !chase_line_fits(order, line_bytes) || bytes < line_bytes || bytes % line_bytes != 0 ||
      span_bytes < bytes || (order == CHASE_SPREAD && span_bytes > bytes) || cpu < -1 ||
      array == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (bytes / line_bytes > CHASE_MOST_LINES || span_bytes / TEXT_PAGE > CHASE_MOST_LINES)
    return text_failed(TEXT_ARGUMENT, ERANGE);
  int64_t failed = chase_release(array);
  if (failed)
    return failed;
  pinned_thread thread = {0};
  int error = cpu < 0 ? 0 : pin_thread(&thread, cpu);
  if (error != 0)
    return text_failed(CHASE_PINNING, error);
  chase_content content = {.lines = (uint32_t)(bytes / line_bytes),
                           .line_bytes = line_bytes,
                           .span_bytes = span_bytes,
                           .spread = order == CHASE_SPREAD};
  failed = chase_plan_content(&content, order, seed);
  if (!failed)
    failed = chase_lay_here(&content, backing, seed, array);
  free(content.visits);
  free(content.places);
  unpin_thread(&thread);
  return failed;
}

// --- running -------------------------------------------------------------------------------------

static inline uint64_t chase_loads(uint64_t at, int64_t loads) {
  int64_t left = loads / CHASE_UNROLLED;
  if (left > 0)
    __asm__ volatile("1:\n"
                     ".rept %c[unrolled]\n" ARCH_LOAD_NEXT ".endr\n" ARCH_REPEAT
                     : [at] "+r"(at), [left] "+r"(left)
                     : [unrolled] "i"(CHASE_UNROLLED)
                     : "cc", "memory");
  for (left = loads % CHASE_UNROLLED; left > 0; left--)
    __asm__ volatile(ARCH_LOAD_NEXT : [at] "+r"(at) : : "memory");
  return at;
}

int64_t chase_run(chase_array *array, int cpu, int64_t warm_loads, int64_t loads, int64_t repeats,
                  chase_sample *out) {
  if (array == NULL || cpu < -1 || warm_loads < 0 || loads < 1 || repeats < 1 || out == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (array->begin == 0)
    return text_failed(TEXT_MAP, ENODATA);
  memset(out, 0, (size_t)repeats * sizeof *out); // its pages are not touched first between repeats
  pinned_thread thread = {0};
  int error = cpu < 0 ? 0 : pin_thread(&thread, cpu);
  if (error != 0)
    return text_failed(CHASE_PINNING, error);
  uint64_t at = chase_loads(array->at, warm_loads);
  for (int64_t i = 0; i < repeats; i++) {
    chase_sample *one = &out[i];
    int64_t switches = involuntary_switches();
    int on = sched_getcpu();
    if (i == 0)
      bracket_begin(&one->sample);
    else
      bracket_next(&out[i - 1].sample, &one->sample);
    arch_fence_loads(); // loads neither begin before nor end after the times that are read
    at = chase_loads(at, loads);
    arch_fence_loads();
    bracket_end(&one->sample);
    one->loads = loads;
    one->reached_bytes = at - array->begin;
    one->cpu = on == sched_getcpu() ? on : -1;
    one->involuntary_switches = involuntary_switches() - switches;
  }
  array->at = at;
  unpin_thread(&thread);
  return 0;
}

int64_t chase_page_reach(int backing, uint64_t seed, double *out, uint64_t *range) {
  return page_reach(backing, seed, out, range);
}
