// What the kernels share whose subject is the extent of the hot code: equal units of code (cases,
// functions) side by side on pages of a chosen backing, run in random order and timed.
//
// A kernel says, before it includes this: CODE_UNITS, how many; CODE_UNIT_BYTES, the size of each;
// CODE_UNIT_NAME, what they are called; CODE_UNIT and CODE_DISPATCH, what a unit does and what runs
// them (code_units.h); CODE_PATTERNS, 1 if it has the pattern 0 alone.
// CODE_SWITCH: it has a compiled switch beside them, as a second text of which one is laid anew.
#ifndef CODE_KERNEL_H
#define CODE_KERNEL_H

#include <pthread.h>

#include "branch_ring.h"
#include "code_state.h"
#include "code_units.h"
#include "page_reach.h"
#include "switches.h"
#include "text_pages.h"

// clang-format off
__asm__(
    ".pushsection code_units, \"ax\", @progbits\n"
    ".p2align 21\n"
    ".globl code_first, code_last, code_text_end\n"
    ".hidden code_first, code_last, code_text_end\n"
    "code_first:\n"
    ".altmacro\n"
    CODE_MACROS
    ".macro one_unit name, number\n"
    ".type " CODE_UNIT_NAME "_\\name, @function\n"
    CODE_UNIT_NAME "_\\name:\n"
    CODE_UNIT
    ".size " CODE_UNIT_NAME "_\\name, " CODE_TEXT(CODE_UNIT_BYTES) "\n"
    ".if . - " CODE_UNIT_NAME "_\\name != " CODE_TEXT(CODE_UNIT_BYTES) "\n"
    ".error \"unit \\name has another size\"\n"
    ".endif\n"
    ".endm\n"
    ".macro numbered_unit number\n"
    ".if \\number < 10\n one_unit 0000\\number, \\number\n"
    ".elseif \\number < 100\n one_unit 000\\number, \\number\n"
    ".elseif \\number < 1000\n one_unit 00\\number, \\number\n"
    ".elseif \\number < 10000\n one_unit 0\\number, \\number\n"
    ".else\n one_unit \\number, \\number\n"
    ".endif\n"
    ".endm\n"
    ".set unit_number, 0\n"
    ".rept " CODE_TEXT(CODE_UNITS) "\n"
    "numbered_unit %unit_number\n"
    ".set unit_number, unit_number + 1\n"
    ".endr\n"
    "code_last:\n"
    ".p2align 21, 0xcc\n"
    "code_text_end:\n"
    ".noaltmacro\n"
    ".popsection\n"

    ".globl code_dispatch\n"
    ".hidden code_dispatch\n"
    ".type code_dispatch, @function\n"
    ".p2align 6\n"
    "code_dispatch:\n"
    CODE_DISPATCH
    ".size code_dispatch, . - code_dispatch\n"
);
// clang-format on

extern unsigned char code_first[] __attribute__((visibility("hidden")));
extern unsigned char code_last[] __attribute__((visibility("hidden")));
extern unsigned char code_text_end[] __attribute__((visibility("hidden")));
extern void code_dispatch(code_state *) __attribute__((visibility("hidden")));

enum { CODE_RANDOM, CODE_PAGE, CODE_CHASE, CODE_LINE, CODE_COMPILED };

#ifdef CODE_SWITCH
extern unsigned char code_switch_first[] __attribute__((visibility("hidden")));
extern unsigned char code_switch_end[] __attribute__((visibility("hidden")));
// The linker's own names for where sections begin and end.
extern unsigned char __stop_code_switch[] __attribute__((visibility("hidden")));
extern code_piece *const __start_code_pieces[] __attribute__((visibility("hidden")));
extern code_piece *const __stop_code_pieces[] __attribute__((visibility("hidden")));
#endif

// A text: where it begins, its file, and how much of it, from its beginning, is not as the loader
// mapped it.
typedef struct {
  unsigned char *first;
  text_file file;
  size_t moved;
} code_text;

// One lays or reads what is laid at a time.
static pthread_mutex_t code_lock = PTHREAD_MUTEX_INITIALIZER;
static code_text code_assembled = {.first = code_first};
#ifdef CODE_SWITCH
static code_text code_compiled = {.first = code_switch_first};
#endif
static struct {
  int64_t n; // 0: nothing is laid
  int pattern;
  code_state state;
  unsigned char *ring_begin;
  size_t ring_bytes; // of the ring's reservation that have been laid
  branch_ring ring;
} code_laid;

