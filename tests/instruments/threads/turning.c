/* Two threads that wake each other by semaphores. */
#include "waiting.h"

static sem_t ping, pong;
static int number, many;
static void *answer(void *unused) {
  name("answer");
  for (int i = 0; i < many; i++) {
    sem_wait(&ping);
    sem_post(&pong);
  }
  return unused;
}

static void turns(int n) {
  pthread_t thread;
  many = n;
  pthread_create(&thread, NULL, answer, NULL);
  for (int i = 0; i < n; i++) {
    sem_post(&ping);
    sem_wait(&pong);
  }
  pthread_join(thread, NULL);
}

/* So many turns between two threads for every line of the input. */
int main(void) {
  sem_init(&ping, 0, 0);
  sem_init(&pong, 0, 0);
  puts("ready");
  fflush(stdout);
  while (scanf("%d", &number) == 1) {
    turns(number);
    puts("turned");
    fflush(stdout);
  }
  return 0;
}
