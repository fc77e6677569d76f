/*
 * Reads the records of perf's data files into columns. Nothing is measured here: this is a kernel
 * because a recording of a scheduler has millions of records, of different lengths, and their
 * layout depends on the event that they belong to.
 *
 * The records come in pieces of any length and are gone through once, in the order of the file.
 * Memory grows with the different names in them (programs, mapped files), not with their number.
 * No length, count or offset that stands in the file is trusted: a record in which something lies
 * beyond its end is counted as damaged; one whose length cannot be, ends the reading, because
 * nobody knows where the next one begins. Layouts: linux/perf_event.h and, from type 64 on,
 * tools/perf/Documentation/perf.data-file-format.txt.
 *
 * tests/instruments/perf/perf_files.py writes what it reads.
 *
 * @kernel
 * flags = ["-O2"]
 */
#define _GNU_SOURCE
#include "common/interned.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// @interface
typedef struct {
  int64_t time_ns; /* 0: the record has none, as those that perf itself writes at the beginning */
  int64_t period;  /* 0: none */
  int64_t a, b, c, d; /* see perf_data_feed */
  int32_t type;       /* as in linux/perf_event.h: 9 is a sample */
  int32_t misc;
  int32_t event; /* number of the event; -1: of none that is known */
  int32_t cpu;   /* -1: the record has none, as for the two that follow */
  int32_t pid;
  int32_t tid;
  int32_t text;  /* number of a name; -1: none */
  int32_t bytes; /* of the record, and where it begins in the records */
  int64_t offset;
} perf_data_record;

typedef struct {
  int64_t records; /* that were gone through */
  int64_t unknown; /* of them: of a type that is not known here, left out */
  int64_t damaged; /* of them: with something beyond their end, left out */
  int64_t cut;     /* bytes of the last record, which is not all there */
  int64_t broken;  /* where in the records one has a length that cannot be; -1: nowhere */
} perf_data_report;

typedef struct perf_data perf_data;

/* NULL: no memory. */
perf_data *perf_data_open(void);
void perf_data_close(perf_data *p);

/* The next event, from number 0 on: what is in its samples. 0: no memory, or too many events. */
int perf_data_event(perf_data *p, uint64_t sample_type, uint64_t read_format, int sample_id_all);

/* A number that the records of an event bear. 0: no memory. */
int perf_data_id(perf_data *p, uint64_t id, int event);

/* What of an event's raw data goes to slot 0 (a) to 3 (d) of its samples; size 1, 2, 4 or 8. */
void perf_data_field(perf_data *p, int event, int slot, int offset, int size, int is_signed);

/*
 * Read n bytes, the last ones of the records or not. The number of records goes to *count. Returns
 * how many bytes were taken: the others are to come again, with what follows them (if *count is
 * below capacity) or as they are. -1: no memory, -2: the records are compressed.
 *
 * What stands in a record's a to d: SAMPLE: the fields that were asked for; FORK and EXIT: a the
 * parent's process, b its thread; COMM: text its name; MMAP and MMAP2: a address, b length, c
 * offset in the file, d protection (-1: not in the record), text the file; LOST: a the event's id,
 * b how many; LOST_SAMPLES: a how many, b the event's id; ID_INDEX: a id, c CPU, one record for
 * each; THROTTLE: a the event's id; SWITCH_CPU_WIDE: a process and b thread that come or left. Of
 * other types there is no record, but FINISHED_ROUND.
 */
int64_t perf_data_feed(perf_data *p, const char *bytes, int64_t n, int last,
                       perf_data_record *records, int64_t capacity, int64_t *count);

/* How many names there are. */
int64_t perf_data_count(const perf_data *p);

/*
 * The names from number first on, one after the other into a buffer; where each ends goes to ends.
 * Returns how many there was room for.
 */
int64_t perf_data_names(const perf_data *p, int64_t first, char *buffer, int64_t room,
                        int64_t *ends, int64_t capacity);

const perf_data_report *perf_data_reported(const perf_data *p);
// @end

