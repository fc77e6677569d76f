// The units of code_kernel.h in assembler: what one does, and how the next one is drawn and run.
//
// What a compiler makes of simple statements without optimisation: everything goes to the stack
// and is fetched from there. No value is carried from one piece to the next, so that the core can
// run ahead as far as it can fetch. Pieces have the sizes that fill the units exactly.
//
// A unit notes where it is: the smallest and the largest instruction pointer are in registers. Its
// address is given by a number, not by a label, so that the assembler need not remember it. Its
// own number goes into the checksum.
//
// CODE_CASE is a case of 128 bytes, CODE_CALL a function of FUNCTION_BYTES: 64, and pieces of 64.
// CODE_JUMPS and CODE_CALLS are the dispatchers: the generator and all that the loop needs is in
// registers, which are filled from a code_state and written back.
#ifndef CODE_UNITS_H
#define CODE_UNITS_H

#define CODE_TEXT_OF(value) #value
#define CODE_TEXT(value) CODE_TEXT_OF(value)

#if defined(__x86_64__)

// 26, 12 and 33 bytes; before is how many bytes of the unit are before "seen".
#define CODE_MACROS                                                                                \
  ".macro stack_work number, a, b, c\n"                                                            \
  "movl $\\number, -\\a(%rbp)\n"                                                                   \
  "mov -\\a(%rbp), %eax\n"                                                                         \
  "lea 7(%rax,%rax,2), %eax\n"                                                                     \
  "mov %eax, -\\b(%rbp)\n"                                                                         \
  "mov -\\a(%rbp), %ebx\n"                                                                         \
  "xor -\\b(%rbp), %ebx\n"                                                                         \
  "mov %ebx, -\\c(%rbp)\n"                                                                         \
  ".endm\n"                                                                                        \
  ".macro short_work a, b, c\n"                                                                    \
  "mov -\\a(%rbp), %eax\n"                                                                         \
  "add -\\b(%rbp), %eax\n"                                                                         \
  "mov %eax, -\\c(%rbp)\n"                                                                         \
  "mov -\\c(%rbp), %ebx\n"                                                                         \
  ".endm\n"                                                                                        \
  ".macro seen number, before\n"                                                                   \
  "lea -7-\\before(%rip), %rax\n"                                                                  \
  "cmp %r8, %rax\n"                                                                                \
  "cmovb %rax, %r8\n"                                                                              \
  "cmp %r9, %rax\n"                                                                                \
  "cmova %rax, %r9\n"                                                                              \
  "mov $\\number, %eax\n"                                                                          \
  "rol $5, %rdx\n"                                                                                 \
  "xor %rax, %rdx\n"                                                                               \
  ".endm\n"

#define CODE_CASE                                                                                  \
  "seen \\number, 0\n"                                                                             \
  "stack_work \\number, 52, 56, 60\n"                                                              \
  "stack_work \\number, 64, 68, 72\n"                                                              \
  "stack_work \\number, 76, 80, 84\n"                                                              \
  "short_work 60, 72, 88\n"                                                                        \
  ".byte 0xe9\n" /* jmp .Lnext: always with four bytes of distance */                              \
  ".long .Lnext - . - 4\n"

#define CODE_CALL                                                                                  \
  "push %rbp\n"                                                                                    \
  "mov %rsp, %rbp\n"                                                                               \
  "sub $48, %rsp\n"                                                                                \
  "seen \\number, 8\n"                                                                             \
  "movl $\\number, -4(%rbp)\n"                                                                     \
  "mov -4(%rbp), %eax\n"                                                                           \
  "lea 7(%rax,%rax,2), %eax\n"                                                                     \
  "mov %eax, -8(%rbp)\n"                                                                           \
  "lea 3(%rax,%rax,4), %ebx\n"                                                                     \
  ".rept " CODE_TEXT(FUNCTION_BYTES) " / 64 - 1\n"                                                 \
                                     "stack_work \\number, 12, 16, 20\n"                           \
                                     "stack_work \\number, 24, 28, 32\n"                           \
                                     "short_work 20, 32, 36\n"                                     \
                                     ".endr\n"                                                     \
                                     "leave\n"                                                     \
                                     "ret\n"

