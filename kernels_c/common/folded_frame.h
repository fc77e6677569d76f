// A frame's name as stackcollapse-perf writes it into a folded stack.
#ifndef FOLDED_FRAME_H
#define FOLDED_FRAME_H

#include "words.h"
#include <string.h>

/* What rustc writes for signs that a linker may not take; "::h" and 16 digits are a hash. */
static span undo_rust(span s, char *to) {
  static const char *const escapes[][2] = {
      {"$SP$", "@"},  {"$BP$", "*"},  {"$RF$", "&"},  {"$LT$", "<"},  {"$GT$", ">"},
      {"$LP$", "("},  {"$RP$", ")"},  {"$C$", ","},   {"$u7e$", "~"}, {"$u20$", " "},
      {"$u27$", "'"}, {"$u3d$", "="}, {"$u5b$", "["}, {"$u5d$", "]"}, {"$u7b$", "{"},
      {"$u7d$", "}"}, {"$u3b$", ";"}, {"$u2b$", "+"}, {"$u21$", "!"}, {"$u22$", "\""}};
  if (length(s) < 17 || s.end[-17] != 'h')
    return s;
  for (int i = 1; i <= 16; i++)
    if (hex_value(s.end[-i]) < 0)
      return s;
  s.end -= 17;
  if (length(s) >= 2 && memcmp(s.end - 2, "::", 2) == 0)
    s.end -= 2;
  if (begins(s, "_$"))
    s.at++;
  char *out = to;
  while (s.at < s.end) {
    if (begins(s, "..")) {
      memcpy(out, "::", 2);
      out += 2;
      s.at += 2;
    } else if (*s.at == '$') {
      size_t known = sizeof escapes / sizeof *escapes, i = 0;
      while (i < known && !begins(s, escapes[i][0]))
        i++;
      if (i == known) { /* not rustc's after all: the rest stays */
        memcpy(out, s.at, length(s));
        out += length(s);
        break;
      }
      *out++ = *escapes[i][1];
      s.at += strlen(escapes[i][0]);
    } else {
      *out++ = *s.at++;
    }
  }
  return (span){to, out};
}

/* Behind the name of an operator that begins here, "operator->*" or "operator()"; else NULL. */
static const char *behind_operator(span whole, const char *c) {
  span rest = {c, whole.end};
  if (!begins(rest, "operator") ||
      (c > whole.at && (hex_value(c[-1]) >= 0 || c[-1] == '_' || (c[-1] | 0x20) >= 'g')))
    return NULL;
  rest.at += 8;
  if (begins(rest, "()"))
    return rest.at + 2;
  while (rest.at < rest.end && memchr("<>-=!+*/%^&|~,[]", *rest.at, 16))
    rest.at++;
  return rest.at;
}

/* Behind the parenthesis that closes the one here. */
static const char *behind_closing(const char *c, const char *end) {
  int64_t depth = 0;
  for (; c < end; c++) {
    depth += (*c == '(') - (*c == ')');
    if (depth == 0)
      return c + 1;
  }
  return end;
}

/* Whether the name goes on behind arguments: "run() const::{lambda()#1}". */
static int name_goes_on(span s) {
  static const char *const qualifiers[] = {" const", " volatile", " &&", " &"};
  for (size_t i = 0; i < sizeof qualifiers / sizeof *qualifiers; i++)
    if (begins(s, qualifiers[i]))
      s.at += strlen(qualifiers[i]);
  return begins(s, "::");
}

/*
 * Where a function's arguments begin. No arguments: parentheses within brackets (templates, C++
 * lambdas), of "decltype(auto)", "operator()" and of a function within which this one is, a Go
 * receiver as in "net/http.(*Client).Do", "(anonymous namespace)", and what stands between a blank
 * and more of the name, as in "decltype ((p.begin)()) begin<Q>" and "void (*handler(int))(char)".
 */
static const char *arguments(span s) {
  int64_t depth = 0;
  for (const char *c = s.at; c < s.end; c++) {
    const char *behind = behind_operator(s, c);
    if (behind) {
      c = behind - 1;
    } else if (begins((span){c, s.end}, "->")) {
      c++;
    } else if (*c == '<' || *c == '{' || *c == '[') {
      depth++;
    } else if (*c == '>' || *c == '}' || *c == ']') {
      depth--;
    } else if (*c == '(') {
      int receiver = c > s.at && c[-1] == '.';
      int of_type = c - s.at >= 8 && memcmp(c - 8, "decltype", 8) == 0;
      behind = behind_closing(c, s.end);
      int within = c > s.at && c[-1] == ' ' && behind < s.end;
      if (depth <= 0 && !receiver && !of_type && !within && !name_goes_on((span){behind, s.end}) &&
          !begins((span){c, s.end}, "(anonymous namespace)"))
        return c;
      c = behind - 1;
    }
  }
  return s.end;
}

/* Of a file. One that is longer is none, and a line of "[unknown]->[unknown]->..." repeats it. */
enum { LONGEST_NAME = 255 };

/* One frame's name, into a buffer with room for the name, the object and 8 bytes more. */
static span folded_frame(span name, span object, int java, int inlined, char *to) {
  char *out = to;
  if (is(name, "[unknown]") && !is(object, "[unknown]")) {
    const char *slash = memrchr(object.at, '/', length(object));
    if (slash)
      object.at = slash + 1;
    if (length(object) > LONGEST_NAME)
      object.at = object.end - LONGEST_NAME;
    *out++ = '[';
    memcpy(out, object.at, length(object));
    out += length(object);
    *out++ = ']';
  } else {
    memcpy(out, name.at, length(name));
    out += length(name);
  }
  for (char *c = to; c < out; c++)
    if (*c == ';')
      *c = ':';
  span s = {to, arguments((span){to, out})};
  if (java && begins(s, "L") && memchr(s.at, '/', length(s)))
    s.at++;
  if (inlined && !contains(s, "_[i]")) {
    memcpy(to + (s.end - to), "_[i]", 4);
    s.end += 4;
  }
  return s;
}

#endif
