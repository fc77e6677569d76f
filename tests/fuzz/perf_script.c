/* perf_script.c: the length of a piece, room for samples, and then the text. */
#define LONGEST_LINE 8192
#include "readers/perf_script.c"

#include "fuzzed.h"

static int64_t feed(void *state, const char *at, int64_t n, int last, int64_t capacity,
                    int *again) {
  int64_t count;
  perf_script_sample *samples = malloc((size_t)capacity * sizeof *samples);
  int64_t used = perf_script_feed(state, at, n, last, samples, capacity, &count);
  for (int64_t i = 0; i < count; i++) {
    const int32_t *numbers = &samples[i].comm;
    for (int kind = 0; kind < 5; kind++)
      if (numbers[kind] < 0 || numbers[kind] >= perf_script_count(state, kind))
        abort();
  }
  free(samples);
  *again = used >= 0 && count > capacity - 3;
  return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, data + size};
  begin_counting();
  perf_script *p = perf_script_open();
  size_t piece = (size_t)take_number(&in, 2) + 1;
  int64_t capacity = (int64_t)take_number(&in, 1) + 3;
  feed_pieces(in, piece, capacity, feed, p);
  for (int kind = 0; kind < 5; kind++) {
    int64_t room = 64, ends[3], number = 0;
    while (number < perf_script_count(p, kind)) {
      char *text = malloc((size_t)room);
      int64_t got = perf_script_strings(p, kind, number, text, room, ends, 3);
      free(text);
      number += got;
      room *= got == 0 ? 4 : 1;
    }
  }
  const perf_script_report *report = perf_script_reported(p);
  for (int64_t i = 0; i < report->kept; i++)
    if (report->unread[i].bytes > KEPT_TEXT)
      abort();
  perf_script_close(p);
  end_counting(size);
  return 0;
}
