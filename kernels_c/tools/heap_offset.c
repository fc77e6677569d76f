/*
 * A library preloaded into a job: its heap begins a given number of bytes further.
 *
 * Before main it asks malloc, whoever provides it, for one block more, and keeps it. The program's
 * own blocks of the main heap come behind it. Level 0 asks for the smallest block there is, so that
 * all levels have made the same calls: glibc rounds 24 + N bytes up to 32 + N, header included, for
 * any N that is a multiple of 16. Other allocators round to their size classes.
 *
 * Not moved: what was allocated before (by libraries that the program is linked with), blocks that
 * have a mapping of their own (glibc: from 128 KiB on), heaps of other threads (glibc's arenas).
 *
 * Constant: what the job computes, its number of allocations, its environment's size (the
 * variable's value has a fixed length). Checksum: the address of the program's own first block
 * (tests/kernels/test_heap_offset.py).
 *
 * @kernel
 * flags = ["-O2"]
 */
#include <stdlib.h>

// @interface
// The dynamic linker alone calls what is here.
// @end

enum { LEAST_BYTES = 24 }; // of glibc's smallest block of 32, header included

static void *volatile kept; // what nobody reads, the compiler would not allocate

__attribute__((constructor)) static void move_heap(void) {
  const char *bytes = getenv("PERFLIB_HEAP_OFFSET");
  if (bytes != NULL)
    kept = malloc(LEAST_BYTES + strtoul(bytes, NULL, 10));
}
