/*
 * Reed-Solomon coding: of "data" blocks, "parity" more are made, so that any "parity" of them all
 * may be lost. Two methods: tables, portable; and shuffles of vectors (AVX2, where it is; NEON).
 *
 * Stressed: loads from all blocks of data side by side, stores to all blocks of parity, at the same
 * place in each: with more streams than a set of the first-level cache has ways, if all of them
 * begin at a page. Kept constant: the arithmetic, which no content of the blocks changes. The
 * blocks of parity are read afterwards, for their checksum.
 *
 * Arithmetic is that of GF(2^8): bytes are polynomials over bits, added by exclusive or, multiplied
 * modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d). Parity is a matrix times data. Any "data" of the rows
 * of that matrix under a unit matrix must be invertible, which they are if each square part of it
 * is. Cauchy's matrix has that: row i, column j hold 1 / (x_i + y_j), and the determinant of such a
 * matrix is the product of all (x_i + x_k) (y_i + y_k), i < k, over that of all (x_i + y_j), which
 * is not zero if all the x and y differ. Here y_j = j and x_i = data + i, so that up to 256 blocks
 * can be had. It is also the matrix of ISA-L's gf_gen_cauchy1_matrix: the same parity comes out.
 * (Powers in the rows, Vandermonde's way, under a unit matrix do not do: some of their square parts
 * are singular.)
 *
 * A product by a constant is linear in the factor's bits. Tables: 256 words, which hold the
 * products by the constants of four rows side by side, so that one look-up serves four blocks of
 * parity. Vectors: c * b = c * (b & 15) + c * (b & 240), and each half takes one of 16 values,
 * which one instruction looks up for 32 bytes at a time, or NEON for 16 (J. S. Plank, K. M.
 * Greenan, E. L. Miller, "Screaming fast Galois field arithmetic using Intel SIMD instructions",
 * FAST 2013).
 *
 * Checksum: of the parity, which must be the same by both methods and by ISA-L.
 *
 * @kernel
 * flags = ["-O3"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RUSAGE_THREAD, sched_getcpu
#endif
#include <stdint.h>

#include "common/bracket.h"

// All return 0 or errno: EINVAL an argument, ENOTSUP a method that this processor has not, ERANGE
// more blocks lost than there are of parity, EDOM a matrix that cannot be inverted, ENOMEM.
// Methods: 0 tables, 1 vectors.
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

/* --- of this kernel alone --- */

/* Go on with another matrix: what somebody else's parity should be. */
int64_t erasure_use_matrix(const unsigned char *matrix);
/* The matrix described above. */
int64_t rs_cauchy(int data, int parity, unsigned char *matrix);
/* Blocks anywhere, of any size, data first: make the parity; make the lost ones again. */
int64_t rs_encode(int method, int data, int parity, const unsigned char *matrix, uint64_t bytes,
                  unsigned char **blocks);
int64_t rs_decode(int method, int data, int parity, const unsigned char *matrix, uint64_t bytes,
                  unsigned char **blocks, const int32_t *lost, int64_t count);
// @end

#include "common/erasure_blocks.h"

enum { RS_TABLES, RS_VECTORS, RS_METHODS };
enum { RS_GROUP = 4 }; // rows of the matrix that are worked on together

// --- the field -----------------------------------------------------------------------------------

static unsigned char gf_product(unsigned char a, unsigned char b) {
  unsigned product = 0, factor = a;
  for (; b != 0; b >>= 1) {
    if (b & 1)
      product ^= factor;
    factor <<= 1;
    if (factor & 0x100)
      factor ^= 0x11d;
  }
  return (unsigned char)product;
}

// a to the power of 254, since a to the power of 255 is 1.
static unsigned char gf_inverse(unsigned char a) {
  unsigned char power = a, result = 1;
  for (int bit = 1; bit < 8; bit++) {
    power = gf_product(power, power);
    result = gf_product(result, power);
  }
  return result;
}

