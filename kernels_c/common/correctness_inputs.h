// What correctness.c computes on: a block of operations from its number, and software arithmetic.
//
// Inputs come from a counter (splitmix64), mixed with words that walk a one, a zero, or are
// regular. The arithmetic here knows the logic operations and single bits alone: an adder of
// carries, shift-and-add multiplication, long division. Doubles are put together from integers, so
// that their sums and products are exact and have one right answer, denormal and huge ones among
// them.
#ifndef CORRECTNESS_INPUTS_H
#define CORRECTNESS_INPUTS_H

#include <stdint.h>
#include <string.h>

enum { OPS = 1024 }; // of a block
enum { TABLE_WORDS = 4096 };

typedef struct {
  uint64_t x[OPS], y[OPS], z[OPS], result[OPS]; // bits of doubles; x * y + z is the result, exactly
  uint64_t quotient[OPS];                       // and x, as it comes out of x * y / y
} exact_doubles;

typedef struct {
  _Alignas(64) uint64_t a[OPS];
  _Alignas(64) uint64_t b[OPS];
  _Alignas(64) uint64_t c[OPS];
  _Alignas(64) uint64_t divisor[OPS];
  _Alignas(64) exact_doubles sums;  // products and sums below 2^53
  _Alignas(64) exact_doubles fused; // every second one: what rounding a product leaves out
} inputs;

static inline uint64_t splitmix(uint64_t counter) {
  uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Word i of a table of a block.
static inline uint64_t table_word(uint64_t block, uint64_t i) {
  return splitmix((block << 32) + (1u << 31) + i);
}

static inline uint64_t input_word(uint64_t block, uint64_t i, uint64_t which) {
  uint64_t walking = (uint64_t)1 << (i / 8 % 64);
  switch ((i + 3 * which) % 8) {
  case 0:
    return walking;
  case 1:
    return ~walking;
  case 2:
    return i & 8 ? 0 : ~(uint64_t)0;
  case 3:
    return i & 8 ? 0x5555555555555555u : 0xaaaaaaaaaaaaaaaau;
  default:
    return splitmix((block << 32) + 4 * i + which);
  }
}

// --- integers by logic alone ---------------------------------------------------------------------

static uint64_t power[64]; // of two

static inline uint64_t soft_add(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t carry = a & b;
    a ^= b;
    b = carry << 1;
  }
  return a;
}

static inline uint64_t soft_sub(uint64_t a, uint64_t b) { return soft_add(a, soft_add(~b, 1)); }

static inline void make_powers(void) {
  power[0] = 1;
  for (int i = 1; i < 64; i++)
    power[i] = soft_add(power[i - 1], power[i - 1]);
}

static inline int bit_of(uint64_t word, int i) { return (word & power[i]) != 0; }

static inline uint64_t soft_left(uint64_t word, int by) {
  uint64_t found = 0;
  for (int i = by; i < 64; i++)
    if (bit_of(word, i - by))
      found |= power[i];
  return found;
}

static inline uint64_t soft_right(uint64_t word, int by) {
  uint64_t found = 0;
  for (int i = by; i < 64; i++)
    if (bit_of(word, i))
      found |= power[i - by];
  return found;
}

static inline uint64_t soft_multiply(uint64_t a, uint64_t b, uint64_t *high) {
  uint64_t low = 0, up = 0, more = 0; // a, moved on to the left, is more:a
  for (int i = 0; i < 64 && b >= power[i]; i++) {
    if (bit_of(b, i)) {
      uint64_t sum = soft_add(low, a);
      up = soft_add(soft_add(up, more), sum < low);
      low = sum;
    }
    more = soft_add(soft_add(more, more), bit_of(a, 63));
    a = soft_add(a, a);
  }
  *high = up;
  return low;
}

static inline uint64_t soft_divide(uint64_t n, uint64_t d, uint64_t *rest) {
  uint64_t quotient = 0, left = 0;
  for (int i = 63; i >= 0; i--) {
    int over = bit_of(left, 63);
    left = soft_add(soft_add(left, left), (uint64_t)bit_of(n, i));
    if (over || left >= d) {
      left = soft_sub(left, d);
      quotient |= power[i];
    }
  }
  *rest = left;
  return quotient;
}

