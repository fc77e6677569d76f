// The protocols by which latencies between cores are usually told. Each is two short functions, one
// for each side, that make so many exchanges and return whether all were made; pauses are in none.
#ifndef COHERENCE_PROTOCOLS_H
#define COHERENCE_PROTOCOLS_H

#include "coherence_lines.h"

enum { EXCHANGE_LINES_APART = 4096 }; // in pages of their own: none comes along with another

typedef struct {
  int64_t forward_ns, backward_ns; // of messages, by the receiver's clock less the sender's
  int64_t received;
} exchange_side;

typedef struct {
  int protocol;
  uint64_t exchanges;
  double core_mhz, empty_ns; // of the requester, looked at now and then
  exchange_side owner;
} coherence_exchanges;

typedef struct {
  uint64_t number;
  int64_t sent_ns;
} exchange_message;

static inline void *exchange_line(const team *t, int i) {
  return t->memory + i * EXCHANGE_LINES_APART;
}

// --- compare-and-swap on one line: the one makes the number odd, the other even ------------------

static inline int exchange_swap(const team *t, uint64_t first, uint64_t end, int64_t *received) {
  uint64_t *word = exchange_line(t, 0);
  for (uint64_t number = first; number < end; number += 2) {
    uint32_t spins = 0;
    for (uint64_t expected = number; !__atomic_compare_exchange_n(
             word, &expected, number + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
         expected = number)
      if (team_gives_up(t, &spins))
        return 0;
    ++*received;
  }
  return 1;
}

static inline int cas_one_line_requester(const team *t, uint64_t n, exchange_side *side) {
  return exchange_swap(t, 0, 2 * n, &side->received);
}

static inline int cas_one_line_owner(const team *t, uint64_t n, exchange_side *side) {
  return exchange_swap(t, 1, 2 * n, &side->received);
}

// --- two lines, each written by one side and read by the other -----------------------------------

static inline int exchange_see(const team *t, const uint64_t *word, uint64_t number) {
  uint32_t spins = 0;
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != number)
    if (team_gives_up(t, &spins))
      return 0;
  return 1;
}

static inline int write_read_two_lines_requester(const team *t, uint64_t n, exchange_side *side) {
  uint64_t *there = exchange_line(t, 0), *back = exchange_line(t, 1);
  for (uint64_t number = 1; number <= n; number++) {
    __atomic_store_n(there, number, __ATOMIC_RELEASE);
    if (!exchange_see(t, back, number))
      return 0;
    side->received++;
  }
  return 1;
}

static inline int write_read_two_lines_owner(const team *t, uint64_t n, exchange_side *side) {
  uint64_t *there = exchange_line(t, 0), *back = exchange_line(t, 1);
  for (uint64_t number = 1; number <= n; number++) {
    if (!exchange_see(t, there, number))
      return 0;
    __atomic_store_n(back, number, __ATOMIC_RELEASE);
    side->received++;
  }
  return 1;
}

// --- a message with the time at which it was sent, answered by another ---------------------------

static inline void exchange_send(exchange_message *message, uint64_t number) {
  message->sent_ns = clock_ns();
  __atomic_store_n(&message->number, number, __ATOMIC_RELEASE);
}

static inline int exchange_receive(const team *t, const exchange_message *message, uint64_t number,
                                   int64_t *sum_ns) {
  if (!exchange_see(t, &message->number, number))
    return 0;
  *sum_ns += clock_ns() - message->sent_ns;
  return 1;
}

static inline int one_way_message_requester(const team *t, uint64_t n, exchange_side *side) {
  exchange_message *there = exchange_line(t, 0), *back = exchange_line(t, 1);
  for (uint64_t number = 1; number <= n; number++) {
    exchange_send(there, number);
    if (!exchange_receive(t, back, number, &side->backward_ns))
      return 0;
    side->received++;
  }
  return 1;
}

static inline int one_way_message_owner(const team *t, uint64_t n, exchange_side *side) {
  exchange_message *there = exchange_line(t, 0), *back = exchange_line(t, 1);
  for (uint64_t number = 1; number <= n; number++) {
    if (!exchange_receive(t, there, number, &side->forward_ns))
      return 0;
    exchange_send(back, number);
    side->received++;
  }
  return 1;
}

// --- what they have in common --------------------------------------------------------------------

typedef int exchange_function(const team *t, uint64_t n, exchange_side *side);

static exchange_function *const protocols[COHERENCE_PROTOCOLS][2] = {
    [COHERENCE_CAS_ONE_LINE] = {cas_one_line_requester, cas_one_line_owner},
    [COHERENCE_WRITE_READ_TWO_LINES] = {write_read_two_lines_requester, write_read_two_lines_owner},
    [COHERENCE_ONE_WAY_MESSAGE] = {one_way_message_requester, one_way_message_owner},
};

// To find the core's frequency takes as long as many exchanges do: it is not done for each sample.
enum { EXCHANGE_LOOKS_EVERY = 64 };

static inline int exchange_request(team *t, int64_t turn, coherence_sample *sample) {
  coherence_exchanges *job = t->job;
  if (!team_wait(t, turn + 1) || team_late(t))
    return 0;
  team_begin(t, REQUESTER, sample);
  if (turn / 3 % EXCHANGE_LOOKS_EVERY == 0) {
    job->core_mhz = core_mhz();
    job->empty_ns = team_empty_ns(clock_ns);
  }
  sample->core_mhz = job->core_mhz;
  sample->empty_ns = job->empty_ns;
  exchange_side side = {0};
  sample->begin_ns = clock_ns();
  int made = protocols[job->protocol][REQUESTER](t, job->exchanges, &side);
  sample->time_ns = clock_ns() - sample->begin_ns;
  if (!made || !team_wait(t, turn + 2))
    return 0;
  sample->count = (int64_t)job->exchanges;
  if (job->protocol == COHERENCE_ONE_WAY_MESSAGE) {
    sample->count *= 2;
    sample->time_ns = job->owner.forward_ns + side.backward_ns;
    sample->clocks_apart_ns =
        (double)(job->owner.forward_ns - side.backward_ns) / (double)sample->count;
  }
  team_note(t, REQUESTER, sample);
  team_pass(t, turn + 3);
  return 1;
}

// The owner's exchanges are over before the requester's last look: it tells what it has counted.
static inline int exchange_answer(team *t, int64_t turn, coherence_sample *sample) {
  coherence_exchanges *job = t->job;
  if (!team_wait(t, turn) || team_late(t))
    return 0;
  team_begin(t, OWNER, sample);
  memset(exchange_line(t, 0), 0, LINE);
  memset(exchange_line(t, 1), 0, LINE);
  team_pass(t, turn + 1);
  exchange_side side = {0};
  if (!protocols[job->protocol][OWNER](t, job->exchanges, &side))
    return 0;
  job->owner = side;
  sample->proven = side.received;
  team_note(t, OWNER, sample);
  team_pass(t, turn + 2);
  return 1;
}

static inline int exchange_work(team *t, int role) {
  for (int64_t i = 0; i <= t->repeats; i++) {
    coherence_sample *sample = &t->samples[i];
    if (!(role == OWNER ? exchange_answer : exchange_request)(t, 3 * i, sample))
      return 0;
    if (role == REQUESTER)
      __atomic_store_n(&t->done, i, __ATOMIC_RELEASE);
  }
  return 1;
}

#endif
