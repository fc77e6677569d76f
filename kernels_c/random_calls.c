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
#define CODE_PATTERNS 1
#include "common/code_kernel.h"

// clang-format off
__asm__(
    ".pushsection code_units, \"ax\", @progbits\n"
    ".p2align 21\n"
    ".globl code_first, code_last, code_text_end\n"
    ".hidden code_first, code_last, code_text_end\n"
    "code_first:\n"
    ".altmacro\n"
    CODE_WORK
    CODE_SEEN
    ".macro one_call name, number\n"
    ".type call_\\name, @function\n"
    "call_\\name:\n"
    "push %rbp\n"
    "mov %rsp, %rbp\n"
    "sub $48, %rsp\n"
    "seen \\number, 8\n"
    "movl $\\number, -4(%rbp)\n"
    "mov -4(%rbp), %eax\n"
    "lea 7(%rax,%rax,2), %eax\n"
    "mov %eax, -8(%rbp)\n"
    "lea 3(%rax,%rax,4), %ebx\n"
    ".rept " CODE_TEXT(FUNCTION_BYTES) " / 64 - 1\n"
    "stack_work \\number, 12, 16, 20\n"
    "stack_work \\number, 24, 28, 32\n"
    "short_work 20, 32, 36\n"
    ".endr\n"
    "leave\n"
    "ret\n"
    ".size call_\\name, " CODE_TEXT(FUNCTION_BYTES) "\n"
    ".if . - call_\\name != " CODE_TEXT(FUNCTION_BYTES) "\n"
    ".error \"function \\name has another size\"\n"
    ".endif\n"
    ".endm\n"
    ".macro numbered_call number\n"
    ".if \\number < 10\n one_call 0000\\number, \\number\n"
    ".elseif \\number < 100\n one_call 000\\number, \\number\n"
    ".elseif \\number < 1000\n one_call 00\\number, \\number\n"
    ".elseif \\number < 10000\n one_call 0\\number, \\number\n"
    ".else\n one_call \\number, \\number\n"
    ".endif\n"
    ".endm\n"
    ".set call_number, 0\n"
    ".rept " CODE_TEXT(FUNCTIONS) "\n"
    "numbered_call %call_number\n"
    ".set call_number, call_number + 1\n"
    ".endr\n"
    "code_last:\n"
    ".p2align 21, 0xcc\n"
    "code_text_end:\n"
    ".noaltmacro\n"
    ".popsection\n"

    ".globl code_dispatch\n"
    ".hidden code_dispatch\n"
    ".type code_dispatch, @function\n"
    ".p2align 6\n"
    "code_dispatch:\n"
    CODE_ENTER
    "jmp 2f\n"
    ".p2align 6\n"
    "1:\n"
    CODE_DRAW
    "imul %rsi, %rax\n"
    "add %r14, %rax\n"
    "call *%rax\n"
    "2:\n"
    "dec %rcx\n"
    "jns 1b\n"
    CODE_LEAVE
    ".size code_dispatch, . - code_dispatch\n"
);
// clang-format on