#ifdef CODE_SWITCH
static int64_t code_switch_cases(void) {
  return (__stop_code_pieces - __start_code_pieces) * CODE_PIECE_CASES;
}

// The pieces in use, whole: their cases differ by a few bytes in size.
static size_t code_switch_bytes(int64_t n) {
  int64_t piece = (n + CODE_PIECE_CASES - 1) / CODE_PIECE_CASES;
  const unsigned char *end = n > code_switch_cases() - CODE_PIECE_CASES
                                 ? __stop_code_switch
                                 : (const unsigned char *)(uintptr_t)__start_code_pieces[piece];
  return (size_t)(end - code_switch_first);
}
#endif

static int64_t code_most(int pattern) {
  if (pattern == CODE_RANDOM)
    return CODE_UNITS;
  if (pattern == CODE_PAGE)
    return (int64_t)CODE_UNITS * CODE_UNIT_BYTES / (int64_t)TEXT_PAGE;
#ifdef CODE_SWITCH
  if (pattern == CODE_COMPILED)
    return code_switch_cases();
#endif
  return RING_PAGES;
}

static size_t code_stride(int pattern) {
  return pattern == CODE_RANDOM ? CODE_UNIT_BYTES : pattern == CODE_LINE ? RING_LINE : TEXT_PAGE;
}

static int code_is_ring(int pattern) { return pattern == CODE_CHASE || pattern == CODE_LINE; }

// Whole pages of 2 MiB, also where the hot code fills a part of one: so small code compares, too.
static size_t code_range_bytes(int pattern, int64_t n) {
#ifdef CODE_SWITCH
  if (pattern == CODE_COMPILED)
    return text_round_up(code_switch_bytes(n));
#endif
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
  out[7] = out[8] = out[9] = 0;
#ifdef CODE_SWITCH
  out[7] = code_switch_cases();
  out[8] = (intptr_t)code_switch_first;
  out[9] = (intptr_t)__stop_code_switch;
#endif
  return 0;
}

// The text's own bytes: what is copied is what runs.
static void code_copy_text(unsigned char *copy, size_t bytes, const void *text) {
  memcpy(copy, text, bytes);
}

static int64_t code_reload(code_text *text, size_t kept) {
  if (text->moved <= kept)
    return 0;
  int64_t failed = text_reload(&text->file, text->first + kept, text->moved - kept);
  if (!failed)
    text->moved = kept;
  return failed;
}

