/*
 * The check and the timing of false_sharing: two threads count finds of two kinds.
 *
 * Stressed: the cache line of the two counts. Kept constant: the data, and how many finds there are
 * among them. The counts are atomic, so the compiler adds each find.
 *
 * @kernel
 * flags = ["-O2", "-g"]
 * link = ["-lpthread"]
 */
#include "fix/harness.h"

#include "fix/false_sharing.inc"

// @interface
// in: calls, then items and kind of either thread (4), then the items of either.
// out: what either thread found.
int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words);
int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu);
int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out);
// @end

enum { ITEMS = 1024, KINDS = 2 };

static void (*volatile fix_called)(int, const int32_t *, int64_t, int32_t) = tally_add;

typedef struct {
  const int32_t *kinds;
  int64_t calls, items;
  int32_t wanted;
} fix_part; // of a thread

static void fix_part_run(void *context, int thread) {
  const fix_part *part = (const fix_part *)context + thread;
  for (int64_t i = 0; i < part->calls; i++)
    fix_called(thread, part->kinds, part->items, part->wanted);
}

int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words) {
  fix_checking = 1;
  fix_part parts[2];
  fix_array kinds[2];
  if (in_words != 5 + (int64_t)(in[1] + in[3]) || out_words != 2)
    return EINVAL;
  const uint64_t *at = in + 5;
  int error = 0;
  for (int i = 0; i < 2; i++) {
    size_t items = in[1 + 2 * i];
    error |= fix_guard(&kinds[i], NULL, sizeof(int32_t) * items);
    for (size_t item = 0; item < items; item++)
      ((int32_t *)kinds[i].data)[item] = (int32_t)*at++;
    parts[i] = (fix_part){.kinds = (const int32_t *)kinds[i].data,
                          .calls = (int64_t)in[0],
                          .items = (int64_t)items,
                          .wanted = (int32_t)in[2 + 2 * i]};
    out[i] = (uint64_t)tally_found(i);
  }
  if (error == 0)
    error = fix_together(fix_part_run, parts);
  for (int i = 0; i < 2; i++) {
    out[i] = (uint64_t)tally_found(i) - out[i];
    error |= fix_release(&kinds[i]);
  }
  return fix_checked(error);
}

static fix_part fix_parts[2];
static int32_t fix_kinds[2][ITEMS];
static int fix_cpu, fix_partner_cpu;

int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu) {
  fix_cpu = (int)cpu, fix_partner_cpu = (int)partner_cpu;
  for (int i = 0; i < 2; i++) {
    for (int item = 0; item < ITEMS; item++)
      fix_kinds[i][item] = (int32_t)(fix_random(&seed) % 16 != 0); // a jump that is predicted
    fix_parts[i] = (fix_part){.kinds = fix_kinds[i], .calls = 1, .items = ITEMS, .wanted = 1};
  }
  return 0;
}

int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out) {
  return fix_samples(fix_part_run, fix_parts, fix_cpu, fix_partner_cpu, calls, repeats, out);
}
