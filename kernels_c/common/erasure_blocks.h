// What the kernels of erasure coding share: blocks laid in memory with the wanted low bits of their
// addresses, filled, encoded, timed, lost and decoded.
//
// A kernel includes this after its interface and defines the five functions codec_*. One set of
// blocks is open at a time. Block b lies in a slot of its own, which begins at a page; it begins
// offset_bytes[b] later, so that layouts are compared on the same physical pages.
#ifndef ERASURE_BLOCKS_H
#define ERASURE_BLOCKS_H

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bracket.h"
#include "switches.h"

enum { ERASURE_PAGE = 4096, ERASURE_MOST_OFFSET = 4 * ERASURE_PAGE, ERASURE_ALIGNED = 16 };
enum { ERASURE_MOST_BLOCKS = 256 }; // of codes over bytes
enum { ERASURE_GARBAGE = 0xa5 };    // in a block that was lost
static const uint64_t ERASURE_MOST_BYTES = 1u << 30;

// Prepare to encode and decode by a method; what was prepared is given up. 0 or errno.
static int64_t codec_open(int method, int data, int parity, uint64_t block_bytes);
static void codec_close(void);
// How many bytes of each block it encodes at once; slices are multiples of it.
static uint64_t codec_step(void);
// blocks: those of data, then those of parity; so many bytes of each.
static int64_t codec_encode(unsigned char **blocks, uint64_t bytes);
// lost: different blocks, ascending, at most as many as there are of parity.
static int64_t codec_decode(unsigned char **blocks, const int32_t *lost, int count);

static struct {
  unsigned char *memory; // NULL: nothing is open
  size_t slot_bytes;
  int data, parity;
  uint64_t block_bytes;
  unsigned char *blocks[ERASURE_MOST_BLOCKS]; // NULL: not laid yet
} erasure;

static int erasure_count(void) { return erasure.data + erasure.parity; }

static int64_t erasure_sizes_error(int data, int parity, uint64_t block_bytes) {
  int wrong = data < 1 || parity < 1 || data > ERASURE_MOST_BLOCKS ||
              parity > ERASURE_MOST_BLOCKS || data + parity > ERASURE_MOST_BLOCKS;
  return wrong || block_bytes < 1 || block_bytes > ERASURE_MOST_BYTES ? EINVAL : 0;
}

// More losses than blocks of parity: ERANGE, whatever the code is.
static int64_t erasure_losses_error(const int32_t *lost, int64_t count, int data, int parity) {
  if (count < 0 || (count > 0 && lost == NULL))
    return EINVAL;
  for (int64_t i = 0; i < count; i++)
    if (lost[i] < 0 || lost[i] >= data + parity || (i > 0 && lost[i] <= lost[i - 1]))
      return EINVAL;
  return count > parity ? ERANGE : 0;
}

int64_t erasure_close(void) {
  codec_close();
  if (erasure.memory != NULL &&
      munmap(erasure.memory, erasure.slot_bytes * (size_t)erasure_count()) != 0)
    return errno;
  memset(&erasure, 0, sizeof erasure);
  return 0;
}

int64_t erasure_open(int method, int data, int parity, uint64_t block_bytes) {
  int64_t error = erasure_sizes_error(data, parity, block_bytes);
  if (error == 0 && block_bytes % ERASURE_PAGE != 0)
    error = EINVAL;
  if (error == 0)
    error = erasure_close();
  if (error == 0)
    error = codec_open(method, data, parity, block_bytes);
  if (error != 0)
    return error;
  size_t slot_bytes = block_bytes + ERASURE_MOST_OFFSET;
  // All pages are there before anything is timed, and lie on the node of this core.
  void *memory = mmap(NULL, slot_bytes * (size_t)(data + parity), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    error = errno;
    codec_close();
    return error;
  }
  erasure.memory = memory;
  erasure.slot_bytes = slot_bytes;
  erasure.data = data;
  erasure.parity = parity;
  erasure.block_bytes = block_bytes;
  return 0;
}

