/*
 * Reads the text of "perf script" into columns. Nothing is measured here: this is a kernel because
 * a profile has millions of lines, and Python reads a few hundred thousand of them a second.
 *
 * The text comes in pieces of any length and is gone through once. Every string is kept once: a
 * command, an event, a symbol, an object and a frame are numbers from their first sight on, a stack
 * is a sequence of such numbers, and again a number. So memory grows with what is different in the
 * text, not with its length, and a frame's name is tidied once however often it is sampled.
 *
 * A stack's frames are tidied as stackcollapse-perf does it: no argument lists, no offsets, the
 * object's name for an unknown function, "a->b" as two frames, Rust's escapes undone.
 *
 * tests/instruments/perf/perf_texts.py lists recorded texts; their stacks are compared with those
 * that inferno-collapse-perf made of them.
 *
 * @kernel
 * flags = ["-O2"]
 */
#define _GNU_SOURCE
#include "common/folded_frame.h"
#include "common/interned.h"
#include "common/perf_line.h"
#include "common/words.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// @interface
typedef struct {
  int64_t time_ns; /* -1: not in the text, as for all that follow */
  int64_t period;
  uint64_t ip; /* 0: not in the text */
  int64_t offset;
  int32_t cpu;
  int32_t pid;
  int32_t tid;
  int32_t comm; /* this and the following: numbers of strings */
  int32_t event;
  int32_t symbol;
  int32_t object;
  int32_t stack;
} perf_script_sample;

typedef struct {
  int64_t line;   /* from 1 */
  int32_t reason; /* 0: neither sample nor frame, 1: frame without a sample, 2: cut, 3: too long */
  int32_t bytes;  /* of the text that is kept */
  char text[160];
} perf_script_unread;

typedef struct {
  int64_t lines;
  int64_t records; /* lines that perf wrote about something else than a sample */
  int64_t unread_count;
  int64_t kept; /* of the unread lines, the first ones */
  int64_t header_bytes;
  const char *header; /* the lines that begin with '#', as far as 1 MiB goes */
  perf_script_unread unread[100];
} perf_script_report;

typedef struct perf_script perf_script;

/* NULL: no memory. */
perf_script *perf_script_open(void);
void perf_script_close(perf_script *p);

/*
 * Read n bytes, the last ones of the text or not. The number of samples that became complete goes
 * to *count. Returns how many bytes were taken: the others, the beginning of a line, are to come
 * again with what follows them; if *count is above capacity - 3, there was no room, and the others
 * are to come again as they are. -1: no memory.
 */
int64_t perf_script_feed(perf_script *p, const char *text, int64_t n, int last,
                         perf_script_sample *samples, int64_t capacity, int64_t *count);

/* How many strings there are of one kind: 0 comm, 1 event, 2 symbol, 3 object, 4 stack. */
int64_t perf_script_count(const perf_script *p, int kind);

/*
 * The strings of one kind from number first on, one after the other into a buffer; where each ends
 * goes to ends. Returns how many there was room for.
 */
int64_t perf_script_strings(const perf_script *p, int kind, int64_t first, char *buffer,
                            int64_t room, int64_t *ends, int64_t capacity);

const perf_script_report *perf_script_reported(const perf_script *p);
// @end

enum { NEITHER, ORPHAN, CUT, TOO_LONG };
enum { KEPT_UNREAD = 100, KEPT_TEXT = 160, MOST_HEADER = 1 << 20 };
#ifndef LONGEST_LINE /* a fuzzer gets there sooner with less */
#define LONGEST_LINE (1 << 20)
#endif

struct perf_script {
  table comm, event, symbol, object, stack;
  table raw;   /* frames as they are written: Java or not, symbol, object */
  table frame; /* frames as they stand in a stack */
  size_t *parts_end;
  size_t parts_end_room;
  int32_t *parts; /* the frames that a raw one stands for, the innermost first */
  size_t parts_used, parts_room;
  perf_script_sample now;
  int open;        /* a sample whose frames may follow */
  int after_frame; /* a line of source may follow */
  int has_leaf;
  int alone;   /* its frame stood on its first line */
  int inlined; /* so far every frame of the sample is inlined: its object is not known yet */
  int java;
  int32_t *ids; /* the open sample's stack, the innermost frame first */
  size_t depth, ids_room;
  int seen_time, seen_event, seen_object;
  int skipping; /* within a line that is too long */
  int no_memory;
  char *scratch[2];
  char *header;
  size_t header_room;
  perf_script_report report;
  perf_script_sample *out;
  int64_t n_out;
};

static int32_t number_of(perf_script *p, table *t, span s) {
  return intern(&p->no_memory, t, s.at, length(s));
}

