/* Each kind of lock is held until another thread waits for it; then it is released. */
#include "waiting.h"

enum { PLAIN, RECURSIVE, ADAPTIVE, HEAP, CONDITION, READERS, SEMAPHORE, BARRIER, KINDS };
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, robust, *heap;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t readers = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static pthread_barrier_t barrier;
static int ready, died;
static volatile pid_t waiter;

APART void through(pthread_mutex_t *m) {
  if (pthread_mutex_lock(m) == EOWNERDEAD) {
    died++;
    pthread_mutex_consistent(m);
  }
  pthread_mutex_unlock(m);
}

APART void take(int kind) {
  switch (kind) {
  case PLAIN:
    through(&plain);
    break;
  case RECURSIVE:
    pthread_mutex_lock(&recursive);
    through(&recursive);
    pthread_mutex_unlock(&recursive);
    break;
  case ADAPTIVE:
    through(&adaptive);
    break;
  case HEAP:
    through(heap);
    break;
  case CONDITION:
    pthread_mutex_lock(&guard);
    while (!ready)
      pthread_cond_wait(&condition, &guard);
    ready = 0;
    pthread_mutex_unlock(&guard);
    break;
  case READERS:
    pthread_rwlock_rdlock(&readers);
    pthread_rwlock_unlock(&readers);
    break;
  case SEMAPHORE:
    sem_wait(&semaphore);
    break;
  case BARRIER:
    pthread_barrier_wait(&barrier);
    break;
  case KINDS:
    through(&robust);
    break;
  }
}

static void *wait_for_it(void *unused) {
  name("waiter");
  waiter = gettid();
  tell(done_pipe, 1);
  for (int kind; (kind = hear(go_pipe)) >= 0; tell(done_pipe, 1))
    take(kind);
  return unused;
}

static void hold(int kind) {
  switch (kind) {
  case PLAIN:
    pthread_mutex_lock(&plain);
    break;
  case RECURSIVE:
    pthread_mutex_lock(&recursive);
    pthread_mutex_lock(&recursive);
    break;
  case ADAPTIVE:
    pthread_mutex_lock(&adaptive);
    break;
  case HEAP:
    pthread_mutex_lock(heap);
    break;
  case READERS:
    pthread_rwlock_wrlock(&readers);
    break;
  }
}

static void release(int kind) {
  switch (kind) {
  case PLAIN:
    pthread_mutex_unlock(&plain);
    break;
  case RECURSIVE:
    pthread_mutex_unlock(&recursive);
    pthread_mutex_unlock(&recursive);
    break;
  case ADAPTIVE:
    pthread_mutex_unlock(&adaptive);
    break;
  case HEAP:
    pthread_mutex_unlock(heap);
    break;
  case CONDITION:
    pthread_mutex_lock(&guard);
    ready = 1;
    pthread_mutex_unlock(&guard);
    pthread_cond_signal(&condition);
    break;
  case READERS:
    pthread_rwlock_unlock(&readers);
    break;
  case SEMAPHORE:
    sem_post(&semaphore);
    break;
  case BARRIER:
    pthread_barrier_wait(&barrier);
    break;
  }
}

static void *die_with_it(void *unused) {
  name("owner");
  pthread_mutex_lock(&robust);
  tell(go_pipe, KINDS);
  until_waiting(waiter);
  return unused; /* without giving it back */
}

int main(int n, char **words) {
  int turns = n > 1 ? atoi(words[1]) : 1;
  pthread_t thread, owner;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&robust, &attributes);
  heap = malloc(sizeof *heap);
  pthread_mutex_init(heap, NULL);
  sem_init(&semaphore, 0, 0);
  pthread_barrier_init(&barrier, NULL, 2);
  if (pipe(go_pipe) || pipe(done_pipe))
    return 1;
  name("holder");
  pthread_create(&thread, NULL, wait_for_it, NULL);
  hear(done_pipe);
  for (int turn = 0; turn < turns; turn++)
    for (int kind = 0; kind < KINDS; kind++) {
      hold(kind);
      tell(go_pipe, kind);
      until_waiting(waiter);
      release(kind);
      hear(done_pipe);
    }
  for (int turn = 0; turn < turns; turn++) {
    pthread_create(&owner, NULL, die_with_it, NULL);
    hear(done_pipe);
    pthread_join(owner, NULL);
  }
  close(go_pipe[1]);
  pthread_join(thread, NULL);
  printf("%d\n", died);
  return 0;
}
