// What thread_waits.c keeps in memory: the process, its threads, and the chunks they write to.
//
// Nothing here allocates from the heap, takes a lock that others could hold for long, or calls what
// is a cancellation point: it runs within pthread_mutex_lock, whoever calls that, and partly within
// a signal handler. So files are opened by their path each time (a descriptor kept open could be
// closed by the job, and its number be another file's by then), by system calls made directly.
#ifndef PERFLIB_THREAD_WAITS_STATE_H
#define PERFLIB_THREAD_WAITS_STATE_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/thread_waits_file.h"

#define TW_MOST_FRAMES 40
#define TW_CACHED 64 // stacks; a power of 2
#define TW_PATH 4200
#define TW_FIRST_CHUNK (2u * TW_GRAIN)
#define TW_NEXT_CHUNK (16u * TW_GRAIN)

// A stack that this thread waited in, with the place on the stack of each return address: while
// all of them still stand there, it is the same stack, and need not be unwound again.
typedef struct {
  uint32_t id, depth;
  uintptr_t place[TW_MOST_FRAMES], frame[TW_MOST_FRAMES];
} tw_cached;

typedef struct tw_thread {
  struct tw_thread *next;
  pthread_t self;
  int32_t tid;
  uint32_t number;
  atomic_int busy; // it is writing: what the signal handler would write must not come between
  int used, has_timer;
  int rounds; // of destructors that were seen
  int timer;
  uint32_t stacks, sequence;
  uintptr_t stack_low, stack_high;
  uint64_t sampled_cpu_ns;
  tw_chunk *first, *chunk;
  uint64_t filled;
  tw_cached cached[TW_CACHED];
} tw_thread;

static struct {
  atomic_int on;
  int off; // for good: not wanted here
  int signal;
  int32_t pid;
  uint32_t number;  // of the next thread
  atomic_int stale; // an address was seen that the saved maps do not have
  atomic_int saving, listing, saves;
  tw_shared *shared;
  tw_process *process;
  _Atomic(tw_thread *) threads;
  pthread_key_t key;
  int has_key;
  char folder[TW_PATH], waits[TW_PATH + 64], maps[TW_PATH + 64];
  atomic_uintptr_t known[512]; // where libraries begin that the saved maps have
} tw;

static __thread tw_thread *tw_this;
static __thread int tw_gone; // this thread ends: it is recorded no more

