/*
 * Everything that can go wrong in a worker, on request, and a few things that go right.
 *
 * @kernel
 * flags = ["-O1"]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// @interface
int64_t faulty_add(int64_t left, int64_t right);
double faulty_scale(double value, double factor);
uint64_t faulty_largest(void);
void faulty_nothing(void);
double faulty_sum(const double *values, int64_t count);
int64_t faulty_fill(int32_t *first, int64_t count, double *second);
int64_t faulty_count_calls(void); // starts from 1 in each process
int64_t faulty_print(void);       // to standard output, unbuffered
void faulty_crash(void);
void faulty_abort(void);
void faulty_exit(int64_t status);
void faulty_hang(void);
void faulty_sleep(double seconds);
// @end

int64_t faulty_add(int64_t left, int64_t right) { return left + right; }

double faulty_scale(double value, double factor) { return value * factor; }

uint64_t faulty_largest(void) { return UINT64_MAX; }

void faulty_nothing(void) {}

double faulty_sum(const double *values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += values[i];
  return sum;
}

int64_t faulty_fill(int32_t *first, int64_t count, double *second) {
  for (int64_t i = 0; i < count; i++) {
    first[i] = (int32_t)i;
    second[i] = 0.5 * (double)i;
  }
  return count;
}

int64_t faulty_count_calls(void) {
  static int64_t calls;
  return ++calls;
}

int64_t faulty_print(void) {
  printf("{\"result\": 99}\n");
  fflush(stdout);
  return 7;
}

void faulty_crash(void) {
  volatile int *volatile nowhere = 0;
  *nowhere = 1;
}

void faulty_abort(void) { abort(); }

void faulty_exit(int64_t status) { exit((int)status); }

void faulty_hang(void) {
  for (volatile int forever = 1; forever;)
    ;
}

void faulty_sleep(double seconds) {
  struct timespec wait = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&wait, 0);
}
