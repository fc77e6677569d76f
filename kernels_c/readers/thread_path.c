/*
 * The critical path of a recording of threads: the chain of dependences that ends with its last
 * event, followed back in time. Nothing is measured here: this is a kernel because a path may have
 * as many parts as a recording has intervals.
 *
 * From a thread's activity the path goes back to where that began. A thread that was woken depends
 * on who woke it, so there the path goes on with the other thread, and the wait itself is not on
 * it. Where the other thread did not run just then (it only held the lock earlier, or events are
 * missing), the wait is on the path for as long as that; where nobody is known, all of it is.
 *
 * The lock of a part is the one that a later thread of the path waits for meanwhile: without that
 * lock the later thread would not have had to wait for this part.
 *
 * tests/reference/thread_path.py says the same in plain Python.
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
  int32_t row, state, lock, stack, woken_by; /* -1: none */
} thread_part;

/*
 * The row whose activity ends last within [start_ns, end_ns): where the path ends. -1: none has
 * any. The intervals of row r are those from first[r] to first[r + 1].
 */
int64_t thread_path_end(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                        int64_t n_rows, int64_t start_ns, int64_t end_ns);

/*
 * The path from end_ns in a row back to start_ns, the last part first; the parts join. origin[r] is
 * the row that began row r, where the intervals do not say it; -1: not known. Returns how many
 * parts there are, and writes the first `capacity` of them; -1: no memory.
 */
int64_t thread_path(const thread_interval *intervals, const int64_t *first, int64_t n_rows,
                    const int32_t *origin, int32_t row, int64_t start_ns, int64_t end_ns,
                    thread_part *out, int64_t capacity);

/*
 * When the last of some rows would end if those waits took no time that are `removed`. All that
 * threads do takes as long as it did, and who is woken waits for its waker. The `n` intervals in
 * `blocked`, of the rows in `whose`, are ordered by their ends; a thread's birth is one that begins
 * with the recording. `shifts` has a zero for each row: by how much it is earlier is left there.
 */
int64_t thread_path_without(const thread_interval *intervals, const int64_t *first,
                            const int32_t *rows, int64_t n_rows, int64_t start_ns, int64_t end_ns,
                            const thread_interval *blocked, const int32_t *whose,
                            const uint8_t *removed, int64_t n, int64_t *shifts);
// @end

enum { RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN };

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }
static int is_blocked(const thread_interval *one) {
  return one->state == WAITING || one->state == SLEEPING;
}

/* The last of the intervals [low, high) that begins before a time; low - 1: none does. */
static int64_t last_before(const thread_interval *intervals, int64_t low, int64_t high,
                           int64_t time_ns) {
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (intervals[middle].start_ns < time_ns)
      low = middle + 1;
    else
      high = middle;
  }
  return low - 1;
}

/* When a row was last not blocked, at `time_ns` or before; `start_ns` if never since then. */
static int64_t last_awake(const thread_interval *intervals, const int64_t *first, int64_t row,
                          int64_t start_ns, int64_t time_ns) {
  int64_t i = last_before(intervals, first[row], first[row + 1], time_ns);
  for (; i >= first[row] && intervals[i].end_ns > start_ns && is_blocked(&intervals[i]); i--)
    time_ns = earlier(time_ns, intervals[i].start_ns);
  return i < first[row] ? start_ns : later(start_ns, earlier(time_ns, intervals[i].end_ns));
}

int64_t thread_path_end(const thread_interval *intervals, const int64_t *first, const int32_t *rows,
                        int64_t n_rows, int64_t start_ns, int64_t end_ns) {
  int64_t found = -1, latest = start_ns;
  int found_on_cpu = 0;
  for (int64_t r = 0; r < n_rows; r++) {
    int64_t awake = last_awake(intervals, first, rows[r], start_ns, end_ns);
    if (awake <= start_ns)
      continue;
    int64_t i = last_before(intervals, first[rows[r]], first[rows[r] + 1], awake);
    int on_cpu = intervals[i].state == RUNNING || intervals[i].state == SPINNING;
    if (awake > latest || (awake == latest && on_cpu > found_on_cpu)) {
      found = rows[r];
      latest = awake;
      found_on_cpu = on_cpu;
    }
  }
  return found;
}

