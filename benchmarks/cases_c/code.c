/*
 * Work in 2048 functions of about 1 KiB each, all alike but for their constants. Where it is
 * special, the calls go round all of them (2 MiB of code), elsewhere round eight of them: the same
 * instructions in the same number, from other places. Each function is two chains of
 * multiplications and additions, in assembler, so that no compiler shortens it; with one, the core
 * would have the time to fetch the code from its second-level cache.
 */
#include "job.h"

#define CALLS 300000
#define FUNCTIONS 2048
#define FEW 8

// clang-format off: each pass would break these lines elsewhere
#define OF_4(what, n, a, b, c, d) what(n##a) what(n##b) what(n##c) what(n##d)
#define OF_16(what, n)                                                                             \
  OF_4(what, n, 0, 1, 2, 3) OF_4(what, n, 4, 5, 6, 7)                                              \
  OF_4(what, n, 8, 9, a, b) OF_4(what, n, c, d, e, f)
#define OF_64(what, a, b, c, d) OF_16(what, a) OF_16(what, b) OF_16(what, c) OF_16(what, d)
#define OF_256(what, n)                                                                            \
  OF_64(what, n##0, n##1, n##2, n##3) OF_64(what, n##4, n##5, n##6, n##7)                          \
  OF_64(what, n##8, n##9, n##a, n##b) OF_64(what, n##c, n##d, n##e, n##f)
#define OF_2048(what)                                                                              \
  OF_256(what, 0) OF_256(what, 1) OF_256(what, 2) OF_256(what, 3)                                  \
  OF_256(what, 4) OF_256(what, 5) OF_256(what, 6) OF_256(what, 7)
// clang-format on

#define DEFINE(n)                                                                                  \
  static __attribute__((noinline, noclone)) uint64_t module_##n(uint64_t x) {                      \
    uint64_t y = x;                                                                                \
    __asm__ volatile(".rept 36\n"                                                                  \
                     "imul $0x5851f42d, %0, %0\n add $0x1" #n ", %0\n"                             \
                     "imul $0x5851f42d, %1, %1\n add $0x1" #n ", %1\n"                             \
                     ".endr\n"                                                                     \
                     : "+r"(x), "+r"(y));                                                          \
    return x + y;                                                                                  \
  }
#define NAME(n) module_##n,

OF_2048(DEFINE)
static uint64_t (*const modules[FUNCTIONS])(uint64_t) = {OF_2048(NAME)};

double work(uint64_t number, int special) {
  uint64_t x = number;
  int calls = CALLS + (int)(next_random(&number) % (CALLS / 5));
  unsigned mask = special ? FUNCTIONS - 1 : FEW - 1;
  for (int call = 0; call < calls; call++)
    x = modules[(unsigned)call * 37 & mask](x);
  return (double)(x >> 11);
}