enum { /* perf_event_type, and perf_user_event_type from 64 on */
       MMAP = 1,
       LOST = 2,
       COMM = 3,
       EXIT = 4,
       THROTTLE = 5,
       UNTHROTTLE = 6,
       FORK = 7,
       READ = 8,
       SAMPLE = 9,
       MMAP2 = 10,
       LOST_SAMPLES = 13,
       SWITCH_CPU_WIDE = 15,
       LAST_KERNEL_TYPE = 22, /* CALLCHAIN_DEFERRED */
       FIRST_USER_TYPE = 64,
       TRACING_DATA = 66,
       FINISHED_ROUND = 68,
       ID_INDEX = 69,
       AUXTRACE = 71,
       COMPRESSED = 81,
       COMPRESSED2 = 83,
       LAST_USER_TYPE = 85, /* BPF_METADATA */
};

enum { /* perf_event_sample_format: what stands in a sample, as far as the raw data */
       HAS_IP = 1 << 0,
       HAS_TID = 1 << 1,
       HAS_TIME = 1 << 2,
       HAS_ADDR = 1 << 3,
       HAS_READ = 1 << 4,
       HAS_CALLCHAIN = 1 << 5,
       HAS_ID = 1 << 6,
       HAS_CPU = 1 << 7,
       HAS_PERIOD = 1 << 8,
       HAS_STREAM_ID = 1 << 9,
       HAS_RAW = 1 << 10,
       HAS_IDENTIFIER = 1 << 16,
};

enum { READ_ENABLED = 1, READ_RUNNING = 2, READ_ID = 4, READ_GROUP = 8, READ_LOST = 16 };
enum { HEADER = 8, SLOTS = 4, MOST_EVENTS = 4096, INDEX_ENTRY = 32 };

typedef struct {
  uint64_t sample_type, read_format;
  int sample_id_all;
  struct {
    int offset, size, is_signed;
  } field[SLOTS];
} event;

struct perf_data {
  event *events;
  size_t n_events, events_room;
  table ids; /* an id's number in it is also its place in id_event */
  int32_t *id_event;
  size_t id_event_room;
  table names;
  uint64_t skip;      /* bytes that follow a record and belong to it */
  uint64_t taken;     /* bytes of the records in all */
  int64_t index_next; /* entry of the ID_INDEX record that comes next */
  int no_memory;
  perf_data_report report;
};

/* What is left of a record. Beyond its end stand zeros, and `short_` remembers it. */
typedef struct {
  const char *at, *end;
  int short_;
} cursor;

static const char *take(cursor *c, uint64_t n) {
  if ((uint64_t)(c->end - c->at) < n) {
    c->short_ = 1;
    c->at = c->end;
    return NULL;
  }
  const char *at = c->at;
  c->at += n;
  return at;
}

static uint64_t u64(cursor *c) {
  uint64_t value = 0;
  const char *at = take(c, sizeof value);
  if (at)
    memcpy(&value, at, sizeof value);
  return value;
}

static uint32_t u32(cursor *c) {
  uint32_t value = 0;
  const char *at = take(c, sizeof value);
  if (at)
    memcpy(&value, at, sizeof value);
  return value;
}

static int event_of(const perf_data *p, uint64_t id) {
  const table *t = &p->ids;
  if (t->n_slots == 0)
    return -1;
  uint64_t hash = hash_of((const char *)&id, sizeof id);
  for (size_t slot = hash & (t->n_slots - 1); t->slots[slot];
       slot = (slot + 1) & (t->n_slots - 1)) {
    size_t i = (size_t)t->slots[slot] - 1;
    if (t->hashes[i] == hash && memcmp(key_of(t, i).at, &id, sizeof id) == 0)
      return p->id_event[i];
  }
  return -1;
}

/* Where the id stands in a sample, in words; all events agree on it. -1: nowhere. */
static int id_position(uint64_t sample_type) {
  if (sample_type & HAS_IDENTIFIER)
    return 0;
  if (!(sample_type & HAS_ID))
    return -1;
  return !!(sample_type & HAS_IP) + !!(sample_type & HAS_TID) + !!(sample_type & HAS_TIME) +
         !!(sample_type & HAS_ADDR);
}

