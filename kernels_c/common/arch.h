// What differs between processors, each under one name: single instructions as text, for loops in
// assembler that are written once, and fences, flushes and pauses.
//
// Loops count down in %[left], and begin at the label 1.
#ifndef ARCH_H
#define ARCH_H

typedef double arch_pair __attribute__((vector_size(16), may_alias));

#if defined(__x86_64__)

#include <emmintrin.h>

// Of two registers, because recent cores make the addition of a small constant for nothing.
#define ARCH_ADD(sum) "add %[one], %[" sum "]\n"
#define ARCH_MULTIPLY "imul %[product], %[product]\n"
#define ARCH_LOAD_NEXT "mov (%[at]), %[at]\n"
#define ARCH_STORE(size) "mov %" size "[stored], (%[store])\n"
#define ARCH_LOAD(size) "mov (%[load]), %" size "[loaded]\n"
#define ARCH_4_BYTES "k"
#define ARCH_8_BYTES "q"
#define ARCH_REPEAT "dec %[left]\njnz 1b\n"
#define ARCH_HERE "lea -7(%%rip), %0" // where this instruction is
#define ARCH_TRAP "int3\n"
enum { ARCH_TRAP_BYTE = 0xcc }; // memory full of it traps

static inline void spin_pause(void) { _mm_pause(); }

// All loads and stores are done, and flushed lines are in memory.
static inline void arch_fence(void) { _mm_mfence(); }

// The store buffer is empty.
static inline void arch_fence_stores(void) { _mm_sfence(); }

// All loads are done, and nothing after it has begun.
static inline void arch_fence_loads(void) { _mm_lfence(); }

static inline void arch_flush(const void *line) { _mm_clflush(line); }

// A line of 64 bytes, past the caches.
static inline void arch_stream(arch_pair *to, arch_pair value) {
  for (int i = 0; i < 4; i++)
    _mm_stream_pd((double *)(to + i), value);
}

#elif defined(__aarch64__)

#define ARCH_ADD(sum) "add %[" sum "], %[" sum "], %[one]\n"
#define ARCH_MULTIPLY "mul %[product], %[product], %[product]\n"
#define ARCH_LOAD_NEXT "ldr %[at], [%[at]]\n"
#define ARCH_STORE(size) "str %" size "[stored], [%[store]]\n"
#define ARCH_LOAD(size) "ldr %" size "[loaded], [%[load]]\n"
#define ARCH_4_BYTES "w"
#define ARCH_8_BYTES "x"
#define ARCH_REPEAT "subs %[left], %[left], #1\nb.ne 1b\n"
#define ARCH_HERE "adr %0, ."
#define ARCH_TRAP "brk #0\n"
enum { ARCH_TRAP_BYTE = 0x01 }; // a word of it is no instruction

// "yield" does nothing on most cores; this waits for what a core has begun, as x86's pause does.
static inline void spin_pause(void) { __asm__ volatile("isb" ::: "memory"); }

// "dmb" would not wait for a flush to end.
static inline void arch_fence(void) { __asm__ volatile("dsb ish" ::: "memory"); }
static inline void arch_fence_stores(void) { __asm__ volatile("dsb ishst" ::: "memory"); }
static inline void arch_fence_loads(void) { __asm__ volatile("dsb ishld\nisb" ::: "memory"); }

// To the point of coherency: a cache behind it, in the system, may keep the line.
static inline void arch_flush(const void *line) {
  __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
}

static inline void arch_stream(arch_pair *to, arch_pair value) {
  __asm__ volatile("stnp %q1, %q1, [%0]\nstnp %q1, %q1, [%0, #32]"
                   :
                   : "r"(to), "w"(value)
                   : "memory");
}

#else
#error "perflib's kernels are written for x86-64 and aarch64 (common/arch.h)"
#endif

#endif