// rcx steps left, r10 generator, r11 n, r12 and r13 its constants, r14 first unit, rsi bytes from
// one to the next, r15 places in a page, r8 and r9 the instruction pointers, rdx checksum. rax and
// rbx are free, rbp is the frame.
#define CODE_ENTER                                                                                 \
  "push %rbp\n"                                                                                    \
  "mov %rsp, %rbp\n"                                                                               \
  "push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdi\n"                        \
  "sub $80, %rsp\n"                                                                                \
  "mov (%rdi), %rcx\n"                                                                             \
  "mov 8(%rdi), %r10\n"                                                                            \
  "mov 16(%rdi), %r11\n"                                                                           \
  "mov 24(%rdi), %r14\n"                                                                           \
  "mov 32(%rdi), %rsi\n"                                                                           \
  "mov 40(%rdi), %r15\n"                                                                           \
  "movabs $6364136223846793005, %r12\n"                                                            \
  "movabs $1442695040888963407, %r13\n"                                                            \
  "mov $-1, %r8\n"                                                                                 \
  "xor %r9d, %r9d\n"                                                                               \
  "xor %edx, %edx\n"

#define CODE_LEAVE                                                                                 \
  "mov -48(%rbp), %rdi\n"                                                                          \
  "mov %r10, 8(%rdi)\n"                                                                            \
  "mov %r8, 48(%rdi)\n"                                                                            \
  "mov %r9, 56(%rdi)\n"                                                                            \
  "mov %rdx, 64(%rdi)\n"                                                                           \
  "lea -40(%rbp), %rsp\n"                                                                          \
  "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"                              \
  "ret\n"

// The next number of the generator, and by its upper half one of n: to rax.
#define CODE_DRAW                                                                                  \
  "imul %r12, %r10\n"                                                                              \
  "add %r13, %r10\n"                                                                               \
  "mov %r10, %rax\n"                                                                               \
  "shr $32, %rax\n"                                                                                \
  "imul %r11, %rax\n"                                                                              \
  "shr $32, %rax\n"

// The place in the page is in rbx: none where r15 is 0.
#define CODE_JUMPS                                                                                 \
  CODE_ENTER                                                                                       \
  ".p2align 6\n"                                                                                   \
  ".Lnext:\n"                                                                                      \
  "dec %rcx\n"                                                                                     \
  "js 1f\n" CODE_DRAW "mov %eax, %ebx\n"                                                           \
  "shr $5, %ebx\n"                                                                                 \
  "add %eax, %ebx\n"                                                                               \
  "and %r15d, %ebx\n"                                                                              \
  "shl $7, %ebx\n"                                                                                 \
  "imul %rsi, %rax\n"                                                                              \
  "add %rbx, %rax\n"                                                                               \
  "add %r14, %rax\n"                                                                               \
  "jmp *%rax\n"                                                                                    \
  "1:\n" CODE_LEAVE

#define CODE_CALLS                                                                                 \
  CODE_ENTER                                                                                       \
  "jmp 2f\n"                                                                                       \
  ".p2align 6\n"                                                                                   \
  "1:\n" CODE_DRAW "imul %rsi, %rax\n"                                                             \
  "add %r14, %rax\n"                                                                               \
  "call *%rax\n"                                                                                   \
  "2:\n"                                                                                           \
  "dec %rcx\n"                                                                                     \
  "jns 1b\n" CODE_LEAVE

#elif defined(__aarch64__)

// 8, 5 and 2 instructions. An instruction holds 16 bits of a number.
#define CODE_MACROS                                                                                \
  ".macro stack_work number, a, b, c\n"                                                            \
  "movz w12, #:abs_g0_nc:\\number\n"                                                               \
  "stur w12, [x29, #-\\a]\n"                                                                       \
  "ldur w12, [x29, #-\\a]\n"                                                                       \
  "add w12, w12, w12, lsl #1\n"                                                                    \
  "stur w12, [x29, #-\\b]\n"                                                                       \
  "ldur w13, [x29, #-\\a]\n"                                                                       \
  "eor w13, w13, w12\n"                                                                            \
  "stur w13, [x29, #-\\c]\n"                                                                       \
  ".endm\n"                                                                                        \
  ".macro seen before\n"                                                                           \
  "adr x12, . - \\before\n"                                                                        \
  "cmp x12, x9\n"                                                                                  \
  "csel x9, x12, x9, lo\n"                                                                         \
  "cmp x12, x10\n"                                                                                 \
  "csel x10, x12, x10, hi\n"                                                                       \
  ".endm\n"

#define CODE_FOLD "eor x11, x13, x11, ror #59\n"