static int event_of_sample(const perf_data *p, const cursor *body) {
  if (p->n_events == 0)
    return -1;
  int position = id_position(p->events[0].sample_type);
  if (position < 0)
    return p->n_events == 1 ? 0 : -1;
  cursor c = *body;
  take(&c, 8 * (uint64_t)position);
  uint64_t id = u64(&c);
  return c.short_ ? -1 : event_of(p, id);
}

static void skip_read(cursor *c, uint64_t format) {
  uint64_t each = 1 + !!(format & READ_ID) + !!(format & READ_LOST), n = 1;
  if (format & READ_GROUP)
    n = u64(c);
  take(c, 8 * (!!(format & READ_ENABLED) + (uint64_t)!!(format & READ_RUNNING)));
  if (n > 8192) /* no record has room for them */
    c->short_ = 1;
  else
    take(c, 8 * n * each);
}

static int64_t field(cursor c, int offset, int size, int is_signed) {
  int64_t value = 0;
  take(&c, (uint64_t)offset);
  const char *at = take(&c, (uint64_t)size);
  if (at == NULL)
    return 0;                       /* an older kernel's event is shorter */
  memcpy(&value, at, (size_t)size); /* little-endian, as the file */
  int unused = 64 - 8 * size;
  return is_signed ? (int64_t)((uint64_t)value << unused) >> unused : value;
}

static void read_sample(const perf_data *p, cursor *c, perf_data_record *r) {
  r->event = event_of_sample(p, c);
  if (r->event < 0)
    return;
  const event *e = &p->events[r->event];
  uint64_t has = e->sample_type;
  if (has & HAS_IDENTIFIER)
    u64(c);
  if (has & HAS_IP)
    u64(c);
  if (has & HAS_TID) {
    r->pid = (int32_t)u32(c);
    r->tid = (int32_t)u32(c);
  }
  if (has & HAS_TIME)
    r->time_ns = (int64_t)u64(c);
  take(c, 8 * ((uint64_t)!!(has & HAS_ADDR) + !!(has & HAS_ID) + !!(has & HAS_STREAM_ID)));
  if (has & HAS_CPU) {
    r->cpu = (int32_t)u32(c);
    u32(c);
  }
  if (has & HAS_PERIOD)
    r->period = (int64_t)u64(c);
  if (has & HAS_READ)
    skip_read(c, e->read_format);
  if (has & HAS_CALLCHAIN) {
    uint64_t n = u64(c);
    if (n > 8192)
      c->short_ = 1;
    else
      take(c, 8 * n);
  }
  if (has & HAS_RAW) {
    uint64_t n = u32(c);
    const char *at = take(c, n);
    if (at == NULL)
      return;
    cursor raw = {at, at + n, 0};
    int64_t *slots[SLOTS] = {&r->a, &r->b, &r->c, &r->d};
    for (int i = 0; i < SLOTS; i++)
      if (e->field[i].size)
        *slots[i] = field(raw, e->field[i].offset, e->field[i].size, e->field[i].is_signed);
  }
}

/* Thread, time and CPU stand at the end of all other records of the kernel. Cuts them off; returns
 * the event's id, 0 where there is none. */
static uint64_t read_trailer(const perf_data *p, cursor *c, perf_data_record *r) {
  uint64_t id = 0;
  if (p->n_events == 0 || !p->events[0].sample_id_all)
    return id;
  const event *e = &p->events[0];
  if (e->sample_type & HAS_IDENTIFIER && c->end - c->at >= 8) {
    cursor last = {c->end - 8, c->end, 0};
    int found = event_of(p, id = u64(&last));
    if (found >= 0 && p->events[found].sample_id_all)
      e = &p->events[found];
  }
  uint64_t has = e->sample_type;
  uint64_t words = !!(has & HAS_TID) + (uint64_t)!!(has & HAS_TIME) + !!(has & HAS_ID) +
                   !!(has & HAS_STREAM_ID) + !!(has & HAS_CPU) + !!(has & HAS_IDENTIFIER);
  if ((uint64_t)(c->end - c->at) < 8 * words) {
    c->short_ = 1;
    return id;
  }
  cursor t = {c->end - 8 * words, c->end, 0};
  c->end = t.at;
  if (has & HAS_TID) {
    r->pid = (int32_t)u32(&t);
    r->tid = (int32_t)u32(&t);
  }
  if (has & HAS_TIME)
    r->time_ns = (int64_t)u64(&t);
  if (has & HAS_ID)
    id = u64(&t);
  if (has & HAS_STREAM_ID)
    u64(&t);
  if (has & HAS_CPU)
    r->cpu = (int32_t)u32(&t);
  r->event = event_of(p, id);
  return id;
}

