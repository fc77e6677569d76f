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

#include "arch.h"
#include "text_pages.h"

enum { RING_PAGES = 4096, RING_STRETCH = 64, RING_LINE = 64 };

// The jumps as machine code. The entry is a function of two arguments, how often it is to be passed
// and how often it has been, and returns the latter. RING_PLACES, RING_APART bytes from each other,
// are a jump's in a line.
#if defined(__x86_64__)

enum { RING_JUMP_BYTES = 5, RING_ENTRY_BYTES = 16, RING_PLACES = 60, RING_APART = 1 };

static inline void ring_jump(unsigned char *code, const unsigned char *to, int entry) {
  static const unsigned char head[] = {0x48, 0xff, 0xc6, 0x48, 0xff, 0xcf, 0x0f, 0x85};
  static const unsigned char tail[] = {0x48, 0x89, 0xf0, 0xc3};
  if (entry) // inc %rsi; dec %rdi; jnz; mov %rsi, %rax; ret
    memcpy(code + 12, tail, sizeof tail);
  memcpy(code, entry ? head : (const unsigned char[]){0xe9}, entry ? sizeof head : 1); // jmp
  code += entry ? sizeof head : 1;
  int32_t distance = (int32_t)(to - (code + 4));
  memcpy(code, &distance, 4);
}

#elif defined(__aarch64__)

enum { RING_JUMP_BYTES = 4, RING_ENTRY_BYTES = 24, RING_PLACES = 16, RING_APART = 4 };

static inline void ring_jump(unsigned char *code, const unsigned char *to, int entry) {
  // add x1, x1, #1; subs x0, x0, #1; b.eq over the jump; the jump; mov x0, x1; ret
  uint32_t words[] = {0x91000421, 0xf1000400, 0x54000040, 0, 0xaa0103e0, 0xd65f03c0};
  words[3] = 0x14000000 | ((uint32_t)((to - code - (entry ? 12 : 0)) >> 2) & 0x3ffffff); // b
  memcpy(code, entry ? words : words + 3, entry ? sizeof words : 4);
}

#endif

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
    // 37 has no divisor in common with the places: a line's comes again only after all of them.
    uint32_t byte = RING_APART * ((37 * stretch + line) % RING_PLACES);
    if (jump == ring->order[0])
      byte = 0; // the entry is longer than a jump
    ring->at[jump] = (uint32_t)(jump * apart) + (apart > RING_LINE ? line * RING_LINE : 0) + byte;
  }
}

static inline void ring_fill(unsigned char *copy, size_t bytes, const void *context) {
  const branch_ring *ring = context;
  memset(copy, ARCH_TRAP_BYTE, bytes); // a stray jump traps
  for (uint32_t i = 0; i < ring->jumps; i++)
    ring_jump(copy + ring->at[ring->order[i]], copy + ring->at[ring->order[(i + 1) % ring->jumps]],
              i == 0);
}

#endif
