// The instructions under test: each class makes the results of a block, and knows where it can run.
//
// A barrier (KEEP) puts a value into a register and hides where it came from: so each operation is
// executed, in scalar registers, and none is merged with its neighbours.
#ifndef CORRECTNESS_RUN_H
#define CORRECTNESS_RUN_H

#include "arch.h"
#include "correctness_expected.h"

typedef struct {
  inputs in;
  _Alignas(65536) uint64_t crossed[CROSSED_WORDS]; // loads; what is stored is in the second half
  _Alignas(64) uint64_t table[TABLE_WORDS];
  _Alignas(64) unsigned char copied[512];
  _Alignas(64) uint64_t cached[8 * OPS]; // a word of each line
  _Alignas(64) uint64_t cell;
  uint64_t flip, block; // flip: every second pass writes the complement
  uint64_t *memory;     // MEMORY_LINES lines
} battery;

enum { MEMORY_LINES = 1 << 16 };

#define KEEP(word) __asm__ volatile("" : "+r"(word))

static void run_integer(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i], b = p->in.b[i], c = p->in.c[i], sum = a + b, rest = a - c;
    KEEP(sum);
    KEEP(rest);
    uint64_t both = a & b, other = ~b & c, one = a ^ c;
    KEEP(both);
    KEEP(one);
    both |= other;
    KEEP(both);
    to[i] = (sum ^ rest) + both - one;
  }
}

static void run_multiply(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i], b = p->in.b[i];
    KEEP(a);
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t low = (uint64_t)product;
    KEEP(low);
    to[i] = low ^ (uint64_t)(product >> 64);
  }
}

static void run_divide(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i], d = p->in.divisor[i], quotient = a / d, rest = a % d;
    uint32_t narrow = (uint32_t)a / ((uint32_t)d | 1);
    KEEP(quotient);
    to[i] = quotient ^ rotate(rest, 32) ^ rotate(narrow, 16);
  }
}

static void run_shift(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i], b = p->in.b[i], c = p->in.c[i];
    uint64_t by = b & 63, turn = c & 63;
    uint64_t left = a << by, right = b >> by, turned_left = a << turn | a >> (-turn & 63);
    uint64_t arithmetic = (uint64_t)((int64_t)c >> by);
    KEEP(left);
    KEEP(right);
    KEEP(turned_left);
    KEEP(arithmetic);
    uint64_t above = (uint64_t)__builtin_clzll(a | 1);
    uint64_t below = (uint64_t)__builtin_ctzll(b | (uint64_t)1 << 63);
    KEEP(above);
    to[i] = left ^ right ^ arithmetic ^ turned_left ^ above << 8 ^ below << 16;
  }
}

typedef uint64_t step(uint64_t s, uint64_t a);
static __attribute__((noinline)) uint64_t step_add(uint64_t s, uint64_t a) { return s + a; }
static __attribute__((noinline)) uint64_t step_xor(uint64_t s, uint64_t a) { return s ^ a; }
static __attribute__((noinline)) uint64_t step_not(uint64_t s, uint64_t a) {
  (void)a;
  return ~s;
}
static __attribute__((noinline)) uint64_t step_turn(uint64_t s, uint64_t a) {
  (void)a;
  return rotate(s, 7);
}

// Jumps that are taken or not, and calls through a pointer, as the data say.
static void run_branch(battery *p, uint64_t *to) {
  static step *const steps[] = {step_add, step_xor, step_not, step_turn};
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i], b = p->in.b[i], s = p->in.c[i];
    for (int j = 0; j < STEPS; j++) {
      if (a >> j & 1) {
        s += b;
        KEEP(s); // or it would become a conditional move
      } else {
        s ^= a;
        KEEP(s);
      }
      s = steps[b >> (2 * j) & 3](s, a);
    }
    to[i] = s;
  }
}

static void run_atomic(battery *p, uint64_t *to) {
  uint64_t *cell = &p->cell, old;
  __atomic_store_n(cell, p->in.c[0], __ATOMIC_SEQ_CST);
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i];
    switch (i % 4) {
    case 0:
      old = __atomic_fetch_add(cell, a, __ATOMIC_SEQ_CST);
      break;
    case 1:
      old = __atomic_exchange_n(cell, a, __ATOMIC_SEQ_CST);
      break;
    case 2:
      old = __atomic_load_n(cell, __ATOMIC_RELAXED);
      __atomic_compare_exchange_n(cell, &old, a, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      break;
    default:
      old = __atomic_fetch_xor(cell, a, __ATOMIC_SEQ_CST);
    }
    to[i] = old ^ rotate(__atomic_load_n(cell, __ATOMIC_SEQ_CST), 1);
  }
}

