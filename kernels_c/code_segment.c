/*
 * When the hot code outgrows what the instruction TLB reaches, every jump waits for a translation.
 * A big switch, as an interpreter has it: opcodes come at random, and each goes through one
 * indirect jump to its case.
 *
 * Stressed: instruction TLB, instruction caches and the prediction of the indirect jump, each more
 * as n grows. Kept constant: the work per case, and the size and the place of each case, whatever n
 * is: case k is 128 bytes at 128 k from the beginning of the text, so one build serves every n, and
 * 32768 cases cost the assembler a second (a compiler takes half a minute for such a switch).
 * There is no hot data beside the code: the opcodes come from a generator in registers,
 *     x = x * 6364136223846793005 + 1442695040888963407;  opcode = ((x >> 32) * n) >> 32,
 * and a case's address is computed, so no table is read. Only the cases' few words on the stack are
 * touched. The generator starts from the seed of code_lay, and goes on from there.
 *
 * Patterns. "random": n cases, side by side. "page": one case in each of n pages; which of the
 * page's 32 places is ((opcode + opcode / 32) mod 32), so that the sets of all caches are used
 * alike. "chase": no cases but a ring of n jumps, one a page (common/branch_ring.h), laid in memory
 * of its own; steps are rounded to whole laps. "line": the same ring with one jump a line, side by
 * side: the control of the chase, with as many jumps on a 64th of the pages.
 *
 * "compiled", in the variant of that name: the first n cases of a switch in C, the control of the
 * assembled one (code_segment_piece.inc). The same generator draws; pieces of 1024 cases, each a
 * function that the compiler made of one switch, lie side by side in a text of their own. So a step
 * is an indirect call of the piece and an indirect jump in it, and there is hot data: 4 bytes of
 * the compiler's jump tables a case, 8 bytes a piece. All of it lies outside of the text, on the
 * same pages whatever the text is on. Cases have 140 bytes (of aarch64 170), more or less.
 *
 * Each case notes the smallest and the largest instruction pointer: the extent of the code that was
 * hot is last_ip + 128 - first_ip. It folds its number into the checksum,
 *     checksum = rotate_left(checksum, 5) ^ k,
 * from 0 at the beginning of each sample; of a ring the checksum is how many laps it counted. All
 * but the compiled switch is assembler, from which a compiler removes nothing; that is compiled
 * without optimisation.
 *
 * While text is laid anew on pages of the pool (hugetlb), old and new are both there: if the old
 * ones are of the pool as well, it must have twice the range.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,common-page-size=0x200000", "-lpthread"]
 * bundle = ["library", "program"]
 * [define]
 * CASES = 32768 # a multiple of 32, up to 65536
 * [variants.hugectl] # for "hugectl --text PROGRAM N": libhugetlbfs moves its text at the start
 * link = ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,common-page-size=0x200000", "-lpthread",
 *         "-Wl,-z,noseparate-code", "-Wl,--no-as-needed", "-lhugetlbfs"]
 * bundle = ["program"]
 * [variants.compiled] # with the compiled switch, which takes the compiler several seconds
 * flags = ["-O2", "-DCODE_SWITCH"]
 * bundle = []
 * [variants.compiled.pieces]
 * file = "code_segment_piece.inc"
 * count = 16
 * flags = ["-O0"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mremap, sched_getcpu, RUSAGE_THREAD
#endif
#include <stdint.h>

#include "common/bracket.h"

// @interface
typedef struct {
  bracket sample;
  int64_t steps;
  uint64_t first_ip, last_ip; // of the cases (functions, jumps) that ran: where they begin
  uint64_t checksum;
  int64_t involuntary_switches; // of the thread, meanwhile
  int64_t cpu;                  // where it ran; -1 if it moved meanwhile
} code_sample;

// out[0] most n of pattern 0, [1] bytes of a case (function), [2] the first one's address, [3] the
// last one's end, [4] most n of pattern 2 (0: there is none), [5] and [6] begin and end of the text
// that is aligned to 2 MiB, [7] most n of pattern 4 (0: there is none), [8] and [9] the first one's
// address there and the last one's end. 0 or errno.
int64_t code_bounds(int64_t *out);

// Lay a pattern (0 random, 1 page, 2 chase, 3 line, 4 compiled) of n on pages of a backing (0
// loaded, 1 4k, 2 thp, 3 collapse, 4 hugetlb); range: begin and end of what was put there. 0, or
// stage * 65536 + errno with the stages 1 argument, 2 map, 3 advise, 4 collapse, 5 protect, 6 move:
// then what was laid before still is.
int64_t code_lay(int pattern, int64_t n, int backing, uint64_t seed, uint64_t *range);

// Run what is laid: the warm steps, then successive samples of so many steps each, every one
// between two probes; the generator goes on from one to the next. 0 or errno.
int64_t code_run(int64_t warm_steps, int64_t steps, int64_t samples, code_sample *out);

// How far one entry of the TLB reaches on pages of a backing (common/page_reach.h): out[0] ns a
// load through neighbouring lines, [1] through as many 4 KiB pages; range: where the memory of the
// latter is, until the next call. 0, or as code_lay.
int64_t code_page_reach(int backing, uint64_t seed, double *out, uint64_t *range);

// Write the names of what is laid for a profiler; 0 or errno.
int64_t code_write_map(const char *path);
// @end

#define CODE_UNITS CASES
#define CODE_UNIT_BYTES 128
#define CODE_UNIT_NAME "case"
#define CODE_UNIT CODE_CASE
#define CODE_DISPATCH CODE_JUMPS
#ifdef CODE_SWITCH
#define CODE_PATTERNS 5
#else
#define CODE_PATTERNS 4
#endif
#include "common/code_kernel.h"

#if CASES < 32 || CASES > 65536 || CASES % 32 != 0
#error "CASES must be a multiple of 32 from 32 to 65536"
#endif

#ifdef CODE_SWITCH
__asm__(".pushsection code_switch, \"ax\", @progbits\n" // where the linker adds the pieces
        ".p2align 21\n"
        ".globl code_switch_first\n"
        ".hidden code_switch_first\n"
        "code_switch_first:\n"
        ".popsection\n"
        ".pushsection code_switch_pad, \"ax\", @progbits\n" // is placed behind them
        ".p2align 21\n"
        ".globl code_switch_end\n"
        ".hidden code_switch_end\n"
        "code_switch_end:\n" ARCH_TRAP ".popsection\n");
#endif

#ifdef PERFLIB_MAIN
#include "common/code_main.h"
#endif