// Gauss and Jordan; matrix and inverse are n rows of n. EDOM: singular.
static int64_t gf_invert(unsigned char *matrix, unsigned char *inverse, int n) {
  memset(inverse, 0, (size_t)n * (size_t)n);
  for (int i = 0; i < n; i++)
    inverse[i * n + i] = 1;
  for (int column = 0; column < n; column++) {
    int pivot = column;
    while (pivot < n && matrix[pivot * n + column] == 0)
      pivot++;
    if (pivot == n)
      return EDOM;
    unsigned char scale = gf_inverse(matrix[pivot * n + column]);
    for (int j = 0; j < n; j++) { // the rows change places, and the pivot becomes 1
      unsigned char kept = matrix[column * n + j], beside = inverse[column * n + j];
      matrix[column * n + j] = gf_product(scale, matrix[pivot * n + j]);
      inverse[column * n + j] = gf_product(scale, inverse[pivot * n + j]);
      if (pivot != column) {
        matrix[pivot * n + j] = kept;
        inverse[pivot * n + j] = beside;
      }
    }
    for (int row = 0; row < n; row++) {
      unsigned char factor = matrix[row * n + column];
      for (int j = 0; row != column && factor != 0 && j < n; j++) {
        matrix[row * n + j] ^= gf_product(factor, matrix[column * n + j]);
        inverse[row * n + j] ^= gf_product(factor, inverse[column * n + j]);
      }
    }
  }
  return 0;
}

// --- a matrix times blocks -----------------------------------------------------------------------

// For each group of four rows (fewer in the last), and for each column.
typedef uint32_t rs_products[256]; // byte r: that of row r
typedef struct {
  unsigned char low[16], high[16];
} rs_nibbles; // for one row

typedef struct {
  int method, rows, columns;
  rs_products *products; // [group][column]
  rs_nibbles *nibbles;   // [group][column][row in the group]
} rs_map;

static int rs_groups(int rows) { return (rows + RS_GROUP - 1) / RS_GROUP; }

static void rs_forget(rs_map *map) {
  free(map->products);
  free(map->nibbles);
  *map = (rs_map){0};
}

static int64_t rs_prepare(rs_map *map, int method, const unsigned char *matrix, int rows,
                          int columns) {
  size_t cells = (size_t)rs_groups(rows) * (size_t)columns;
  *map = (rs_map){.method = method, .rows = rows, .columns = columns};
  map->products = aligned_alloc(64, cells * sizeof *map->products);
  map->nibbles = aligned_alloc(64, cells * RS_GROUP * sizeof *map->nibbles);
  if (map->products == NULL || map->nibbles == NULL) {
    rs_forget(map);
    return ENOMEM;
  }
  memset(map->products, 0, cells * sizeof *map->products);
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < columns; column++) {
      size_t cell = (size_t)(row / RS_GROUP * columns + column);
      rs_nibbles *nibbles = &map->nibbles[cell * RS_GROUP + (size_t)(row % RS_GROUP)];
      unsigned char factor = matrix[row * columns + column];
      for (unsigned byte = 0; byte < 256; byte++) {
        unsigned char product = gf_product(factor, (unsigned char)byte);
        map->products[cell][byte] |= (uint32_t)product << (8 * (row % RS_GROUP));
        if (byte < 16)
          nibbles->low[byte] = product;
        if (byte % 16 == 0)
          nibbles->high[byte / 16] = product;
      }
    }
  return 0;
}

// rows is a constant wherever this is inlined, as in the other method.
static inline __attribute__((always_inline)) void
rs_group_tables(int rows, int columns, const rs_products *products, unsigned char **in,
                unsigned char **out, size_t begin, size_t end) {
  for (size_t i = begin; i < end; i++) {
    uint32_t sum = 0;
    for (int column = 0; column < columns; column++)
      sum ^= products[column][in[column][i]];
    for (int row = 0; row < rows; row++)
      out[row][i] = (unsigned char)(sum >> (8 * row));
  }
}