/*
 * Where Java's "a->b" goes on with what was inlined; NULL: nowhere. Other arrows are C++'s
 * operators and Rust's types of results: next to a blank or within brackets.
 */
static const char *inlined_call(span s) {
  int64_t depth = 0;
  for (const char *c = s.at; c + 1 < s.end; c++) {
    if (*c == '-' && c[1] == '>') {
      int of_operator = c - s.at >= 8 && memcmp(c - 8, "operator", 8) == 0;
      if (depth <= 0 && !of_operator && c > s.at && !is_blank(c[-1]))
        return c;
      c++;
    } else {
      depth += (memchr("<({[", *c, 4) != NULL) - (memchr(">)}]", *c, 4) != NULL);
    }
  }
  return NULL;
}

/* The frames of a stack that one frame of the text stands for: none, one, or several ("a->b"). */
static void find_parts(perf_script *p, span symbol, span object) {
  size_t first = p->parts_used;
  /* In brackets alone: the name of a process, which stackcollapse-perf leaves out. */
  int skip = begins(symbol, "(") && memchr(symbol.at, ')', length(symbol)) == symbol.end - 1 &&
             !is(symbol, "(anonymous namespace)");
  span rest = undo_rust(symbol, p->scratch[1]);
  for (int more = !skip, inlined = 0; more; inlined = 1) {
    span part = rest;
    const char *arrow = inlined_call(rest);
    more = arrow != NULL;
    if (more) {
      part.end = arrow;
      rest.at = arrow + 2;
    }
    span name = folded_frame(part, object, p->java, inlined, p->scratch[0]);
    int32_t id = number_of(p, &p->frame, name);
    if (!grow(&p->no_memory, &p->parts, &p->parts_room, p->parts_used + 1, sizeof *p->parts))
      return;
    p->parts[p->parts_used++] = id;
  }
  for (size_t i = first, j = p->parts_used; i + 1 < j; i++) { /* the outermost came first */
    int32_t outer = p->parts[i];
    p->parts[i] = p->parts[--j];
    p->parts[j] = outer;
  }
  if (grow(&p->no_memory, &p->parts_end, &p->parts_end_room, p->raw.n, sizeof *p->parts_end))
    p->parts_end[p->raw.n - 1] = p->parts_used;
}

static void push_frame(perf_script *p, span symbol, span object) {
  char *key = p->scratch[0], *out = key;
  *out++ = (char)p->java;
  memcpy(out, symbol.at, length(symbol));
  out += length(symbol);
  *out++ = '\n'; /* in no line */
  memcpy(out, object.at, length(object));
  out += length(object);
  size_t known = p->raw.n;
  size_t raw = (size_t)intern(&p->no_memory, &p->raw, key, (size_t)(out - key));
  if (p->raw.n > known)
    find_parts(p, symbol, object);
  if (p->no_memory)
    return;
  size_t first = raw ? p->parts_end[raw - 1] : 0, n = p->parts_end[raw] - first;
  if (n == 0 || !grow(&p->no_memory, &p->ids, &p->ids_room, p->depth + n, sizeof *p->ids))
    return;
  memcpy(p->ids + p->depth, p->parts + first, n * sizeof *p->ids);
  p->depth += n;
}

/* --- a frame ---------------------------------------------------------------------------------- */

/* Whether a frame is not all there: the others have an object, or the text ends in this line. */
static int is_cut(const perf_script *p, const frame *f, int text_ends) {
  if (f->object.at == NULL)
    return text_ends || p->seen_object;
  if (is(f->object, "deleted")) /* of "(path (deleted))" */
    return 1;
  return text_ends && !begins(f->object, "/") && !begins(f->object, "[") &&
         !is(f->object, "inlined");
}

static span or_unknown(span s) {
  static const char unknown[] = "[unknown]";
  return s.at == s.end ? (span){unknown, unknown + 9} : s;
}

/* The next frame of the open sample; the first one is its leaf. */
static void add_frame(perf_script *p, const frame *f) {
  span name = or_unknown(f->symbol), object = or_unknown(f->object);
  int inlined = is(object, "inlined");
  push_frame(p, name, object);
  if (!p->has_leaf) {
    p->now.ip = f->ip;
    p->now.offset = f->offset;
    p->now.symbol = number_of(p, &p->symbol, or_unknown(trim(name)));
  }
  /* An inlined function lies in the object of the function that it was inlined into. */
  if (!p->has_leaf || (p->inlined && !inlined))
    p->now.object = number_of(p, &p->object, object);
  p->inlined = inlined && (p->inlined || !p->has_leaf);
  p->has_leaf = 1;
  p->seen_object |= f->object.at != NULL;
  p->after_frame = 1;
}

/* --- lines ------------------------------------------------------------------------------------ */