#define CODE_CASE                                                                                  \
  "seen 0\n"                                                                                       \
  "movz w13, #\\number\n" CODE_FOLD "stack_work \\number, 52, 56, 60\n"                            \
  "stack_work \\number, 64, 68, 72\n"                                                              \
  "stack_work \\number, 76, 80, 84\n"                                                              \
  "b .Lnext\n"

#define CODE_CALL                                                                                  \
  "stp x29, x30, [sp, #-16]!\n"                                                                    \
  "mov x29, sp\n"                                                                                  \
  "sub sp, sp, #48\n"                                                                              \
  "seen 12\n"                                                                                      \
  "movz w13, #:abs_g0_nc:\\number\n"                                                               \
  "movk w13, #:abs_g1:\\number\n" CODE_FOLD "stur w13, [x29, #-4]\n"                               \
  "ldur w12, [x29, #-4]\n"                                                                         \
  ".rept " CODE_TEXT(FUNCTION_BYTES) " / 64 - 1\n"                                                 \
                                     "stack_work \\number, 12, 16, 20\n"                           \
                                     "stack_work \\number, 24, 28, 32\n"                           \
                                     ".endr\n"                                                     \
                                     "mov sp, x29\n"                                               \
                                     "ldp x29, x30, [sp], #16\n"                                   \
                                     "ret\n"

// x1 steps left, x2 generator, x3 n, x4 and x5 its constants, x6 first unit, x7 bytes from one to
// the next, x8 places in a page, x9 and x10 the instruction pointers, x11 checksum. x12 and x13 are
// free, x29 is the frame.
#define CODE_ENTER                                                                                 \
  "stp x29, x30, [sp, #-16]!\n"                                                                    \
  "mov x29, sp\n"                                                                                  \
  "sub sp, sp, #96\n"                                                                              \
  "ldp x1, x2, [x0]\n"                                                                             \
  "ldp x3, x6, [x0, #16]\n"                                                                        \
  "ldp x7, x8, [x0, #32]\n"                                                                        \
  "movz x4, #0x7f2d\n movk x4, #0x4c95, lsl #16\n"                                                 \
  "movk x4, #0xf42d, lsl #32\n movk x4, #0x5851, lsl #48\n"                                        \
  "movz x5, #0x814f\n movk x5, #0xf767, lsl #16\n"                                                 \
  "movk x5, #0x7b7e, lsl #32\n movk x5, #0x1405, lsl #48\n"                                        \
  "mov x9, #-1\n"                                                                                  \
  "mov x10, #0\n"                                                                                  \
  "mov x11, #0\n"

#define CODE_LEAVE                                                                                 \
  "str x2, [x0, #8]\n"                                                                             \
  "stp x9, x10, [x0, #48]\n"                                                                       \
  "str x11, [x0, #64]\n"                                                                           \
  "mov sp, x29\n"                                                                                  \
  "ldp x29, x30, [sp], #16\n"                                                                      \
  "ret\n"

// To x12.
#define CODE_DRAW                                                                                  \
  "madd x2, x2, x4, x5\n"                                                                          \
  "lsr x12, x2, #32\n"                                                                             \
  "mul x12, x12, x3\n"                                                                             \
  "lsr x12, x12, #32\n"

#define CODE_JUMPS                                                                                 \
  CODE_ENTER                                                                                       \
  ".p2align 6\n"                                                                                   \
  ".Lnext:\n"                                                                                      \
  "subs x1, x1, #1\n"                                                                              \
  "b.mi 1f\n" CODE_DRAW "add w13, w12, w12, lsr #5\n"                                              \
  "and w13, w13, w8\n"                                                                             \
  "madd x12, x12, x7, x6\n"                                                                        \
  "add x12, x12, x13, lsl #7\n"                                                                    \
  "br x12\n"                                                                                       \
  "1:\n" CODE_LEAVE

#define CODE_CALLS                                                                                 \
  CODE_ENTER                                                                                       \
  "b 2f\n"                                                                                         \
  ".p2align 6\n"                                                                                   \
  "1:\n" CODE_DRAW "madd x12, x12, x7, x6\n"                                                       \
  "blr x12\n"                                                                                      \
  "2:\n"                                                                                           \
  "subs x1, x1, #1\n"                                                                              \
  "b.pl 1b\n" CODE_LEAVE

#else
#error "the units are written for x86-64 and aarch64"
#endif

#endif
