// What each class of instructions has to give, in software, without these instructions. The same on
// every processor: tests/reference/correctness.py computes it once more in Python.
#ifndef CORRECTNESS_EXPECTED_H
#define CORRECTNESS_EXPECTED_H

#include "correctness_inputs.h"

enum class {
  INTEGER,
  MULTIPLY,
  DIVIDE,
  SHIFT,
  BRANCH,
  ATOMIC,
  STRING,
  CROSSING,
  CACHE,
  MEMORY,
  X87,
  SSE_NEON,
  AVX2,
  AVX512,
  FMA,
  FMA512,
  VNNI,
  CRC32,
  AES,
  SHA,
  CLMUL,
  GATHER,
  CLASSES
};

enum { AES_BYTES = 16, STEPS = 8, STRING_WORDS = 256, CROSSED_WORDS = 1 << 15 };
enum { CROSSED_LINES = CROSSED_WORDS / 16, CROSSED_PAGES = CROSSED_WORDS / 1024 }; // its half

static inline uint64_t rotate(uint64_t word, int by) {
  return by == 0 ? word : word << by | word >> (64 - by);
}

static inline uint64_t byte_of(uint64_t block, uint64_t at) {
  return table_word(block, at / 8) >> (8 * (at % 8)) & 255;
}

// Eight bytes of the table's memory, one by one.
static inline uint64_t bytes_at(uint64_t block, uint64_t at) {
  uint64_t found = 0;
  for (uint64_t i = 0; i < 8; i++)
    found |= byte_of(block, at + i) << (8 * i);
  return found;
}

// --- places that both sides know -----------------------------------------------------------------

static inline uint64_t string_bytes(uint64_t b) { return 9 + (b >> 3) % 120; }

// Where a load begins that ends beyond a line, or beyond a page.
static inline uint64_t crossed_at(uint64_t a, int i) {
  uint64_t border = i % 4 == 0 ? 4096 * (1 + (a >> 8) % (CROSSED_PAGES - 1))
                               : 64 * (1 + (a >> 8) % (CROSSED_LINES - 1));
  return border - 1 - (a >> 40) % 7;
}

// Of the walk's four functions.
static inline uint64_t walked(uint64_t which, uint64_t s, uint64_t a) {
  uint64_t of[4] = {soft_add(s, a), s ^ a, ~s, rotate(s, 7)};
  return of[which];
}

// --- bytes and bits ------------------------------------------------------------------------------

static inline uint32_t soft_crc(uint32_t crc, uint64_t data) {
  for (int i = 0; i < 64; i++) {
    uint32_t out = (crc ^ (uint32_t)(data >> i)) & 1;
    crc = crc >> 1 ^ (out ? 0x82f63b78u : 0);
  }
  return crc;
}

static inline uint8_t field_multiply(uint8_t a, uint8_t b) { // modulo x^8 + x^4 + x^3 + x + 1
  uint8_t found = 0;
  for (int i = 0; i < 8; i++) {
    if (b >> i & 1)
      found ^= a;
    a = (uint8_t)(a << 1 ^ (a & 0x80 ? 0x1b : 0));
  }
  return found;
}

static inline uint8_t sub_byte(uint8_t a) { // the inverse is a^254
  uint8_t inverse = 1, square = a, found = 0x63;
  for (int i = 0; i < 7; i++) {
    square = field_multiply(square, square);
    inverse = field_multiply(inverse, square);
  }
  for (int i = 0; i < 5; i++)
    found ^= (uint8_t)(inverse << i | inverse >> (8 - i));
  return found;
}

