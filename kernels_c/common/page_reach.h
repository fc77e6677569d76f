// How many entries of the TLB a page takes: is one of 2 MiB one for the processor, too?
//
// In a virtual machine it need not be: an entry covers no more than the host's page behind it. So a
// chain of dependent loads is timed, once through neighbouring lines and once through as many lines
// in as many pages of 4 KiB; both fit into the first-level data cache. If the second takes longer
// on pages of 2 MiB as it does on pages of 4 KiB, the host does not back them. On pages of 1 GiB
// the lines are 2 MiB apart: behind them may be pages of that size. Loads stand for instructions
// here: their TLB is another, but their pages are the same.
#ifndef PAGE_REACH_H
#define PAGE_REACH_H

#include "branch_ring.h"
#include "core_clock.h"

// More pages than any first-level TLB has entries for, few enough lines for the first-level cache.
enum { REACH_LINES = 384, REACH_LOADS = 100 * REACH_LINES, REACH_PASSES = 6 };

static inline void reach_fill(unsigned char *copy, size_t bytes, const void *context) {
  const branch_ring *ring = context;
  memset(copy, 0xcc, bytes);
  for (uint32_t i = 0; i < ring->jumps; i++) {
    unsigned char *next = copy + (ring->at[ring->order[(i + 1) % ring->jumps]] & -8u);
    memcpy(copy + (ring->at[ring->order[i]] & -8u), &next, sizeof next);
  }
}

// Nanoseconds a load, of lines that lie so many bytes apart: 0, or stage * 65536 + errno. The
// memory stays until the next call, at range, so that its pages can be looked at.
static inline int64_t reach_time(int backing, size_t apart, uint64_t seed, double *load_ns,
                                 uint64_t *range) {
  static unsigned char *last;
  static size_t last_room;
  static branch_ring ring;
  ring_plan(&ring, REACH_LINES, apart, seed);
  size_t bytes = text_round_up(REACH_LINES * (apart > TEXT_PAGE ? apart : TEXT_PAGE));
  if (last != NULL)
    munmap(last, last_room);
  unsigned char *copy = last = text_map_for(bytes, backing);
  if (copy == NULL)
    return text_failed(TEXT_MAP, errno);
  last_room = text_room(bytes, backing);
  int64_t failed = text_finish_copy(copy, bytes, backing, seed, reach_fill, &ring);
  if (!failed) {
    unsigned char *at = copy + (ring.at[ring.order[0]] & -8u);
    for (int pass = 0; pass < REACH_PASSES; pass++) { // the first warms up; disturbed ones lose
      int64_t begin_ns = clock_ns();
      for (int i = 0; i < REACH_LOADS; i++)
        at = *(unsigned char *volatile *)at;
      double each_ns = (double)(clock_ns() - begin_ns) / REACH_LOADS;
      if (pass == 0 || each_ns < *load_ns)
        *load_ns = each_ns;
    }
  }
  range[0] = (uintptr_t)copy;
  range[1] = (uintptr_t)copy + last_room;
  return failed;
}

// out[0]: ns a load through neighbouring lines; out[1]: through as many pages.
static inline int64_t page_reach(int backing, uint64_t seed, double *out, uint64_t *range) {
  if (backing <= TEXT_LOADED || backing >= TEXT_BACKINGS || out == NULL || range == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  int64_t failed = reach_time(backing, RING_LINE, seed, &out[0], range);
  size_t apart = backing == TEXT_HUGETLB_1G ? TEXT_HUGE : TEXT_PAGE;
  return failed ? failed : reach_time(backing, apart, seed, &out[1], range);
}

#endif