static inline void move_bytes(unsigned char *to, const unsigned char *from, uint64_t bytes) {
#if defined(__x86_64__)
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  memcpy(to, from, bytes);
#endif
}

static inline void fill_bytes(unsigned char *to, unsigned char byte, uint64_t bytes) {
#if defined(__x86_64__)
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
#else
  memset(to, byte, bytes);
#endif
}

static inline uint64_t load_at(const void *at) { // wherever it begins
  uint64_t found;
  memcpy(&found, at, sizeof found);
  KEEP(found);
  return found;
}

static void run_string(battery *p, uint64_t *to) {
  const unsigned char *from = (const unsigned char *)p->table;
  for (int i = 0; i < OPS; i++) {
    uint64_t a = p->in.a[i], bytes = string_bytes(p->in.b[i]);
    unsigned char *at = p->copied + (p->in.c[i] & 63);
    memset(at, i, 8); // what is not written is found wrong
    memset(at + bytes - 8, i, 8);
    if (i % 4 == 3)
      fill_bytes(at, (unsigned char)a, bytes);
    else
      move_bytes(at, from + a % 1024, bytes);
    to[i] = load_at(at) ^ rotate(load_at(at + bytes - 8), 1);
  }
}

// Stores across every second line, 32 to the page; they are read back byte by byte.
static void run_crossing(battery *p, uint64_t *to) {
  unsigned char *stored = (unsigned char *)(p->crossed + CROSSED_WORDS / 2);
  const unsigned char *loaded = (const unsigned char *)p->crossed;
  for (int i = 1; i < OPS; i += 2) {
    uint64_t b = p->in.b[i];
    memcpy(stored + 64 * (i + 1) - 1 - i / 2 % 7, &b, sizeof b);
  }
  __asm__ volatile("" ::: "memory");
  for (int i = 0; i < OPS; i++) {
    if (i % 2 == 0) {
      to[i] = load_at(loaded + crossed_at(p->in.a[i], i));
      continue;
    }
    uint64_t found = 0;
    const volatile unsigned char *at = stored + 64 * (i + 1) - 1 - i / 2 % 7;
    for (int k = 0; k < 8; k++)
      found |= (uint64_t)at[k] << (8 * k);
    to[i] = found;
  }
}

static inline uint64_t *cached_word(battery *p, int i) {
  return p->cached + 8 * (i * 389 % OPS) + i % 8;
}

static void run_cache(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++)
    *cached_word(p, i) = p->in.a[i] ^ p->flip;
  __asm__ volatile("" ::: "memory");
  for (int i = OPS - 1; i >= 0; i--)
    to[i] = *cached_word(p, i) ^ p->flip;
}

static inline uint64_t *memory_word(battery *p, int i) {
  uint64_t line = ((uint64_t)i * 40503 + p->block * 977) % MEMORY_LINES;
  return p->memory + 8 * line + i % 8;
}

// Each line is written, flushed to memory, and read from there.
static void run_memory(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint64_t *word = memory_word(p, i);
    *word = p->in.a[i] ^ p->flip;
    arch_flush(word);
  }
  arch_fence();
  for (int i = 0; i < OPS; i++)
    to[i] = *memory_word(p, i) ^ p->flip;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define TARGET(set) __attribute__((target(set)))
#define HAS(set) (__builtin_cpu_supports(set) != 0)

static void run_x87(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    long double x = (long double)small(p->in.a[i], 31);
    long double y = (long double)(small(p->in.b[i], 31) | 1);
    long double product = x * y, sum = product + (long double)small(p->in.c[i], 62);
    __asm__ volatile("" : "+t"(sum));
    to[i] = (uint64_t)(int64_t)sum ^ (uint64_t)(int64_t)(product / y);
  }
}