static void rs_tables(const rs_map *map, int group, unsigned char **in, unsigned char **out,
                      size_t begin, size_t end) {
  const rs_products *products = map->products + (size_t)group * (size_t)map->columns;
  int rows = map->rows - group * RS_GROUP;
  if (rows >= RS_GROUP)
    rs_group_tables(RS_GROUP, map->columns, products, in, out, begin, end);
  else if (rows == 3)
    rs_group_tables(3, map->columns, products, in, out, begin, end);
  else if (rows == 2)
    rs_group_tables(2, map->columns, products, in, out, begin, end);
  else
    rs_group_tables(1, map->columns, products, in, out, begin, end);
}

#if defined(__x86_64__)
#include <immintrin.h>
#define RS_TARGET __attribute__((always_inline, target("avx2")))
#define RS_CALLED __attribute__((target("avx2")))
typedef __m256i rs_vector;

static inline RS_TARGET rs_vector rs_load(const unsigned char *from) {
  return _mm256_loadu_si256((const __m256i *)from);
}
static inline RS_TARGET void rs_store(unsigned char *to, rs_vector value) {
  _mm256_storeu_si256((__m256i *)to, value);
}
static inline RS_TARGET rs_vector rs_table(const unsigned char *of) {
  return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)of));
}
static inline RS_TARGET rs_vector rs_low(rs_vector bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}
static inline RS_TARGET rs_vector rs_high(rs_vector bytes) {
  return rs_low(_mm256_srli_epi64(bytes, 4));
}
static inline RS_TARGET rs_vector rs_look_up(rs_vector table, rs_vector at) {
  return _mm256_shuffle_epi8(table, at);
}
static int rs_has_vectors(void) { return __builtin_cpu_supports("avx2"); }
#elif defined(__aarch64__)
#include <arm_neon.h>
#define RS_TARGET __attribute__((always_inline))
#define RS_CALLED
typedef uint8x16_t rs_vector;

static inline RS_TARGET rs_vector rs_load(const unsigned char *from) { return vld1q_u8(from); }
static inline RS_TARGET void rs_store(unsigned char *to, rs_vector value) { vst1q_u8(to, value); }
static inline RS_TARGET rs_vector rs_table(const unsigned char *of) { return vld1q_u8(of); }
static inline RS_TARGET rs_vector rs_low(rs_vector bytes) {
  return vandq_u8(bytes, vdupq_n_u8(15));
}
static inline RS_TARGET rs_vector rs_high(rs_vector bytes) { return vshrq_n_u8(bytes, 4); }
static inline RS_TARGET rs_vector rs_look_up(rs_vector table, rs_vector at) {
  return vqtbl1q_u8(table, at);
}
static int rs_has_vectors(void) { return 1; }
#endif

enum { RS_VECTOR = sizeof(rs_vector), RS_STEP = 2 * RS_VECTOR }; // a table is loaded once for two

static inline RS_TARGET void rs_group_vectors(int rows, int columns, const rs_nibbles *nibbles,
                                              unsigned char **in, unsigned char **out, size_t end) {
  for (size_t i = 0; i < end; i += RS_STEP) {
    rs_vector sum[RS_GROUP][2] = {{{0}}};
    for (int column = 0; column < columns; column++) {
      rs_vector low[2], high[2];
      for (int half = 0; half < 2; half++) {
        rs_vector bytes = rs_load(in[column] + i + half * RS_VECTOR);
        low[half] = rs_low(bytes);
        high[half] = rs_high(bytes);
      }
      for (int row = 0; row < rows; row++) {
        const rs_nibbles *of = &nibbles[column * RS_GROUP + row];
        rs_vector by_low = rs_table(of->low), by_high = rs_table(of->high);
        for (int half = 0; half < 2; half++)
          sum[row][half] ^= rs_look_up(by_low, low[half]) ^ rs_look_up(by_high, high[half]);
      }
    }
    for (int row = 0; row < rows; row++)
      for (int half = 0; half < 2; half++)
        rs_store(out[row] + i + half * RS_VECTOR, sum[row][half]);
  }
}

