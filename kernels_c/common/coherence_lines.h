// Lines that are brought into a state by one core and then taken, each once, by another.
//
// Where the lines lie and in which order they are taken is what keeps the prefetchers out. SPREAD
// puts one line in each page of 4 KiB (the pages' places in memory are random, too), at a place
// within the page that differs from page to page: a neighbour that is fetched along with a line is
// never one that counts, no two lines are the same distance apart, and no page is entered twice.
// Each stretch of 64 pages uses each of a page's 64 places once, so that the caches' sets are used
// alike. SHUFFLED takes them in random order; the next address is in the line itself. The other
// layouts are the controls, in which the prefetchers may help: NEIGHBOURS lie side by side, and
// ASCENDING takes lines in the order of their addresses.
#ifndef COHERENCE_LINES_H
#define COHERENCE_LINES_H

#include "coherence_team.h"

enum { LINE = 64, LINE_PLACES = 64 };
enum { WRITE, FLUSH, LOAD, EVICT, REQUEST, CHECK, ACTS_MOST = 6 };
// Of the second-level cache, which holds what the first does on all processors that this runs on:
// so many times its size is read. 2 MiB where its size is not known.
enum { LINES_EVICTING = 3, LINES_UNKNOWN_CACHE = 2 << 20, LINES_MOST_CACHE = 16 << 20 };

typedef struct {
  uint64_t next, author, sample, reader;
} coherence_line;

typedef struct {
  int role, act;
} coherence_act;

typedef struct {
  int state, access, layout, acts;
  coherence_act script[ACTS_MOST];
  uint32_t lines;
  uint64_t seed;
  size_t evicting_bytes; // behind the lines' pages
  uint32_t at[COHERENCE_LINES], order[COHERENCE_LINES];
} coherence_lines;

// How a state is reached. Who loads last has the copy that answers, where a protocol has one such
// (Forward); who wrote keeps the duty to answer after others have loaded, where a protocol allows
// it (Owned), and has otherwise written its line back.
static const struct {
  int writer, flushed, loaders[2], evicted;
} preparations[COHERENCE_STATES] = {
    [COHERENCE_LOCAL] = {REQUESTER, 0, {NOBODY, NOBODY}},
    [COHERENCE_MODIFIED] = {OWNER, 0, {NOBODY, NOBODY}},
    [COHERENCE_EXCLUSIVE] = {OWNER, 1, {OWNER, NOBODY}},
    [COHERENCE_SHARED] = {OWNER, 1, {OWNER, THIRD}},
    [COHERENCE_FORWARD] = {OWNER, 1, {THIRD, OWNER}},
    [COHERENCE_OWNED] = {OWNER, 0, {THIRD, NOBODY}},
    [COHERENCE_INVALID] = {OWNER, 1, {NOBODY, NOBODY}},
    [COHERENCE_SHARED_HERE] = {OWNER, 1, {OWNER, REQUESTER}},
    [COHERENCE_OWNED_HERE] = {OWNER, 0, {REQUESTER, NOBODY}},
    [COHERENCE_LAST_LEVEL] = {OWNER, 0, {NOBODY, NOBODY}, 1},
};

static inline int lines_need_third(int state) {
  return preparations[state].loaders[0] == THIRD || preparations[state].loaders[1] == THIRD;
}

static inline void lines_add_act(coherence_lines *job, int role, int act) {
  if (role != NOBODY)
    job->script[job->acts++] = (coherence_act){role, act};
}

static inline void lines_plan(coherence_lines *job) {
  lines_add_act(job, preparations[job->state].writer, WRITE);
  lines_add_act(job, preparations[job->state].flushed ? OWNER : NOBODY, FLUSH);
  for (int i = 0; i < 2; i++)
    lines_add_act(job, preparations[job->state].loaders[i], LOAD);
  lines_add_act(job, preparations[job->state].evicted ? OWNER : NOBODY, EVICT);
  lines_add_act(job, REQUESTER, REQUEST);
  lines_add_act(job, OWNER, CHECK);
  uint64_t random = job->seed;
  uint32_t places[LINE_PLACES];
  for (uint32_t i = 0; i < job->lines; i++) {
    if (i % LINE_PLACES == 0)
      text_shuffle(places, LINE_PLACES, &random);
    job->at[i] = job->layout & COHERENCE_NEIGHBOURS
                     ? i * LINE
                     : i * (uint32_t)TEXT_PAGE + places[i % LINE_PLACES] * LINE;
  }
}

// The order is the sample's own, so that no predictor meets it twice.
static inline void lines_shuffle(coherence_lines *job, int64_t sample) {
  uint64_t random = job->seed + (uint64_t)sample;
  text_random(&random); // the seed's first numbers went into the places
  text_shuffle(job->order, job->lines, &random);
  for (uint32_t i = 0; job->layout & COHERENCE_ASCENDING && i < job->lines; i++)
    job->order[i] = i;
}

static inline coherence_line *lines_get(const team *t, const coherence_lines *job, uint32_t rank) {
  return (coherence_line *)(t->memory + job->at[job->order[rank % job->lines]]);
}

// In the order of the addresses, which tells the writer's prefetchers no more than they may know.
static inline void lines_write(team *t, coherence_lines *job, int64_t sample) {
  lines_shuffle(job, sample);
  for (uint32_t i = 0; i < job->lines; i++)
    *lines_get(t, job, i) = (coherence_line){
        .next = (uintptr_t)lines_get(t, job, i + 1),
        .author = (uint64_t)preparations[job->state].writer,
        .sample = (uint64_t)sample,
    };
}

static inline void lines_flush(team *t, coherence_lines *job) {
  arch_fence();
  for (uint32_t i = 0; i < job->lines; i++)
    arch_flush(t->memory + job->at[i]);
  arch_fence();
}

