/* Two threads take samples of two names, and of another file's. */
#include "perflib_bracket.h"
#include <pthread.h>

void other_file(void);

static void *work(void *name) {
  volatile int sum = 0;
  for (int i = 0; i < 30; i++) {
    PERFLIB_SAMPLE((const char *)name) {
      for (int k = 0; k < 3000; k++)
        sum = sum + k;
    }
    PERFLIB_SAMPLE("a, \"quoted\"\nname")
    for (int k = 0; k < 3000; k++)
      sum = sum + k;
    other_file();
  }
  return NULL;
}

int main(void) {
  char first[] = "first", second[] = "second";
  pthread_t threads[2];
  pthread_create(threads, NULL, work, first);
  pthread_create(threads + 1, NULL, work, second);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
  if (fork() == 0) { // has its parent's samples, and writes its own alone
    PERFLIB_SAMPLE("child") {}
    exit(0);
  }
  return 0;
}