/* A name in the rest of a record ends with a zero byte. */
static void read_name(perf_data *p, cursor *c, perf_data_record *r) {
  size_t room = (size_t)(c->end - c->at), n = strnlen(c->at, room);
  if (n == room)
    c->short_ = 1;
  else
    r->text = intern(&p->no_memory, &p->names, c->at, n);
}

/* 1: a record is there now, 0: one that is left out, -1: damaged. */
static int read_record(perf_data *p, int type, cursor c, perf_data_record *r) {
  uint64_t id = 0;
  if (type == SAMPLE)
    read_sample(p, &c, r);
  else if (type < FIRST_USER_TYPE)
    id = read_trailer(p, &c, r);
  switch (type) {
  case SAMPLE:
  case FINISHED_ROUND:
    break;
  case FORK:
  case EXIT:
    r->pid = (int32_t)u32(&c);
    r->a = (int32_t)u32(&c);
    r->tid = (int32_t)u32(&c);
    r->b = (int32_t)u32(&c);
    uint64_t time = u64(&c);
    r->time_ns = r->time_ns ? r->time_ns : (int64_t)time;
    break;
  case COMM:
    r->pid = (int32_t)u32(&c);
    r->tid = (int32_t)u32(&c);
    read_name(p, &c, r);
    break;
  case MMAP:
  case MMAP2:
    r->pid = (int32_t)u32(&c);
    r->tid = (int32_t)u32(&c);
    r->a = (int64_t)u64(&c);
    r->b = (int64_t)u64(&c);
    r->c = (int64_t)u64(&c);
    r->d = -1;
    if (type == MMAP2) {
      take(&c, 24); /* device and inode, or a build id */
      r->d = u32(&c);
      u32(&c);
    }
    read_name(p, &c, r);
    break;
  case LOST:
    r->a = (int64_t)u64(&c);
    r->b = (int64_t)u64(&c);
    break;
  case LOST_SAMPLES:
    r->a = (int64_t)u64(&c);
    r->b = (int64_t)id;
    break;
  case SWITCH_CPU_WIDE:
    r->a = (int32_t)u32(&c);
    r->b = (int32_t)u32(&c);
    break;
  case THROTTLE:
    u64(&c);
    r->a = (int64_t)u64(&c);
    break;
  default:
    p->report.unknown +=
        type > LAST_USER_TYPE || (type > LAST_KERNEL_TYPE && type < FIRST_USER_TYPE) || type == 0;
    return 0;
  }
  return c.short_ ? -1 : 1;
}

/* One entry of an ID_INDEX record is one record: 1; 0: there is none any more. */
static int read_index(perf_data *p, cursor c, perf_data_record *r) {
  uint64_t n = u64(&c);
  if ((uint64_t)p->index_next >= n || c.short_)
    return 0;
  take(&c, INDEX_ENTRY * (uint64_t)p->index_next);
  r->a = (int64_t)u64(&c);
  u64(&c);
  r->c = (int64_t)u64(&c);
  u64(&c);
  p->index_next++;
  return !c.short_;
}

/* --- the way in and out ----------------------------------------------------------------------- */

perf_data *perf_data_open(void) {
  perf_data *p = calloc(1, sizeof *p);
  if (p)
    p->report.broken = -1;
  return p;
}

void perf_data_close(perf_data *p) {
  discard(&p->ids);
  discard(&p->names);
  free(p->events);
  free(p->id_event);
  free(p);
}

