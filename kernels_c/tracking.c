/* tracking: a reconstruction job to be examined, of which one part may cost more than it should.
 *
 * Each event is some hundred steps; each step unpacks words, propagates tracks, lets them lose
 * energy, shapes their pulses, fits them, and walks through a table of cells. It stresses
 * floating-point chains, calls into much code and loads after stores, in known shares.
 *
 * The first argument is a number that says which part costs more, and how much (struct trouble): a
 * function, on one CPU; the size of the code that is called, on one CPU; where the notes of the
 * walk lie; a lock around a share of the steps. In every case the same job runs, and its results
 * are the same: the checksum folds all of them, so the compiler can leave nothing out, and shows
 * nothing of the number. The number is scrambled: who reads a list of processes learns nothing.
 *
 * Kept constant: event k of a seed. No libm but sqrt, nothing fused: tests/reference/tracking.py
 * gives the same checksums.
 *
 * @kernel
 * flags = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-omit-frame-pointer",
 *          "-fno-optimize-sibling-calls"]
 * link = ["-lm", "-lpthread"]
 * bundle = ["program"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu, processor sets
#endif
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// @interface
// The checksum of one event of so many steps; 0 without memory.
uint64_t tracking_checksum(uint64_t seed, int64_t event, int64_t steps);
// What a scrambled number says: what, which, cpu, size in thousandths.
void tracking_trouble(uint64_t number, int64_t out[4]);
// How far the notes of a walk are from its table, within a page; -1 without memory.
int64_t tracking_distance(uint64_t number);
// @end

#if defined(__GNUC__) && !defined(__clang__)
#define APART __attribute__((noipa))
#else
#define APART __attribute__((noinline))
#endif

enum { FUNCTION = 1, CODE, BUFFER, LOCK };       // trouble.what
enum { PROPAGATE, LOSE, SHAPE, FIT, FUNCTIONS }; // trouble.which of FUNCTION
enum { AS_IT_COMES, NEVER, ALWAYS };             // trouble.which of BUFFER: do notes alias?
enum { GEOMETRY, CALIBRATION, OUTPUT, LOCKS };   // trouble.which of LOCK
enum {
  STEPS = 120,
  TRACKS = 12,
  CALLS = 400,
  FEW = 8,
  MODULES = 2048,
  MODULE_BYTES = 1024,
  PLACES = 256,
  STACK = 2 * 4096 / 8, // words: room for notes at any of two places
  WALK = 6000
};
enum { PAGE = 4096, MOST_THREADS = 64, REPORTS = 128 }; // REPORTS: a flag beside trouble.what

typedef struct {
  int what, which, cpu, reports;
  uint64_t thousandths;
} trouble;

// 2048 functions of 1 KiB, all alike: two chains of multiplications, so that a core has the time to
// fetch them from its second-level cache, and no more.
extern const char unpack_first[] __attribute__((visibility("hidden")));
// clang-format off
__asm__(
    ".pushsection .text.unpack, \"ax\", @progbits\n"
    ".p2align 12\n"
    ".globl unpack_first\n"
    ".hidden unpack_first\n"
    "unpack_first:\n"
    ".altmacro\n"
    ".macro unpack_words name\n"
    ".type unpack_\\name, @function\n"
    "unpack_\\name:\n"
#if defined(__x86_64__)
    "mov %rdi, %rax\n"
    "lea 1(%rdi), %rdx\n"
    ".rept 36\n"
    "imul $0x5851f42d, %rax, %rax\n"
    "xor $0x11d4ab39, %rax\n"
    "imul $0x4c957f2d, %rdx, %rdx\n"
    "xor $0x1b56c4e9, %rdx\n"
    ".endr\n"
    "add %rdx, %rax\n"
    "ret\n"
#elif defined(__aarch64__)
    "add x1, x0, 1\n"
    "movz x2, 0xf42d\n movk x2, 0x5851, lsl 16\n"
    "movz x3, 0xab39\n movk x3, 0x11d4, lsl 16\n"
    "movz x4, 0x7f2d\n movk x4, 0x4c95, lsl 16\n"
    "movz x5, 0xc4e9\n movk x5, 0x1b56, lsl 16\n"
    ".rept 36\n"
    "mul x0, x0, x2\n eor x0, x0, x3\n"
    "mul x1, x1, x4\n eor x1, x1, x5\n"
    ".endr\n"
    "add x0, x0, x1\n"
    "ret\n"
#else
#error "the functions of tracking are written for x86-64 and aarch64"
#endif
    ".size unpack_\\name, . - unpack_\\name\n"
    ".p2align 10\n"
    ".endm\n"
    ".macro numbered number\n"
    ".if \\number < 10\n unpack_words 000\\number\n"
    ".elseif \\number < 100\n unpack_words 00\\number\n"
    ".elseif \\number < 1000\n unpack_words 0\\number\n"
    ".else\n unpack_words \\number\n"
    ".endif\n"
    ".endm\n"
    ".set count, 0\n"
    ".rept 2048\n"
    "numbered %count\n"
    ".set count, count + 1\n"
    ".endr\n"
    ".noaltmacro\n"
    ".popsection\n");
// clang-format on
typedef uint64_t unpack_function(uint64_t);

typedef struct {
  uint64_t table[PLACES]; // at a multiple of the page's size
  trouble what;
  uint64_t due[FUNCTIONS + 2]; // thousandths of what is due beyond the usual
  int64_t waited_ns[LOCKS];
  double unused;
  pthread_t thread;
} worker;

// The number's bits, spread over all of it (splitmix64's last steps), in the reader's direction.
static trouble read_trouble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (trouble){.what = (int)(z & 0x7f),
                   .reports = (z & REPORTS) != 0,
                   .which = (int)(z >> 8 & 0xff),
                   .cpu = (int)(z >> 16 & 0xffff),
                   .thousandths = z >> 32 & 0xffff};
}

void tracking_trouble(uint64_t number, int64_t out[4]) {
  trouble found = read_trouble(number);
  out[0] = found.what;
  out[1] = found.which;
  out[2] = found.cpu;
  out[3] = (int64_t)found.thousandths;
}

static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static double next_uniform(uint64_t *state) { return (double)(next_random(state) >> 11) * 0x1p-53; }

// How often something is due now that is done so many times in a thousand cases.
static uint64_t due_now(uint64_t *due, uint64_t thousandths) {
  uint64_t all = *due + thousandths;
  *due = all % 1000;
  return all / 1000;
}

// --- the parts of a step -------------------------------------------------------------------------

// A charged particle in a field that weakens outwards, by the midpoint rule.
static APART double propagate_track(double state[6], double curvature) {
  const double path = 0.02;
  for (int i = 0; i < 40; i++) {
    double field = curvature / (1.0 + 0.1 * (state[0] * state[0] + state[1] * state[1]));
    double mid_x = state[3] + 0.5 * path * field * state[4];
    double mid_y = state[4] - 0.5 * path * field * state[3];
    double norm = 1.0 / sqrt(mid_x * mid_x + mid_y * mid_y + state[5] * state[5]);
    state[3] = mid_x * norm;
    state[4] = mid_y * norm;
    state[5] = state[5] * norm;
    for (int axis = 0; axis < 3; axis++)
      state[axis] = state[axis] + path * state[3 + axis];
  }
  return state[0] + state[1] + state[2];
}

// Energy that is left behind a number of layers, by a formula like Bethe's without its logarithm.
static APART double lose_energy(double energy, uint64_t chance) {
  for (int layer = 0; layer < 70; layer++) {
    double gamma2 = 1.0 + energy * energy;
    double beta2 = 1.0 - 1.0 / gamma2;
    energy = energy - 1e-4 / beta2 * (2.0 - beta2) * next_uniform(&chance);
    energy = energy > 0.1 ? energy : 0.1;
  }
  return energy;
}

// A pulse's samples, through a filter of second order.
static APART double shape_pulse(double amplitude, double phase) {
  double sum = 0.0;
  for (int pulse = 0; pulse < 20; pulse++) {
    double before = 0.0, last = 0.0;
    for (int i = 0; i < 32; i++) {
      double sample = 1.6 * last - 0.64 * before + (i == 2 ? amplitude : 0.0) + 1e-3 * phase;
      before = last;
      last = sample;
    }
    sum = sum + last;
    phase = phase + 0.1;
  }
  return sum;
}

// A straight line through smeared points, by weights that are made anew a few times.
static APART double fit_line(double offset, double slope, uint64_t chance) {
  double a = 0.0, b = 0.0, y[24];
  for (int i = 0; i < 24; i++)
    y[i] = offset + slope * i + next_uniform(&chance);
  for (int round = 0; round < 14; round++) {
    double w = 0.0, wx = 0.0, wy = 0.0, wxx = 0.0, wxy = 0.0;
    for (int i = 0; i < 24; i++) {
      double residual = y[i] - a - b * i, weight = 1.0 / (1.0 + residual * residual);
      w = w + weight;
      wx = wx + weight * i;
      wy = wy + weight * y[i];
      wxx = wxx + weight * i * i;
      wxy = wxy + weight * i * y[i];
    }
    b = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    a = (wy - b * wx) / w;
  }
  return a + b;
}

// From place to place through the table, with a note of each: the load comes after a store, to
// which it looks alike where the two agree in the low 12 bits of their addresses.
static APART uint64_t walk_cells(const volatile uint64_t *table, volatile uint64_t *notes,
                                 int64_t steps) {
  uint64_t place = 0;
  for (int64_t step = 0; step < steps; step++) {
    notes[place] = (uint64_t)step;
    place = table[place];
  }
  return place;
}

// The words of a step: each goes through one of the functions, of a few or of all.
static APART uint64_t unpack_event(worker *w, uint64_t chance, uint64_t thousandths) {
  uint64_t x = chance;
  for (int call = 0; call < CALLS; call++) {
    uint64_t random = next_random(&chance) >> 32;
    uint64_t of = due_now(&w->due[FUNCTIONS], thousandths) ? MODULES : FEW;
    uintptr_t module = (uintptr_t)unpack_first + ((random * of) >> 32) * MODULE_BYTES;
    x = ((unpack_function *)module)(x ^ random);
  }
  return x;
}

// --- a step, an event ----------------------------------------------------------------------------

static APART double run_tracks(worker *w, uint64_t chance, const uint64_t more[FUNCTIONS]) {
  double sum = 0.0;
  for (int track = 0; track < TRACKS; track++) {
    double first[6] = {0, 0, 0, 0, 0, 0.5}, state[6];
    first[3] = next_uniform(&chance);
    first[4] = next_uniform(&chance);
    uint64_t random = next_random(&chance);
    memcpy(state, first, sizeof state);
    sum = sum + propagate_track(state, 0.3);
    double energy = lose_energy(1.0 + first[3], random);
    sum = sum + energy + shape_pulse(energy, state[0]) + fit_line(state[1], state[4], random);
    for (uint64_t n = due_now(&w->due[PROPAGATE], more[PROPAGATE]); n > 0; n--)
      w->unused += propagate_track(first, 0.3);
    for (uint64_t n = due_now(&w->due[LOSE], more[LOSE]); n > 0; n--)
      w->unused += lose_energy(1.0 + first[4], random);
    for (uint64_t n = due_now(&w->due[SHAPE], more[SHAPE]); n > 0; n--)
      w->unused += shape_pulse(energy, state[1]);
    for (uint64_t n = due_now(&w->due[FIT], more[FIT]); n > 0; n--)
      w->unused += fit_line(state[2], state[3], random);
  }
  return sum;
}

// The notes of a walk are on the stack, at a multiple of 2 KiB: with addresses that are chosen at
// random the notes alias the table, or lie half a page from it.
static uint64_t *place_notes(worker *w, uint64_t *stack) {
  uintptr_t table = (uintptr_t)w->table, notes = ((uintptr_t)stack + PAGE / 2 - 1) / 2048 * 2048;
  const trouble *what = &w->what;
  int which = NEVER;
  if (what->what == BUFFER && due_now(&w->due[FUNCTIONS + 1], what->thousandths))
    which = what->which;
  int aliases = (notes - table) % PAGE == 0;
  if ((which == NEVER && aliases) || (which == ALWAYS && !aliases))
    notes += PAGE / 2;
  return (uint64_t *)notes;
}

static uint64_t fold(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

static uint64_t run_step(worker *w, uint64_t chance) {
  uint64_t stack[STACK], bits;
  const trouble *what = &w->what;
  int here = (what->what == FUNCTION || what->what == CODE) && sched_getcpu() == what->cpu;
  uint64_t more[FUNCTIONS] = {0};
  if (here && what->what == FUNCTION)
    more[what->which % FUNCTIONS] = what->thousandths;
  uint64_t words = unpack_event(w, chance, here && what->what == CODE ? what->thousandths : 0);
  double sum = run_tracks(w, chance, more);
  memcpy(&bits, &sum, sizeof bits);
  return fold(fold(words, bits), walk_cells(w->table, place_notes(w, stack), WALK));
}

static pthread_mutex_t geometry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t calibration_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *const locks[LOCKS] = {&geometry_lock, &calibration_lock, &output_lock};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take_lock(worker *w, int lock) {
  if (pthread_mutex_trylock(locks[lock]) == 0)
    return;
  int64_t begin_ns = now_ns();
  pthread_mutex_lock(locks[lock]);
  w->waited_ns[lock] += now_ns() - begin_ns;
}

static uint64_t run_event(worker *w, uint64_t seed, int64_t event, int64_t steps) {
  uint64_t chance = seed * 1000003 + (uint64_t)event, checksum = 0;
  for (int64_t step = 0; step < steps; step++) {
    uint64_t random = next_random(&chance);
    int locked = w->what.what == LOCK && random % 1000 < w->what.thousandths;
    int lock = locked ? w->what.which % LOCKS : (int)(step % LOCKS);
    take_lock(w, lock); // each is taken now and then, and let go at once
    if (!locked)
      pthread_mutex_unlock(locks[lock]);
    checksum = fold(checksum, run_step(w, random));
    if (locked)
      pthread_mutex_unlock(locks[lock]);
  }
  return checksum;
}

// With a table that is one cycle through all places, in a random order.
static worker *new_worker(uint64_t number) {
  worker *w = aligned_alloc(PAGE, (sizeof *w + PAGE - 1) / PAGE * PAGE);
  if (w == NULL)
    return NULL;
  memset(w, 0, sizeof *w);
  w->what = read_trouble(number);
  uint64_t order[PLACES], chance = 1;
  for (uint64_t i = 0; i < PLACES; i++)
    order[i] = i;
  for (uint64_t i = PLACES - 1; i > 0; i--) {
    uint64_t other = next_random(&chance) % (i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  for (uint64_t i = 0; i < PLACES; i++)
    w->table[order[i]] = order[(i + 1) % PLACES];
  return w;
}

int64_t tracking_distance(uint64_t number) {
  uint64_t stack[STACK];
  worker *w = new_worker(number);
  if (w == NULL)
    return -1;
  int64_t distance = (int64_t)(((uintptr_t)place_notes(w, stack) - (uintptr_t)w->table) % PAGE);
  free(w);
  return distance;
}

uint64_t tracking_checksum(uint64_t seed, int64_t event, int64_t steps) {
  worker *w = new_worker(0);
  if (w == NULL)
    return 0;
  w->what = (trouble){0};
  uint64_t checksum = run_event(w, seed, event, steps);
  free(w);
  return checksum;
}

#ifdef PERFLIB_MAIN
#include "common/tracking_main.h"
#endif