// Returns how many bytes it did: whole steps.
static RS_CALLED size_t rs_vectors(const rs_map *map, int group, unsigned char **in,
                                   unsigned char **out, size_t bytes) {
  const rs_nibbles *nibbles = map->nibbles + (size_t)group * (size_t)map->columns * RS_GROUP;
  int rows = map->rows - group * RS_GROUP;
  size_t end = bytes / RS_STEP * RS_STEP;
  if (rows >= RS_GROUP)
    rs_group_vectors(RS_GROUP, map->columns, nibbles, in, out, end);
  else if (rows == 3)
    rs_group_vectors(3, map->columns, nibbles, in, out, end);
  else if (rows == 2)
    rs_group_vectors(2, map->columns, nibbles, in, out, end);
  else
    rs_group_vectors(1, map->columns, nibbles, in, out, end);
  return end;
}

static void rs_apply(const rs_map *map, unsigned char **in, unsigned char **out, size_t bytes) {
  for (int group = 0; group < rs_groups(map->rows); group++) {
    unsigned char **to = out + group * RS_GROUP;
    size_t done = map->method == RS_VECTORS ? rs_vectors(map, group, in, to, bytes) : 0;
    rs_tables(map, group, in, to, done, bytes);
  }
}

static int64_t rs_method_error(int method) {
  if (method < 0 || method >= RS_METHODS)
    return EINVAL;
  return method == RS_VECTORS && !rs_has_vectors() ? ENOTSUP : 0;
}

static int64_t rs_multiply(int method, const unsigned char *matrix, int rows, int columns,
                           uint64_t bytes, unsigned char **in, unsigned char **out) {
  rs_map map;
  int64_t error = rs_prepare(&map, method, matrix, rows, columns);
  if (error != 0)
    return error;
  rs_apply(&map, in, out, bytes);
  rs_forget(&map);
  return 0;
}

// --- encoding and decoding -----------------------------------------------------------------------

int64_t rs_cauchy(int data, int parity, unsigned char *matrix) {
  int64_t error = erasure_sizes_error(data, parity, 1);
  if (error != 0 || matrix == NULL)
    return EINVAL;
  for (int i = 0; i < parity; i++)
    for (int j = 0; j < data; j++)
      matrix[i * data + j] = gf_inverse((unsigned char)((data + i) ^ j));
  return 0;
}

static int64_t rs_arguments_error(int method, int data, int parity, const unsigned char *matrix,
                                  uint64_t bytes, unsigned char **blocks) {
  int64_t error = erasure_sizes_error(data, parity, bytes);
  if (error == 0 && (matrix == NULL || blocks == NULL))
    error = EINVAL;
  for (int b = 0; error == 0 && b < data + parity; b++)
    if (blocks[b] == NULL)
      error = EINVAL;
  return error != 0 ? error : rs_method_error(method);
}

int64_t rs_encode(int method, int data, int parity, const unsigned char *matrix, uint64_t bytes,
                  unsigned char **blocks) {
  int64_t error = rs_arguments_error(method, data, parity, matrix, bytes, blocks);
  if (error != 0)
    return error;
  return rs_multiply(method, matrix, parity, data, bytes, blocks, blocks + data);
}

// The rows by which lost blocks of data are made of the survivors: those of the inverse of the
// survivors' own rows of the generator, the unit matrix above the coding matrix.
static int64_t rs_data_rows(int data, const unsigned char *matrix, const int *survivors,
                            const int32_t *lost, int count, unsigned char *rows) {
  size_t size = (size_t)data * (size_t)data;
  unsigned char *square = calloc(2 * size, 1);
  if (square == NULL)
    return ENOMEM;
  for (int i = 0; i < data; i++)
    if (survivors[i] < data)
      square[i * data + survivors[i]] = 1;
    else
      memcpy(square + i * data, matrix + (survivors[i] - data) * data, (size_t)data);
  int64_t error = gf_invert(square, square + size, data);
  for (int i = 0; error == 0 && i < count; i++)
    memcpy(rows + i * data, square + size + lost[i] * data, (size_t)data);
  free(square);
  return error;
}

