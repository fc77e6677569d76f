// What a thread does between two looks at a word that another is to change.
#ifndef SPIN_PAUSE_H
#define SPIN_PAUSE_H

static inline void spin_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#else
  __asm__ volatile("");
#endif
}

#endif