// A round of AES: bytes replaced, rows shifted, columns mixed, the key added.
static inline void soft_aes(const uint64_t *state, const uint64_t *key, uint64_t *to) {
  uint8_t in[AES_BYTES], out[AES_BYTES];
  memcpy(in, state, sizeof in);
  for (int column = 0; column < 4; column++) {
    uint8_t s[4];
    for (int row = 0; row < 4; row++)
      s[row] = sub_byte(in[4 * ((column + row) % 4) + row]);
    for (int row = 0; row < 4; row++)
      out[4 * column + row] =
          (uint8_t)(field_multiply(s[row], 2) ^ field_multiply(s[(row + 1) % 4], 3) ^
                    s[(row + 2) % 4] ^ s[(row + 3) % 4]);
  }
  memcpy(to, out, sizeof out);
  to[0] ^= key[0];
  to[1] ^= key[1];
}

static inline uint32_t turned(uint32_t word, int by) { return word >> by | word << (32 - by); }

// Two rounds of SHA-256: words c, d, g, h in ``cdgh`` from above, a, b, e, f in ``abef``.
static inline void soft_sha(const uint64_t *cdgh, const uint64_t *abef, uint64_t keys,
                            uint64_t *to) {
  uint32_t a = (uint32_t)(abef[1] >> 32), b = (uint32_t)abef[1], e = (uint32_t)(abef[0] >> 32);
  uint32_t f = (uint32_t)abef[0], c = (uint32_t)(cdgh[1] >> 32), d = (uint32_t)cdgh[1];
  uint32_t g = (uint32_t)(cdgh[0] >> 32), h = (uint32_t)cdgh[0];
  for (int i = 0; i < 2; i++) {
    uint32_t first = ((e & f) ^ (~e & g)) + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) +
                     (uint32_t)(keys >> (32 * i)) + h;
    uint32_t second =
        ((a & b) ^ (a & c) ^ (b & c)) + (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  to[0] = (uint64_t)e << 32 | f;
  to[1] = (uint64_t)a << 32 | b;
}

// One lane of integer vectors: a sum, a product of low halves and two shifts, its bytes reversed.
static inline uint64_t soft_lane(uint64_t a, uint64_t b) {
  uint64_t high, product = soft_multiply(a & 0xffffffffu, b & 0xffffffffu, &high);
  uint64_t mixed =
      soft_add(a, b) ^ product ^ soft_left(a, (int)(b & 63)) ^ soft_right(b, (int)(a & 63));
  uint64_t found = 0;
  for (int i = 0; i < 8; i++)
    found = found << 8 | (mixed >> (8 * i) & 255);
  return found;
}

// Both halves: a sum, and four products of unsigned and signed bytes.
static inline uint64_t soft_dot(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t found = 0, high;
  for (int half = 0; half < 2; half++) {
    uint64_t sum = c >> (32 * half) & 0xffffffffu;
    for (int i = 4 * half; i < 4 * half + 4; i++) {
      uint64_t with_sign = (uint64_t)(int64_t)(int8_t)(b >> (8 * i));
      sum = soft_add(sum, soft_multiply(with_sign, a >> (8 * i) & 255, &high));
    }
    found |= (sum & 0xffffffffu) << (32 * half);
  }
  return found;
}

static inline void soft_carryless(uint64_t a, uint64_t b, uint64_t *to) {
  to[0] = to[1] = 0;
  for (int i = 0; i < 64; i++)
    if (b >> i & 1) {
      to[0] ^= a << i;
      to[1] ^= i == 0 ? 0 : a >> (64 - i);
    }
}

static inline uint64_t soft_shifts(uint64_t a, uint64_t b, uint64_t c) {
  int by = (int)(b & 63), turn = (int)(c & 63), above = 0, below = 0;
  uint64_t arithmetic = soft_right(c, by);
  if (bit_of(c, 63))
    arithmetic |= ~soft_right(~(uint64_t)0, by);
  while (!bit_of(a | 1, 63 - above))
    above++;
  while (!bit_of(b | power[63], below))
    below++;
  uint64_t turned_left = soft_left(a, turn) | (turn ? soft_right(a, 64 - turn) : 0);
  return soft_left(a, by) ^ soft_right(b, by) ^ arithmetic ^ turned_left ^
         soft_left((uint64_t)above, 8) ^ soft_left((uint64_t)below, 16);
}

static inline uint64_t soft_quotients(uint64_t a, uint64_t d) {
  uint64_t rest, other, quotient = soft_divide(a, d, &rest);
  uint64_t narrow = soft_divide(a & 0xffffffffu, (d & 0xffffffffu) | 1, &other);
  return quotient ^ rotate(rest, 32) ^ rotate(narrow, 16);
}

static inline uint64_t soft_walk(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t s = c;
  for (int i = 0; i < STEPS; i++) {
    uint64_t taken = 0 - (a >> i & 1);
    s = (soft_add(s, b) & taken) | ((s ^ a) & ~taken);
    s = walked(b >> (2 * i) & 3, s, a);
  }
  return s;
}

// --- all of a block ------------------------------------------------------------------------------

static inline uint64_t soft_one(enum class which, const inputs *in, uint64_t block, int i) {
  uint64_t a = in->a[i], b = in->b[i], c = in->c[i], high;
  switch (which) {
  case INTEGER:
    return soft_sub(soft_add(soft_add(a, b) ^ soft_sub(a, c), (a & b) | (~b & c)), a ^ c);
  case MULTIPLY:
    high = 0;
    uint64_t low = soft_multiply(a, b, &high);
    return low ^ high;
  case DIVIDE:
    return soft_quotients(a, in->divisor[i]);
  case SHIFT:
    return soft_shifts(a, b, c);
  case BRANCH:
    return soft_walk(a, b, c);
  case STRING: {
    uint64_t from = a % 1024, bytes = string_bytes(b);
    if (i % 4 == 3) // one byte, again and again
      return (a & 255) * 0x0101010101010101u ^ rotate((a & 255) * 0x0101010101010101u, 1);
    return bytes_at(block, from) ^ rotate(bytes_at(block, from + bytes - 8), 1);
  }
  case CROSSING:
    return i % 2 ? b : bytes_at(block, crossed_at(a, i));
  case CACHE:
  case MEMORY:
    return a;
  case X87: {
    uint64_t x = (uint64_t)small(a, 31), y = (uint64_t)(small(b, 31) | 1);
    return soft_add(soft_multiply(x, y, &high), (uint64_t)small(c, 62)) ^ x;
  }
  case SSE_NEON:
    return in->sums.result[i] ^ in->sums.quotient[i];
  case FMA:
  case FMA512:
    return in->fused.result[i];
  case AVX2:
  case AVX512: {
    int last = which == AVX2 ? 3 : 7; // lanes are reversed
    return soft_lane(in->a[i ^ last], in->b[i ^ last]);
  }
  case VNNI:
    return soft_dot(a, b, c);
  case CRC32:
    return soft_crc((uint32_t)c, a) | (uint64_t)soft_crc((uint32_t)(c >> 32), b) << 32;
  default:
    return table_word(block, a % TABLE_WORDS);
  }
}

static inline void expect(enum class which, const inputs *in, uint64_t block, uint64_t *to) {
  uint64_t cell = in->c[0], before;
  for (int i = 0; i < OPS; i++)
    switch (which) {
    case ATOMIC:
      before = cell;
      cell = i % 4 == 0 ? soft_add(cell, in->a[i]) : i % 4 == 3 ? cell ^ in->a[i] : in->a[i];
      to[i] = before ^ rotate(cell, 1);
      break;
    case AES:
      if (i % 2 == 0)
        soft_aes(&in->a[i], &in->b[i], &to[i]);
      break;
    case SHA:
      if (i % 2 == 0)
        soft_sha(&in->a[i], &in->b[i], in->c[i], &to[i]);
      break;
    case CLMUL:
      if (i % 2 == 0)
        soft_carryless(in->a[i], in->b[i + 1], &to[i]);
      break;
    default:
      to[i] = soft_one(which, in, block, i);
    }
}

#endif
