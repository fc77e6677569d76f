// A line of perf script's text: a frame, or a sample's first line, in perf's own order of fields.
#ifndef PERF_LINE_H
#define PERF_LINE_H

#include "words.h"
#include <stdint.h>
#include <string.h>

enum { LONGEST_COMM = 256 }; /* the kernel's have 15 bytes; for each more a line is read again */

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

/* What "-F +brstack" and its like write: "0x401136/0x401140/P/-/-/0". */
static int has_branches(span s) {
  for (const char *c = s.at; (c = memchr(c, '/', (size_t)(s.end - c))) != NULL; c++) {
    span rest = {c + 1, s.end};
    if (begins(rest, "P/") || begins(rest, "M/") || begins(rest, "-/") || begins(rest, "PN/") ||
        begins(rest, "MN/"))
      return 1;
  }
  return 0;
}

/* The names with which fields begin that "-F" writes behind a frame; registers; a branch's end. */
static int begins_field(span w) {
  return is(w, "ilen:") || is(w, "insn:") || is(w, "IPC:") || is(w, "=>") || begins(w, "ABI:");
}

/* "4K", "2M", "N/A": the size of a page. */
static int is_page_size(span w) {
  span digits = {w.at, w.end - 1};
  return is(w, "N/A") || (length(w) > 1 && memchr("KMG", w.end[-1], 3) && number(digits, 9999) > 0);
}

/* Whether all of it is what "-F" writes behind a frame: nothing, at least. */
static int is_behind(span s) {
  uint64_t value;
  const char *instruction = memmem(s.at, length(s), "\t\t", 2); /* in words */
  if (instruction)
    s.end = instruction;
  if (s.at < s.end && *s.at == '\t') /* as older versions write it */
    return 1;
  if (has_branches(s) && !contains(s, " (")) /* with functions, whose names may hold blanks */
    return 1;
  for (;;) {
    span w = word(&s);
    if (w.at == w.end || begins_field(w))
      return 1;
    if (!address(w, &value) && !is_page_size(w) &&
        !(begins(w, "0x") && has_branches(w))) /* physical addresses, sizes of pages */
      return 0;
  }
}

/* Where the frame itself ends. */
static const char *frame_end(span s) {
  for (const char *c = s.at; c < s.end; c++)
    if (*c == ')' && (c + 1 == s.end || is_blank(c[1])) && is_behind((span){c + 1, s.end}))
      return c + 1;
  for (span rest = s, before = s; rest.at < rest.end; before = rest)
    if (begins_field(word(&rest)))
      return trim((span){s.at, before.at}).end;
  return s.end;
}

