// What the kernels share whose subject is the extent of the hot code: equal units of code (cases,
// functions) side by side on pages of a chosen backing, run in random order and timed.
//
// A kernel says, before it includes this: CODE_UNITS, how many; CODE_UNIT_BYTES, the size of each;
// CODE_UNIT_NAME, what they are called; CODE_PATTERNS, 1 if it has the pattern 0 alone. It puts
// the units between code_first and code_last, pads to code_text_end, and defines code_dispatch.
#ifndef CODE_KERNEL_H
#define CODE_KERNEL_H

#ifndef __x86_64__
#error                                                                                             \
    "this kernel's code is written for x86-64 in assembler: it cannot be built for this processor"
#endif

#include <pthread.h>
#include <sys/resource.h>

#include "branch_ring.h"
#include "page_reach.h"
#include "text_pages.h"

#define CODE_TEXT_OF(value) #value
#define CODE_TEXT(value) CODE_TEXT_OF(value)

// What a compiler makes of simple statements without optimisation: everything goes to the stack
// and is fetched from there. No value is carried from one piece to the next, so that the core can
// run ahead as far as it can fetch. 26 and 12 bytes: with them, the units are filled exactly.
#define CODE_WORK                                                                                  \
  ".macro stack_work number, a, b, c\n"                                                            \
  "movl $\\number, -\\a(%rbp)\n"                                                                   \
  "mov -\\a(%rbp), %eax\n"                                                                         \
  "lea 7(%rax,%rax,2), %eax\n"                                                                     \
  "mov %eax, -\\b(%rbp)\n"                                                                         \
  "mov -\\a(%rbp), %ebx\n"                                                                         \
  "xor -\\b(%rbp), %ebx\n"                                                                         \
  "mov %ebx, -\\c(%rbp)\n"                                                                         \
  ".endm\n"                                                                                        \
  ".macro short_work a, b, c\n"                                                                    \
  "mov -\\a(%rbp), %eax\n"                                                                         \
  "add -\\b(%rbp), %eax\n"                                                                         \
  "mov %eax, -\\c(%rbp)\n"                                                                         \
  "mov -\\c(%rbp), %ebx\n"                                                                         \
  ".endm\n"

// The smallest and the largest instruction pointer, in registers; before is how many bytes of the
// unit are before this. The address is given by a number, not by a label, so that the assembler
// need not remember it. The unit's number goes into the checksum. 33 bytes.
#define CODE_SEEN                                                                                  \
  ".macro seen number, before\n"                                                                   \
  "lea -7-\\before(%rip), %rax\n"                                                                  \
  "cmp %r8, %rax\n"                                                                                \
  "cmovb %rax, %r8\n"                                                                              \
  "cmp %r9, %rax\n"                                                                                \
  "cmova %rax, %r9\n"                                                                              \
  "mov $\\number, %eax\n"                                                                          \
  "rol $5, %rdx\n"                                                                                 \
  "xor %rax, %rdx\n"                                                                               \
  ".endm\n"

// The state of a run, and the two halves of a dispatcher around its loop. The generator and all
// that the loop needs is in registers: rcx steps left, r10 generator, r11 n, r12 and r13 its
// constants, r14 first unit, rsi bytes from one to the next, r15 places (below), r8 and r9 the
// instruction pointers, rdx checksum. rax and rbx are free, rbp is the frame.
typedef struct {
  int64_t steps;
  uint64_t x, n, base, stride, places, first_ip, last_ip, checksum;
} code_state;

#define CODE_ENTER                                                                                 \
  "push %rbp\n"                                                                                    \
  "mov %rsp, %rbp\n"                                                                               \
  "push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdi\n"                        \
  "sub $80, %rsp\n"                                                                                \
  "mov (%rdi), %rcx\n"                                                                             \
  "mov 8(%rdi), %r10\n"                                                                            \
  "mov 16(%rdi), %r11\n"                                                                           \
  "mov 24(%rdi), %r14\n"                                                                           \
  "mov 32(%rdi), %rsi\n"                                                                           \
  "mov 40(%rdi), %r15\n"                                                                           \
  "movabs $6364136223846793005, %r12\n"                                                            \
  "movabs $1442695040888963407, %r13\n"                                                            \
  "mov $-1, %r8\n"                                                                                 \
  "xor %r9d, %r9d\n"                                                                               \
  "xor %edx, %edx\n"