static void run_sse_neon(battery *p, uint64_t *to) {
  const exact_doubles *e = &p->in.sums;
  for (int i = 0; i < OPS; i += 2) {
    __m128d y = _mm_loadu_pd((const double *)(e->y + i));
    __m128d product = _mm_mul_pd(_mm_loadu_pd((const double *)(e->x + i)), y);
    __m128d sum = _mm_add_pd(product, _mm_loadu_pd((const double *)(e->z + i)));
    __m128d found = _mm_xor_pd(sum, _mm_div_pd(product, y));
    _mm_storeu_pd((double *)(to + i), found);
  }
}

static TARGET("avx2") void run_avx2(battery *p, uint64_t *to) {
  const __m256i low = _mm256_set1_epi64x(63);
  const __m256i bytes = _mm256_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                        10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  for (int i = 0; i < OPS; i += 4) {
    __m256i a = _mm256_load_si256((const __m256i *)(p->in.a + i));
    __m256i b = _mm256_load_si256((const __m256i *)(p->in.b + i));
    __m256i found = _mm256_xor_si256(_mm256_add_epi64(a, b), _mm256_mul_epu32(a, b));
    found = _mm256_xor_si256(found, _mm256_sllv_epi64(a, _mm256_and_si256(b, low)));
    found = _mm256_xor_si256(found, _mm256_srlv_epi64(b, _mm256_and_si256(a, low)));
    found = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(found, bytes), 0x1b);
    _mm256_store_si256((__m256i *)(to + i), found);
  }
}

static TARGET("avx512f,avx512bw") void run_avx512(battery *p, uint64_t *to) {
  const __m512i low = _mm512_set1_epi64(63), lanes = _mm512_set_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i bytes = _mm512_set_epi64(0x08090a0b0c0d0e0f, 0x0001020304050607, 0x08090a0b0c0d0e0f,
                                         0x0001020304050607, 0x08090a0b0c0d0e0f, 0x0001020304050607,
                                         0x08090a0b0c0d0e0f, 0x0001020304050607);
  for (int i = 0; i < OPS; i += 8) {
    __m512i a = _mm512_load_si512(p->in.a + i), b = _mm512_load_si512(p->in.b + i);
    __m512i left = _mm512_sllv_epi64(a, _mm512_and_si512(b, low));
    __m512i right = _mm512_srlv_epi64(b, _mm512_and_si512(a, low));
    __m512i found = _mm512_xor_si512(_mm512_add_epi64(a, b), _mm512_mul_epu32(a, b));
    found = _mm512_ternarylogic_epi64(found, left, right, 0x96); // all three, exclusive or
    found = _mm512_permutexvar_epi64(lanes, _mm512_shuffle_epi8(found, bytes));
    _mm512_store_si512(to + i, found);
  }
}

static TARGET("avx2,fma") void run_fma(battery *p, uint64_t *to) {
  const exact_doubles *e = &p->in.fused;
  for (int i = 0; i < OPS; i += 4) {
    __m256d x = _mm256_loadu_pd((const double *)(e->x + i));
    __m256d y = _mm256_loadu_pd((const double *)(e->y + i));
    __m256d z = _mm256_loadu_pd((const double *)(e->z + i));
    _mm256_storeu_pd((double *)(to + i), _mm256_fmadd_pd(x, y, z));
  }
}

static TARGET("avx512f") void run_fma512(battery *p, uint64_t *to) {
  const exact_doubles *e = &p->in.fused;
  for (int i = 0; i < OPS; i += 8)
    _mm512_storeu_pd(to + i, _mm512_fmadd_pd(_mm512_loadu_pd(e->x + i), _mm512_loadu_pd(e->y + i),
                                             _mm512_loadu_pd(e->z + i)));
}

static TARGET("avx512f,avx512vnni") void run_vnni(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i += 8)
    _mm512_store_si512(to + i, _mm512_dpbusd_epi32(_mm512_load_si512(p->in.c + i),
                                                   _mm512_load_si512(p->in.a + i),
                                                   _mm512_load_si512(p->in.b + i)));
}

static TARGET("sse4.2") void run_crc32(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint64_t c = p->in.c[i];
    to[i] = _mm_crc32_u64((uint32_t)c, p->in.a[i]) | _mm_crc32_u64(c >> 32, p->in.b[i]) << 32;
  }
}

