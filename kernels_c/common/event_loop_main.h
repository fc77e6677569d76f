// The event loop as a program: options, threads, and the account as its last line.
#ifndef EVENT_LOOP_MAIN_H
#define EVENT_LOOP_MAIN_H

#define EVENT_MOST_THREADS 4096

static event_job job = {.threads = 2, .seed = 1, .points = (1 << EVENT_POINTS) - 1};

// Every option with a number; help and parsing follow from a row.
static const struct {
  const char *name;
  int64_t *value;
  int64_t least, most, usual;
  const char *text;
} event_options[] = {
    {"--threads", &job.threads, 1, EVENT_MOST_THREADS, 2, "threads that take events"},
    {"--events", &job.events, 1, 100000000, 140, "events in all"},
    {"--first", &job.first, 0, INT64_MAX / 256, 0, "number of the first event"},
    {"--seed", (int64_t *)&job.seed, 0, INT64_MAX, 1, "with an event's number, fixes the event"},
    {"--spin", &job.spin, 0, 1000000000, 0, "tries for a lock before waiting for it"},
    {"--jets", &job.sizes.jets, 1, EVENT_MOST_JETS / 2, 4, "jets in an event on average"},
    {"--formula-work", &job.sizes.formula, 0, EVENT_MOST_TERMS, 750, "terms of a formula"},
    {"--interface-work", &job.sizes.interface, 0, 1000000000, 80, "methods in a call"},
    {"--queue-work", &job.sizes.queue, 0, 1000000000, 4000, "steps of an item's track"},
    {"--output-work", &job.sizes.output, 0, 1000000000, 1800, "passes over an event"},
    {"--checksum-work", &job.sizes.checksum, 0, 1000000000, 1000, "passes over a class"},
    {"--merge-work", &job.merge, 1, 1000000000, 20000, "passes over an event's record"},
};
#define EVENT_OPTIONS (sizeof event_options / sizeof *event_options)

static void print_usage(FILE *out) {
  fputs(
      "usage: event_loop [--OPTION VALUE]...\n"
      "Bring events through a chain of modules with several threads; the last line is an account\n"
      "of the time that the threads waited for each lock (JSON, in ns).\n",
      out);
  for (size_t i = 0; i < EVENT_OPTIONS; i++)
    fprintf(out, "  %-18s %s (%" PRId64 " to %" PRId64 ", default %" PRId64 ")\n",
            event_options[i].name, event_options[i].text, event_options[i].least,
            event_options[i].most, event_options[i].usual);
  fprintf(out, "  %-18s where events wait for each other, some of", "--points");
  for (int i = 0; i < EVENT_POINTS; i++)
    fprintf(out, "%s%s", i > 0 ? "," : " ", event_points[i]);
  fprintf(out, ", or none (default all)\n  %-18s kind of the locks:", "--lock");
  for (int i = 0; lock_kinds[i] != NULL; i++)
    fprintf(out, "%s %s", i > 0 ? "," : "", lock_kinds[i]);
  fputs(" (default mutex)\n", out);
}

// The value of an option as a whole number; ends the program where it is none.
static int64_t option_number(size_t option, const char *text) {
  char *end = NULL;
  errno = 0;
  int64_t value = text != NULL && *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
  if (end == NULL || *end != '\0' || errno != 0 || value < event_options[option].least ||
      value > event_options[option].most) {
    fprintf(stderr,
            "event_loop: %s needs a whole number from %" PRId64 " to %" PRId64 ", not '%s'\n",
            event_options[option].name, event_options[option].least, event_options[option].most,
            text == NULL ? "" : text);
    exit(2);
  }
  return value;
}

// The place of so many characters among words; ends the program where they are none of them.
static int option_word(const char *option, const char *text, size_t length,
                       const char *const *words, int count) {
  for (int i = 0; i < count; i++)
    if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0)
      return i;
  fprintf(stderr, "event_loop: %s: '%.*s' is none of", option, (int)length, text);
  for (int i = 0; i < count; i++)
    fprintf(stderr, "%s %s", i > 0 ? "," : "", words[i]);
  fputs(count == EVENT_POINTS ? " (several with commas, or none alone)\n" : "\n", stderr);
  exit(2);
}

static int64_t option_points(const char *text) {
  int64_t points = 0;
  if (strcmp(text, "none") == 0)
    return 0;
  for (;;) {
    size_t length = strcspn(text, ",");
    points |= INT64_C(1) << option_word("--points", text, length, event_points, EVENT_POINTS);
    if (text[length] == '\0')
      return points;
    text += length + 1;
  }
}

static void parse_options(int argc, char **argv) {
  int kind = 0;
  for (size_t k = 0; k < EVENT_OPTIONS; k++)
    *event_options[k].value = event_options[k].usual;
  for (int i = 1; i < argc; i += 2) {
    const char *value = argv[i + 1]; // NULL after the last
    size_t k = 0;
    while (k < EVENT_OPTIONS && strcmp(argv[i], event_options[k].name) != 0)
      k++;
    if (strcmp(argv[i], "--help") == 0) {
      print_usage(stdout);
      exit(fflush(stdout) == 0 ? 0 : 1);
    } else if (k < EVENT_OPTIONS) {
      *event_options[k].value = option_number(k, value);
    } else if (strcmp(argv[i], "--points") == 0) {
      job.points = option_points(value == NULL ? "" : value);
    } else if (strcmp(argv[i], "--lock") == 0) {
      value = value == NULL ? "" : value;
      kind = option_word("--lock", value, strlen(value), lock_kinds, 4);
    } else {
      fprintf(stderr, "event_loop: unknown option '%s' (--help names them)\n", argv[i]);
      exit(2);
    }
  }
  make_locks(kind);
}

