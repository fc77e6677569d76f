// Sustainable bandwidth by the published rules of STREAM (McCalpin 1995), written anew: four
// kernels, each once an iteration in turn, timed as a whole over all threads, results checked.
//
//     stream_rules DOUBLES ITERATIONS CPU...
//
// A thread on each CPU has a part of each array and touches it first. Prints a line for each
// kernel: its name, and its seconds in each iteration.
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COPY, SCALE, ADD, TRIAD, KERNELS };

static const double scalar = 3.0;
static double *a, *b, *c, *seconds;
static long doubles, iterations;
static int threads, *cpus;
static pthread_barrier_t together;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void kernel(int which, long first, long last) {
  if (which == COPY)
    for (long i = first; i < last; i++)
      c[i] = a[i];
  else if (which == SCALE)
    for (long i = first; i < last; i++)
      b[i] = scalar * c[i];
  else if (which == ADD)
    for (long i = first; i < last; i++)
      c[i] = a[i] + b[i];
  else
    for (long i = first; i < last; i++)
      a[i] = b[i] + scalar * c[i];
}

static void *run(void *argument) {
  long me = (long)argument, first = doubles * me / threads, last = doubles * (me + 1) / threads;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpus[me], &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    fprintf(stderr, "stream_rules: cpu%d cannot be used\n", cpus[me]);
    exit(2);
  }
  for (long i = first; i < last; i++) {
    a[i] = 1;
    b[i] = 2;
    c[i] = 0;
  }
  for (long n = 0; n < iterations; n++)
    for (int which = 0; which < KERNELS; which++) {
      pthread_barrier_wait(&together);
      double begin_s = now_s();
      kernel(which, first, last);
      pthread_barrier_wait(&together);
      if (me == 0)
        seconds[which * iterations + n] = now_s() - begin_s;
    }
  return NULL;
}

// What one double of each array must be in the end.
static int wrong(void) {
  double ea = 1, eb = 2, ec = 0;
  for (long n = 0; n < iterations; n++) {
    ec = ea;
    eb = scalar * ec;
    ec = ea + eb;
    ea = eb + scalar * ec;
  }
  for (long i = 0; i < doubles; i++)
    if (fabs(a[i] / ea - 1) > 1e-12 || fabs(b[i] / eb - 1) > 1e-12 || fabs(c[i] / ec - 1) > 1e-12)
      return 1;
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: stream_rules DOUBLES ITERATIONS CPU...\n");
    return 2;
  }
  doubles = atol(argv[1]);
  iterations = atol(argv[2]);
  threads = argc - 3;
  a = aligned_alloc(64, (size_t)doubles * sizeof *a);
  b = aligned_alloc(64, (size_t)doubles * sizeof *b);
  c = aligned_alloc(64, (size_t)doubles * sizeof *c);
  seconds = calloc((size_t)(KERNELS * iterations), sizeof *seconds);
  cpus = calloc((size_t)threads, sizeof *cpus);
  pthread_t *started = calloc((size_t)threads, sizeof *started);
  if (a == NULL || b == NULL || c == NULL || seconds == NULL || cpus == NULL || started == NULL)
    return 2;
  pthread_barrier_init(&together, NULL, (unsigned)threads);
  for (long i = 0; i < threads; i++)
    cpus[i] = atoi(argv[3 + i]);
  for (long i = 0; i < threads; i++)
    if (pthread_create(&started[i], NULL, run, (void *)i) != 0)
      return 2;
  for (long i = 0; i < threads; i++)
    pthread_join(started[i], NULL);
  if (wrong()) {
    fprintf(stderr, "stream_rules: the results are wrong\n");
    return 1;
  }
  const char *names[] = {"copy", "scale", "add", "triad"};
  for (int which = 0; which < KERNELS; which++) {
    printf("%s", names[which]);
    for (long n = 0; n < iterations; n++)
      printf(" %.9f", seconds[which * iterations + n]);
    printf("\n");
  }
  return 0;
}
