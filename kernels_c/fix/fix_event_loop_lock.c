/*
 * The check and the timing of event_loop_lock: two threads correct jets by a formula.
 *
 * Stressed: the lock around work that each thread does on data of its own. Kept constant: the
 * formula, the jets, the cores. The corrections are read by the check; the calls go through a
 * pointer that the compiler cannot see through.
 *
 * @kernel
 * flags = ["-O2", "-g"]
 * link = ["-lpthread"]
 */
#include "fix/harness.h"

#include "fix/event_loop_lock.inc"

// @interface
// in: calls; of either thread its jets, the bytes of its text (4); then of either the text's words,
// and the jets' x.
// out: the corrections of either thread, the jets corrected.
int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words);
int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu);
int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out);
// @end

enum { JETS = 16, TERMS = 60, TERM_BYTES = 10 };

static void (*volatile fix_called)(worker *, const char *, const int64_t *, int64_t *,
                                   int64_t) = correct_jets;

typedef struct {
  _Alignas(128) worker own;
  const char *text;
  int64_t calls, jets;
  const int64_t *x;
  int64_t *corrections;
} fix_part; // of a thread

static void fix_part_run(void *context, int thread) {
  fix_part *part = (fix_part *)context + thread;
  for (int64_t i = 0; i < part->calls; i++)
    fix_called(&part->own, part->text, part->x, part->corrections, part->jets);
}

int64_t fix_check(const uint64_t *in, int64_t in_words, uint64_t *out, int64_t out_words) {
  fix_checking = 1;
  static fix_part parts[2];
  size_t jets[2] = {in[1], in[3]}, bytes[2] = {in[2], in[4]};
  size_t words = (bytes[0] + 7) / 8 + (bytes[1] + 7) / 8 + jets[0] + jets[1];
  if ((size_t)in_words != 5 + words || (size_t)out_words != jets[0] + jets[1] + 1)
    return EINVAL;
  fix_array text[2], x[2], corrections[2];
  const uint64_t *at = in + 5;
  int error = 0;
  for (int i = 0; i < 2; i++) {
    const uint64_t *first_x = at + (bytes[i] + 7) / 8;
    error |= fix_guard(&text[i], at, bytes[i]) | fix_guard(&x[i], first_x, 8 * jets[i]) |
             fix_guard(&corrections[i], NULL, 8 * jets[i]);
    at = first_x + jets[i];
    parts[i].text = (const char *)text[i].data;
    parts[i].calls = (int64_t)in[0];
    parts[i].jets = (int64_t)jets[i];
    parts[i].x = (const int64_t *)x[i].data;
    parts[i].corrections = (int64_t *)corrections[i].data;
  }
  int64_t before = jets_corrected();
  if (error == 0)
    error = fix_together(fix_part_run, parts);
  out[jets[0] + jets[1]] = (uint64_t)(jets_corrected() - before);
  for (int i = 0; i < 2; i++) {
    memcpy(out, corrections[i].data, 8 * jets[i]);
    out += jets[i];
    error |= fix_release(&text[i]) | fix_release(&x[i]) | fix_release(&corrections[i]);
  }
  return fix_checked(error);
}

static fix_part fix_parts[2];
static char fix_text[TERMS * TERM_BYTES + 1];
static int64_t fix_x[2][JETS], fix_corrections[2][JETS + 16]; // apart by more than a line
static int fix_cpu, fix_partner_cpu;

int64_t fix_prepare(uint64_t seed, int64_t cpu, int64_t partner_cpu) {
  fix_cpu = (int)cpu, fix_partner_cpu = (int)partner_cpu;
  for (int i = 0; i < TERMS; i++)
    snprintf(fix_text + (size_t)i * TERM_BYTES, TERM_BYTES + 1, "+0.%03d*p%02d",
             (int)(fix_random(&seed) % 1000), i % 12);
  for (int i = 0; i < 2; i++) {
    for (int jet = 0; jet < JETS; jet++)
      fix_x[i][jet] = (int64_t)(fix_random(&seed) % 2001) - 1000;
    fix_parts[i] = (fix_part){.text = fix_text,
                              .calls = 1,
                              .jets = JETS,
                              .x = fix_x[i],
                              .corrections = fix_corrections[i]};
  }
  return 0;
}

int64_t fix_time(int64_t calls, int64_t repeats, fix_sample *out) {
  return fix_samples(fix_part_run, fix_parts, fix_cpu, fix_partner_cpu, calls, repeats, out);
}
