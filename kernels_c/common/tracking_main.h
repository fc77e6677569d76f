// tracking as a program: as many threads as it may use CPUs take events, and log them.
#ifndef TRACKING_MAIN_H
#define TRACKING_MAIN_H

static const char *const lock_names[LOCKS] = {"geometry_lock", "calibration_lock", "output_lock"};

static struct {
  uint64_t seed;
  int64_t first, events;
  _Atomic int64_t begun;
  _Atomic uint64_t checksum;
} job;

// A whole number; ends the program where it is none.
static uint64_t number_of(const char *what, const char *text, int base) {
  char *end = NULL;
  uint64_t value = strtoull(text, &end, base);
  if (end == text || *end != '\0' || *text == '-') {
    fprintf(stderr, "tracking: %s must be a whole number, not '%s'\n", what, text);
    exit(2);
  }
  return value;
}

static void say(worker *w, int64_t event, int64_t time_ns) {
  take_lock(w, OUTPUT);
  if (time_ns < 0)
    printf("AthenaEventLoopMgr INFO ===>>> start processing event #%" PRId64 "\n", event);
  else
    printf("G4SimTimer INFO Event nr. %" PRId64 " took %.9f s\n", event, 1e-9 * (double)time_ns);
  fflush(stdout);
  pthread_mutex_unlock(&output_lock);
}

static void *take_events(void *argument) {
  worker *w = argument;
  int64_t number;
  while ((number = atomic_fetch_add(&job.begun, 1)) < job.events) {
    int64_t event = job.first + number;
    say(w, event, -1);
    int64_t begin_ns = now_ns();
    uint64_t checksum = run_event(w, job.seed, event, STEPS);
    say(w, event, now_ns() - begin_ns);
    atomic_fetch_add(&job.checksum, checksum);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fputs("usage: tracking CASE FIRST EVENTS SEED\n", stderr);
    return 2;
  }
  uint64_t number = number_of("CASE", argv[1], 16);
  job.first = (int64_t)number_of("FIRST", argv[2], 10);
  job.events = (int64_t)number_of("EVENTS", argv[3], 10);
  job.seed = number_of("SEED", argv[4], 10);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cpus = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  int threads = cpus < 1 ? 1 : cpus < MOST_THREADS ? cpus : MOST_THREADS;
  worker *workers[MOST_THREADS] = {NULL};
  for (int i = 0; i < threads; i++)
    if ((workers[i] = new_worker(number)) == NULL) {
      fputs("tracking: no memory\n", stderr);
      return 1;
    }
  int64_t begin_ns = now_ns();
  int started = 1; // the main thread is the first
  while (started < threads &&
         pthread_create(&workers[started]->thread, NULL, take_events, workers[started]) == 0)
    started++;
  take_events(workers[0]);
  for (int i = 1; i < started; i++)
    pthread_join(workers[i]->thread, NULL);
  double all_ns = (double)(now_ns() - begin_ns) * started;
  for (int lock = 0; workers[0]->what.reports && lock < LOCKS; lock++) {
    int64_t waited_ns = 0;
    for (int i = 0; i < started; i++)
      waited_ns += workers[i]->waited_ns[lock];
    printf("%s %.6f\n", lock_names[lock], (double)waited_ns / all_ns);
  }
  printf("checksum %016" PRIx64 "\n", atomic_load(&job.checksum));
  return fflush(stdout) == 0 ? 0 : 1;
}

#endif