/* "ffffffff8103ce3b native_safe_halt+0xe ([kernel.kallsyms])"; no frame: 0. */
static int read_frame(span s, frame *f) {
  *f = (frame){.offset = -1};
  if (!address(word(&s), &f->ip))
    return 0;
  span rest = trim(s);
  rest.end = frame_end(rest);
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

/* --- a sample's first line ---------------------------------------------------------------------
 */

typedef struct {
  span comm, event, rest;
  int64_t pid, tid, cpu, time_ns, period;
  int has_time, has_event;
  int is_frame; /* the rest is one, or begins with an address at least */
  int skipped;  /* something stood before it */
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

/*
 * A word behind others that is an address by its looks: functions are called "add" and "f1", too.
 * perf pads addresses with blanks, and writes one before a function.
 */
static int is_address(span w) {
  uint64_t value;
  int digits = 0;
  if (!address(w, &value))
    return 0;
  for (const char *c = w.at; c < w.end; c++)
    digits += is_digit(*c);
  return is_digit(*w.at) || (digits >= 2 && length(w) >= 6) || is_blank(w.at[-2]);
}

/* What kind of branch was traced, of "tr end  hw int (x)" or "jcc/miss/": what "-F +flags" adds. */
static int is_flag(span w) {
  static const char *const words[] = {
      "call", "return", "jcc", "jmp",  "int", "iret", "syscall", "sysret",  "async", "hw",
      "tx",   "abrt",   "tr",  "strt", "end", "br",   "miss",    "vmentry", "vmexit"};
  const char *slash = memchr(w.at, '/', length(w));
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (is((span){w.at, slash ? slash : w.end}, words[i]))
      return 1;
  return 0;
}

static span after_flags(span s) {
  span rest = s, w = word(&rest);
  if (!is_flag(w))
    return s;
  while (is_flag(w))
    w = word(&rest);
  if (begins(w, "(") && w.end[-1] == ')')
    w = word(&rest);
  return w.at == w.end || is_address(w) || begins(w, "/") ? (span){w.at, s.end} : s;
}

/* Behind what "-F +addr" writes of data that has a symbol: "7ffd0000 buffer+0x8 (/lib/x.so)  ". */
static span after_data(span s) {
  for (const char *c = s.at; c + 1 < s.end; c++) {
    if (*c != ')' || !is_blank(c[1]) || is_behind((span){c + 1, s.end}))
      continue;
    span rest = {c + 1, s.end}, ip = word(&rest), next = word(&rest);
    const char *open = memrchr(s.at, '(', (size_t)(c - s.at));
    int goes_on = (is_address(ip) && length(next) > 0) || begins(ip, "/");
    if (goes_on && open && open > s.at && is_blank(open[-1]) && (open[1] == '/' || open[1] == '['))
      return (span){ip.at, s.end};
  }
  return s;
}

/* Behind what "-F +addr,data_src,weight,cgroup" writes before the instruction's address. */
static span before_frame(span s) {
  uint64_t value;
  s = after_data(after_flags(s));
  for (;;) {
    span rest = s, first = word(&rest), after = rest, second = word(&after);
    if (begins(second, "|")) { /* "5080021 |OP LOAD|LVL L1 hit|BLK  N/A" */
      do {
        rest = after;
        second = word(&after);
      } while (length(second) > 0 && !is_address(second) && *second.at != '/');
      s = trim(rest);
    } else if (begins(first, "/") ||
               (address(first, &value) && (begins(second, "/") || is_address(second)))) {
      s = trim(rest);
    } else {
      return s;
    }
  }
}

/* "2026-11-27 04:51:00.123456", which "-F +tod" adds. */
static int is_date(span date, span clock) {
  return length(date) == 10 && date.at[4] == '-' && date.at[7] == '-' && length(clock) >= 8 &&
         clock.at[2] == ':' && clock.at[5] == ':' && is_digit(*date.at) && is_digit(*clock.at);
}

/* "[001]" */
static int64_t read_cpu(span w) {
  if (length(w) < 3 || *w.at != '[' || w.end[-1] != ']')
    return -1;
  return number((span){w.at + 1, w.end - 1}, INT32_MAX);
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
  h->cpu = read_cpu(w);
  if (h->cpu >= 0) {
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
    span after_clock = after;
    if (is_date(w, word(&after_clock))) {
      after = after_clock;
      w = word(&after);
    }
    if (w.at == w.end || !read_time(w, &h->time_ns))
      return 0;
    s = after;
  }
  if (!read_event(s, h))
    return 0;
  int tracepoint = is_tracepoint(h->event);
  span rest = h->rest, first = word(&rest);
  int64_t period = number(first, 9999999999);
  span second = word(&rest);
  if (!h->has_event && h->period < 0 && period >= 0 &&
      (is_address(second) || begins(second, "/") || is_flag(second))) {
    h->period = period; /* of an event without a name */
    h->rest = trim((span){second.at, h->rest.end});
  }
  rest = tracepoint ? h->rest : before_frame(h->rest);
  h->skipped = rest.at > h->rest.at;
  h->is_frame = read_frame(rest, &h->frame);
  if (tracepoint && (h->frame.object.at == NULL || length(word(&rest)) < 8))
    h->is_frame = 0; /* its fields, such as "add (x)" */
  if (h->rest.at == h->rest.end)
    return with_time || h->has_event;
  if (!h->has_event) /* anything might stand here, so it must be a frame, or data before frames */
    return (h->is_frame && h->frame.object.at != NULL) ||
           (with_time && h->period >= 0 && (h->is_frame ? !h->frame.written : rest.at == rest.end));
  return with_time || tracepoint || (h->is_frame && h->frame.written);
}

/* Behind "VM:    5 VCPU:001", the guest and its core that a sample of a host is of. */
static span after_guest(span line) {
  span rest = line, w = word(&rest);
  if (is(w, "VM:"))
    word(&rest);
  if (begins(w, "VM:")) {
    line = rest;
    w = word(&rest);
  }
  return begins(w, "VCPU:") ? rest : line;
}

/*
 * "Web Content 24636/25607 [000] 94564.109216:   250000 cycles:u: ...": a command's name may hold
 * anything, so the first word that is a number with the right things behind it is the thread's.
 * Without a thread, the time or the core must follow the name, which may be missing, too.
 */
static int read_head(span line, head *h) {
  line = after_guest(line);
  for (int way = 0; way < 4; way++) {
    int with_time = way < 2, with_ids = way % 2 == 0;
    span rest = line, last = {line.at, line.at};
    for (;;) {
      span before = {line.at, rest.at}, w = word(&rest);
      if (w.at == w.end || w.at - line.at > LONGEST_COMM)
        break;
      h->comm = trim(before);
      h->pid = h->tid = -1;
      if (with_ids) {
        if ((is_digit(*w.at) || *w.at == '-') && read_cpu(last) < 0 && read_ids(w, h) &&
            read_tail(rest, h, with_time) && (with_time || h->has_event || length(h->comm) > 0)) {
          /* perf writes a period at least ten wide, a thread's number seven. */
          if (!with_time && h->has_event && h->period < 0 && h->cpu < 0 && h->pid < 0 &&
              length(h->comm) > 0 && w.end - h->comm.end > 10) {
            h->period = h->tid;
            h->tid = -1;
          }
          return 1;
        }
      } else if ((with_time || read_cpu(w) >= 0) && number(last, INT64_MAX) < 0 &&
                 read_tail((span){w.at, line.end}, h, with_time)) {
        return 1;
      }
      last = w;
    }
  }
  return 0;
}

#endif