static uint64_t tw_clock(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t tw_now(void) { return tw_clock(CLOCK_MONOTONIC); }

static uint64_t tw_cpu(void) { return tw_clock(CLOCK_THREAD_CPUTIME_ID); }

static int tw_open(const char *path, int flags) {
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void tw_close(int file) { syscall(SYS_close, file); }

// --- paths -------------------------------------------------------------------------------------

static void tw_append(char *text, const char *more) { strcpy(text + strlen(text), more); }

static void tw_append_number(char *text, uint32_t number) {
  char digits[12] = {0};
  int at = 11;
  do
    digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  tw_append(text, digits + at);
}

static void tw_path(char *path, const char *kind, int32_t pid, uint32_t generation) {
  strcpy(path, tw.folder);
  tw_append(path, kind);
  tw_append_number(path, (uint32_t)pid);
  tw_append(path, ".");
  tw_append_number(path, generation);
}

// --- chunks ------------------------------------------------------------------------------------

static void tw_count_lost(uint64_t waits, uint64_t samples) {
  uint64_t now = tw_now(), never = 0;
  __atomic_fetch_add(&tw.process->lost_waits, waits, __ATOMIC_RELAXED);
  __atomic_fetch_add(&tw.process->lost_samples, samples, __ATOMIC_RELAXED);
  __atomic_compare_exchange_n(&tw.process->first_lost_ns, &never, now, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  __atomic_store_n(&tw.process->last_lost_ns, now, __ATOMIC_RELAXED);
}

// So much more of the file has room on the disk: a page without would be a SIGBUS later.
static bool tw_extend(int file, uint64_t offset, uint64_t bytes) {
  if (syscall(SYS_fallocate, file, 0, offset, bytes) == 0)
    return true;
  static const char zeros[TW_PAGE];
  if (errno != EOPNOTSUPP && errno != ENOSYS)
    return false;
  for (uint64_t at = 0; at < bytes; at += TW_PAGE)
    if (syscall(SYS_pwrite64, file, zeros, TW_PAGE, offset + at) != TW_PAGE)
      return false;
  return true;
}

static void *tw_map(int file, uint64_t offset, uint64_t bytes) {
  void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
  return mapped == MAP_FAILED ? NULL : mapped;
}

static bool tw_next_chunk(tw_thread *thread) {
  uint64_t bytes = thread->first ? TW_NEXT_CHUNK : TW_FIRST_CHUNK;
  if (__atomic_add_fetch(&tw.shared->used_bytes, bytes, __ATOMIC_RELAXED) > tw.shared->most_bytes) {
    __atomic_sub_fetch(&tw.shared->used_bytes, bytes, __ATOMIC_RELAXED);
    return false;
  }
  int file = tw_open(tw.waits, O_RDWR);
  uint64_t offset = 0;
  tw_chunk *chunk = NULL;
  if (file >= 0) {
    offset = __atomic_fetch_add(&tw.process->length, bytes, __ATOMIC_RELAXED);
    if (tw_extend(file, offset, bytes))
      chunk = tw_map(file, offset, bytes);
    tw_close(file);
  }
  if (chunk == NULL) {
    __atomic_sub_fetch(&tw.shared->used_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_or_fetch(&tw.process->flags, TW_NOT_EXTENDED, __ATOMIC_RELAXED);
    return false;
  }
  chunk->bytes = bytes;
  chunk->tid = thread->tid;
  chunk->thread = thread->number;
  chunk->sequence = thread->sequence++;
  __atomic_store_n(&chunk->magic, TW_CHUNK_MAGIC, __ATOMIC_RELEASE);
  if (thread->chunk != NULL && thread->chunk != thread->first)
    munmap(thread->chunk, thread->chunk->bytes);
  thread->chunk = chunk;
  thread->first = thread->first ? thread->first : chunk;
  thread->filled = TW_HEADER;
  return true;
}

// Room for a record of so many words; NULL: there is none any more. Its head is written last.
static uint64_t *tw_reserve(tw_thread *thread, uint32_t words) {
  uint64_t bytes = (words * 8u + TW_SLOT - 1) / TW_SLOT * TW_SLOT;
  if ((thread->chunk == NULL || thread->filled + bytes > thread->chunk->bytes) &&
      !tw_next_chunk(thread))
    return NULL;
  uint64_t *record = (uint64_t *)((char *)thread->chunk + thread->filled);
  thread->filled += bytes;
  return record;
}

// --- maps --------------------------------------------------------------------------------------

static void tw_save_maps(void) {
  if (atomic_fetch_add(&tw.saves, 1) > 200 || atomic_exchange(&tw.saving, 1))
    return;
  atomic_store(&tw.stale, 0);
  int from = tw_open("/proc/self/maps", O_RDONLY);
  int to = tw_open(tw.maps, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
  char part[TW_PAGE];
  long got;
  while (from >= 0 && to >= 0 && (got = syscall(SYS_read, from, part, sizeof part)) > 0)
    if (syscall(SYS_write, to, part, got) != got)
      break;
  if (from >= 0)
    tw_close(from);
  if (to >= 0)
    tw_close(to);
  atomic_store(&tw.saving, 0);
}

// Is the library of an address among those that the saved maps have? From now on it is.
static void tw_know(uintptr_t address) {
#ifdef DLFO_STRUCT_HAS_EH_DBASE // since glibc 2.35: takes no lock, may be called in a handler
  struct dl_find_object found;
  if (_dl_find_object((void *)address, &found) != 0)
    return;
  uintptr_t start = (uintptr_t)found.dlfo_map_start;
  for (size_t i = 0; i < sizeof tw.known / sizeof tw.known[0]; i++) {
    uintptr_t here = atomic_load_explicit(&tw.known[i], memory_order_relaxed);
    if (here == start)
      return;
    if (here == 0) {
      if (!atomic_compare_exchange_strong(&tw.known[i], &here, start) && here == start)
        return;
      break;
    }
  }
  atomic_store(&tw.stale, 1);
#else
  (void)address;
#endif
}

// --- threads -----------------------------------------------------------------------------------

static void tw_note_name(tw_thread *thread) {
  if (thread->first == NULL)
    return;
  char name[32] = {0};
  syscall(SYS_prctl, PR_GET_NAME, name, 0, 0, 0);
  memcpy(thread->first->name, name, sizeof name);
  thread->first->named = 1;
}

static void tw_list(bool lock) {
  if (lock)
    while (atomic_exchange_explicit(&tw.listing, 1, memory_order_acquire))
      sched_yield();
  else
    atomic_store_explicit(&tw.listing, 0, memory_order_release);
}

// A place for a new thread: that of one that ended, or new memory. Places are never given back, so
// that the list can be read at any time.
static tw_thread *tw_place(void) {
  tw_list(true);
  tw_thread *thread = atomic_load(&tw.threads);
  while (thread != NULL && thread->used)
    thread = thread->next;
  if (thread == NULL) {
    thread = mmap(NULL, sizeof *thread, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (thread == MAP_FAILED) {
      tw_list(false);
      return NULL;
    }
    thread->next = atomic_load(&tw.threads);
    atomic_store(&tw.threads, thread);
  }
  thread->used = 1;
  thread->number = tw.number++;
  tw_list(false);
  return thread;
}

#endif
