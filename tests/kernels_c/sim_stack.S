# A program without a library that stores at the stack pointer and then loads 8 bytes from each of
# the 256 places of a page that a stack pointer, a multiple of 16, can coincide with: one of the 256
# loads is a 4K alias, and which one says where the stack begins.

        .globl _start
        .text
_start: movq %rax, (%rsp)
        .set slot, 0
        .rept 256
        movq area + slot, %rax  # 8 bytes of code each
        .set slot, slot + 16
        .endr
        movl $60, %eax          # exit(0)
        xorl %edi, %edi
        syscall

        .bss
        .balign 4096
area:   .skip 4096
