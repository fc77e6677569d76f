/*
 * Sums over millions of intervals in which a thread is in one state. Nothing is measured here: this
 * is a kernel because a view of a long recording goes through all of it at once.
 *
 * The intervals of a thread are sorted and do not overlap, so those of a span are found by
 * bisection, and what lies outside of it is never read from disk. They come from files: where they
 * are not so, or a number in them is of nothing, the sums are wrong, but nothing is read or written
 * that is not there, and no sum overflows. Times of a span are within 2^61 of 0.
 *
 * tests/reference/thread_states.py says the same in plain Python.
 *
 * @kernel
 * flags = ["-O2"]
 */
#include <stdint.h>
#include <stdlib.h>

// @interface
typedef struct {
  int64_t start_ns, end_ns;
  uint8_t state, flags;
  int16_t cpu;
  int32_t lock, other, stack; /* -1: none */
} thread_interval;

typedef struct {
  int64_t start_ns, end_ns;
  int32_t cpu;
  int64_t number;
} thread_lost;

typedef struct {
  int64_t start_ns, end_ns, waiting_ns, ready_ns;
  int32_t row, lock, other, stack;
  int32_t flags;
} thread_wait;

/*
 * Nanoseconds by bin and state (6 states) within [start_ns, end_ns), bins of equal widths. The
 * intervals of row r are those from first[r] to first[r + 1]; those of rows[i] are added to
 * out[slots[i]].
 */
void thread_bins(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                 const int32_t *slots, int64_t n_rows, int64_t start_ns, int64_t end_ns,
                 int64_t bins, double *out);

/*
 * The waits for locks within [start_ns, end_ns): a wait is one operation on a lock, from the first
 * time that the thread is put to sleep to its return, as long as it runs less than retry_ns between
 * two sleeps. Returns how many there are; writes the first `capacity` of them.
 */
int64_t thread_waits(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                     int64_t n_rows, int64_t start_ns, int64_t end_ns, int64_t retry_ns,
                     thread_wait *out, int64_t capacity);

/*
 * For how many ns within [start_ns, end_ns) k of the rows were counted at once: by_level[k], for
 * k from 0 to n_rows. Counted is an interval in one of the states (bit by bit), and a wait for a
 * lock with awake[lock] (awake[n_locks]: for no known one). The times at which the number goes
 * above `most` or back are written, the first `capacity` of them. Returns how many there are; -1:
 * no memory.
 */
int64_t thread_levels(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                      int64_t n_rows, int64_t start_ns, int64_t end_ns, int states,
                      const uint8_t *awake, int32_t n_locks, int64_t most, int64_t *by_level,
                      int64_t *times, int64_t capacity);

/*
 * Flag the intervals that lost events touch: of a thread that ran, those on that CPU (all if it is
 * -1); of one that did not, all, as it may have run on that CPU meanwhile.
 */
void thread_mark_lost(thread_interval *intervals, const int64_t *first, int64_t n_rows,
                      const thread_lost *lost, int64_t n_lost);
// @end

