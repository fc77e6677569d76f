/* thread_states.c: processes and threads that are there, and then events as no kernel has them. */
#include "readers/thread_states.c"

#include "fuzzed.h"

enum { CPUS_KNOWN = 4, STACKS = 3, PIECE = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t cpus[CPUS_KNOWN] = {1, 0, 1, 1}, spins[STACKS] = {0, 1, 1};
  input in = {data, data + size};
  begin_counting();
  int64_t start_ns = (int64_t)take_number(&in, 1);
  thread_states *s = thread_states_open(start_ns, (int)take_number(&in, 1) & 1, cpus, CPUS_KNOWN);
  thread_states_process(s, (int32_t)take_any(&in));
  int64_t intervals_ns = 0;
  while (in.at < in.end) {
    int64_t n = 0;
    thread_event *events = calloc(PIECE, sizeof *events);
    for (; n < PIECE && in.at < in.end; n++)
      events[n] = (thread_event){.time_ns = take_any(&in),
                                 .kind = (uint8_t)(take_number(&in, 1) % 11),
                                 .cpu = (int16_t)take_any(&in),
                                 .tid = (int32_t)take_any(&in),
                                 .pid = (int32_t)take_any(&in),
                                 .a = take_any(&in),
                                 .b = take_any(&in),
                                 .stack = (int32_t)take_any(&in)};
    thread_event *exact = copied(events, (size_t)n * sizeof *exact);
    free(events);
    thread_states_feed(s, exact, n, spins, STACKS);
    free(exact);
    const thread_found *found = thread_states_found(s);
    for (int64_t i = 0; i < found->n_intervals; i++) {
      if (found->rows[i] < 0 || found->rows[i] >= found->n_threads ||
          found->intervals[i].start_ns >= found->intervals[i].end_ns)
        abort();
      intervals_ns |= found->intervals[i].end_ns;
    }
  }
  thread_states_finish(s, (int64_t)size);
  thread_states_close(s);
  end_counting(size);
  return intervals_ns < 0 ? -1 : 0;
}