#define CODE_LEAVE                                                                                 \
  "mov -48(%rbp), %rdi\n"                                                                          \
  "mov %r10, 8(%rdi)\n"                                                                            \
  "mov %r8, 48(%rdi)\n"                                                                            \
  "mov %r9, 56(%rdi)\n"                                                                            \
  "mov %rdx, 64(%rdi)\n"                                                                           \
  "lea -40(%rbp), %rsp\n"                                                                          \
  "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"                              \
  "ret\n"

// The next number of the generator, and by its upper half one of n: to rax.
#define CODE_DRAW                                                                                  \
  "imul %r12, %r10\n"                                                                              \
  "add %r13, %r10\n"                                                                               \
  "mov %r10, %rax\n"                                                                               \
  "shr $32, %rax\n"                                                                                \
  "imul %r11, %rax\n"                                                                              \
  "shr $32, %rax\n"

extern unsigned char code_first[] __attribute__((visibility("hidden")));
extern unsigned char code_last[] __attribute__((visibility("hidden")));
extern unsigned char code_text_end[] __attribute__((visibility("hidden")));
extern void code_dispatch(code_state *) __attribute__((visibility("hidden")));

enum { CODE_RANDOM, CODE_PAGE, CODE_CHASE, CODE_LINE };

// One lays or reads what is laid at a time.
static pthread_mutex_t code_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  int64_t n; // 0: nothing is laid
  int pattern;
  code_state state;
  text_file file;
  size_t text_moved; // how much of the text, from its beginning, is not as the loader mapped it
  unsigned char *ring_begin;
  size_t ring_bytes; // of the ring's reservation that have been laid
  branch_ring ring;
} code_laid;

static int64_t code_most(int pattern) {
  if (pattern == CODE_RANDOM)
    return CODE_UNITS;
  if (pattern == CODE_PAGE)
    return (int64_t)CODE_UNITS * CODE_UNIT_BYTES / (int64_t)TEXT_PAGE;
  return RING_PAGES;
}

static size_t code_stride(int pattern) {
  return pattern == CODE_RANDOM ? CODE_UNIT_BYTES : pattern == CODE_LINE ? RING_LINE : TEXT_PAGE;
}

static int code_is_ring(int pattern) { return pattern == CODE_CHASE || pattern == CODE_LINE; }

// Whole pages of 2 MiB, also where the hot code fills a part of one: so small code compares, too.
static size_t code_range_bytes(int pattern, int64_t n) {
  return text_round_up((size_t)n * code_stride(pattern));
}

int64_t code_bounds(int64_t *out) {
  if (out == NULL)
    return EINVAL;
  out[0] = CODE_UNITS;
  out[1] = CODE_UNIT_BYTES;
  out[2] = (intptr_t)code_first;
  out[3] = (intptr_t)code_last;
  out[4] = CODE_PATTERNS > 1 ? RING_PAGES : 0;
  out[5] = (intptr_t)code_first;
  out[6] = (intptr_t)code_text_end;
  return 0;
}

// The units' own text: what is copied is what runs.
static void code_copy_text(unsigned char *copy, size_t bytes, const void *context) {
  (void)context;
  memcpy(copy, code_first, bytes);
}

static int64_t code_reload(size_t kept) {
  if (code_laid.text_moved <= kept)
    return 0;
  int64_t failed = text_reload(&code_laid.file, code_first + kept, code_laid.text_moved - kept);
  if (!failed)
    code_laid.text_moved = kept;
  return failed;
}