static inline __m128i pair(const uint64_t *at) { return _mm_loadu_si128((const __m128i *)at); }

static TARGET("aes,sse2") void run_aes(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i += 2)
    _mm_storeu_si128((__m128i *)(to + i), _mm_aesenc_si128(pair(p->in.a + i), pair(p->in.b + i)));
}

static TARGET("sha,sse4.1") void run_sha(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i += 2) {
    __m128i keys = _mm_cvtsi64_si128((long long)p->in.c[i]);
    __m128i found = _mm_sha256rnds2_epu32(pair(p->in.a + i), pair(p->in.b + i), keys);
    _mm_storeu_si128((__m128i *)(to + i), found);
  }
}

static TARGET("pclmul,sse2") void run_clmul(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i += 2)
    _mm_storeu_si128((__m128i *)(to + i),
                     _mm_clmulepi64_si128(pair(p->in.a + i), pair(p->in.b + i), 0x10));
}

static TARGET("avx2") void run_gather(battery *p, uint64_t *to) {
  const __m256i within = _mm256_set1_epi64x(TABLE_WORDS - 1);
  for (int i = 0; i < OPS; i += 4) {
    __m256i at = _mm256_and_si256(_mm256_load_si256((const __m256i *)(p->in.a + i)), within);
    __m256i found = _mm256_i64gather_epi64((const long long *)p->table, at, 8);
    _mm256_store_si256((__m256i *)(to + i), found);
  }
}

static TARGET("avx512f") void busy_avx512(int64_t steps) {
  __m512d a[8], x = _mm512_set1_pd(1.0000001), y = _mm512_set1_pd(-1e-7);
  for (int i = 0; i < 8; i++)
    a[i] = _mm512_set1_pd(1.0 + i);
  for (int64_t j = 0; j < steps; j++)
    for (int i = 0; i < 8; i++)
      a[i] = _mm512_fmadd_pd(a[i], x, y);
  for (int i = 0; i < 8; i++)
    __asm__ volatile("" : : "v"(a[i]));
}

static TARGET("avx2,fma") void busy_fma(int64_t steps) {
  __m256d a[8], x = _mm256_set1_pd(1.0000001), y = _mm256_set1_pd(-1e-7);
  for (int i = 0; i < 8; i++)
    a[i] = _mm256_set1_pd(1.0 + i);
  for (int64_t j = 0; j < steps; j++)
    for (int i = 0; i < 8; i++)
      a[i] = _mm256_fmadd_pd(a[i], x, y);
  for (int i = 0; i < 8; i++)
    __asm__ volatile("" : : "x"(a[i]));
}

// What __builtin_cpu_supports has no name for: a bit of ECX of leaf 1, of EBX of leaf 7.
static int has_cpuid(unsigned leaf, int bit) {
  unsigned a, b, c, d;
  return __get_cpuid_count(leaf, 0, &a, &b, &c, &d) && ((leaf == 7 ? b : c) >> bit & 1);
}

static int available(enum class which) {
  switch (which) {
  case AVX2:
  case GATHER:
    return HAS("avx2");
  case AVX512:
    return HAS("avx512f") && HAS("avx512bw");
  case FMA:
    return HAS("avx2") && HAS("fma");
  case FMA512:
    return HAS("avx512f");
  case VNNI:
    return HAS("avx512f") && HAS("avx512vnni");
  case CRC32:
    return HAS("sse4.2");
  case AES:
    return has_cpuid(1, 25);
  case SHA:
    return has_cpuid(7, 29);
  case CLMUL:
    return HAS("pclmul");
  default:
    return 1;
  }
}

#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>

#define HAS(bit) ((getauxval(AT_HWCAP) & (bit)) != 0)
enum { CAP_AES = 1 << 3, CAP_PMULL = 1 << 4, CAP_CRC32 = 1 << 7 };

static inline float64x2_t doubles(const uint64_t *at) {
  return vreinterpretq_f64_u64(vld1q_u64(at));
}

static void run_sse_neon(battery *p, uint64_t *to) {
  const exact_doubles *e = &p->in.sums;
  for (int i = 0; i < OPS; i += 2) {
    float64x2_t y = doubles(e->y + i), product = vmulq_f64(doubles(e->x + i), y);
    uint64x2_t sum = vreinterpretq_u64_f64(vaddq_f64(product, doubles(e->z + i)));
    vst1q_u64(to + i, veorq_u64(sum, vreinterpretq_u64_f64(vdivq_f64(product, y))));
  }
}

