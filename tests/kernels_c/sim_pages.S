# A program without a library that walks PAGES pages of code, ROUNDS times, a jump in each.
#
# It executes 2 instructions on the page before the first, PAGES + 1 in each round (the last page
# has two), and 3 to end. With CROSSING, the first page's jump begins on the page before.

        .globl _start
        .type _start, @function
        .text
        .balign 4096
_start: movl $ROUNDS, %ecx
        jmp walk
#ifdef CROSSING
        .skip 4094 - (. - _start)
#else
        .balign 4096
#endif
walk:   {disp32} jmp 1f         # 5 bytes
        .rept PAGES - 2
        .balign 4096
1:      jmp 1f
        .endr
        .balign 4096
1:      decl %ecx
        jnz walk
        movl $60, %eax          # exit(0)
        xorl %edi, %edi
        syscall
        .size _start, . - _start
