// A ring of direct jumps, one in each 4 KiB page, in random order: nothing but the translation of
// addresses is asked of the core, as often as can be. (A core that knows where a jump goes fetches
// ahead, and then waits for the page's translation alone.)
//
// The jumps' places within their pages are what keeps the caches out of it: in each stretch of 64
// pages every one of a page's 64 lines is used once, in an order of that stretch's own, so that
// all sets of the caches are used alike, and the place within the line differs from stretch to
// stretch, so that nearly all jumps differ in their low 12 bits, by which branches are looked up.
//
// Its control is the same ring with one jump in each line of 64 bytes, side by side: as many jumps
// and lines on a 64th of the pages.
#ifndef BRANCH_RING_H
#define BRANCH_RING_H

#include "text_pages.h"

enum {
  RING_PAGES = 4096,
  RING_STRETCH = 64,
  RING_LINE = 64,
  RING_JUMP_BYTES = 5,
  RING_ENTRY_BYTES = 16
};

typedef struct {
  uint32_t jumps;
  uint32_t order[RING_PAGES]; // of the jumps in the ring
  uint32_t at[RING_PAGES];    // each jump, in bytes from where the ring begins
} branch_ring;

// apart: bytes from one jump's page (TEXT_PAGE) or line (RING_LINE) to the next one's.
static inline void ring_plan(branch_ring *ring, uint32_t jumps, size_t apart, uint64_t seed) {
  ring->jumps = jumps;
  text_shuffle(ring->order, jumps, &seed);
  uint32_t lines[RING_STRETCH];
  for (uint32_t jump = 0; jump < jumps; jump++) {
    uint32_t stretch = jump / RING_STRETCH;
    if (jump % RING_STRETCH == 0)
      text_shuffle(lines, RING_STRETCH, &seed);
    uint32_t line = lines[jump % RING_STRETCH];
    // 37 has no divisor in common with 60: a line's place comes again only after 60 stretches.
    uint32_t byte = (37 * stretch + line) % (RING_LINE - RING_JUMP_BYTES + 1);
    if (jump == ring->order[0])
      byte = 0; // the entry is longer than a jump
    ring->at[jump] = (uint32_t)(jump * apart) + (apart > RING_LINE ? line * RING_LINE : 0) + byte;
  }
}

static inline unsigned char *ring_put(unsigned char *to, const char *code, size_t bytes) {
  memcpy(to, code, bytes);
  return to + bytes;
}

// The entry is a function of two arguments, how often it is to be passed and how often it has been,
// and returns the latter.
static inline void ring_fill(unsigned char *copy, size_t bytes, const void *context) {
  const branch_ring *ring = context;
  memset(copy, 0xcc, bytes); // a stray jump traps
  for (uint32_t i = 0; i < ring->jumps; i++) {
    unsigned char *code = copy + ring->at[ring->order[i]];
    unsigned char *next = copy + ring->at[ring->order[(i + 1) % ring->jumps]];
    if (i == 0)
      code = ring_put(code, "\x48\xff\xc6\x48\xff\xcf\x0f\x85", 8); // inc %rsi; dec %rdi; jnz
    else
      code = ring_put(code, "\xe9", 1); // jmp
    int32_t distance = (int32_t)(next - (code + 4));
    memcpy(code, &distance, 4);
    if (i == 0)
      ring_put(code + 4, "\x48\x89\xf0\xc3", 4); // mov %rsi, %rax; ret
  }
}

#endif
