// What is around each piece of code to mend: guarded arrays for its check, samples between probes
// for its timing, and a second thread where it has one.
//
// A check and a timing call the code through a pointer that the compiler cannot see through, so
// that each call does all of its work, as a call from another file would.
#ifndef FIX_HARNESS_H
#define FIX_HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/bracket.h"
#include "common/pinned.h"

// A function with other arguments is an error, not a warning.
#pragma GCC diagnostic error "-Wincompatible-pointer-types"

// @interface
typedef struct {
  bracket sample;
  int64_t calls;
  int64_t cpu;              /* where the first thread was; -1: it migrated */
  int64_t partner_cpu;      /* where the second was; -2: there is none */
  int64_t partner_delay_ns; /* the second was ready, but waited for the core; -1: not known */
} fix_sample;
// @end

enum { FIX_PAGE = 4096, FIX_FILLING = 0x5a };
enum { FIX_BEFORE = 1000 }; // what a check returns if something beside an array was written to

// --- random numbers, the same everywhere (splitmix64) --------------------------------------------

static inline uint64_t fix_random(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

// The numbers below a count, in random order.
static inline void fix_shuffle(uint32_t *order, uint32_t count, uint64_t *state) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t other = (uint32_t)(fix_random(state) % (i + 1));
    order[i] = order[other];
    order[other] = i;
  }
}

// --- arrays whose end is a page that nobody may touch --------------------------------------------

typedef struct {
  unsigned char *map, *data;
  size_t map_bytes;
} fix_array;

