/*
 * What does it cost to get a cache line that another core has? Two threads (three, for states that
 * need another reader), each on a processor of its own, in one process.
 *
 * coherence_transfer: the owner brings lines into a state of the coherence protocol, and the
 * requester takes them, each once, in a chain of dependent loads or exchanges; their time divided
 * by their number is the latency of one. Stressed: the way from the requester to whoever answers.
 * Kept constant: the requester's translations are at hand, the line is in none of its caches (but
 * in the states LOCAL and HERE), and neither a prefetcher nor the fetching of a neighbouring line
 * helps; common/coherence_lines.h says how, and which layouts are the control of that. About 48
 * lines, one a page, leave room in a first-level TLB of 64 entries; with more, loads wait for the
 * second level, too.
 *
 * The states, as the owner's copy has them when the requester comes:
 *
 *     LOCAL        the requester wrote: a hit in its own cache, the lower end
 *     MODIFIED     the owner wrote
 *     EXCLUSIVE    the owner wrote, flushed, and loaded what nobody had
 *     SHARED       as EXCLUSIVE, then a third loaded (with MESIF, the third answers)
 *     FORWARD      as SHARED, but the owner loaded last (with MESIF, the owner answers)
 *     OWNED        the owner wrote, then a third loaded (with MOESI, the owner answers; else the
 *                  line was written back, and both share it)
 *     INVALID      the owner wrote and flushed: from memory, the upper end
 *     SHARED_HERE  as EXCLUSIVE, then the requester loaded: an exchange only asks the owner to
 *                  give up its copy; a load is a hit, for control
 *     OWNED_HERE   the owner wrote, then the requester loaded: as before, where there is Owned
 *     LAST_LEVEL   the owner wrote, then read so much else that its own caches have let go of it:
 *                  from the last-level cache where the owner's lines go, its own die's or slice's
 *
 * SHARED, FORWARD and OWNED need a third processor: of two, only the requester could be the other
 * reader, and then it would have the line. No instruction shows the state of a line; that it was
 * reached follows from how, and from the times of its neighbours in this list. A processor may hold
 * a line in another state than its protocol's textbook: AMD's hand a written line over, instead of
 * sharing it, to a core that loads it, when the loads look like those of a line that migrates.
 *
 * An exchange (xchg) is one locked instruction that loads the next address and writes the line: it
 * waits for the line in a state that may be written. Its own cost, from 8 cycles (AMD Zen 4) to
 * about 20, is what it takes in the state LOCAL.
 *
 * coherence_exchange: the figures that are compared everywhere. By protocol, the time for one is
 *
 *     CAS_ONE_LINE          a ROUND TRIP: both change one word by compare-and-swap, in turns
 *     WRITE_READ_TWO_LINES  a ROUND TRIP: each writes its line and reads the other's
 *     ONE_WAY_MESSAGE       ONE WAY: a sequence number and the time at which it was sent, in one
 *                           line, are answered by the like in another. time_ns is the sum of
 *                           (clock of the receiver - time sent) over both ways, in which a
 *                           difference of the two cores' clocks cancels; half the difference of
 *                           the ways is clocks_apart_ns (by how much the owner's clock is ahead,
 *                           or half of what one way takes longer: nobody can tell which). Reading
 *                           the clock once is part of it: empty_ns.
 *
 * Nothing is left to the compiler to remove: the loads are volatile, the others atomic, and the
 * checksum folds the place of each line in the order in which it was taken,
 *     checksum = rotate_left(checksum, 5) ^ offset.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-lpthread"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // processor sets, sched_getcpu, RUSAGE_THREAD, mremap
#endif
#include <stdint.h>

// @interface
enum {
  COHERENCE_LOCAL,
  COHERENCE_MODIFIED,
  COHERENCE_EXCLUSIVE,
  COHERENCE_SHARED,
  COHERENCE_FORWARD,
  COHERENCE_OWNED,
  COHERENCE_INVALID,
  COHERENCE_SHARED_HERE,
  COHERENCE_OWNED_HERE,
  COHERENCE_LAST_LEVEL,
  COHERENCE_STATES
};
enum { COHERENCE_LOAD, COHERENCE_EXCHANGE, COHERENCE_ACCESSES };
/* A layout is a sum of these; 0: spread and shuffled. */
enum { COHERENCE_NEIGHBOURS = 1, COHERENCE_ASCENDING = 2, COHERENCE_LAYOUTS = 4 };
enum {
  COHERENCE_CAS_ONE_LINE,
  COHERENCE_WRITE_READ_TWO_LINES,
  COHERENCE_ONE_WAY_MESSAGE,
  COHERENCE_PROTOCOLS
};
/* An error is stage * 65536 + errno: */
enum {
  COHERENCE_ARGUMENT = 1, /* EINVAL: no such thing; ERANGE: too many lines, samples, exchanges */
  COHERENCE_CPU,          /* EINVAL: not two processors, or one that this process may not use */
  COHERENCE_THIRD,        /* EINVAL: the state needs a third processor */
  COHERENCE_MEMORY,
  COHERENCE_THREAD,
  COHERENCE_LATE /* ETIMEDOUT: the samples that were complete by then are there */
};
enum { COHERENCE_LINES = 4096, COHERENCE_SAMPLES = 1000000, COHERENCE_MOST = 1000000000 };