int64_t thread_path_without(const thread_interval *intervals, const int64_t *first,
                            const int32_t *rows, int64_t n_rows, int64_t start_ns, int64_t end_ns,
                            const thread_interval *blocked, const int32_t *whose,
                            const uint8_t *removed, int64_t n, int64_t *shifts) {
  for (int64_t i = 0; i < n; i++) {
    int64_t *mine = &shifts[whose[i]], at_once = *mine + blocked[i].end_ns - blocked[i].start_ns;
    if (removed[i])
      *mine = at_once;
    else if (blocked[i].other >= 0)
      *mine = earlier(at_once, shifts[blocked[i].other]);
  }
  int64_t end = start_ns;
  for (int64_t r = 0; r < n_rows; r++)
    end = later(end, last_awake(intervals, first, rows[r], start_ns, end_ns) - shifts[rows[r]]);
  return end;
}

/* --- the way back ------------------------------------------------------------------------------
 */

typedef struct {
  int64_t since;
  int32_t lock;
} held_up; /* a thread of the path waits for a lock from a time on until later */

typedef struct {
  thread_part *out;
  int64_t capacity, n;
  thread_part last; /* not yet written: an earlier one may be of the same kind */
} path;

static int is_begun(const path *p) { return p->last.end_ns > p->last.start_ns; }

static void write_last(path *p) {
  if (is_begun(p)) {
    if (p->n < p->capacity)
      p->out[p->n] = p->last;
    p->n++;
  }
}

static void put(path *p, thread_part one) {
  thread_part *last = &p->last;
  if (is_begun(p) && last->woken_by < 0 && last->row == one.row && last->state == one.state &&
      last->lock == one.lock && last->stack == one.stack) {
    last->start_ns = one.start_ns;
    return;
  }
  write_last(p);
  p->last = one;
}

int64_t thread_path(const thread_interval *intervals, const int64_t *first, int64_t n_rows,
                    const int32_t *origin, int32_t row, int64_t start_ns, int64_t end_ns,
                    thread_part *out, int64_t capacity) {
  /* The waits of one row do not overlap, so that no more than one of each is open. */
  held_up *waits = malloc((size_t)(n_rows + 1) * sizeof *waits);
  if (waits == NULL)
    return -1;
  path p = {.out = out, .capacity = capacity};
  int64_t n_waits = 0, t = end_ns;
  while (t > start_ns) {
    while (n_waits > 0 && waits[n_waits - 1].since >= t)
      n_waits--;
    int64_t low = first[row], high = first[row + 1], i = last_before(intervals, low, high, t);
    int32_t other = -1;
    if (i < low) { /* it was born here, by one that lived then */
      other = low < high && intervals[low].state == READY && intervals[low].other >= 0
                  ? intervals[low].other
                  : origin[row];
      int known = other >= 0 && other < n_rows &&
                  last_before(intervals, first[other], first[other + 1], t) >= first[other];
      if (is_begun(&p) && known)
        p.last.woken_by = other;
      if (!known) {
        put(&p, (thread_part){start_ns, t, -1, UNKNOWN, -1, -1, -1});
        break;
      }
      row = other;
      continue;
    }
    thread_interval one = {.state = UNKNOWN, .lock = -1, .other = -1, .stack = -1};
    int64_t since = later(start_ns, intervals[i].end_ns); /* nothing is known for a while */
    if (intervals[i].end_ns >= t) {
      one = intervals[i];
      since = later(start_ns, one.start_ns);
    }
    if (is_blocked(&one) && one.end_ns == t && one.other < n_rows && one.other != row)
      other = one.other;
    int64_t until = other >= 0 ? last_awake(intervals, first, other, since, t) : since;
    if (until > since) {
      if (is_begun(&p) && until == t)
        p.last.woken_by = other;
      if (until < t)
        put(&p, (thread_part){until, t, row, one.state, one.lock, one.stack, other});
      while (n_waits > 0 && waits[n_waits - 1].since >= since)
        n_waits--; /* within this wait they would be looked at no more */
      if (one.state == WAITING && one.lock >= 0 && n_waits < n_rows)
        waits[n_waits++] = (held_up){since, one.lock};
      row = other;
      t = until;
      continue;
    }
    int32_t lock = one.lock;
    if (!is_blocked(&one) && !(one.state == READY && lock >= 0)) {
      lock = -1;
      if (n_waits > 0) {
        lock = waits[n_waits - 1].lock;
        since = later(since, waits[n_waits - 1].since);
      }
    }
    put(&p, (thread_part){since, t, row, one.state, lock, one.stack, -1});
    t = since;
  }
  write_last(&p);
  free(waits);
  return p.n;
}