static inline int fix_guard(fix_array *array, const void *from, size_t bytes) {
  size_t inside = (bytes + FIX_PAGE - 1) / FIX_PAGE * FIX_PAGE + FIX_PAGE;
  array->map_bytes = inside + FIX_PAGE;
  array->map =
      mmap(NULL, array->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (array->map == MAP_FAILED)
    return ENOMEM;
  memset(array->map, FIX_FILLING, inside);
  array->data = array->map + inside - bytes;
  if (from != NULL)
    memcpy(array->data, from, bytes);
  return mprotect(array->map + inside, FIX_PAGE, PROT_NONE) == 0 ? 0 : errno;
}

// Lets go of an array: 0, or FIX_BEFORE.
static inline int fix_release(fix_array *array) {
  int changed = 0;
  for (const unsigned char *byte = array->map; byte < array->data; byte++)
    changed |= *byte != FIX_FILLING;
  munmap(array->map, array->map_bytes);
  return changed ? FIX_BEFORE : 0;
}

// --- what the code asks for itself is guarded, too, while it is checked --------------------------

enum { FIX_MOST_BLOCKS = 64 };

static struct {
  fix_array array;
  size_t bytes;
} fix_blocks[FIX_MOST_BLOCKS];
static pthread_mutex_t fix_blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static int fix_checking, fix_spoilt; // spoilt: something beside a block was written to

static int fix_block_of(const void *data) {
  for (int i = 0; i < FIX_MOST_BLOCKS; i++)
    if (data != NULL && fix_blocks[i].array.data == data)
      return i;
  return -1;
}

// A block that ends at a page that nobody may touch, but for what its alignment leaves.
static void *fix_allocate(size_t alignment, size_t bytes) {
  void *data = NULL;
  if (!fix_checking)
    return posix_memalign(&data, alignment, bytes) == 0 ? data : NULL;
  if (bytes > SIZE_MAX / 2 || alignment > FIX_PAGE * FIX_PAGE)
    return NULL;
  pthread_mutex_lock(&fix_blocks_lock);
  for (int i = 0; i < FIX_MOST_BLOCKS && data == NULL; i++) {
    if (fix_blocks[i].array.data != NULL)
      continue;
    size_t within = alignment > FIX_PAGE ? alignment - FIX_PAGE : 0; // room to find its place
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (fix_guard(&fix_blocks[i].array, NULL, rounded + within) != 0)
      break;
    // A larger alignment than a page's leaves some room behind the block.
    uintptr_t at = (uintptr_t)fix_blocks[i].array.data;
    data = (void *)((at + alignment - 1) / alignment * alignment);
    fix_blocks[i].array.data = data;
    fix_blocks[i].bytes = bytes;
  }
  pthread_mutex_unlock(&fix_blocks_lock);
  return data;
}

static void *fix_malloc(size_t bytes) {
  return fix_checking ? fix_allocate(16, bytes) : malloc(bytes);
}

static void *fix_calloc(size_t count, size_t size) {
  size_t bytes;
  if (!fix_checking)
    return calloc(count, size);
  void *data = __builtin_mul_overflow(count, size, &bytes) ? NULL : fix_allocate(16, bytes);
  return data == NULL ? NULL : memset(data, 0, bytes);
}

static int fix_posix_memalign(void **data, size_t alignment, size_t bytes) {
  *data = fix_allocate(alignment, bytes);
  return *data == NULL ? ENOMEM : 0;
}

static void fix_free(void *data) {
  pthread_mutex_lock(&fix_blocks_lock);
  int block = fix_block_of(data);
  if (block >= 0) {
    const fix_array *array = &fix_blocks[block].array;
    const unsigned char *end = array->map + array->map_bytes - FIX_PAGE;
    for (const unsigned char *byte = array->data + fix_blocks[block].bytes; byte < end; byte++)
      fix_spoilt |= *byte != FIX_FILLING ? FIX_BEFORE : 0;
    fix_spoilt |= fix_release(&fix_blocks[block].array);
    memset(&fix_blocks[block], 0, sizeof fix_blocks[block]);
  }
  pthread_mutex_unlock(&fix_blocks_lock);
  if (block < 0)
    free(data);
}

static void *fix_realloc(void *data, size_t bytes) {
  int block = fix_block_of(data);
  if (!fix_checking && block < 0)
    return realloc(data, bytes);
  void *made = fix_malloc(bytes);
  if (made != NULL && block >= 0) {
    size_t before = fix_blocks[block].bytes;
    memcpy(made, data, before < bytes ? before : bytes);
    fix_free(data);
  }
  return made;
}

// What a check returns: an error, or what was found beside blocks.
static inline int64_t fix_checked(int64_t error) {
  int spoilt = fix_spoilt;
  fix_checking = fix_spoilt = 0;
  return error != 0 ? error : spoilt;
}

// Not every code uses each of them.
static inline void fix_use(void) {
  (void)fix_calloc, (void)fix_posix_memalign, (void)fix_realloc, (void)fix_free;
}

#define malloc fix_malloc
#define calloc fix_calloc
#define realloc fix_realloc
#define aligned_alloc fix_allocate
#define posix_memalign fix_posix_memalign
#define free fix_free

// --- two threads ---------------------------------------------------------------------------------

typedef void fix_work(void *context, int thread);

static inline void fix_pause(int64_t *turns) {
  spin_pause();
  if (++*turns % 1024 == 0)
    sched_yield(); // the other thread may have to wait for this core
}

typedef struct {
  fix_work *work;
  void *context;
  int64_t calls;
  int cpu, seen_cpu, failed;
  int64_t delay_ns;
  sem_t wanted;
  atomic_int ready, begun, done, ended;
} fix_partner;

static void *fix_partner_main(void *argument) {
  fix_partner *p = argument;
  pinned_thread thread = {0};
  p->failed = p->cpu < 0 ? 0 : pin_thread(&thread, p->cpu);
  while (sem_wait(&p->wanted) != 0 || !atomic_load(&p->ended)) {
    int64_t turns = 0, delay_ns = bracket_run_delay_ns();
    p->seen_cpu = sched_getcpu();
    atomic_store(&p->ready, 1);
    while (!atomic_load(&p->begun))
      fix_pause(&turns);
    for (int64_t i = 0; i < p->calls; i++)
      p->work(p->context, 1);
    p->seen_cpu = p->seen_cpu == sched_getcpu() ? p->seen_cpu : -1;
    int64_t now_ns = bracket_run_delay_ns();
    p->delay_ns = delay_ns < 0 || now_ns < 0 ? -1 : now_ns - delay_ns;
    atomic_store(&p->done, 1);
  }
  return NULL;
}

static int fix_partner_start(fix_partner *p, pthread_t *thread) {
  sem_init(&p->wanted, 0, 0);
  return pthread_create(thread, NULL, fix_partner_main, p);
}

static void fix_partner_end(fix_partner *p, pthread_t thread) {
  atomic_store(&p->ended, 1);
  sem_post(&p->wanted);
  pthread_join(thread, NULL);
  sem_destroy(&p->wanted);
}

// The partner is awake and waits for the beginning.
static void fix_partner_call(fix_partner *p) {
  int64_t turns = 0;
  atomic_store(&p->ready, 0);
  atomic_store(&p->begun, 0);
  atomic_store(&p->done, 0);
  sem_post(&p->wanted);
  while (!atomic_load(&p->ready))
    fix_pause(&turns);
}

static void fix_partner_wait(fix_partner *p) {
  int64_t turns = 0;
  while (!atomic_load(&p->done))
    fix_pause(&turns);
}

// The first two cores of those that may be used; -1 where there are fewer.
static inline void fix_two_cores(int cores[2]) {
  cpu_set_t allowed;
  cores[0] = cores[1] = -1;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return;
  for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
    if (CPU_ISSET(cpu, &allowed))
      cores[found++] = cpu;
}

// One call of each of two threads, which begin together, each on a core of its own: on one core
// they would take turns, and never meet. 0 or an error.
static inline int fix_together(fix_work *work, void *context) {
  int cores[2];
  fix_two_cores(cores);
  fix_partner partner = {.work = work, .context = context, .calls = 1, .cpu = cores[1]};
  pthread_t thread;
  int error = fix_partner_start(&partner, &thread);
  if (error != 0)
    return error;
  pinned_thread here = {0};
  if (cores[1] >= 0)
    (void)!pin_thread(&here, cores[0]);
  fix_partner_call(&partner);
  atomic_store(&partner.begun, 1);
  work(context, 0);
  fix_partner_wait(&partner);
  fix_partner_end(&partner, thread);
  unpin_thread(&here);
  return 0;
}

// --- timing --------------------------------------------------------------------------------------

// Samples of so many calls each: of one thread, or of two that begin together where there is a
// partner's core. The time of two is that until both have finished. 0, or an error.
static int64_t fix_samples(fix_work *work, void *context, int cpu, int partner_cpu, int64_t calls,
                           int64_t repeats, fix_sample *out) {
  fix_partner partner = {.work = work, .context = context, .calls = calls, .cpu = partner_cpu};
  int two = partner_cpu >= 0;
  pthread_t other;
  pinned_thread thread = {0};
  memset(out, 0, (size_t)repeats * sizeof *out);
  int error = pin_thread(&thread, cpu);
  if (error == 0 && two)
    error = fix_partner_start(&partner, &other);
  if (error != 0) {
    unpin_thread(&thread);
    return error;
  }
  for (int64_t i = 0; i < repeats; i++) {
    fix_sample *one = &out[i];
    bracket_probe before = bracket_look();
    if (two)
      fix_partner_call(&partner);
    int on = sched_getcpu();
    bracket_start(&one->sample, before);
    atomic_store(&partner.begun, 1);
    for (int64_t call = 0; call < calls; call++)
      work(context, 0);
    if (two)
      fix_partner_wait(&partner);
    bracket_end(&one->sample);
    one->calls = calls;
    one->cpu = on == sched_getcpu() ? on : -1;
    one->partner_cpu = two ? partner.seen_cpu : -2;
    one->partner_delay_ns = two ? partner.delay_ns : 0;
  }
  if (two)
    fix_partner_end(&partner, other);
  unpin_thread(&thread);
  return two ? partner.failed : 0;
}

#endif
