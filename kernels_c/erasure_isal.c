/*
 * Reed-Solomon coding by Intel's ISA-L, on the blocks of erasure_coding.c, with the same matrix and
 * so the same parity. Method 0 is what the library chooses on this processor, 1 its AVX2 code.
 *
 * Stressed and kept constant: see there. ISA-L, too, takes all blocks of data at one place and
 * writes up to six of parity there, and then goes on to the next place.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-lisal"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RUSAGE_THREAD, sched_getcpu
#endif
#include <isa-l/erasure_code.h>
#include <stdint.h>

#include "common/bracket.h"

// See erasure_coding.c.
// @interface
typedef struct {
  int64_t data_bytes; /* encoded in it, parity not counted */
  bracket timed;
} erasure_slice;

typedef struct {
  int64_t slices; /* how many there were */
  uint64_t parity_checksum;
  int64_t involuntary_switches; /* of the thread, meanwhile */
  int64_t cpu;                  /* where it ran; -1 if it was moved meanwhile */
} erasure_sample;

/* --- blocks for a measurement: the same functions in every kernel of erasure coding --- */

/* Map memory for so many blocks of so many bytes (a multiple of 4096), and prepare the method. */
int64_t erasure_open(int method, int data, int parity, uint64_t block_bytes);
/* The coding matrix, parity rows of data bytes; ENOTSUP where it is not one over bytes. */
int64_t erasure_matrix(unsigned char *out);
/* Let block b begin offset_bytes[b] (multiples of 16, to 16384) after a page, and fill the data
   from the seed; where each block is now goes to addresses. */
int64_t erasure_lay(const uint64_t *offset_bytes, uint64_t seed, uint64_t *addresses);
/* Encode warm times, then repeats times, timed in slices: slice_bytes of each block, or the next
   multiple of what the method encodes at once. At most `most` of them are noted. */
int64_t erasure_encode(int64_t warm, int64_t repeats, uint64_t slice_bytes, erasure_sample *out,
                       erasure_slice *slices, int64_t most);
/* Overwrite the lost blocks (ascending numbers; data first) with garbage and decode them. */
int64_t erasure_decode(const int32_t *lost, int64_t count);
/* Of each block. */
int64_t erasure_checksums(uint64_t *out);
int64_t erasure_close(void);
// @end

#include "common/erasure_blocks.h"

enum { ISAL_CHOICE, ISAL_AVX2, ISAL_METHODS };
enum { ISAL_TABLE = 32 }; // bytes of its tables for one coefficient

typedef void isal_encode(int, int, int, unsigned char *, unsigned char **, unsigned char **);

static struct {
  isal_encode *encode;
  unsigned char *generator; // the unit matrix, then the coding matrix
  unsigned char *tables;
} codec;

static void codec_close(void) {
  free(codec.generator);
  free(codec.tables);
  memset(&codec, 0, sizeof codec);
}

static int64_t codec_open(int method, int data, int parity, uint64_t block_bytes) {
  (void)block_bytes;
  if (method < 0 || method >= ISAL_METHODS)
    return EINVAL;
  codec.encode = ec_encode_data;
#ifdef __x86_64__
  if (method == ISAL_AVX2) {
    if (!__builtin_cpu_supports("avx2"))
      return ENOTSUP;
    codec.encode = ec_encode_data_avx2;
  }
#else
  if (method == ISAL_AVX2)
    return ENOTSUP;
#endif
  codec.generator = malloc((size_t)(data + parity) * (size_t)data);
  codec.tables = malloc((size_t)parity * (size_t)data * ISAL_TABLE);
  if (codec.generator == NULL || codec.tables == NULL) {
    codec_close();
    return ENOMEM;
  }
  gf_gen_cauchy1_matrix(codec.generator, data + parity, data);
  ec_init_tables(data, parity, codec.generator + data * data, codec.tables);
  return 0;
}

static uint64_t codec_step(void) { return ERASURE_PAGE; }

static int64_t codec_encode(unsigned char **blocks, uint64_t bytes) {
  codec.encode((int)bytes, erasure.data, erasure.parity, codec.tables, blocks,
               blocks + erasure.data);
  return 0;
}

// Its manual's way: the survivors' rows of the generator, inverted; for a lost block of parity, the
// generator's row times that inverse.
static int64_t codec_decode(unsigned char **blocks, const int32_t *lost, int count) {
  int data = erasure.data, found = 0;
  size_t size = (size_t)data * (size_t)data;
  unsigned char *square = malloc(2 * size);
  unsigned char *rows = calloc((size_t)count * (size_t)data, 1 + ISAL_TABLE);
  unsigned char *in[ERASURE_MOST_BLOCKS], *out[ERASURE_MOST_BLOCKS];
  if (square == NULL || rows == NULL) {
    free(square);
    free(rows);
    return ENOMEM;
  }
  for (int b = 0, next = 0; found < data; b++)
    if (next < count && lost[next] == b) {
      out[next++] = blocks[b];
    } else {
      memcpy(square + found * data, codec.generator + b * data, (size_t)data);
      in[found++] = blocks[b];
    }
  int64_t error = gf_invert_matrix(square, square + size, data) == 0 ? 0 : EDOM;
  for (int i = 0; error == 0 && i < count; i++) {
    out[i] = blocks[lost[i]];
    for (int column = 0; column < data; column++)
      for (int j = 0; j < data; j++)
        rows[i * data + column] ^=
            gf_mul(codec.generator[lost[i] * data + j], square[size + (size_t)(j * data + column)]);
  }
  if (error == 0) {
    unsigned char *tables = rows + count * data;
    ec_init_tables(data, count, rows, tables);
    codec.encode((int)erasure.block_bytes, data, count, tables, in, out);
  }
  free(square);
  free(rows);
  return error;
}

int64_t erasure_matrix(unsigned char *out) {
  if (out == NULL || codec.generator == NULL)
    return EINVAL;
  memcpy(out, codec.generator + erasure.data * erasure.data,
         (size_t)erasure.data * (size_t)erasure.parity);
  return 0;
}
