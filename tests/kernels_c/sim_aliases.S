# A program without a library that stores 8 bytes and loads 8 bytes, N times.
#
# The load lies DISTANCE bytes above the store, and FILL stores that it has nothing to do with lie
# between the two. With VECTOR both are of 32 bytes. It executes 2 instructions, 4 + FILL in each
# round, and 3 to end.

#ifdef VECTOR
#define STORE vmovups %ymm0,
#define LOAD vmovups
#define INTO , %ymm1
#else
#define STORE movq %rax,
#define LOAD movq
#define INTO , %rax
#endif

        .globl _start
        .type _start, @function
        .text
_start: movl $N, %ecx
        leaq area(%rip), %rsi
1:      STORE 1024(%rsi)
        .rept FILL
        movl %ecx, 3072(%rsi)
        .endr
        LOAD 1024 + DISTANCE(%rsi) INTO
        decl %ecx
        jnz 1b
        movl $60, %eax          # exit(0)
        xorl %edi, %edi
        syscall
        .size _start, . - _start

        .data                   # Valgrind reads the symbols only of what has data
        .long 0
        .bss
        .balign 4096
area:   .skip 4 * 4096
