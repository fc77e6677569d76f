/* Work of which each instruction is counted beforehand: a round is 1000 instructions, 750 of them in
 * `hot`, 246 in `cold`, 4 in `work` itself. Alone it is a program, `loop ROUNDS [wait]`, without a C
 * library, which waits for its standard input if it has two arguments; job.c calls `work(ROUNDS)`.
 */
#ifndef LIBRARY
  .global _start
_start:
  ldr x1, [sp]
  cmp x1, 3
  b.lt 3f
  mov x0, 0
  sub x1, sp, 16
  mov x2, 1
  mov x8, 63 // read
  svc 0
3:
  ldr x1, [sp, 16]
  mov x0, 0
1:
  ldrb w3, [x1], 1
  cbz w3, 2f
  sub w3, w3, '0'
  mov x4, 10
  madd x0, x0, x4, x3
  b 1b
2:
  bl work
  mov x0, 0
  mov x8, 93 // exit
  svc 0
#endif
  .global work, hot, cold
  .type work, %function
  .type hot, %function
  .type cold, %function
work:
  mov x9, x30
1:
  bl hot
  bl cold
  subs x0, x0, 1
  b.ne 1b
  ret x9
  .size work, . - work
hot:
  .rept 749
  nop
  .endr
  ret
  .size hot, . - hot
cold:
  .rept 245
  nop
  .endr
  ret
  .size cold, . - cold
  .section .note.GNU-stack, "", %progbits