// --- threads -----------------------------------------------------------------------------------

EVENT_PART void *event_thread(void *argument) {
  event_worker *w = argument;
  char name[16];
  snprintf(name, sizeof name, "event-%" PRId64, w->row);
  pthread_setname_np(pthread_self(), name);
  w->tid = gettid();
  int64_t event, cpu_ns = event_clock(CLOCK_THREAD_CPUTIME_ID);
  w->begin_ns = event_clock(CLOCK_MONOTONIC);
  while ((event = atomic_fetch_add(&job.begun, 1)) < job.events) {
    job.records[event] = process_event(w, (uint64_t)(job.first + event));
    w->events++;
  }
  w->end_ns = event_clock(CLOCK_MONOTONIC);
  w->cpu_ns = event_clock(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
  return NULL;
}

static void start_thread(event_worker *w, int64_t row) {
  w->job = &job;
  w->row = row;
  int error = pthread_create(&w->thread, NULL, event_thread, w);
  if (error) {
    fprintf(stderr, "event_loop: thread %" PRId64 " cannot be started: %s\n", row, strerror(error));
    exit(1);
  }
}

static void *need(size_t count, size_t bytes) {
  size_t whole = (count * bytes + 63) / 64 * 64;
  void *memory = aligned_alloc(64, whole);
  if (memory == NULL) {
    fprintf(stderr, "event_loop: no memory (%zu bytes)\n", whole);
    exit(1);
  }
  return memory;
}

// --- the account -------------------------------------------------------------------------------

static lock_account lock_total(const event_worker *workers, int lock) {
  lock_account sum = {0};
  for (int64_t i = 0; i < job.threads; i++) {
    const lock_account *one = &workers[i].locks[lock];
    sum.taken += one->taken;
    sum.waits += one->waits;
    sum.waiting_ns += one->waiting_ns;
    sum.longest_ns = one->longest_ns > sum.longest_ns ? one->longest_ns : sum.longest_ns;
    sum.held_ns += one->held_ns;
    sum.spinning_ns += one->spinning_ns;
  }
  return sum;
}

static void print_account(const event_worker *workers, uint64_t checksum) {
  int64_t begin_ns = INT64_MAX, end_ns = 0;
  for (int64_t i = 0; i < job.threads; i++)
    if (workers[i].events > 0) {
      begin_ns = workers[i].begin_ns < begin_ns ? workers[i].begin_ns : begin_ns;
      end_ns = workers[i].end_ns > end_ns ? workers[i].end_ns : end_ns;
    }
  printf("{\"threads\": %" PRId64 ", \"events\": %" PRId64 ", \"points\": [", job.threads,
         job.events);
  const char *comma = "";
  for (int i = 0; i < EVENT_POINTS; i++)
    if (job.points >> i & 1) {
      printf("%s\"%s\"", comma, event_points[i]);
      comma = ", ";
    }
  printf("], \"pid\": %ld, \"begin_ns\": %" PRId64 ", \"end_ns\": %" PRId64
         ", \"checksum\": \"%016" PRIx64 "\", \"locks\": [",
         (long)getpid(), begin_ns, end_ns, checksum);
  for (int i = 0; i < EVENT_LOCKS; i++) {
    lock_account sum = lock_total(workers, i);
    printf("%s{\"name\": \"%s\", \"point\": \"%s\", \"address\": %" PRIuPTR ", \"taken\": %" PRId64
           ", \"waits\": %" PRId64 ", \"waiting_ns\": %" PRId64 ", \"longest_ns\": %" PRId64
           ", \"held_ns\": %" PRId64 ", \"spinning_ns\": %" PRId64 "}",
           i > 0 ? ", " : "", event_locks[i].name, event_points[event_locks[i].point],
           (uintptr_t)event_locks[i].mutex, sum.taken, sum.waits, sum.waiting_ns, sum.longest_ns,
           sum.held_ns, sum.spinning_ns);
  }
  printf("], \"per_thread\": [");
  for (int64_t i = 0; i < job.threads; i++) {
    const event_worker *w = &workers[i];
    int64_t waiting_ns = 0;
    for (int k = 0; k < EVENT_LOCKS; k++)
      waiting_ns += w->locks[k].waiting_ns;
    printf("%s{\"tid\": %" PRId64 ", \"name\": \"event-%" PRId64 "\", \"events\": %" PRId64
           ", \"cpu_ns\": %" PRId64 ", \"waiting_ns\": %" PRId64 "}",
           i > 0 ? ", " : "", w->tid, w->row, w->events, w->cpu_ns, waiting_ns);
  }
  printf("]}\n");
}

int main(int argc, char **argv) {
  parse_options(argc, argv);
  prepare();
  job.records = need((size_t)job.events, sizeof *job.records);
  event_worker *workers = need((size_t)job.threads, sizeof *workers);
  for (int64_t i = 0; i < job.threads; i++) {
    memset(&workers[i], 0, offsetof(event_worker, stack));
    start_thread(&workers[i], i);
  }
  for (int64_t i = 0; i < job.threads; i++)
    pthread_join(workers[i].thread, NULL);
  uint64_t checksum = merge(job.records, job.events, job.merge);
  print_account(workers, checksum);
  free(workers);
  free(job.records);
  return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}

#endif
