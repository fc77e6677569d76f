/*
 * What does a load cost that follows a store to another address, if the two agree in their low
 * bits? Pairs of one store and one load, again and again at the same two addresses, for any number
 * of pairs of addresses.
 *
 * Stressed: the comparison of a load with the stores before it that are still under way. Kept
 * constant: the instructions, the lines (all in the first-level cache), the width and alignment of
 * the accesses, which never straddle a line. No load waits for anything: the stored value stands in
 * a register, the loaded one is not used, so that many pairs are under way at a time, and a load
 * that is held up, truly or falsely, shows as throughput. Where load and store overlap the
 * dependency is true: the store's value is forwarded.
 *
 * Each pair of addresses is timed in short bursts (some microseconds), of which the fastest counts:
 * what the pair costs when nothing disturbs it. As many as take a quarter of a millisecond share
 * the two probes that tell whether the core was alone. The loop is assembler, from which a compiler
 * removes nothing. What the last load found is returned: the stored value where it overlaps, and
 * else what the buffer held, alias_map_word of the place.
 *
 * @kernel
 * flags = ["-O2"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "common/bracket.h"

// @interface
typedef struct {
  double pair_ns;  // of the fastest burst
  uint64_t loaded; // what the last load found
  bracket slice;   // in which it was timed, with its neighbours
} alias_map_sample;

typedef struct {
  int64_t cpu;     // -1 if it moved meanwhile
  double core_mhz; // the mean of before and after
} alias_map_call;

// Times a store at store[c] and a load at load[c] (bytes from a place 1 KiB above a page boundary)
// for each cell c. Width: 4 or 8 bytes, of which all offsets are multiples, from -1024 to 12288.
// Pairs: of a burst, a multiple of 32. 0, or EINVAL.
int64_t alias_map_run(const int64_t *store, const int64_t *load, int64_t cells, int64_t width,
                      int64_t pairs, int64_t bursts, alias_map_sample *out, alias_map_call *call);
// What the buffer holds at an offset, and what is stored.
uint64_t alias_map_word(int64_t offset, int64_t width);
uint64_t alias_map_stored(int64_t width);
// @end

enum { SLICE_NS = 250000 };
enum { PAGE = 4096, PAGES = 5, PLACE = 1024, LEAST = -1024, MOST = 3 * PAGE, UNROLLED = 32 };

static _Alignas(PAGE) unsigned char buffer[PAGES * PAGE];

// Words 2, 3, 4 and 8 KiB apart differ, and no byte is 0xff, as those stored are.
static unsigned char byte_at(int64_t offset) {
  uint64_t place = (uint64_t)(offset - LEAST);
  return (unsigned char)((place / 8 % 251) ^ (place % 8 * 16)) & 0x7f;
}

static uint64_t word(const unsigned char *place, int64_t width) {
  uint64_t value = 0;
  memcpy(&value, place, (size_t)width);
  return value;
}

uint64_t alias_map_word(int64_t offset, int64_t width) {
  unsigned char bytes[8];
  for (int64_t n = 0; n < 8; n++)
    bytes[n] = byte_at(offset + n);
  return word(bytes, width);
}

uint64_t alias_map_stored(int64_t width) { return width == 8 ? UINT64_MAX : UINT32_MAX; }

#define STORE_LOAD(size)                                                                           \
  __asm__ volatile(                                                                                \
      "1:\n"                                                                                       \
      ".rept %c[unrolled]\n" ARCH_STORE(size) ARCH_LOAD(size) ".endr\n" ARCH_REPEAT                \
      : [left] "+r"(left), [loaded] "=&r"(loaded)                                                  \
      : [stored] "r"(UINT64_MAX), [store] "r"(store), [load] "r"(load), [unrolled] "i"(UNROLLED)   \
      : "memory", "cc")

static uint64_t burst(unsigned char *store, const unsigned char *load, int64_t width,
                      int64_t pairs) {
  uint64_t left = (uint64_t)pairs / UNROLLED, loaded;
  if (width == 8)
    STORE_LOAD(ARCH_8_BYTES);
  else
    STORE_LOAD(ARCH_4_BYTES);
  return loaded;
}

static int in_order(int64_t offset, int64_t width) {
  return offset >= LEAST && offset <= MOST && offset % width == 0;
}

int64_t alias_map_run(const int64_t *store, const int64_t *load, int64_t cells, int64_t width,
                      int64_t pairs, int64_t bursts, alias_map_sample *out, alias_map_call *call) {
  if ((width != 4 && width != 8) || pairs < UNROLLED || pairs % UNROLLED != 0 || bursts < 1)
    return EINVAL;
  for (int64_t c = 0; c < cells; c++)
    if (!in_order(store[c], width) || !in_order(load[c], width))
      return EINVAL;
  unsigned char *place = buffer + PLACE;
  for (int64_t offset = LEAST; offset < PAGES * PAGE - PLACE; offset++)
    place[offset] = byte_at(offset);
  int cpu = sched_getcpu();
  call->core_mhz = core_mhz() / 2;
  int64_t of_slice = 0;
  bracket slice;
  bracket_begin(&slice);
  for (int64_t c = 0; c < cells; c++) {
    unsigned char *to = place + store[c], *from = place + load[c], kept[8];
    memcpy(kept, to, sizeof kept);
    double least = 0.0;
    for (int64_t b = 0; b < bursts; b++) {
      int64_t before_ns = clock_ns();
      out[c].loaded = burst(to, from, width, pairs);
      double pair_ns = (double)(clock_ns() - before_ns) / (double)pairs;
      if (b == 0 || pair_ns < least)
        least = pair_ns;
    }
    out[c].pair_ns = least;
    memcpy(to, kept, sizeof kept);
    if (c + 1 == cells || clock_ns() - slice.start_ns >= SLICE_NS) {
      bracket_end(&slice);
      for (; of_slice <= c; of_slice++)
        out[of_slice].slice = slice;
      bracket_next(&slice, &slice);
    }
  }
  call->core_mhz += core_mhz() / 2;
  call->cpu = cpu == sched_getcpu() ? cpu : -1;
  return 0;
}
