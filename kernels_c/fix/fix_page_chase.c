/*
 * The check and the timing of page_chase: a walk along a chain of events.
 *
 * Stressed: the data TLB, by 4096 records of a little more than a page each; the lines that the
 * walk needs are a quarter of a mebibyte, and lie in as many sets of the cache as lines side by
 * side do. Kept constant: the chain, which is one cycle in random order. Each step waits for the
 * one before; the sum is returned.
 *
 * @kernel
 * flags = ["-O2", "-g"]
 * link = ["-lpthread"]
 */
#include "fix/harness.h"

#include "fix/page_chase.inc"

// @interface
// in: events, walks, looks, a seed of raw data; energies; next events; first event and steps of
// each walk; event and byte of each look. out: the walks' sums, then the bytes. Byte b of event e
// is the low byte of seed + 131 e + 31 b.
int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words);
int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu);
int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out);
// @end

enum { EVENTS = 4096, STEPS = 1024, FIX_RAW_BYTES = 4144 };

static int64_t (*volatile fix_called)(const store *, int64_t, int64_t) = store_walk;

static void fix_fill_raw(unsigned char *raw, int64_t events, uint64_t seed) {
  for (int64_t e = 0; e < events; e++)
    for (int64_t b = 0; b < FIX_RAW_BYTES; b++)
      raw[e * FIX_RAW_BYTES + b] = (unsigned char)(seed + 131u * (uint64_t)e + 31u * (uint64_t)b);
}

int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words) {
  fix_checking = 1;
  int64_t events = (int64_t)in[0], walks = (int64_t)in[1], looks = (int64_t)in[2];
  if (in_words != 4 + 2 * (events + walks + looks) || out_words != walks + looks)
    return EINVAL;
  fix_array energy, next, raw;
  store own;
  memset(&own, 0, sizeof own);
  size_t bytes = 8 * (size_t)events;
  int error = fix_guard(&energy, in + 4, bytes) | fix_guard(&next, in + 4 + events, bytes) |
              fix_guard(&raw, NULL, (size_t)events * FIX_RAW_BYTES);
  if (error != 0)
    return error;
  fix_fill_raw(raw.data, events, in[3]);
  error =
      store_open(&own, (const int64_t *)energy.data, (const int64_t *)next.data, raw.data, events)
          ? 0
          : ENOMEM;
  // A store has what it needs: what it was made from is gone.
  error |= fix_release(&energy) | fix_release(&next) | fix_release(&raw);
  if (error != 0)
    return fix_checked(error);
  const uint64_t *at = in + 4 + 2 * events;
  for (int64_t i = 0; i < walks; i++, at += 2)
    *out++ = (uint64_t)fix_called(&own, (int64_t)at[0], (int64_t)at[1]);
  for (int64_t i = 0; i < looks; i++, at += 2)
    *out++ = store_raw(&own, (int64_t)at[0], (int64_t)at[1]);
  store_close(&own);
  return fix_checked(0);
}

static store fix_store;
static int fix_cpu;
static int64_t fix_first;
static volatile int64_t fix_sum;

// From another event on each time, so that a walk is no repetition of the last.
static void fix_run(void *context, int thread) {
  (void)thread;
  fix_first = (fix_first + 1021) % EVENTS;
  fix_sum = fix_called(context, fix_first, STEPS);
}

int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu) {
  (void)partner_cpu;
  fix_cpu = (int)cpu;
  int64_t *energy = malloc(2 * EVENTS * sizeof *energy), *next = energy + EVENTS;
  unsigned char *raw = malloc((size_t)EVENTS * FIX_RAW_BYTES);
  if (energy == NULL || raw == NULL) {
    free(energy);
    free(raw);
    return ENOMEM;
  }
  uint32_t order[EVENTS];
  fix_shuffle(order, EVENTS, &seed);
  for (int64_t i = 0; i < EVENTS; i++) {
    energy[i] = (int64_t)(fix_random(&seed) % 1000);
    next[order[i]] = order[(i + 1) % EVENTS];
  }
  fix_fill_raw(raw, EVENTS, seed);
  int made = store_open(&fix_store, energy, next, raw, EVENTS);
  free(energy);
  free(raw);
  return made ? 0 : ENOMEM;
}

int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out) {
  return fix_samples(fix_run, &fix_store, fix_cpu, -1, calls, repeats, out);
}