static void end_sample(perf_script *p) {
  if (!p->open)
    return;
  p->now.stack = intern(&p->no_memory, &p->stack, p->ids, p->depth * sizeof *p->ids);
  p->out[p->n_out++] = p->now;
  p->open = 0;
}

static void not_read(perf_script *p, span line, int reason) {
  perf_script_report *r = &p->report;
  r->unread_count++;
  if (r->kept < KEPT_UNREAD) {
    size_t n = length(line) < KEPT_TEXT ? length(line) : KEPT_TEXT;
    perf_script_unread *u = &r->unread[r->kept++];
    *u = (perf_script_unread){.line = r->lines, .reason = reason, .bytes = (int32_t)n};
    memcpy(u->text, line.at, n);
  }
  /* A line at the margin is where a sample begins: what follows it is not the last one's. */
  if (!is_blank(*line.at))
    end_sample(p);
  p->after_frame = 0;
}

/* Whether the sample is all there as far as this line can say. */
static int begin_sample(perf_script *p, const head *h, int text_ends) {
  int alone = h->is_frame && h->frame.written; /* its frame stands on the same line */
  if ((p->seen_time && !h->has_time) || (p->seen_event && !h->has_event))
    return 0;
  if (alone ? is_cut(p, &h->frame, text_ends) : text_ends)
    return 0;
  end_sample(p);
  p->seen_time |= h->has_time;
  p->seen_event |= h->has_event;
  p->open = 1;
  p->depth = 0;
  p->has_leaf = p->inlined = p->after_frame = 0;
  p->java = begins(h->comm, "java");
  p->now = (perf_script_sample){
      .time_ns = h->time_ns,
      .period = h->period,
      .ip = h->is_frame && !h->skipped ? h->frame.ip : 0, /* or data's, and then frames follow */
      .offset = -1,
      .cpu = (int32_t)h->cpu,
      .pid = (int32_t)h->pid,
      .tid = (int32_t)h->tid,
      .comm = number_of(p, &p->comm, h->comm),
      .event = number_of(p, &p->event, h->event),
      .symbol = number_of(p, &p->symbol, or_unknown((span){NULL, NULL})),
      .object = number_of(p, &p->object, or_unknown((span){NULL, NULL})),
  };
  if (alone)
    add_frame(p, &h->frame);
  p->alone = alone;
  return 1;
}

/* "  file.c:12", "  file.c:12 (discriminator 3)" */
static int is_source_line(span line) {
  const char *end = line.end;
  if (end[-1] == ')') {
    const char *begin = memrchr(line.at, '(', length(line));
    if (begin == NULL || begin - line.at < 2 || !begins((span){begin, line.end}, "(discriminator "))
      return 0;
    end = begin - 1;
  }
  const char *digits = end;
  while (digits > line.at && is_digit(digits[-1]))
    digits--;
  return digits < end && digits - line.at > 1 && digits[-1] == ':' && is_blank(*line.at);
}

/* What "-F" adds behind the last frame of several: branches, registers, the instruction. */
static int is_field_line(span line) {
  span rest = line;
  frame f;
  if (begins(line, "\t\t")) /* in words: an "add" is a number, too */
    return !read_frame(line, &f) || f.object.at == NULL || begins(f.object, "%");
  return is_blank(*line.at) &&
         (begins_field(word(&rest)) || (has_branches(line) && !contains(line, " (")));
}

/* perf's remarks on other things than samples: mappings, forks, lost events. */
static int is_record(span line) {
  const char *found = memmem(line.at, length(line), "PERF_RECORD_", 12);
  return begins(line, "---") || (found && (found == line.at || is_blank(found[-1])));
}

static void read_content(perf_script *p, span line, int text_ends) {
  if (p->after_frame && is_field_line(line))
    return;
  frame f;
  head h;
  int is_frame = read_frame(line, &f), may_be_frame = p->open && is_frame;
  int may_be_head = 1;
  if (may_be_frame && is_blank(*line.at) && !p->alone) {
    /* A command may be called "dd", but then a number follows, which in a frame is hardly so. */
    span rest = line;
    word(&rest);
    span second = word(&rest);
    may_be_head = second.at < second.end &&
                  (is_digit(*second.at) || *second.at == '-' || read_cpu(second) >= 0);
  }
  if (may_be_head && read_head(line, &h)) {
    if (!begin_sample(p, &h, text_ends))
      not_read(p, line, CUT);
  } else if (may_be_frame) {
    if (is_cut(p, &f, text_ends)) {
      not_read(p, line, CUT);
    } else {
      if (p->alone) { /* what stood on the first line is of the data: the code's frames follow */
        p->depth = 0;
        p->alone = p->has_leaf = p->inlined = 0;
      }
      add_frame(p, &f);
    }
  } else if (is_record(line)) {
    end_sample(p);
    p->report.records++;
  } else if (!p->after_frame || !is_source_line(line)) {
    not_read(p, line, is_frame ? ORPHAN : NEITHER);
  }
}

