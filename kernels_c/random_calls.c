/*
 * What does it cost to run code that is in no near cache? Many functions of the same size, called
 * in random order.
 *
 * Stressed: the instruction caches, from the first level to memory, then the instruction TLB; each
 * more as n, the number of functions that are called, grows. Kept constant: the work per call and
 * each function's size and place: function k is FUNCTION_BYTES long and lies at k * FUNCTION_BYTES
 * from the beginning of the text, so one build serves every n. All of a function's bytes are
 * executed: it looks like a compiler's code without optimisation (a frame, statements that go
 * through the stack), 64 bytes and then blocks of 64 that do not wait for each other. There is no
 * hot data beside the code: the next function is drawn by a generator in registers, as in
 * code_segment.c, x = x * 6364136223846793005 + 1442695040888963407;  k = ((x >> 32) * n) >> 32,
 * and called at an address that is computed, through one indirect call. The generator starts from
 * the seed of code_lay, and goes on from there.
 *
 * Each function notes the smallest and the largest instruction pointer: the extent of the code that
 * was hot is last_ip + FUNCTION_BYTES - first_ip. It folds its number into the checksum,
 *     checksum = rotate_left(checksum, 5) ^ k,
 * from 0 at the beginning of each sample. It is all assembler, from which a compiler removes
 * nothing.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,common-page-size=0x200000", "-lpthread"]
 * [define]
 * FUNCTIONS = 8192
 * FUNCTION_BYTES = 512 # a multiple of 64, up to 65536; at most 64 MiB in all
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mremap, sched_getcpu, RUSAGE_THREAD
#endif
#include <stdint.h>

#include "common/bracket.h"

// The interface is code_segment.c's, where it is explained; the only pattern is 0.
// @interface
typedef struct {
  bracket sample;
  int64_t steps;
  uint64_t first_ip, last_ip, checksum;
  int64_t involuntary_switches, cpu;
} code_sample;

int64_t code_bounds(int64_t *out);
int64_t code_lay(int pattern, int64_t n, int backing, uint64_t seed, uint64_t *range);
int64_t code_run(int64_t warm_steps, int64_t steps, int64_t samples, code_sample *out);
int64_t code_page_reach(int backing, uint64_t seed, double *out, uint64_t *range);
int64_t code_write_map(const char *path);
// @end

#if FUNCTION_BYTES < 64 || FUNCTION_BYTES > 65536 || FUNCTION_BYTES % 64 != 0
#error "FUNCTION_BYTES must be a multiple of 64 from 64 to 65536"
#endif
#if FUNCTIONS < 1 || FUNCTIONS > (64 << 20) / FUNCTION_BYTES
#error "FUNCTIONS * FUNCTION_BYTES must be from 64 bytes to 64 MiB"
#endif

#define CODE_UNITS FUNCTIONS
#define CODE_UNIT_BYTES FUNCTION_BYTES
#define CODE_UNIT_NAME "call"
#define CODE_UNIT CODE_CALL
#define CODE_DISPATCH CODE_CALLS
#define CODE_PATTERNS 1
#include "common/code_kernel.h"
