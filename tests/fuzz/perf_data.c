/* perf_data.c: events, their fields and ids, and then the records. */
#include "readers/perf_data.c"

#include "fuzzed.h"

static int64_t feed(void *state, const char *at, int64_t n, int last, int64_t capacity,
                    int *again) {
  int64_t count;
  perf_data_record *records = malloc((size_t)capacity * sizeof *records);
  int64_t used = perf_data_feed(state, at, n, last, records, capacity, &count);
  for (int64_t i = 0; i < count; i++)
    if (records[i].text >= perf_data_count(state))
      abort();
  free(records);
  *again = used >= 0 && count == capacity;
  return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, data + size};
  begin_counting();
  perf_data *p = perf_data_open();
  int events = (int)(take_number(&in, 1) % 4);
  for (int e = 0; e < events; e++) {
    uint64_t sample_type = take_number(&in, 3), flags = take_number(&in, 1);
    perf_data_event(p, sample_type, flags & 31, (flags & 32) != 0);
    perf_data_id(p, take_number(&in, 1), e);
    for (int slot = 0; slot < SLOTS; slot++) {
      uint64_t described = take_number(&in, 1), offset = take_number(&in, 1);
      /* what a file's description of a tracepoint says, as far as PerfData.fields lets it in */
      if (described & 8)
        offset <<= 23;
      perf_data_field(p, e, slot, (int)offset, 1 << (described & 3), (described & 4) != 0);
    }
  }
  size_t piece = (size_t)take_number(&in, 2) + 1;
  int64_t capacity = (int64_t)take_number(&in, 1) + 1;
  feed_pieces(in, piece, capacity, feed, p);
  int64_t room = 1 << 16, ends[3], number = 0, got;
  char *names = malloc((size_t)room);
  while ((got = perf_data_names(p, number, names, room, ends, 3)) > 0)
    number += got;
  if (number != perf_data_count(p))
    abort();
  free(names);
  perf_data_close(p);
  end_counting(size);
  return 0;
}