enum { RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN, STATES };
enum { FLAG_LOST = 1 };

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first of the intervals [low, high) that ends after a time. */
static int64_t first_after(const thread_interval *intervals, int64_t low, int64_t high,
                           int64_t time_ns) {
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (intervals[middle].end_ns > time_ns)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

void thread_bins(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                 const int32_t *slots, int64_t n_rows, int64_t start_ns, int64_t end_ns,
                 int64_t bins, double *out) {
  int64_t span = end_ns - start_ns, width = span / bins, rest = span % bins;
  for (int64_t r = 0; r < n_rows; r++) {
    double *row = out + (int64_t)slots[r] * bins * STATES;
    int64_t end = first[rows[r] + 1];
    int64_t i = first_after(intervals, first[rows[r]], end, start_ns);
    /* Bin b begins at start + b * span / bins, in whole nanoseconds and without overflow. */
    int64_t bin = 0, bin_end = start_ns + width + rest / bins, at = start_ns;
    for (; i < end && intervals[i].start_ns < end_ns; i++) {
      int64_t until = earlier(intervals[i].end_ns, end_ns);
      at = later(intervals[i].start_ns, at);
      int state = intervals[i].state < STATES ? intervals[i].state : UNKNOWN;
      while (at < until) {
        while (at >= bin_end) {
          /* Empty bins are skipped at once. */
          int64_t skip = width > 0 ? (at - bin_end) / (width + 1) : 0;
          bin += 1 + skip;
          bin_end = start_ns + (bin + 1) * width + (bin + 1) * rest / bins;
        }
        int64_t stop = earlier(until, bin_end);
        row[bin * STATES + state] += (double)(stop - at);
        at = stop;
      }
    }
  }
}

int64_t thread_waits(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                     int64_t n_rows, int64_t start_ns, int64_t end_ns, int64_t retry_ns,
                     thread_wait *out, int64_t capacity) {
  int64_t n = 0;
  for (int64_t r = 0; r < n_rows; r++) {
    int64_t end = first[rows[r] + 1];
    int64_t i = first_after(intervals, first[rows[r]], end, start_ns), reached = start_ns;
    thread_wait wait = {.lock = -1};
    for (; i < end && intervals[i].start_ns < end_ns; i++) {
      const thread_interval *now = &intervals[i];
      int64_t at = later(now->start_ns, reached), until = earlier(now->end_ns, end_ns);
      if (until <= at)
        continue;
      reached = until;
      if (now->lock < 0) {
        /* A short run between two sleeps does not end the operation: see retry_ns. */
        uint64_t ran_ns = (uint64_t)now->end_ns - (uint64_t)now->start_ns;
        if (now->state != RUNNING || ran_ns >= (uint64_t)retry_ns)
          wait.lock = -1;
        continue;
      }
      int goes_on = now->lock == wait.lock;
      if (!goes_on) {
        wait = (thread_wait){.start_ns = at,
                             .row = rows[r],
                             .lock = now->lock,
                             .other = now->other,
                             .stack = now->stack};
        n++;
      }
      *(now->state == READY ? &wait.ready_ns : &wait.waiting_ns) += until - at;
      wait.end_ns = until;
      wait.flags |= now->flags;
      if (wait.other < 0)
        wait.other = now->other;
      if (wait.stack < 0)
        wait.stack = now->stack;
      if (n <= capacity)
        out[n - 1] = wait;
    }
  }
  return n;
}

/* One thread's next time to be counted, or not to be any more. */
typedef struct {
  int64_t time_ns, at, end; /* at: the next of its intervals */
  int counted;              /* now, before that time */
} edge;

typedef struct {
  const thread_interval *intervals;
  int64_t start_ns, end_ns;
  int states;
  const uint8_t *awake;
  int32_t n_locks;
} selection;

static int is_counted(const selection *s, int64_t i) {
  const thread_interval *one = &s->intervals[i];
  int32_t lock = one->lock >= 0 && one->lock < s->n_locks ? one->lock : s->n_locks;
  return one->start_ns < one->end_ns && one->state < STATES &&
         ((s->states >> one->state & 1) || (one->state == WAITING && s->awake[lock]));
}

/* The next edge of a thread; 0: there is none. Intervals that touch are one. */
static int next_edge(const selection *s, edge *e) {
  const thread_interval *intervals = s->intervals;
  if (!e->counted) {
    while (e->at < e->end && !is_counted(s, e->at))
      e->at++;
    if (e->at >= e->end)
      return 0;
    e->time_ns = later(intervals[e->at].start_ns, s->start_ns);
  } else {
    while (e->at + 1 < e->end && intervals[e->at + 1].start_ns <= intervals[e->at].end_ns &&
           is_counted(s, e->at + 1))
      e->at++;
    e->time_ns = intervals[e->at++].end_ns;
  }
  return e->time_ns < s->end_ns;
}

/* The top of the heap has changed. */
static void sink(edge *heap, int64_t n) {
  edge moved = heap[0];
  int64_t i = 0;
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    child += child + 1 < n && heap[child + 1].time_ns < heap[child].time_ns;
    if (heap[child].time_ns >= moved.time_ns)
      break;
    heap[i] = heap[child];
  }
  heap[i] = moved;
}

static int by_time(const void *a, const void *b) {
  int64_t first = ((const edge *)a)->time_ns, second = ((const edge *)b)->time_ns;
  return (first > second) - (first < second);
}

int64_t thread_levels(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                      int64_t n_rows, int64_t start_ns, int64_t end_ns, int states,
                      const uint8_t *awake, int32_t n_locks, int64_t most, int64_t *by_level,
                      int64_t *times, int64_t capacity) {
  selection selected = {intervals, start_ns, end_ns, states, awake, n_locks};
  edge *heap = malloc(((size_t)n_rows + 1) * sizeof *heap);
  if (heap == NULL)
    return -1;
  int64_t n = 0, found = 0, level = 0, time = start_ns;
  for (int64_t r = 0; r < n_rows; r++) {
    int64_t end = first[rows[r] + 1];
    heap[n] = (edge){.at = first_after(intervals, first[rows[r]], end, start_ns), .end = end};
    n += next_edge(&selected, &heap[n]);
  }
  qsort(heap, (size_t)n, sizeof *heap, by_time); /* what is sorted is a heap */
  for (int above = 0; n > 0;) {
    int64_t next = later(heap[0].time_ns, time);
    by_level[level] += next - time;
    time = next;
    while (n > 0 && heap[0].time_ns <= time) {
      heap[0].counted = !heap[0].counted;
      level += heap[0].counted ? 1 : -1;
      if (!next_edge(&selected, &heap[0]))
        heap[0] = heap[--n];
      if (n > 0)
        sink(heap, n);
    }
    if ((level > most) != above) {
      above = !above;
      if (found++ < capacity)
        times[found - 1] = time;
    }
  }
  by_level[level] += end_ns - time;
  free(heap);
  return found;
}

void thread_mark_lost(thread_interval *intervals, const int64_t *first, int64_t n_rows,
                      const thread_lost *lost, int64_t n_lost) {
  for (int64_t row = 0; row < n_rows; row++)
    for (int64_t l = 0; l < n_lost; l++) {
      int64_t i = first_after(intervals, first[row], first[row + 1], lost[l].start_ns);
      for (; i < first[row + 1] && intervals[i].start_ns < lost[l].end_ns; i++) {
        int ran = intervals[i].state == RUNNING || intervals[i].state == SPINNING;
        if (!ran || lost[l].cpu < 0 || intervals[i].cpu == lost[l].cpu)
          intervals[i].flags |= FLAG_LOST;
      }
    }
}
