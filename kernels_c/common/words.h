// Words, numbers and addresses in a text that has an end instead of a zero byte.
#ifndef WORDS_H
#define WORDS_H

#include <stdint.h>
#include <string.h>

typedef struct {
  const char *at;
  const char *end;
} span;

static inline int is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static inline int is_digit(char c) { return c >= '0' && c <= '9'; }

static inline int hex_value(char c) {
  if (is_digit(c))
    return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static inline span trim(span s) {
  while (s.at < s.end && is_blank(*s.at))
    s.at++;
  while (s.at < s.end && is_blank(s.end[-1]))
    s.end--;
  return s;
}

/* Take the next word off the beginning; empty at the end. */
static inline span word(span *s) {
  while (s->at < s->end && is_blank(*s->at))
    s->at++;
  span w = {s->at, s->at};
  while (w.end < s->end && !is_blank(*w.end))
    w.end++;
  s->at = w.end;
  return w;
}

static inline size_t length(span s) { return (size_t)(s.end - s.at); }

static inline int is(span s, const char *text) {
  size_t n = strlen(text);
  return length(s) == n && memcmp(s.at, text, n) == 0;
}

static inline int begins(span s, const char *text) {
  size_t n = strlen(text);
  return length(s) >= n && memcmp(s.at, text, n) == 0;
}

static inline int contains(span s, const char *text) {
  return memmem(s.at, length(s), text, strlen(text)) != NULL;
}

/* A whole number up to `most`, digits alone; -1 if it is none. */
static inline int64_t number(span s, int64_t most) {
  int64_t value = 0;
  if (s.at == s.end)
    return -1;
  for (; s.at < s.end; s.at++) {
    if (!is_digit(*s.at) || value > (most - (*s.at - '0')) / 10)
      return -1;
    value = 10 * value + (*s.at - '0');
  }
  return value;
}

/* Up to 16 hexadecimal digits. */
static inline int address(span s, uint64_t *value) {
  if (s.at == s.end || length(s) > 16)
    return 0;
  for (*value = 0; s.at < s.end; s.at++) {
    int digit = hex_value(*s.at);
    if (digit < 0)
      return 0;
    *value = *value << 4 | (uint64_t)digit;
  }
  return 1;
}

#endif
