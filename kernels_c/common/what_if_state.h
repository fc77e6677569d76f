// What the library what_if shares with who starts the job, and what it keeps of each thread.
#ifndef WHAT_IF_STATE_H
#define WHAT_IF_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WI_MAGIC UINT64_C(0x6669746168770001)
#define WI_RANGES 256
#define WI_MODULES 8
#define WI_PATH 1024
#define WI_HELD 64  // sections of the target that are open at once
#define WI_NESTED 8 // of one thread
#define WI_FRAMES 64

enum wi_kind { WI_FUNCTION, WI_LOCK, WI_LOCK_TAKEN_IN };
enum wi_callers { WI_SELF, WI_FRAME_POINTERS, WI_UNWIND_TABLES };
enum { WI_TICKS = 1, WI_NO_SAMPLES = 2, WI_SIGNAL_TAKEN = 4, WI_ENDED = 8 };

typedef struct {
  uint64_t start, end; // addresses as the file has them
  uint64_t module;
} wi_range;

// The file 'shared' of the folder: perflib/instruments/what_if/shared.py has the same.
typedef struct {
  uint64_t magic;
  int64_t period_ns, delay_ppm; // delay of the others, a million ns in the target
  int64_t kind, callers, ranges, modules;
  int64_t root; // the process that is watched: the first
  _Atomic int64_t flags, live, most_live;
  _Atomic int64_t global_ns; // delays that every thread has to pay
  _Atomic int64_t samples, target_samples, target_ns, sections;
  _Atomic int64_t paid_ns, paid_cpu_ns, run_queue_ns; // by all threads
  int64_t cpu_ns, start_ns, end_ns, modules_found;
  wi_range range[WI_RANGES];
  char module[WI_MODULES][WI_PATH];
} wi_shared;

// A section of the target that is open. Who comes to its lock adds what it is worth so far.
typedef struct {
  _Atomic uintptr_t lock; // 0: the place is free
  _Atomic int64_t since_ns, added_ns;
  _Atomic int64_t credit_ns; // added by others, and not to be paid by the holder
} wi_section;

typedef struct {
  int64_t local_ns; // delays paid, or credited
  int64_t sampled_ns, paid_cpu_ns;
  uintptr_t stack_low, stack_high;
  volatile sig_atomic_t on, busy;
  int file, has_timer, timer;
  uint64_t event;
  struct {
    uintptr_t lock;
    int64_t work_ns, depth;
    wi_section *section;
  } held[WI_NESTED];
} wi_thread;

#endif
