/*
 * The check and the timing of aliased_buffers: the places of events in a chain.
 *
 * Stressed: loads whose addresses agree in the low 12 bits with a store just before. Kept constant:
 * the chain; both arrays stay in the first-level cache. Each step waits for the load of the one
 * before. The last event is returned, and the arrays are memory that another file may read.
 *
 * @kernel
 * flags = ["-O2", "-g"]
 * link = ["-lpthread"]
 */
#include "fix/harness.h"

#include "fix/aliased_buffers.inc"

// @interface
// in: first event, steps, the links. out: the ranks, the last event, the links.
int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words);
int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu);
int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out);
// @end

enum { EVENTS = 1024 };

static uint32_t (*volatile fix_called)(chain *, uint32_t, uint32_t) = chain_rank;

int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words) {
  fix_checking = 1;
  int64_t events = in_words - 2;
  chain own = {0};
  if (events < 0 || out_words != 2 * events + 1)
    return EINVAL;
  if (!chain_open(&own, events))
    return ENOMEM;
  for (int64_t i = 0; i < events; i++)
    own.next[i] = (uint32_t)in[2 + i];
  out[events] = fix_called(&own, (uint32_t)in[0], (uint32_t)in[1]);
  for (int64_t i = 0; i < events; i++) {
    out[i] = own.rank[i];
    out[events + 1 + i] = own.next[i];
  }
  chain_close(&own);
  return fix_checked(0);
}

static chain fix_chain;
static int fix_cpu;
static volatile uint32_t fix_last;

static void fix_run(void *context, int thread) {
  (void)thread;
  fix_last = fix_called(context, 0, EVENTS);
}

int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu) {
  (void)partner_cpu;
  fix_cpu = (int)cpu;
  if (!chain_open(&fix_chain, EVENTS))
    return ENOMEM;
  uint32_t order[EVENTS];
  fix_shuffle(order, EVENTS, &seed);
  for (int i = 0; i < EVENTS; i++)
    fix_chain.next[order[i]] = order[(i + 1) % EVENTS];
  return 0;
}

int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out) {
  return fix_samples(fix_run, &fix_chain, fix_cpu, -1, calls, repeats, out);
}