/* Of the threads: requester, owner, third. */
typedef struct {
  int64_t begin_ns;  /* CLOCK_MONOTONIC */
  int64_t time_ns;   /* for all of count together */
  int64_t count;     /* loads, exchanges, round trips or messages; 0: the sample was not taken */
  int64_t proven;    /* lines whose data were seen as the state's author left them, and by the owner
                        as the requester left them; exchanges that the owner answered */
  uint64_t checksum; /* of the order of the lines; 0 for a protocol */
  double empty_ns;   /* what the clock takes: in time_ns once, in a message's sum each time */
  double core_mhz;   /* of the requester */
  double clocks_apart_ns; /* of messages; 0 for all else */
  int64_t cpus[3];        /* where they really ran; -1: on several, or there was no such thread */
  int64_t involuntary_switches[3]; /* from a thread's first to its last act in the sample */
} coherence_sample;

/* Takes repeats samples into out, after one that is not kept, within timeout_ns for all of them.
   third_cpu is -1 if there is none; where the state needs none it does not matter. */
int64_t coherence_transfer(int64_t owner_cpu, int64_t requester_cpu, int64_t third_cpu, int state,
                           int access, int layout, int64_t lines, int64_t repeats, uint64_t seed,
                           int64_t timeout_ns, coherence_sample *out);

/* cpu_a sends first, and is the requester in the samples; cpu_b answers. */
int64_t coherence_exchange(int protocol, int64_t cpu_a, int64_t cpu_b, int64_t exchanges,
                           int64_t samples, int64_t timeout_ns, coherence_sample *out);

/* Where the lines of a sample lie, in bytes, in the order in which they are taken. */
int64_t coherence_plan(int layout, int64_t lines, uint64_t seed, int64_t sample, uint64_t *at);

/* Whether a state needs a third processor: 1 or 0; -1: no such state. */
int64_t coherence_needs_third(int state);
// @end

#include "common/coherence_lines.h"
#include "common/coherence_protocols.h"

enum { CPUS_MOST = 1 << 16 };
#define TIMEOUT_MOST_NS ((int64_t)1000000 * 1000000000)

static int64_t check_cpus(const int64_t *cpus, int n) {
  for (int i = 0; i < n; i++) {
    if (cpus[i] < 0 || cpus[i] >= CPUS_MOST)
      return text_failed(COHERENCE_CPU, EINVAL);
    for (int j = 0; j < i; j++)
      if (cpus[i] == cpus[j])
        return text_failed(COHERENCE_CPU, EINVAL);
  }
  return 0;
}

static int64_t check_amounts(int64_t n, int64_t most, int64_t samples, int64_t timeout_ns) {
  if (n < 1 || samples < 1 || timeout_ns < 1)
    return text_failed(COHERENCE_ARGUMENT, EINVAL);
  if (n > most || samples > COHERENCE_SAMPLES || timeout_ns > TIMEOUT_MOST_NS)
    return text_failed(COHERENCE_ARGUMENT, ERANGE);
  return 0;
}

