/*
 * Work whose time depends on where the stack lies: a walk through a table that stands at a fixed
 * place and says where to go next, with a note on the stack for each place that is visited. The
 * notes begin at a multiple of 2 KiB, the table at one of 4 KiB: in half of all layouts a note and
 * its place in the table agree in the low 12 bits of their addresses, and the load that follows
 * looks as if it read what was just stored. Nothing is special about any CPU.
 */
#include <math.h>

#include "job.h"

#define PLACES 256
#define STEPS 2200000

static uint64_t table[PLACES] __attribute__((aligned(4096)));

// One cycle through all places, in a random order.
static void lay_table(uint64_t *chance) {
  uint64_t order[PLACES];
  for (uint64_t i = 0; i < PLACES; i++)
    order[i] = i;
  for (uint64_t i = PLACES - 1; i > 0; i--) {
    uint64_t other = next_random(chance) % (i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  for (uint64_t i = 0; i < PLACES; i++)
    table[order[i]] = order[(i + 1) % PLACES];
}

static __attribute__((noinline, noclone)) uint64_t walk(volatile uint64_t *notes, uint64_t steps) {
  const volatile uint64_t *next = table;
  uint64_t place = 0;
  for (uint64_t step = 0; step < steps; step++) {
    notes[place] = step;
    place = next[place];
  }
  return place;
}

// What does not depend on any address.
static __attribute__((noinline, noclone)) double integrate(double x, uint64_t steps) {
  double sum = 0.0;
  for (uint64_t step = 0; step < steps; step++)
    sum = sqrt(sum + x);
  return sum;
}

double work(uint64_t number, int special) {
  (void)special;
  _Alignas(2048) uint64_t notes[PLACES] = {0};
  uint64_t steps = STEPS + next_random(&number) % (STEPS / 5);
  lay_table(&number);
  double sum = (double)walk(notes, steps) + integrate(next_uniform(&number), steps / 2);
  return sum + (double)notes[number % PLACES];
}
