/* One thread holds a lock on the heap, another works beside it; conditions, barriers, semaphores,
 * read-write locks and timed waits pass by; the job prints what it computed. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t *heap_lock;
static pthread_rwlock_t shared_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static sem_t tokens;
static int turn;
static long sum;
__attribute__((noinline)) void spend(double seconds) {
  struct timespec begin, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  do
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  while ((now.tv_sec - begin.tv_sec) + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
}
__attribute__((noinline)) void critical(long self) {
  pthread_mutex_lock(heap_lock);
  spend(0.002);
  sum += self;
  pthread_mutex_unlock(heap_lock);
}
static void *work(void *argument) {
  long self = (long)argument;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (int i = 0; i < 10; i++) {
    critical(self);
    pthread_barrier_wait(&together);
    pthread_rwlock_rdlock(&shared_lock);
    pthread_rwlock_unlock(&shared_lock);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 1000000;
    if (soon.tv_nsec >= 1000000000) {
      soon.tv_nsec -= 1000000000;
      soon.tv_sec++;
    }
    pthread_mutex_lock(heap_lock);
    while (turn != self)
      if (pthread_cond_timedwait(&ready, heap_lock, &soon) == ETIMEDOUT)
        break;
    turn = 1 - self;
    pthread_cond_broadcast(&ready);
    pthread_mutex_unlock(heap_lock);
    sem_post(&tokens);
    sem_wait(&tokens);
  }
  return NULL;
}
int main(int argc, char **argv) {
  heap_lock = malloc(sizeof *heap_lock);
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(heap_lock, &kind);
  pthread_barrier_init(&together, NULL, 2);
  sem_init(&tokens, 0, 0);
  if (argc > 1 && argv[1][0] == 'f' && fork() == 0)
    _exit(0);
  if (argc > 1 && argv[1][0] == 'k')
    raise(SIGKILL);
  pthread_t threads[2];
  for (long i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, work, (void *)i);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  printf("sum %ld\n", sum);
  fflush(stdout);
  if (argc > 1 && argv[1][0] == '_')
    _exit(0);
  return 0;
}