int perf_data_event(perf_data *p, uint64_t sample_type, uint64_t read_format, int sample_id_all) {
  if (p->n_events >= MOST_EVENTS ||
      !grow(&p->no_memory, &p->events, &p->events_room, p->n_events + 1, sizeof *p->events))
    return 0;
  p->events[p->n_events++] = (event){
      .sample_type = sample_type, .read_format = read_format, .sample_id_all = sample_id_all};
  return 1;
}

int perf_data_id(perf_data *p, uint64_t id, int event) {
  size_t i = (size_t)intern(&p->no_memory, &p->ids, &id, sizeof id);
  if (p->no_memory ||
      !grow(&p->no_memory, &p->id_event, &p->id_event_room, p->ids.n, sizeof *p->id_event))
    return 0;
  p->id_event[i] = event;
  return 1;
}

void perf_data_field(perf_data *p, int event, int slot, int offset, int size, int is_signed) {
  p->events[event].field[slot].offset = offset;
  p->events[event].field[slot].size = size;
  p->events[event].field[slot].is_signed = is_signed;
}

/* The bytes that follow a record of its own length; -1: it is not all there. */
static int64_t following(int type, cursor body) {
  if (type == AUXTRACE)
    return (int64_t)(u64(&body) & INT64_MAX);
  if (type == TRACING_DATA)
    return (u32(&body) + 7) & ~7ll;
  return 0;
}

int64_t perf_data_feed(perf_data *p, const char *bytes, int64_t n, int last,
                       perf_data_record *records, int64_t capacity, int64_t *count) {
  const char *at = bytes, *end = bytes + n;
  *count = 0;
  while (at < end && *count < capacity && !p->no_memory) {
    if (p->skip || p->report.broken >= 0) {
      uint64_t left = (uint64_t)(end - at), step = left;
      if (p->report.broken < 0)
        p->skip -= step = p->skip < left ? p->skip : left;
      at += step;
      continue;
    }
    if (end - at < HEADER)
      break;
    uint32_t type;
    uint16_t misc, size;
    memcpy(&type, at, 4);
    memcpy(&misc, at + 4, 2);
    memcpy(&size, at + 6, 2);
    if (size < HEADER) {
      p->report.broken = (int64_t)p->taken + (at - bytes);
      continue;
    }
    if (end - at < size)
      break;
    if (type == COMPRESSED || type == COMPRESSED2)
      return -2;
    cursor body = {at + HEADER, at + size, 0};
    perf_data_record r = {.misc = misc, .event = -1, .cpu = -1, .pid = -1, .tid = -1, .text = -1};
    r.type = (int32_t)(type & INT32_MAX);
    r.bytes = size;
    r.offset = (int64_t)p->taken + (at - bytes);
    if (type == ID_INDEX && read_index(p, body, &r)) {
      records[(*count)++] = r;
      continue;
    }
    p->index_next = 0;
    int got = type > LAST_USER_TYPE ? (p->report.unknown++, 0) : read_record(p, r.type, body, &r);
    p->report.records++;
    p->report.damaged += got < 0;
    if (got > 0)
      records[(*count)++] = r;
    p->skip = (uint64_t)following(r.type, body);
    at += size;
  }
  if (last && *count < capacity && at < end && !p->no_memory) {
    p->report.cut = end - at;
    at = end;
  }
  p->taken += (uint64_t)(at - bytes);
  return p->no_memory ? -1 : at - bytes;
}

int64_t perf_data_count(const perf_data *p) { return (int64_t)p->names.n; }

int64_t perf_data_names(const perf_data *p, int64_t first, char *buffer, int64_t room,
                        int64_t *ends, int64_t capacity) {
  char *to = buffer;
  int64_t n = 0;
  for (size_t i = (size_t)first; i < p->names.n && n < capacity; i++) {
    span s = key_of(&p->names, i);
    if ((size_t)(buffer + room - to) < length(s))
      break;
    if (length(s) > 0)
      memcpy(to, s.at, length(s));
    to += length(s);
    ends[n++] = to - buffer;
  }
  return n;
}

const perf_data_report *perf_data_reported(const perf_data *p) { return &p->report; }
