// Two threads count, LOOPS times: in one variable, in two on one line, or on a line each.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LOOPS = 500000 };

static struct {
  volatile long first, second;
  char apart[112];
  volatile long third;
} __attribute__((aligned(128))) counters;

static atomic_int ready; // a thread that sleeps would begin when the other has ended

static void *count(void *counter) {
  ready++;
  while (ready < 2)
    ;
  for (int i = 0; i < LOOPS; i++)
    ++*(volatile long *)counter;
  return NULL;
}

int main(int argc, char **argv) {
  volatile long *other = &counters.third;
  if (argc > 1 && strcmp(argv[1], "one") == 0)
    other = &counters.first;
  if (argc > 1 && strcmp(argv[1], "line") == 0)
    other = &counters.second;
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, count, (void *)&counters.first);
  pthread_create(&threads[1], NULL, count, (void *)other);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  return 0;
}