static inline void lines_load(team *t, coherence_lines *job) {
  for (uint32_t i = 0; i < job->lines; i++)
    (void)*(volatile uint64_t *)(t->memory + job->at[i]);
  arch_fence();
}

static inline size_t lines_evicting_bytes(void) {
  long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
  size_t cache = found > 0 && found <= LINES_MOST_CACHE ? (size_t)found : LINES_UNKNOWN_CACHE;
  return LINES_EVICTING * cache;
}

static inline void lines_evict(team *t, coherence_lines *job) {
  const unsigned char *others = t->memory + job->lines * TEXT_PAGE;
  for (size_t i = 0; i < job->evicting_bytes; i += LINE)
    (void)*(volatile const uint64_t *)(others + i);
  arch_fence();
}

// The translations are fetched by a line of the same page, half a page away: no neighbour of the
// one that counts. Neighbours share a page or two, and touching there would touch what counts.
static inline void lines_touch_pages(team *t, coherence_lines *job) {
  for (uint32_t i = 0; !(job->layout & COHERENCE_NEIGHBOURS) && i < job->lines; i++)
    (void)*(volatile uint64_t *)(t->memory + (job->at[i] ^ TEXT_PAGE / 2));
}

// Nothing before it is still under way, nothing after it has begun.
static inline int64_t lines_stamp_ns(void) {
  arch_fence_loads();
  int64_t now_ns = clock_ns();
  arch_fence_loads();
  return now_ns;
}

// The fold is no part of the chain from load to load, and shorter.
static inline uint64_t lines_fold(uint64_t sum, uint64_t at) { return (sum << 5 | sum >> 59) ^ at; }

static inline uint64_t lines_chase(const unsigned char *memory, const coherence_line *first,
                                   uint32_t n) {
  uint64_t sum = 0, at = (uintptr_t)first;
  while (n-- > 0) {
    sum = lines_fold(sum, at - (uintptr_t)memory);
    at = *(volatile uint64_t *)at;
  }
  __asm__ volatile("" : : "r"(at));
  return sum;
}

// Leaves in each line its own address: a line that were taken twice would hold the chase.
static inline uint64_t lines_exchange(const unsigned char *memory, const coherence_line *first,
                                      uint32_t n) {
  uint64_t sum = 0, at = (uintptr_t)first;
  while (n-- > 0) {
    sum = lines_fold(sum, at - (uintptr_t)memory);
    at = __atomic_exchange_n((uint64_t *)at, at, __ATOMIC_SEQ_CST);
  }
  __asm__ volatile("" : : "r"(at));
  return sum;
}

static inline void lines_request(team *t, coherence_lines *job, int64_t number,
                                 coherence_sample *sample) {
  const coherence_line *first = lines_get(t, job, 0);
  lines_touch_pages(t, job);
  sample->empty_ns = team_empty_ns(lines_stamp_ns);
  sample->begin_ns = lines_stamp_ns();
  sample->checksum = job->access == COHERENCE_LOAD ? lines_chase(t->memory, first, job->lines)
                                                   : lines_exchange(t->memory, first, job->lines);
  sample->time_ns = lines_stamp_ns() - sample->begin_ns;
  sample->core_mhz = core_mhz();
  sample->count = job->lines;
  for (uint32_t i = 0; i < job->lines; i++) { // what the writer left is what was seen
    coherence_line *line = lines_get(t, job, i);
    if (line->author == (uint64_t)preparations[job->state].writer &&
        line->sample == (uint64_t)number)
      line->reader = line->sample + 1;
  }
}

static inline int64_t lines_check(const team *t, const coherence_lines *job, int64_t number) {
  int64_t proven = 0;
  for (uint32_t i = 0; i < job->lines; i++) {
    const coherence_line *line = lines_get(t, job, i);
    uint64_t next = (uintptr_t)lines_get(t, job, job->access == COHERENCE_LOAD ? i + 1 : i);
    proven += line->reader == (uint64_t)number + 1 && line->next == next;
  }
  return proven;
}

static inline void lines_act(team *t, int role, int act, int64_t number) {
  coherence_lines *job = t->job;
  coherence_sample *sample = &t->samples[number];
  switch (act) {
  case WRITE:
    lines_write(t, job, number);
    break;
  case FLUSH:
    lines_flush(t, job);
    break;
  case LOAD:
    lines_load(t, job);
    break;
  case EVICT:
    lines_evict(t, job);
    break;
  case REQUEST:
    lines_request(t, job, number, sample);
    break;
  case CHECK:
    sample->proven = lines_check(t, job, number);
    break;
  }
  team_note(t, role, sample);
}

// Everybody goes through the same script and does what is theirs. The owner touches the memory
// first, which so lies on the owner's NUMA node, and has the last word on each sample.
static inline int lines_work(team *t, int role) {
  const coherence_lines *job = t->job;
  size_t bytes = job->lines * TEXT_PAGE + job->evicting_bytes;
  if (role == OWNER && text_touch_shuffled(t->memory, bytes, job->seed) != 0)
    return 0;
  if (role == OWNER)
    team_pass(t, 0);
  for (int64_t sample = 0; sample <= t->repeats; sample++) {
    int begun = 0;
    for (int i = 0; i < job->acts; i++) {
      if (job->script[i].role != role)
        continue;
      int64_t turn = sample * job->acts + i;
      if (!team_wait(t, turn) || team_late(t))
        return 0;
      if (!begun++)
        team_begin(t, role, &t->samples[sample]);
      lines_act(t, role, job->script[i].act, sample);
      if (i == job->acts - 1)
        __atomic_store_n(&t->done, sample, __ATOMIC_RELEASE);
      team_pass(t, turn + 1);
    }
  }
  return 1;
}

#endif