static int64_t code_lay_text(code_text *text, size_t bytes, int backing, uint64_t seed) {
  if (backing == TEXT_LOADED)
    return code_reload(text, 0);
  if ((uintptr_t)text->first % TEXT_HUGE != 0) // a loader that does not align (glibc before 2.35)
    return text_failed(TEXT_ARGUMENT, EINVAL);
  text_file_find(&text->file, text->first); // for the way back; where it fails there is none
  int64_t failed = text_lay(text->first, bytes, backing, seed, code_copy_text, text->first);
  if (failed)
    return failed;
  if (text->moved < bytes)
    text->moved = bytes;
  code_reload(text, bytes); // what was laid beyond is not needed; where that fails it does no harm
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

// The text of a pattern; NULL for a ring, which is in none.
static code_text *code_text_of(int pattern) {
#ifdef CODE_SWITCH
  if (pattern == CODE_COMPILED)
    return &code_compiled;
#endif
  return code_is_ring(pattern) ? NULL : &code_assembled;
}

static int64_t code_lay_locked(int pattern, int64_t n, int backing, uint64_t seed,
                               uint64_t *range) {
  size_t bytes = code_range_bytes(pattern, n);
  code_text *text = code_text_of(pattern);
  unsigned char *begin;
  int64_t failed;
  code_state state = {.x = seed, .n = (uint64_t)n, .stride = code_stride(pattern)};
  if (text == NULL) {
    failed = code_lay_ring(bytes, n, code_stride(pattern), backing, seed);
    begin = code_laid.ring_begin;
    if (!failed) {
      const branch_ring *ring = &code_laid.ring;
      state.base = (uintptr_t)begin + ring->at[ring->order[0]];
      state.first_ip = (uintptr_t)begin + ring->at[0];
      state.last_ip = (uintptr_t)begin + ring->at[n - 1];
    }
  } else {
    failed = code_lay_text(text, bytes, backing, seed);
    begin = text->first;
    state.base = (uintptr_t)begin;
    state.places = pattern == CODE_PAGE ? TEXT_PAGE / CODE_UNIT_BYTES - 1 : 0;
  }
  if (failed)
    return failed;
  // Only what is laid keeps memory, or pages of the pool.
  if (text != &code_assembled)
    code_reload(&code_assembled, 0);
#ifdef CODE_SWITCH
  if (text != &code_compiled)
    code_reload(&code_compiled, 0);
#endif
  if (text != NULL)
    code_release_ring(0);
  code_laid.n = n;
  code_laid.pattern = pattern;
  code_laid.state = state;
  range[0] = (uintptr_t)begin;
  range[1] = (uintptr_t)begin + bytes;
  return 0;
}

int64_t code_lay(int pattern, int64_t n, int backing, uint64_t seed, uint64_t *range) {
  if (pattern < 0 || pattern >= CODE_PATTERNS || n < 1 || backing < 0 || backing > TEXT_HUGETLB ||
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

#ifdef CODE_SWITCH
// The dispatcher of the compiled switch: it draws as CODE_DRAW does.
static void code_run_switch(code_state *s) {
  uint64_t x = s->x, n = s->n;
  s->first_ip = UINT64_MAX;
  s->last_ip = 0;
  s->checksum = 0;
  for (int64_t left = s->steps; left > 0; left--) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    uint32_t opcode = (uint32_t)((x >> 32) * n >> 32);
    __start_code_pieces[opcode / CODE_PIECE_CASES](s, opcode % CODE_PIECE_CASES);
  }
  s->x = x;
}
#endif

// What runs the units, or the compiled switch, as it is laid.
static void (*code_runner(int pattern))(code_state *) {
#ifdef CODE_SWITCH
  if (pattern == CODE_COMPILED)
    return code_run_switch;
#endif
  (void)pattern;
  return code_dispatch;
}

static void code_time(void (*go)(code_state *), code_state *s, int64_t warm_steps, int64_t steps,
                      int64_t samples, code_sample *out) {
  s->steps = warm_steps;
  if (warm_steps > 0)
    go(s);
  for (int64_t i = 0; i < samples; i++) {
    code_sample *now = &out[i];
    s->steps = steps;
    int64_t switches = involuntary_switches();
    int cpu = sched_getcpu();
    if (i == 0)
      bracket_begin(&now->sample);
    else
      bracket_next(&out[i - 1].sample, &now->sample);
    go(s);
    bracket_end(&now->sample);
    now->cpu = sched_getcpu() == cpu ? cpu : -1;
    now->involuntary_switches = involuntary_switches() - switches;
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
  int laid = code_laid.n > 0, pattern = code_laid.pattern, ring = code_is_ring(pattern);
  // The units are the same bytes wherever they are laid anew; a ring may become another one, so
  // nothing is laid while it runs.
  if (laid && ring)
    code_time(code_run_ring, &state, warm_steps, steps, samples, out);
  pthread_mutex_unlock(&code_lock);
  if (laid && !ring) {
    code_time(code_runner(pattern), &state, warm_steps, steps, samples, out);
    pthread_mutex_lock(&code_lock);
    code_laid.state.x = state.x; // the next run goes on from here
    pthread_mutex_unlock(&code_lock);
  }
  return laid ? 0 : ENODATA;
}

int64_t code_page_reach(int backing, uint64_t seed, double *out, uint64_t *range) {
  if (backing > TEXT_HUGETLB)
    return text_failed(TEXT_ARGUMENT, EINVAL);
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
#ifdef CODE_SWITCH
  for (int64_t i = 0; i < code_switch_cases(); i += CODE_PIECE_CASES) {
    const unsigned char *begin = code_switch_first + code_switch_bytes(i);
    fprintf(map, "%" PRIxPTR " %zx switch_%05" PRId64 "\n", (uintptr_t)begin,
            code_switch_bytes(i + 1) - code_switch_bytes(i), i);
  }
#endif
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
