// The source's convolution and a copy, what they are given, and a checksum of what they make.
// APART is empty or `restrict`.
#ifndef FIVE_TAPS_H
#define FIVE_TAPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef APART
#define APART
#endif

enum { FIVE_TAPS_LEAST = 16, FIVE_TAPS_SAMPLES = 1021 };

static float taps[5] = {0.1f, 0.25f, 0.3f, 0.25f, 0.1f};

__attribute__((noinline)) static void convolution(int n, const float *APART in, float *APART out) {
  for (int i = 2; i < n - 2; ++i) {
    out[i] = 0;
    for (int j = 0; j < 5; ++j)
      out[i] += in[i - 2 + j] * taps[j];
  }
}

__attribute__((noinline)) static void copy(int n, const float *APART in, float *APART out) {
  for (int i = 0; i < n; ++i)
    out[i] = in[i];
}

static inline void five_taps_fill(int n, float *in) {
  for (int i = 0; i < n; i++)
    in[i] = 0.5f * (float)(i % 251);
}

// Of up to 1021 elements, spread over the output.
static inline uint64_t five_taps_checksum(int n, const float *out) {
  int64_t inner = n - 4;
  int64_t samples = inner < FIVE_TAPS_SAMPLES ? inner : FIVE_TAPS_SAMPLES;
  uint64_t checksum = 0;
  for (int64_t k = 0; k < samples; k++) {
    uint32_t bits;
    memcpy(&bits, out + 2 + k * inner / samples, sizeof bits);
    checksum = (checksum << 5 | checksum >> 59) ^ bits;
  }
  return checksum;
}

#endif
