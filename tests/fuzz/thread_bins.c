/* thread_bins.c: a span, rows, lost events, and then intervals as no writer would leave them. */
#include "readers/thread_bins.c"

#include "fuzzed.h"

enum { ROWS = 4, LOST_EVENTS = 3, LOCKS = 5 };

static int64_t take_time(input *in) { /* what Recording.span lets in */
  return later(-(1ll << 61), earlier(take_any(in), 1ll << 61));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, data + size};
  begin_counting();
  int64_t start_ns = take_time(&in), end_ns = later(start_ns, take_time(&in));
  int64_t bins = (int64_t)take_number(&in, 1) + 1, most = (int8_t)take_number(&in, 1);
  int64_t retry_ns = (int64_t)take_number(&in, 1);
  int states = (int)take_number(&in, 1) & 63;
  uint8_t awake[LOCKS + 1];
  for (int i = 0; i <= LOCKS; i++)
    awake[i] = (uint8_t)take_number(&in, 1) & 1;
  thread_lost lost[LOST_EVENTS];
  for (int i = 0; i < LOST_EVENTS; i++)
    lost[i] = (thread_lost){take_any(&in), take_any(&in), (int32_t)take_any(&in), 1};
  int64_t counts[ROWS], n = 0, first[ROWS + 1] = {0};
  for (int r = 0; r < ROWS; r++)
    counts[r] = (int64_t)take_number(&in, 1);
  size_t room = size; /* an interval takes more than a byte of the input */
  thread_interval *intervals = malloc(room * sizeof *intervals);
  for (int r = 0; r < ROWS; r++) {
    for (int64_t i = 0; i < counts[r] && in.at < in.end; i++, n++) {
      thread_interval *one = &intervals[n];
      one->start_ns = take_any(&in);
      one->end_ns = take_any(&in);
      one->state = (uint8_t)take_any(&in);
      one->flags = (uint8_t)take_number(&in, 1);
      one->cpu = (int16_t)take_any(&in);
      one->lock = (int32_t)take_any(&in);
      one->other = one->stack = (int32_t)take_any(&in);
    }
    first[r + 1] = n;
  }
  thread_interval *exact = copied(intervals, (size_t)n * sizeof *exact);
  free(intervals);
  int32_t rows[ROWS] = {0, 1, 2, 3}, slots[ROWS] = {1, 0, 0, 1};
  thread_mark_lost(exact, first, ROWS, lost, LOST_EVENTS);
  if (end_ns > start_ns) {
    double *sums = calloc((size_t)(2 * bins * STATES), sizeof *sums);
    thread_bins(exact, first, rows, slots, ROWS, start_ns, end_ns, bins, sums);
    free(sums);
  }
  int64_t capacity = 3;
  thread_wait *waits = malloc((size_t)capacity * sizeof *waits);
  thread_waits(exact, first, rows, ROWS, start_ns, end_ns, retry_ns, waits, capacity);
  free(waits);
  int64_t by_level[ROWS + 1] = {0}, *times = malloc((size_t)capacity * sizeof *times);
  thread_levels(exact, first, rows, ROWS, start_ns, end_ns, states, awake, LOCKS, most, by_level,
                times, capacity);
  int64_t sum_ns = 0;
  for (int i = 0; i <= ROWS; i++)
    sum_ns += by_level[i];
  if (sum_ns != end_ns - start_ns)
    abort();
  free(times);
  free(exact);
  end_counting(size);
  return 0;
}
