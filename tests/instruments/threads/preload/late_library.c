/* A library that is opened while the job runs: one thread waits for its lock. */
#include <pthread.h>
#include <unistd.h>
extern pthread_mutex_t the_mutex;
static volatile int *tid;
pthread_mutex_t late_mutex = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *unused) {
  (void)unused;
  *tid = gettid();
  pthread_mutex_lock(&late_mutex);
  pthread_mutex_unlock(&late_mutex);
  return 0;
}
void late_wait(void (*until)(volatile int *), volatile int *place) {
  pthread_t thread;
  tid = place;
  *tid = 0;
  pthread_mutex_lock(&late_mutex);
  pthread_create(&thread, 0, work, 0);
  until(tid);
  pthread_mutex_unlock(&late_mutex);
  pthread_join(thread, 0);
}