static void set_cpus(team *t, const int64_t *cpus, int members) {
  t->members = members;
  for (int role = 0; role < members; role++)
    t->cpus[role] = (int)cpus[role];
  for (int64_t i = 0; i <= t->repeats; i++)
    for (int role = 0; role < ROLES; role++)
      t->samples[i].cpus[role] = -1;
}

int64_t coherence_transfer(int64_t owner_cpu, int64_t requester_cpu, int64_t third_cpu, int state,
                           int access, int layout, int64_t lines, int64_t repeats, uint64_t seed,
                           int64_t timeout_ns, coherence_sample *out) {
  if (state < 0 || state >= COHERENCE_STATES || access < 0 || access >= COHERENCE_ACCESSES ||
      layout < 0 || layout >= COHERENCE_LAYOUTS || out == NULL)
    return text_failed(COHERENCE_ARGUMENT, EINVAL);
  int64_t failed = check_amounts(lines, COHERENCE_LINES, repeats, timeout_ns);
  int members = lines_need_third(state) ? ROLES : ROLES - 1;
  int64_t cpus[ROLES] = {requester_cpu, owner_cpu, third_cpu};
  if (!failed && members == ROLES && third_cpu == -1)
    failed = text_failed(COHERENCE_THIRD, EINVAL);
  if (!failed)
    failed = check_cpus(cpus, members);
  if (failed)
    return failed;
  size_t others = preparations[state].evicted ? lines_evicting_bytes() : 0;
  team *t = team_make(sizeof(coherence_lines), repeats, (size_t)lines * TEXT_PAGE + others);
  if (t == NULL)
    return text_failed(COHERENCE_MEMORY, errno);
  coherence_lines *job = t->job;
  *job = (coherence_lines){
      .state = state,
      .access = access,
      .layout = layout,
      .lines = (uint32_t)lines,
      .seed = seed,
      .evicting_bytes = others,
  };
  lines_plan(job);
  set_cpus(t, cpus, members);
  t->turn = -1; // until the memory is there
  t->work = lines_work;
  return team_run(t, timeout_ns, out);
}

int64_t coherence_exchange(int protocol, int64_t cpu_a, int64_t cpu_b, int64_t exchanges,
                           int64_t samples, int64_t timeout_ns, coherence_sample *out) {
  if (protocol < 0 || protocol >= COHERENCE_PROTOCOLS || out == NULL)
    return text_failed(COHERENCE_ARGUMENT, EINVAL);
  int64_t failed = check_amounts(exchanges, COHERENCE_MOST, samples, timeout_ns);
  int64_t cpus[] = {cpu_a, cpu_b};
  if (!failed)
    failed = check_cpus(cpus, 2);
  if (failed)
    return failed;
  team *t = team_make(sizeof(coherence_exchanges), samples, 2 * EXCHANGE_LINES_APART);
  if (t == NULL)
    return text_failed(COHERENCE_MEMORY, errno);
  *(coherence_exchanges *)t->job =
      (coherence_exchanges){.protocol = protocol, .exchanges = (uint64_t)exchanges};
  set_cpus(t, cpus, 2);
  t->work = exchange_work;
  return team_run(t, timeout_ns, out);
}

int64_t coherence_plan(int layout, int64_t lines, uint64_t seed, int64_t sample, uint64_t *at) {
  if (layout < 0 || layout >= COHERENCE_LAYOUTS || lines < 1 || sample < 0 || at == NULL)
    return text_failed(COHERENCE_ARGUMENT, EINVAL);
  if (lines > COHERENCE_LINES)
    return text_failed(COHERENCE_ARGUMENT, ERANGE);
  coherence_lines *job = calloc(1, sizeof *job);
  if (job == NULL)
    return text_failed(COHERENCE_MEMORY, ENOMEM);
  *job = (coherence_lines){.layout = layout, .lines = (uint32_t)lines, .seed = seed};
  lines_plan(job);
  lines_shuffle(job, sample + 1); // the first that is made is not kept
  for (int64_t i = 0; i < lines; i++)
    at[i] = job->at[job->order[i]];
  free(job);
  return 0;
}

int64_t coherence_needs_third(int state) {
  return state < 0 || state >= COHERENCE_STATES ? -1 : lines_need_third(state);
}