static void read_line(perf_script *p, span line, int text_ends) {
  while (line.end > line.at && is_blank(line.end[-1]))
    line.end--;
  if (line.at == line.end) {
    end_sample(p);
    p->after_frame = 0;
    return;
  }
  head h; /* of a command whose name begins so */
  int is_head = length(line) > 1 && !is_blank(line.at[1]) && *line.at == '#' && read_head(line, &h);
  if (*line.at == '#' && !is_head) {
    size_t n = length(line);
    if ((size_t)p->report.header_bytes + n < MOST_HEADER &&
        grow(&p->no_memory, &p->header, &p->header_room, (size_t)p->report.header_bytes + n + 1,
             1)) {
      memcpy(p->header + p->report.header_bytes, line.at, n);
      p->header[p->report.header_bytes + (int64_t)n] = '\n';
      p->report.header_bytes += (int64_t)n + 1;
    }
    return;
  }
  read_content(p, line, text_ends);
}

/* --- the way in and out -------------------------------------------------------------------------
 */

perf_script *perf_script_open(void) {
  perf_script *p = calloc(1, sizeof *p);
  if (p == NULL)
    return NULL;
  for (int i = 0; i < 2; i++)
    if ((p->scratch[i] = malloc(LONGEST_LINE + 64)) == NULL)
      p->no_memory = 1;
  if (p->no_memory) {
    perf_script_close(p);
    return NULL;
  }
  return p;
}

void perf_script_close(perf_script *p) {
  table *tables[] = {&p->comm, &p->event, &p->symbol, &p->object, &p->stack, &p->raw, &p->frame};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    discard(tables[i]);
  free(p->parts_end);
  free(p->parts);
  free(p->ids);
  free(p->scratch[0]);
  free(p->scratch[1]);
  free(p->header);
  free(p);
}

int64_t perf_script_feed(perf_script *p, const char *text, int64_t n, int last,
                         perf_script_sample *samples, int64_t capacity, int64_t *count) {
  const char *at = text, *end = text + n;
  p->out = samples;
  p->n_out = 0;
  while (at < end && p->n_out <= capacity - 3 && !p->no_memory) { /* a line ends two at most */
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    if (p->skipping) {
      p->skipping = newline == NULL;
    } else if (stop - at >= LONGEST_LINE) {
      p->report.lines++;
      not_read(p, (span){at, stop}, TOO_LONG);
      p->skipping = newline == NULL;
    } else if (newline || last) {
      p->report.lines++;
      read_line(p, (span){at, stop}, newline == NULL);
    } else {
      break;
    }
    at = newline ? newline + 1 : end;
  }
  if (last && at == end && p->n_out <= capacity - 3)
    end_sample(p);
  *count = p->n_out;
  p->report.header = p->header;
  return p->no_memory ? -1 : at - text;
}

/* A stack as text, the outermost frame first; NULL: there is no room for it. */
static char *join(const perf_script *p, size_t number, char *to, const char *end) {
  span ids = key_of(&p->stack, number);
  for (const char *at = ids.end; at > ids.at;) {
    int32_t id;
    at -= sizeof id;
    memcpy(&id, at, sizeof id);
    span name = key_of(&p->frame, (size_t)id);
    if ((size_t)(end - to) <= length(name))
      return NULL;
    if (length(name) > 0)
      memcpy(to, name.at, length(name));
    to += length(name);
    if (at > ids.at)
      *to++ = ';';
  }
  return to;
}

static const table *strings_of(const perf_script *p, int kind) {
  const table *const tables[] = {&p->comm, &p->event, &p->symbol, &p->object, &p->stack};
  return tables[kind];
}

int64_t perf_script_count(const perf_script *p, int kind) {
  return (int64_t)strings_of(p, kind)->n;
}

int64_t perf_script_strings(const perf_script *p, int kind, int64_t first, char *buffer,
                            int64_t room, int64_t *ends, int64_t capacity) {
  const table *t = strings_of(p, kind);
  char *to = buffer, *end = buffer + room;
  int64_t n = 0;
  for (size_t i = (size_t)first; i < t->n && n < capacity; i++) {
    if (t == &p->stack) {
      char *joined = join(p, i, to, end);
      if (joined == NULL)
        break;
      to = joined;
    } else {
      span s = key_of(t, i);
      if ((size_t)(end - to) < length(s))
        break;
      if (length(s) > 0)
        memcpy(to, s.at, length(s));
      to += length(s);
    }
    ends[n++] = to - buffer;
  }
  return n;
}

const perf_script_report *perf_script_reported(const perf_script *p) { return &p->report; }
