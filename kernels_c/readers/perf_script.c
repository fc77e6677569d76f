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
 * tests/reference/perf_script.py says the same with regular expressions.
 *
 * @kernel
 * flags = ["-O2"]
 */
#define _GNU_SOURCE
#include "common/folded_frame.h"
#include "common/interned.h"
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
enum { LONGEST_COMM = 256 }; /* the kernel's have 15 bytes; for each more a line is read again */
#ifndef LONGEST_LINE         /* a fuzzer gets there sooner with less */
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

/* The frames of a stack that one frame of the text stands for: none, one, or several ("a->b"). */
static void find_parts(perf_script *p, span symbol, span object) {
  size_t first = p->parts_used;
  /* In brackets: the name of a process, which stackcollapse-perf leaves out. */
  int skip = begins(symbol, "(") && !begins(symbol, "(anonymous namespace)");
  span rest = undo_rust(symbol, p->scratch[1]);
  for (int more = !skip, inlined = 0; more; inlined = 1) {
    span part = rest;
    const char *arrow = memmem(rest.at, length(rest), "->", 2);
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

typedef struct {
  uint64_t ip;
  int64_t offset;
  span symbol; /* without its offset; empty: none is written */
  span object; /* empty: none is written */
  int written; /* anything but the address */
} frame;

/* Where "(object)" begins at the end of a line; NULL: there is none. Objects may hold brackets. */
static const char *object_begin(span s) {
  int64_t depth = 0;
  for (const char *c = s.end; c-- > s.at;) {
    depth += (*c == ')') - (*c == '(');
    if (depth == 0)
      return is_blank(c[-1]) ? c : NULL; /* the address stands before: c[-1] is there */
  }
  for (const char *c = s.end; c-- > s.at;) /* brackets without a partner */
    if (*c == '(' && is_blank(c[-1]))
      return c;
  return NULL;
}

/* "ffffffff8103ce3b native_safe_halt+0xe ([kernel.kallsyms])"; no frame: 0. */
static int read_frame(span s, frame *f) {
  *f = (frame){.offset = -1};
  if (!address(word(&s), &f->ip))
    return 0;
  span rest = trim(s);
  f->written = rest.at < rest.end;
  const char *begin = f->written && rest.end[-1] == ')' ? object_begin(rest) : NULL;
  f->symbol = rest;
  if (begin) {
    f->object = (span){begin + 1, rest.end - 1};
    f->symbol = trim((span){rest.at, begin});
    /* "ip  (object)", as old versions of perf write it: stackcollapse-perf makes it a blank. */
    if (f->symbol.at == f->symbol.end && rest.at - s.at > 1)
      f->symbol = (span){begin - 1, begin};
  }
  const char *digits = f->symbol.end;
  while (digits > f->symbol.at && hex_value(digits[-1]) >= 0)
    digits--;
  if (digits - f->symbol.at >= 3 && memcmp(digits - 3, "+0x", 3) == 0) {
    uint64_t offset;
    if (address((span){digits, f->symbol.end}, &offset) && offset <= INT64_MAX)
      f->offset = (int64_t)offset;
    f->symbol.end = digits - 3;
  }
  return 1;
}

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

/* --- a sample's first line ---------------------------------------------------------------------
 */

typedef struct {
  span comm, event, rest;
  int64_t pid, tid, cpu, time_ns, period;
  int has_time, has_event;
  int is_frame; /* the rest is one, or begins with an address at least */
  frame frame;
} head;

/* "1234", "-1", "1234/1235" */
static int read_ids(span w, head *h) {
  const char *slash = memchr(w.at, '/', length(w));
  span parts[2] = {{w.at, slash ? slash : w.end}, {slash ? slash + 1 : w.end, w.end}};
  int64_t values[2] = {-1, -1};
  for (int i = 0; i <= (slash != NULL); i++)
    if (!is(parts[i], "-1") && (values[i] = number(parts[i], INT32_MAX)) < 0)
      return 0;
  h->pid = slash ? values[0] : -1; /* a number alone is a thread's */
  h->tid = slash ? values[1] : values[0];
  return 1;
}

/* "4794564.109216:", up to nine digits after the point. */
static int read_time(span w, int64_t *time_ns) {
  const char *point = memchr(w.at, '.', length(w));
  if (point == NULL || w.end[-1] != ':')
    return 0;
  span whole = {w.at, point}, part = {point + 1, w.end - 1};
  int64_t seconds = number(whole, 9223372035), fraction = number(part, 999999999);
  if (seconds < 0 || fraction < 0 || length(part) > 9)
    return 0;
  for (size_t i = length(part); i < 9; i++)
    fraction *= 10;
  *time_ns = seconds * 1000000000 + fraction;
  return 1;
}

/* sched:sched_switch is a tracepoint, cycles:u an event with modifiers. */
static int is_tracepoint(span event) {
  const char *colon = memrchr(event.at, ':', length(event));
  if (colon == NULL)
    return 0;
  for (const char *c = colon + 1; c < event.end; c++)
    if (memchr("ukhGHIpPSDWeb", *c, 13) == NULL)
      return 1;
  return 0;
}

/* "    257597 cycles:u:  what follows"; each of the three may be missing. */
static int read_event(span s, head *h) {
  span after = s, first = word(&after), after_second = after, second = word(&after_second);
  int64_t period = number(first, INT64_MAX);
  h->period = -1;
  if (period >= 0 && (second.at == second.end || second.end[-1] == ':')) {
    h->period = period;
    first = second;
    s = after;
    after = after_second;
  }
  h->has_event = length(first) > 1 && first.end[-1] == ':';
  h->event = h->has_event ? (span){first.at, first.end - 1} : (span){s.at, s.at};
  h->rest = trim(h->has_event ? after : s);
  return !begins(h->event, "PERF_RECORD_");
}

/* "U", "K", "HU": user, kernel, guest; what "-F +misc" adds. */
static int is_mode(span w) {
  for (const char *c = w.at; c < w.end; c++)
    if (*c < 'A' || *c > 'Z')
      return 0;
  return length(w) > 0 && length(w) <= 6;
}

/* What follows a thread's number. */
static int read_tail(span s, head *h, int with_time) {
  span after = s, w = word(&after);
  h->cpu = -1;
  if (length(w) > 2 && *w.at == '[' && w.end[-1] == ']' &&
      (h->cpu = number((span){w.at + 1, w.end - 1}, INT32_MAX)) >= 0) {
    s = after;
    w = word(&after);
  }
  h->time_ns = -1;
  h->has_time = with_time;
  if (with_time) {
    if (is_mode(w)) {
      s = after;
      w = word(&after);
    }
    if (w.at == w.end || !read_time(w, &h->time_ns))
      return 0;
    s = after;
  }
  if (!read_event(s, h))
    return 0;
  int tracepoint = is_tracepoint(h->event);
  span rest = h->rest;
  h->is_frame = read_frame(h->rest, &h->frame);
  if (tracepoint && (h->frame.object.at == NULL || length(word(&rest)) < 8))
    h->is_frame = 0; /* its fields, such as "add (x)" */
  if (h->rest.at == h->rest.end)
    return with_time || h->has_event;
  if (!h->has_event) /* anything might stand here, so it must be a frame */
    return h->is_frame && h->frame.object.at != NULL;
  return with_time || tracepoint || (h->is_frame && h->frame.written);
}

/*
 * "Web Content 24636/25607 [000] 94564.109216:   250000 cycles:u: ...": a command's name may hold
 * anything, so the first word that is a number with the right things behind it is the thread's.
 */
static int read_head(span line, head *h) {
  for (int with_time = 1; with_time >= 0; with_time--) {
    span rest = line;
    word(&rest);
    for (;;) {
      span before = {line.at, rest.at}, w = word(&rest);
      if (w.at == w.end || w.at - line.at > LONGEST_COMM)
        break;
      if ((is_digit(*w.at) || *w.at == '-') && read_ids(w, h) && read_tail(rest, h, with_time)) {
        h->comm = trim(before);
        return 1;
      }
    }
  }
  return 0;
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
      .ip = h->is_frame ? h->frame.ip : 0, /* or data's address, and then frames follow */
      .offset = -1,
      .cpu = (int32_t)h->cpu,
      .pid = (int32_t)h->pid,
      .tid = (int32_t)h->tid,
      .comm = number_of(p, &p->comm, h->comm),
      .event = number_of(p, &p->event, h->event),
      .symbol = number_of(p, &p->symbol, or_unknown((span){NULL, NULL})),
      .object = number_of(p, &p->object, or_unknown((span){NULL, NULL})),
  };
  if (alone) {
    add_frame(p, &h->frame);
    end_sample(p);
  }
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

/* perf's remarks on other things than samples: mappings, forks, lost events. */
static int is_record(span line) {
  const char *found = memmem(line.at, length(line), "PERF_RECORD_", 12);
  return begins(line, "---") || (found && (found == line.at || is_blank(found[-1])));
}

static void read_content(perf_script *p, span line, int text_ends) {
  frame f;
  head h;
  int is_frame = read_frame(line, &f), may_be_frame = p->open && is_frame;
  int may_be_head = 1;
  if (may_be_frame && is_blank(*line.at)) {
    /* A command may be called "dd", but then a number follows, which in a frame is hardly so. */
    span rest = line;
    word(&rest);
    span second = word(&rest);
    may_be_head = second.at < second.end && (is_digit(*second.at) || *second.at == '-');
  }
  if (may_be_head && read_head(line, &h)) {
    if (!begin_sample(p, &h, text_ends))
      not_read(p, line, CUT);
  } else if (may_be_frame) {
    if (is_cut(p, &f, text_ends))
      not_read(p, line, CUT);
    else
      add_frame(p, &f);
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
  if (*line.at == '#') {
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