static int64_t code_lay_text(size_t bytes, int backing, uint64_t seed) {
  if (backing == TEXT_LOADED)
    return code_reload(0);
  if ((uintptr_t)code_first % TEXT_HUGE != 0) // a loader that does not align (glibc before 2.35)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  text_file_find(&code_laid.file, code_first); // for the way back; where it fails there is none
  int64_t failed = text_lay(code_first, bytes, backing, seed, code_copy_text, NULL);
  if (failed)
    return failed;
  if (code_laid.text_moved < bytes)
    code_laid.text_moved = bytes;
  code_reload(bytes); // what was laid beyond is not needed; where that fails it does no harm
  return 0;
}

// What was laid of the ring beyond kept bytes is given back; the addresses stay reserved.
static void code_release_ring(size_t kept) {
  if (code_laid.ring_bytes <= kept)
    return;
  void *got = mmap(code_laid.ring_begin + kept, code_laid.ring_bytes - kept, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (got != MAP_FAILED)
    code_laid.ring_bytes = kept;
}

static int64_t code_lay_ring(size_t bytes, int64_t n, size_t apart, int backing, uint64_t seed) {
  if (backing == TEXT_LOADED) // the loader knows of no ring
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (code_laid.ring_begin == NULL) {
    code_laid.ring_begin = text_map(RING_PAGES * TEXT_PAGE, PROT_NONE);
    if (code_laid.ring_begin == NULL)
      return text_failed(TEXT_MAP, errno);
  }
  static branch_ring planned;
  ring_plan(&planned, (uint32_t)n, apart, seed);
  int64_t failed = text_lay(code_laid.ring_begin, bytes, backing, seed, ring_fill, &planned);
  if (failed)
    return failed;
  code_laid.ring = planned;
  if (code_laid.ring_bytes < bytes)
    code_laid.ring_bytes = bytes;
  code_release_ring(bytes);
  return 0;
}

static int64_t code_lay_locked(int pattern, int64_t n, int backing, uint64_t seed,
                               uint64_t *range) {
  size_t bytes = code_range_bytes(pattern, n);
  unsigned char *begin;
  int64_t failed;
  code_state state = {.x = seed, .n = (uint64_t)n, .stride = code_stride(pattern)};
  if (code_is_ring(pattern)) {
    failed = code_lay_ring(bytes, n, code_stride(pattern), backing, seed);
    begin = code_laid.ring_begin;
    if (!failed) {
      const branch_ring *ring = &code_laid.ring;
      state.base = (uintptr_t)begin + ring->at[ring->order[0]];
      state.first_ip = (uintptr_t)begin + ring->at[0];
      state.last_ip = (uintptr_t)begin + ring->at[n - 1];
    }
  } else {
    failed = code_lay_text(bytes, backing, seed);
    begin = code_first;
    state.base = (uintptr_t)begin;
    state.places = pattern == CODE_PAGE ? TEXT_PAGE / CODE_UNIT_BYTES - 1 : 0;
  }
  if (failed)
    return failed;
  if (code_is_ring(pattern))
    code_reload(0); // only what is laid keeps memory, or pages of the pool
  else
    code_release_ring(0);
  code_laid.n = n;
  code_laid.pattern = pattern;
  code_laid.state = state;
  range[0] = (uintptr_t)begin;
  range[1] = (uintptr_t)begin + bytes;
  return 0;
}

int64_t code_lay(int pattern, int64_t n, int backing, uint64_t seed, uint64_t *range) {
  if (pattern < 0 || pattern >= CODE_PATTERNS || n < 1 || backing < 0 || backing >= TEXT_BACKINGS ||
      range == NULL)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  if (n > code_most(pattern))
    return text_failed(TEXT_ARGUMENT, ERANGE);
  pthread_mutex_lock(&code_lock);
  int64_t failed = code_lay_locked(pattern, n, backing, seed, range);
  pthread_mutex_unlock(&code_lock);
  return failed;
}

// So many whole laps as are nearest to the steps; the checksum is how many the ring has counted.
static void code_run_ring(code_state *s) {
  int64_t n = (int64_t)s->n, laps = (s->steps + n / 2) / n;
  uint64_t (*entry)(uint64_t, uint64_t) = (uint64_t (*)(uint64_t, uint64_t))(uintptr_t)s->base;
  laps = laps > 0 ? laps : 1;
  s->steps = laps * n;
  s->checksum =
      entry((uint64_t)laps + 1, 0) - 1; // it is passed at the beginning and after each lap
}

static int64_t code_switches(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

static void code_time(void (*go)(code_state *), code_state *s, int64_t warm_steps, int64_t steps,
                      int64_t samples, code_sample *out) {
  s->steps = warm_steps;
  if (warm_steps > 0)
    go(s);
  for (int64_t i = 0; i < samples; i++) {
    code_sample *now = &out[i];
    s->steps = steps;
    int64_t switches = code_switches();
    int cpu = sched_getcpu();
    if (i == 0)
      bracket_begin(&now->sample);
    else
      bracket_next(&out[i - 1].sample, &now->sample);
    go(s);
    bracket_end(&now->sample);
    now->cpu = sched_getcpu() == cpu ? cpu : -1;
    now->involuntary_switches = code_switches() - switches;
    now->steps = s->steps;
    now->first_ip = s->first_ip;
    now->last_ip = s->last_ip;
    now->checksum = s->checksum;
  }
}

int64_t code_run(int64_t warm_steps, int64_t steps, int64_t samples, code_sample *out) {
  if (warm_steps < 0 || steps < 1 || samples < 1 || out == NULL)
    return EINVAL;
  pthread_mutex_lock(&code_lock);
  code_state state = code_laid.state;
  int laid = code_laid.n > 0, ring = code_is_ring(code_laid.pattern);
  // The units are the same bytes wherever they are laid anew; a ring may become another one, so
  // nothing is laid while it runs.
  if (laid && ring)
    code_time(code_run_ring, &state, warm_steps, steps, samples, out);
  pthread_mutex_unlock(&code_lock);
  if (laid && !ring) {
    code_time(code_dispatch, &state, warm_steps, steps, samples, out);
    pthread_mutex_lock(&code_lock);
    code_laid.state.x = state.x; // the next run goes on from here
    pthread_mutex_unlock(&code_lock);
  }
  return laid ? 0 : ENODATA;
}

int64_t code_page_reach(int backing, uint64_t seed, double *out, uint64_t *range) {
  return page_reach(backing, seed, out, range);
}

// perf, gdb and others look for the names of code that is in no file in /tmp/perf-PID.map.
int64_t code_write_map(const char *path) {
  if (path == NULL)
    return EINVAL;
  // Anybody may have put something of that name there: a link to a file of ours, a pipe.
  int descriptor = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (descriptor < 0)
    return errno;
  struct stat status;
  int ours = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
             status.st_uid == geteuid() && status.st_nlink == 1;
  if (!ours || ftruncate(descriptor, 0) != 0) {
    close(descriptor);
    return EEXIST;
  }
  FILE *map = fdopen(descriptor, "w");
  if (map == NULL) {
    int error = errno;
    close(descriptor);
    return error;
  }
  pthread_mutex_lock(&code_lock);
  for (int64_t i = 0; i < CODE_UNITS; i++)
    fprintf(map, "%" PRIxPTR " %x " CODE_UNIT_NAME "_%05" PRId64 "\n",
            (uintptr_t)code_first + (uintptr_t)i * CODE_UNIT_BYTES, CODE_UNIT_BYTES, i);
  if (code_is_ring(code_laid.pattern))
    for (int64_t jump = 0; jump < code_laid.n; jump++)
      fprintf(map, "%" PRIxPTR " %x jump_%05" PRId64 "\n",
              (uintptr_t)code_laid.ring_begin + code_laid.ring.at[jump],
              jump == code_laid.ring.order[0] ? RING_ENTRY_BYTES : RING_JUMP_BYTES, jump);
  pthread_mutex_unlock(&code_lock);
  int error = ferror(map) ? EIO : 0;
  if (fclose(map) != 0 && error == 0)
    error = errno;
  return error;
}

#endif