// Word i of data block b: splitmix64's output function, of a counter.
static inline uint64_t erasure_word(uint64_t seed, uint64_t b, uint64_t i) {
  uint64_t z = seed + ((b << 32) + i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int64_t erasure_lay(const uint64_t *offset_bytes, uint64_t seed, uint64_t *addresses) {
  if (offset_bytes == NULL || addresses == NULL || erasure.memory == NULL)
    return EINVAL;
  for (int b = 0; b < erasure_count(); b++)
    if (offset_bytes[b] > ERASURE_MOST_OFFSET || offset_bytes[b] % ERASURE_ALIGNED != 0)
      return EINVAL;
  for (int b = 0; b < erasure_count(); b++) {
    unsigned char *block = erasure.memory + erasure.slot_bytes * (size_t)b + offset_bytes[b];
    uint64_t *words = (uint64_t *)block;
    for (uint64_t i = 0; b < erasure.data && i < erasure.block_bytes / sizeof *words; i++)
      words[i] = erasure_word(seed, (uint64_t)b, i);
    erasure.blocks[b] = block;
    addresses[b] = (uintptr_t)block;
  }
  return 0;
}

// The sum of word i times 2 i + 1: the place counts, and no single wrong word goes unseen.
static uint64_t erasure_checksum(const unsigned char *block) {
  const uint64_t *words = (const uint64_t *)block;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < erasure.block_bytes / sizeof *words; i++)
    sum += words[i] * (2 * i + 1);
  return sum;
}

int64_t erasure_checksums(uint64_t *out) {
  if (out == NULL || erasure.blocks[0] == NULL)
    return EINVAL;
  for (int b = 0; b < erasure_count(); b++)
    out[b] = erasure_checksum(erasure.blocks[b]);
  return 0;
}

static int64_t erasure_encode_part(uint64_t begin, uint64_t bytes) {
  unsigned char *parts[ERASURE_MOST_BLOCKS];
  for (int b = 0; b < erasure_count(); b++)
    parts[b] = erasure.blocks[b] + begin;
  return codec_encode(parts, bytes);
}

int64_t erasure_encode(int64_t warm, int64_t repeats, uint64_t slice_bytes, erasure_sample *out,
                       erasure_slice *slices, int64_t most) {
  if (warm < 0 || repeats < 1 || slice_bytes < 1 || out == NULL || slices == NULL || most < 1 ||
      erasure.blocks[0] == NULL)
    return EINVAL;
  uint64_t step = codec_step(), whole = erasure.block_bytes;
  slice_bytes = slice_bytes < whole ? (slice_bytes + step - 1) / step * step : whole;
  int64_t error = 0, count = 0;
  for (int64_t i = 0; i < warm && error == 0; i++)
    error = codec_encode(erasure.blocks, whole);
  int64_t switches = involuntary_switches();
  int cpu = sched_getcpu();
  bracket timed;
  bracket_begin(&timed);
  for (int64_t i = 0; i < repeats; i++)
    for (uint64_t begin = 0; begin < whole && error == 0; begin += slice_bytes) {
      uint64_t bytes = whole - begin < slice_bytes ? whole - begin : slice_bytes;
      error = erasure_encode_part(begin, bytes);
      bracket_end(&timed);
      if (count < most)
        slices[count] = (erasure_slice){erasure.data * (int64_t)bytes, timed};
      count++;
      bracket_next(&timed, &timed);
    }
  *out = (erasure_sample){
      .slices = count,
      .involuntary_switches = involuntary_switches() - switches,
      .cpu = cpu == sched_getcpu() ? cpu : -1,
  };
  for (int b = erasure.data; b < erasure_count(); b++)
    out->parity_checksum = 31 * out->parity_checksum + erasure_checksum(erasure.blocks[b]);
  return error;
}

int64_t erasure_decode(const int32_t *lost, int64_t count) {
  if (erasure.blocks[0] == NULL)
    return EINVAL;
  int64_t error = erasure_losses_error(lost, count, erasure.data, erasure.parity);
  if (error != 0)
    return error;
  for (int64_t i = 0; i < count; i++)
    memset(erasure.blocks[lost[i]], ERASURE_GARBAGE, erasure.block_bytes);
  return count > 0 ? codec_decode(erasure.blocks, lost, (int)count) : 0;
}

#endif
