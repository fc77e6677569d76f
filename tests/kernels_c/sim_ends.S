# A program without a library that does ENDING and then ends with exit status STATUS.

        .globl _start
        .text
_start: ENDING
        movl $60, %eax
        movl $STATUS, %edi
        syscall
