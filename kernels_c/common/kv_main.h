// The kv simulation as a program of its own. It writes one line at an event's beginning and two at
// its end, as Athena's jobs do, each as soon as it is known.
#ifndef KV_MAIN_H
#define KV_MAIN_H

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char kv_usage[] =
    "usage: kv [--events N] [--first K] [--seed S] [--repeat E:R [--slices STEPS:FILE]]\n"
    "Simulate events K .. K + N - 1 (defaults: N = 100, K = 0, S = 1), one after the other; event\n"
    "E is simulated R times between its first and its last line, to be long enough for a "
    "profile.\n"
    "It is cut into slices of so many steps, each between two probes of the core, whose records\n"
    "are written to FILE.\n";

#define KV_MOST_SLICES (1 << 14) // of one event; what is beyond is not written

// The value of an option as a whole number up to most; ends the program where it is none.
static uint64_t kv_number(const char *option, const char *text, uint64_t least, uint64_t most) {
  char *end = NULL;
  errno = 0;
  uint64_t value = text != NULL && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  if (end == NULL || *end != '\0' || errno != 0 || value < least || value > most) {
    fprintf(stderr, "kv: %s needs a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'\n",
            option, least, most, text == NULL ? "" : text);
    exit(2);
  }
  return value;
}

// E:R, an event's number and how often it is simulated.
static void kv_repeated(char *text, uint64_t *event, uint64_t *times) {
  char *colon = text == NULL ? NULL : strchr(text, ':');
  if (colon == NULL) {
    fprintf(stderr, "kv: --repeat needs EVENT:TIMES, not '%s'\n", text == NULL ? "" : text);
    exit(2);
  }
  *colon = '\0';
  *event = kv_number("--repeat", text, 0, INT64_MAX);
  *times = kv_number("--repeat", colon + 1, 1, 1000000000);
}

// STEPS:FILE, the length of a slice and where the records go. NULL: it cannot be written.
static FILE *kv_slices_file(char *text, uint64_t *steps) {
  static char buffer[1 << 20]; // so that it is hardly ever written to while it is measured
  char *colon = text == NULL ? NULL : strchr(text, ':');
  if (colon == NULL) {
    fprintf(stderr, "kv: --slices needs STEPS:FILE, not '%s'\n", text == NULL ? "" : text);
    exit(2);
  }
  *colon = '\0';
  *steps = kv_number("--slices", text, 1, 1000000000);
  FILE *file = fopen(colon + 1, "wb");
  if (file == NULL) {
    fprintf(stderr, "kv: %s: %s\n", colon + 1, strerror(errno));
    exit(2);
  }
  setvbuf(file, buffer, _IOFBF, sizeof buffer);
  return file;
}

// As kv_run() for one event, and its slices into the file.
static void kv_run_sliced(uint64_t seed, int64_t event, uint64_t steps, FILE *file, kv_event *out) {
  static kv_slice slices[KV_MOST_SLICES];
  int64_t count = kv_run_slices(seed, &event, 1, (int64_t)steps, out, slices, KV_MOST_SLICES);
  fwrite(slices, sizeof slices[0], (size_t)(count < KV_MOST_SLICES ? count : KV_MOST_SLICES), file);
}

int main(int argc, char **argv) {
  uint64_t events = 100, first = 0, seed = 1, repeated = 0, times = 1, slice_steps = 0;
  FILE *slices = NULL;
  for (int i = 1; i < argc; i += 2) {
    if (strcmp(argv[i], "--help") == 0) {
      fputs(kv_usage, stdout);
      return 0;
    }
    if (strcmp(argv[i], "--events") == 0) {
      events = kv_number(argv[i], argv[i + 1], 1, 1000000000);
    } else if (strcmp(argv[i], "--first") == 0) {
      first = kv_number(argv[i], argv[i + 1], 0, INT64_MAX / 2);
    } else if (strcmp(argv[i], "--seed") == 0) {
      seed = kv_number(argv[i], argv[i + 1], 0, UINT64_MAX);
    } else if (strcmp(argv[i], "--repeat") == 0) {
      kv_repeated(argv[i + 1], &repeated, &times);
    } else if (strcmp(argv[i], "--slices") == 0) {
      slices = kv_slices_file(argv[i + 1], &slice_steps);
    } else {
      fprintf(stderr, "kv: unknown option '%s'\n%s", argv[i], kv_usage);
      return 2;
    }
  }
  pthread_once(&kv_ready, kv_prepare);
  uint64_t checksum = 0;
  int64_t truncated = 0;
  double sum = 0.0, squares = 0.0;
  for (uint64_t done = 0; done < events; done++) {
    kv_event e;
    int64_t event = (int64_t)(first + done);
    printf("AthenaEventLoopMgr   INFO   ===>>>  start processing event #%" PRId64
           ", run #1 %" PRIu64 " events processed so far  <<<===\n",
           event, done);
    fflush(stdout);
    int64_t time_ns = 0;
    for (uint64_t left = (uint64_t)event == repeated ? times : 1; left > 0; left--) {
      if (slices != NULL && (uint64_t)event == repeated)
        kv_run_sliced(seed, event, slice_steps, slices, &e);
      else
        kv_run(seed, &event, 1, &e);
      time_ns += e.time_ns;
    }
    double time_s = 1e-9 * (double)time_ns, n = (double)(done + 1);
    sum += time_s;
    squares += time_s * time_s;
    double variance = squares / n - sum / n * (sum / n);
    double error = n > 1.0 && variance > 0.0 ? sqrt(variance / (n - 1.0)) : 0.0;
    printf("G4SimTimer           INFO        Event nr. %" PRId64
           " took %.6g s. New average %.6g +- %.4g\n",
           event, time_s, sum / n, error);
    printf("AthenaEventLoopMgr   INFO   ===>>>  done processing event #%" PRId64 ", run #1 %" PRIu64
           " events processed so far  <<<===\n",
           event, done + 1);
    fflush(stdout);
    checksum += e.checksum;
    truncated += e.truncated;
  }
  printf("kv                   INFO   checksum %016" PRIx64 " of %" PRIu64 " events, %" PRId64
         " truncated\n",
         checksum, events, truncated);
  int written = slices == NULL || fclose(slices) == 0;
  return fflush(stdout) == 0 && written ? 0 : 1;
}

#endif
