/*
 * Reed-Solomon coding by Jerasure 2, on the blocks of erasure_coding.c. Method 0 is its
 * reed_sol_van: a matrix over GF(2^8) that it derives from Vandermonde's. Method 1 is its
 * cauchy_good: a matrix of bits, so that parity is made by exclusive or alone, over
 * GF(2^CAUCHY_BITS) where that has elements enough, else over GF(2^8); by a schedule that reuses
 * what is common to several rows. Its packets are PACKET_BYTES long, or as many as go into a block.
 *
 * Stressed and kept constant: see there. Jerasure goes through whole blocks, for each pair of a
 * block of data and one of parity (method 0), or through packets of them (method 1). Method 0 is
 * therefore timed in one slice, however long: in pieces it would find parity in the caches.
 *
 * @kernel
 * flags = ["-O2", "-isystem/usr/include/jerasure"]
 * link = ["-lJerasure", "-lgf_complete"]
 * [define]
 * PACKET_BYTES = 16384
 * CAUCHY_BITS = 4
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RUSAGE_THREAD, sched_getcpu
#endif
#include <cauchy.h>
#include <jerasure.h>
#include <reed_sol.h>
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

enum { JERASURE_VANDERMONDE, JERASURE_CAUCHY, JERASURE_METHODS };
_Static_assert(CAUCHY_BITS == 4 || CAUCHY_BITS == 8, "packets must fill a block");

enum { JERASURE_SMART = 1, JERASURE_FIRST_ROW_IS_ONES = 1 };

static struct {
  int method, data, parity, bits, packet;
  int *matrix, *bit_matrix;
  int **schedule;
} codec;

static void codec_close(void) {
  free(codec.matrix);
  free(codec.bit_matrix);
  if (codec.schedule != NULL)
    jerasure_free_schedule(codec.schedule);
  memset(&codec, 0, sizeof codec);
}

static int64_t codec_open(int method, int data, int parity, uint64_t block_bytes) {
  if (method < 0 || method >= JERASURE_METHODS)
    return EINVAL;
  codec.method = method;
  codec.data = data;
  codec.parity = parity;
  codec.bits = 8;
  if (method == JERASURE_CAUCHY && data + parity <= 1 << CAUCHY_BITS)
    codec.bits = CAUCHY_BITS;
  if (method == JERASURE_VANDERMONDE) {
    codec.matrix = reed_sol_vandermonde_coding_matrix(data, parity, codec.bits);
  } else {
    codec.packet = PACKET_BYTES;
    while (block_bytes % (uint64_t)(codec.bits * codec.packet) != 0)
      codec.packet /= 2;
    codec.matrix = cauchy_good_general_coding_matrix(data, parity, codec.bits);
    if (codec.matrix != NULL)
      codec.bit_matrix = jerasure_matrix_to_bitmatrix(data, parity, codec.bits, codec.matrix);
    if (codec.bit_matrix != NULL)
      codec.schedule =
          jerasure_smart_bitmatrix_to_schedule(data, parity, codec.bits, codec.bit_matrix);
  }
  if (codec.matrix != NULL && (method == JERASURE_VANDERMONDE || codec.schedule != NULL))
    return 0;
  codec_close();
  return ENOMEM;
}

static uint64_t codec_step(void) {
  return codec.method == JERASURE_VANDERMONDE ? erasure.block_bytes
                                              : (uint64_t)(codec.bits * codec.packet);
}

static int64_t codec_encode(unsigned char **blocks, uint64_t bytes) {
  char **data = (char **)blocks, **parity = data + codec.data;
  if (codec.method == JERASURE_VANDERMONDE)
    jerasure_matrix_encode(codec.data, codec.parity, codec.bits, codec.matrix, data, parity,
                           (int)bytes);
  else
    jerasure_schedule_encode(codec.data, codec.parity, codec.bits, codec.schedule, data, parity,
                             (int)bytes, codec.packet);
  return 0;
}

static int64_t codec_decode(unsigned char **blocks, const int32_t *lost, int count) {
  int erased[ERASURE_MOST_BLOCKS + 1], answer;
  char **data = (char **)blocks, **parity = data + codec.data;
  int bytes = (int)erasure.block_bytes;
  for (int i = 0; i < count; i++)
    erased[i] = lost[i];
  erased[count] = -1;
  if (codec.method == JERASURE_VANDERMONDE)
    answer = jerasure_matrix_decode(codec.data, codec.parity, codec.bits, codec.matrix,
                                    JERASURE_FIRST_ROW_IS_ONES, erased, data, parity, bytes);
  else
    answer =
        jerasure_schedule_decode_lazy(codec.data, codec.parity, codec.bits, codec.bit_matrix,
                                      erased, data, parity, bytes, codec.packet, JERASURE_SMART);
  return answer == 0 ? 0 : EDOM;
}

int64_t erasure_matrix(unsigned char *out) {
  if (out == NULL || codec.matrix == NULL)
    return EINVAL;
  if (codec.method != JERASURE_VANDERMONDE)
    return ENOTSUP;
  for (int i = 0; i < codec.data * codec.parity; i++)
    out[i] = (unsigned char)codec.matrix[i];
  return 0;
}