int64_t rs_decode(int method, int data, int parity, const unsigned char *matrix, uint64_t bytes,
                  unsigned char **blocks, const int32_t *lost, int64_t count) {
  int64_t error = rs_arguments_error(method, data, parity, matrix, bytes, blocks);
  if (error == 0)
    error = erasure_losses_error(lost, count, data, parity);
  if (error != 0 || count == 0)
    return error;
  int survivors[ERASURE_MOST_BLOCKS], found = 0, of_data = 0;
  for (int b = 0, next = 0; b < data + parity && found < data; b++)
    if (next < count && lost[next] == b)
      next++;
    else
      survivors[found++] = b;
  while (of_data < count && lost[of_data] < data)
    of_data++;
  unsigned char *in[ERASURE_MOST_BLOCKS], *out[ERASURE_MOST_BLOCKS];
  unsigned char *rows = malloc((size_t)count * (size_t)data);
  if (rows == NULL)
    return ENOMEM;
  for (int i = 0; i < data; i++)
    in[i] = blocks[survivors[i]];
  for (int64_t i = 0; i < count; i++)
    out[i] = blocks[lost[i]];
  if (of_data > 0)
    error = rs_data_rows(data, matrix, survivors, lost, of_data, rows);
  if (error == 0 && of_data > 0)
    error = rs_multiply(method, rows, of_data, data, bytes, in, out);
  // The data are whole again: lost parity is encoded.
  for (int64_t i = of_data; i < count; i++)
    memcpy(rows + i * data, matrix + (lost[i] - data) * data, (size_t)data);
  if (error == 0 && of_data < count)
    error = rs_multiply(method, rows + of_data * data, (int)count - of_data, data, bytes, blocks,
                        out + of_data);
  free(rows);
  return error;
}

// --- for a measurement ---------------------------------------------------------------------------

static struct {
  unsigned char *matrix;
  rs_map map;
} codec;

static void codec_close(void) {
  rs_forget(&codec.map);
  free(codec.matrix);
  codec.matrix = NULL;
}

static int64_t codec_open(int method, int data, int parity, uint64_t block_bytes) {
  (void)block_bytes;
  int64_t error = rs_method_error(method);
  if (error != 0)
    return error;
  codec.matrix = malloc((size_t)data * (size_t)parity);
  error = codec.matrix == NULL ? ENOMEM : rs_cauchy(data, parity, codec.matrix);
  if (error == 0)
    error = rs_prepare(&codec.map, method, codec.matrix, parity, data);
  if (error != 0)
    codec_close();
  return error;
}

static uint64_t codec_step(void) { return ERASURE_PAGE; }

static int64_t codec_encode(unsigned char **blocks, uint64_t bytes) {
  rs_apply(&codec.map, blocks, blocks + codec.map.columns, bytes);
  return 0;
}

static int64_t codec_decode(unsigned char **blocks, const int32_t *lost, int count) {
  return rs_decode(codec.map.method, erasure.data, erasure.parity, codec.matrix,
                   erasure.block_bytes, blocks, lost, count);
}

int64_t erasure_matrix(unsigned char *out) {
  if (out == NULL || codec.matrix == NULL)
    return EINVAL;
  memcpy(out, codec.matrix, (size_t)erasure.data * (size_t)erasure.parity);
  return 0;
}

int64_t erasure_use_matrix(const unsigned char *matrix) {
  if (matrix == NULL || codec.matrix == NULL)
    return EINVAL;
  rs_map map;
  int64_t error = rs_prepare(&map, codec.map.method, matrix, erasure.parity, erasure.data);
  if (error != 0)
    return error;
  rs_forget(&codec.map);
  codec.map = map;
  memcpy(codec.matrix, matrix, (size_t)erasure.data * (size_t)erasure.parity);
  return 0;
}
