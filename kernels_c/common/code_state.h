// What a run of code_kernel.h carries from step to step. Assembler reads it by these places.
#ifndef CODE_STATE_H
#define CODE_STATE_H

#include <stdint.h>

typedef struct {
  int64_t steps;
  uint64_t x, n, base, stride, places, first_ip, last_ip, checksum;
} code_state;

// One piece of the compiled switch: its cases, and the function that is a switch over them.
#define CODE_PIECE_CASES 1024
typedef void code_piece(code_state *, uint32_t opcode);

#endif