static void run_fma(battery *p, uint64_t *to) {
  const exact_doubles *e = &p->in.fused;
  for (int i = 0; i < OPS; i += 2) {
    float64x2_t found = vfmaq_f64(doubles(e->z + i), doubles(e->x + i), doubles(e->y + i));
    vst1q_u64(to + i, vreinterpretq_u64_f64(found));
  }
}

static void run_crc32(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i++) {
    uint32_t low = (uint32_t)p->in.c[i], high = (uint32_t)(p->in.c[i] >> 32);
    __asm__ volatile(".arch_extension crc\ncrc32cx %w0, %w0, %1" : "+r"(low) : "r"(p->in.a[i]));
    __asm__ volatile(".arch_extension crc\ncrc32cx %w0, %w0, %1" : "+r"(high) : "r"(p->in.b[i]));
    to[i] = low | (uint64_t)high << 32;
  }
}

// The key comes first there, and is zero: what x86 adds last is added last.
static void run_aes(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i += 2) {
    uint64x2_t state = vld1q_u64(p->in.a + i), zero = vdupq_n_u64(0);
    __asm__ volatile(".arch_extension crypto\naese %0.16b, %1.16b\naesmc %0.16b, %0.16b"
                     : "+w"(state)
                     : "w"(zero));
    vst1q_u64(to + i, veorq_u64(state, vld1q_u64(p->in.b + i)));
  }
}

static void run_clmul(battery *p, uint64_t *to) {
  for (int i = 0; i < OPS; i += 2) {
    uint64x2_t a = vdupq_n_u64(p->in.a[i]), b = vdupq_n_u64(p->in.b[i + 1]), found;
    __asm__ volatile(".arch_extension crypto\npmull %0.1q, %1.1d, %2.1d"
                     : "=w"(found)
                     : "w"(a), "w"(b));
    vst1q_u64(to + i, found);
  }
}

static void busy_fma(int64_t steps) {
  float64x2_t a[8], x = vdupq_n_f64(1.0000001), y = vdupq_n_f64(-1e-7);
  for (int i = 0; i < 8; i++)
    a[i] = vdupq_n_f64(1.0 + i);
  for (int64_t j = 0; j < steps; j++)
    for (int i = 0; i < 8; i++)
      a[i] = vfmaq_f64(y, a[i], x);
  for (int i = 0; i < 8; i++)
    __asm__ volatile("" : : "w"(a[i]));
}

static int available(enum class which) {
  switch (which) {
  case X87:
  case AVX2:
  case AVX512:
  case FMA512:
  case VNNI:
  case SHA:
  case GATHER:
    return 0;
  case CRC32:
    return HAS(CAP_CRC32);
  case AES:
    return HAS(CAP_AES);
  case CLMUL:
    return HAS(CAP_PMULL);
  default:
    return 1;
  }
}

#endif

// The widest vectors of the processor, for about as many cycles as steps.
static void busy(int64_t steps) {
#if defined(__x86_64__)
  if (available(FMA512)) {
    busy_avx512(steps / 4);
    return;
  }
  if (!available(FMA))
    return;
#endif
  busy_fma(steps / 4);
}

typedef void runner(battery *p, uint64_t *to);

static runner *const RUNNERS[CLASSES] = {
    [INTEGER] = run_integer, [MULTIPLY] = run_multiply, [DIVIDE] = run_divide,
    [SHIFT] = run_shift,     [BRANCH] = run_branch,     [ATOMIC] = run_atomic,
    [STRING] = run_string,   [CROSSING] = run_crossing, [CACHE] = run_cache,
    [MEMORY] = run_memory,   [SSE_NEON] = run_sse_neon, [FMA] = run_fma,
    [CRC32] = run_crc32,     [AES] = run_aes,           [CLMUL] = run_clmul,
#if defined(__x86_64__)
    [X87] = run_x87,         [AVX2] = run_avx2,         [AVX512] = run_avx512,
    [FMA512] = run_fma512,   [VNNI] = run_vnni,         [SHA] = run_sha,
    [GATHER] = run_gather,
#endif
};

#endif
