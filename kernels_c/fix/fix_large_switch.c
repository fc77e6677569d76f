/*
 * The check and the timing of large_switch: hits of 512 channels are calibrated.
 *
 * Stressed: the instruction caches and the prediction of jumps, by a case of some 300 bytes for
 * each channel. Kept constant: the hits and their calibrations. Hits do not wait for each other.
 * The calibrations are memory that another file may read, so the compiler computes all of them.
 *
 * @kernel
 * flags = ["-O2", "-g"]
 * link = ["-lpthread"]
 */
#include "fix/harness.h"

#include "fix/large_switch.inc"

// @interface
// in: channels of hits, then their values. out: the calibrations.
int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words);
int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu);
int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out);
// @end

enum { HITS = 4096, FIX_CHANNELS = 512 };

static void (*volatile fix_called)(const uint16_t *, const uint32_t *, uint64_t *,
                                   int64_t) = calibrate;

int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words) {
  fix_checking = 1;
  size_t hits = (size_t)in_words / 2;
  fix_array channels, values, calibrations;
  if (in_words % 2 != 0 || out_words != in_words / 2)
    return EINVAL;
  int error = fix_guard(&channels, NULL, sizeof(uint16_t) * hits) |
              fix_guard(&values, NULL, sizeof(uint32_t) * hits) |
              fix_guard(&calibrations, NULL, sizeof(uint64_t) * hits);
  if (error != 0)
    return error;
  for (size_t i = 0; i < hits; i++) {
    ((uint16_t *)channels.data)[i] = (uint16_t)in[i];
    ((uint32_t *)values.data)[i] = (uint32_t)in[hits + i];
  }
  fix_called((const uint16_t *)channels.data, (const uint32_t *)values.data,
             (uint64_t *)calibrations.data, (int64_t)hits);
  memcpy(out, calibrations.data, sizeof(uint64_t) * hits);
  return fix_checked(fix_release(&channels) | fix_release(&values) | fix_release(&calibrations));
}

static uint16_t fix_channels[HITS];
static uint32_t fix_values[HITS];
static uint64_t fix_calibrations[HITS];
static int fix_cpu;

static void fix_run(void *context, int thread) {
  (void)context, (void)thread;
  fix_called(fix_channels, fix_values, fix_calibrations, HITS);
}

int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu) {
  (void)partner_cpu;
  fix_cpu = (int)cpu;
  for (int i = 0; i < HITS; i++) {
    uint64_t drawn = fix_random(&seed), channel = drawn % FIX_CHANNELS;
    fix_channels[i] = (uint16_t)((drawn >> 40) % 10 == 0 ? channel : channel / 4 * 4);
    fix_values[i] = (uint32_t)fix_random(&seed);
  }
  return 0;
}

int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out) {
  return fix_samples(fix_run, NULL, fix_cpu, -1, calls, repeats, out);
}