// --- doubles -------------------------------------------------------------------------------------

// n times 2^e as a double, n below or at 2^53, e at -1074 or above.
static inline uint64_t double_of(int64_t n, int e) {
  if (n == 0)
    return 0;
  uint64_t sign = n < 0 ? (uint64_t)1 << 63 : 0, m = n < 0 ? -(uint64_t)n : (uint64_t)n;
  while (m < ((uint64_t)1 << 52) && e > -1074) {
    m <<= 1;
    e--;
  }
  if (m == (uint64_t)1 << 53) {
    m >>= 1;
    e++;
  }
  if (m < (uint64_t)1 << 52) // denormal
    return sign | m;
  return sign | (uint64_t)(e + 1075) << 52 | (m & (((uint64_t)1 << 52) - 1));
}

static inline int64_t small(uint64_t word, int bits) {
  int64_t half = (int64_t)1 << (bits - 1);
  return (int64_t)(word & (((uint64_t)1 << bits) - 1)) - half;
}

static inline void make_sum(exact_doubles *to, int i, uint64_t a, uint64_t b, uint64_t c) {
  int64_t x = small(a, 26), y = small(b, 26) | 1, z = small(c, 52);
  int first, second; // exponents: of denormals, of huge ones, of others
  uint64_t kind = (a >> 40) % 8;
  if (kind == 0) {
    first = -1074;
    second = (int)((b >> 40) % 60);
  } else if (kind == 1) {
    first = 900;
    second = (int)((b >> 40) % 60);
  } else {
    first = (int)((a >> 44) % 600) - 300;
    second = (int)((b >> 44) % 600) - 300;
  }
  uint64_t up, product = soft_multiply((uint64_t)x, (uint64_t)y, &up);
  to->x[i] = double_of(x, first);
  to->y[i] = double_of(y, second);
  to->z[i] = double_of(z, first + second);
  to->result[i] = double_of((int64_t)soft_add(product, (uint64_t)z), first + second);
  to->quotient[i] = to->x[i];
}

// x * y of 106 bits, and z the nearest double's negative: the result is what rounding left out.
static inline void make_residue(exact_doubles *to, int i, uint64_t a, uint64_t b) {
  uint64_t x = a >> 11 | (uint64_t)1 << 52, y = b >> 11 | (uint64_t)1 << 52, high;
  int first = (int)((a & 2047) % 400) - 200, second = (int)((b & 2047) % 400) - 200;
  uint64_t low = soft_multiply(x, y, &high);
  int cut = bit_of(high, 41) ? 53 : 52; // bits below the 53 that stay; the product has 105 or 106
  uint64_t below = low & (((uint64_t)1 << cut) - 1), half = (uint64_t)1 << (cut - 1);
  uint64_t kept = high << (64 - cut) | low >> cut;
  int up = below > half || (below == half && (kept & 1));
  int64_t left = (int64_t)below - (up ? (int64_t)1 << cut : 0);
  to->x[i] = double_of((int64_t)x, first);
  to->y[i] = double_of((int64_t)y, second);
  to->z[i] = double_of(-(int64_t)(kept + (uint64_t)up), first + second + cut);
  to->result[i] = double_of(left, first + second);
}

static inline void make_inputs(inputs *in, uint64_t block) {
  make_powers();
  for (int i = 0; i < OPS; i++) {
    uint64_t number = (uint64_t)i;
    uint64_t a = in->a[i] = input_word(block, number, 0),
             b = in->b[i] = input_word(block, number, 1);
    uint64_t c = in->c[i] = input_word(block, number, 2);
    in->divisor[i] = b >> (c & 63) | 1;
    make_sum(&in->sums, i, a, b, c);
    if (i % 2)
      make_residue(&in->fused, i, a, b);
    else
      make_sum(&in->fused, i, a, b, c);
  }
}

#endif
