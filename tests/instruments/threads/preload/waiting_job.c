// A job that waits in every way that there is: the tests of the preloaded library know beforehand
// which lock, how often, and who held it. A lock is let go of only when the thread that wants it is
// seen to be blocked (or to spin), so nothing depends on time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t the_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t other_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t the_condition = PTHREAD_COND_INITIALIZER;
pthread_rwlock_t the_rwlock = PTHREAD_RWLOCK_INITIALIZER;
pthread_spinlock_t the_spinlock;
sem_t the_semaphore;
pthread_barrier_t the_barrier;
static volatile int waiter_tid, cleaned, ready;
static int failed;

#define CHECK(what)                                                                                \
  do {                                                                                             \
    if (!(what)) {                                                                                 \
      fprintf(stderr, "%d: %s (errno %d)\n", __LINE__, #what, errno);                              \
      failed = 1;                                                                                  \
    }                                                                                              \
  } while (0)

static char state_of(int tid) {
  char path[64], text[512] = {0};
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  FILE *file = fopen(path, "r");
  if (file == NULL)
    return 'X';
  size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  char *end = got ? strrchr(text, ')') : NULL;
  return end ? end[2] : 'X';
}

static void until_blocked(volatile int *tid) {
  while (*tid == 0 || state_of(*tid) != 'S')
    usleep(1000);
}

static struct timespec in_ms(clockid_t clock, int ms) {
  struct timespec time;
  clock_gettime(clock, &time);
  time.tv_nsec += ms * 1000000L;
  time.tv_sec += time.tv_nsec / 1000000000;
  time.tv_nsec %= 1000000000;
  return time;
}

static void *waiter(void *(*work)(void)) {
  pthread_setname_np(pthread_self(), "waiter");
  waiter_tid = (int)syscall(SYS_gettid);
  return work();
}

static pthread_t start(void *(*work)(void)) {
  pthread_t thread;
  waiter_tid = 0;
  CHECK(pthread_create(&thread, NULL, (void *(*)(void *))waiter, (void *)work) == 0);
  return thread;
}

static void *join(pthread_t thread) {
  void *result = NULL;
  while (pthread_tryjoin_np(thread, &result) == EBUSY) // which is no wait
    usleep(1000);
  return result;
}

// --- mutexes -----------------------------------------------------------------------------------

static void *lock_it(void) {
  long result = pthread_mutex_lock(&the_mutex);
  if (result == 0 || result == EOWNERDEAD)
    pthread_mutex_unlock(&the_mutex);
  return (void *)result;
}

static void *lock_it_timed(void) {
  struct timespec end = in_ms(CLOCK_REALTIME, 60000);
  long result = pthread_mutex_timedlock(&the_mutex, &end);
  pthread_mutex_unlock(&the_mutex);
  return (void *)result;
}

static void *lock_it_clock(void) {
  struct timespec end = in_ms(CLOCK_MONOTONIC, 60000);
  long result = pthread_mutex_clocklock(&the_mutex, CLOCK_MONOTONIC, &end);
  pthread_mutex_unlock(&the_mutex);
  return (void *)result;
}

static void *lock_it_late(void) {
  struct timespec end = in_ms(CLOCK_REALTIME, 5);
  return (void *)(long)pthread_mutex_timedlock(&the_mutex, &end);
}

static void contend(void *(*work)(void), long wanted) {
  CHECK(pthread_mutex_lock(&the_mutex) == 0);
  pthread_t thread = start(work);
  until_blocked(&waiter_tid);
  pthread_mutex_unlock(&the_mutex);
  CHECK((long)join(thread) == wanted);
}

static void mutex(void) {
  for (int i = 0; i < 3; i++)
    contend(lock_it, 0);
  contend(lock_it_timed, 0);
  contend(lock_it_clock, 0);
  CHECK(pthread_mutex_lock(&the_mutex) == 0);
  CHECK((long)join(start(lock_it_late)) == ETIMEDOUT);
  struct timespec bad = {0, -1}, end = in_ms(CLOCK_MONOTONIC, 1);
  CHECK(pthread_mutex_clocklock(&other_mutex, 77, &bad) == EINVAL);
  CHECK(pthread_mutex_trylock(&other_mutex) == 0); // it was not locked above
  CHECK(pthread_mutex_clocklock(&other_mutex, CLOCK_MONOTONIC, &end) == ETIMEDOUT);
}

static void make(int type, int robust, int protocol, int shared, pthread_mutex_t *mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, type);
  pthread_mutexattr_setrobust(&attributes, robust);
  pthread_mutexattr_setprotocol(&attributes, protocol);
  pthread_mutexattr_setpshared(&attributes, shared);
  CHECK(pthread_mutex_init(mutex, &attributes) == 0);
}

static void recursive(void) {
  make(PTHREAD_MUTEX_RECURSIVE, 0, 0, 0, &the_mutex);
  for (int i = 0; i < 3; i++)
    CHECK(pthread_mutex_lock(&the_mutex) == 0);
  pthread_t thread = start(lock_it);
  until_blocked(&waiter_tid);
  CHECK(pthread_mutex_unlock(&the_mutex) == 0);
  CHECK(pthread_mutex_unlock(&the_mutex) == 0);
  CHECK(pthread_tryjoin_np(thread, NULL) == EBUSY);
  CHECK(pthread_mutex_unlock(&the_mutex) == 0);
  CHECK((long)join(thread) == 0);
  CHECK(pthread_mutex_unlock(&the_mutex) == EPERM);
}

static void errorcheck(void) {
  make(PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0, &the_mutex);
  CHECK(pthread_mutex_lock(&the_mutex) == 0);
  CHECK(pthread_mutex_lock(&the_mutex) == EDEADLK);
  CHECK(pthread_mutex_unlock(&the_mutex) == 0);
  contend(lock_it, 0);
}

static void adaptive(void) {
  make(PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0, &the_mutex);
  contend(lock_it, 0);
}

static void inheriting(void) {
  make(PTHREAD_MUTEX_NORMAL, 0, PTHREAD_PRIO_INHERIT, 0, &the_mutex);
  contend(lock_it, 0);
}

static void *die_with_it(void) {
  pthread_mutex_lock(&the_mutex);
  ready = 1;
  return NULL;
}

// It dies without unlocking while another waits: the other gets it, and is told so once.
static void *die_while_wanted(void *unused) {
  (void)unused;
  pthread_setname_np(pthread_self(), "dying");
  pthread_mutex_lock(&the_mutex);
  ready = 1;
  until_blocked(&waiter_tid);
  return NULL;
}

static void robust(void) {
  make(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, 0, 0, &the_mutex);
  join(start(die_with_it));
  CHECK(pthread_mutex_lock(&the_mutex) == EOWNERDEAD);
  CHECK(pthread_mutex_consistent(&the_mutex) == 0);
  CHECK(pthread_mutex_unlock(&the_mutex) == 0);
  CHECK(pthread_mutex_lock(&the_mutex) == 0);
  CHECK(pthread_mutex_unlock(&the_mutex) == 0);
  pthread_t dying;
  ready = waiter_tid = 0;
  pthread_create(&dying, NULL, die_while_wanted, NULL);
  while (!ready)
    usleep(1000);
  CHECK((long)join(start(lock_it)) == EOWNERDEAD); // unlocked without having been mended
  join(dying);
  CHECK(pthread_mutex_lock(&the_mutex) == ENOTRECOVERABLE);
}

// The thread that has it is no more: whoever wants it waits until the job ends.
static void orphaned(void) {
  join(start(die_with_it));
  start(lock_it);
  until_blocked(&waiter_tid);
}

// --- the others --------------------------------------------------------------------------------

static void *wait_for_it(void) {
  pthread_mutex_lock(&the_mutex);
  while (!ready)
    pthread_cond_wait(&the_condition, &the_mutex);
  pthread_mutex_unlock(&the_mutex);
  return NULL;
}

static void condition(void) {
  pthread_t thread = start(wait_for_it);
  until_blocked(&waiter_tid);
  pthread_mutex_lock(&the_mutex);
  ready = 1;
  pthread_cond_signal(&the_condition);
  pthread_mutex_unlock(&the_mutex);
  join(thread);
  struct timespec end = in_ms(CLOCK_REALTIME, 5);
  pthread_mutex_lock(&the_mutex);
  CHECK(pthread_cond_timedwait(&the_condition, &the_mutex, &end) == ETIMEDOUT);
  end = in_ms(CLOCK_MONOTONIC, 5);
  CHECK(pthread_cond_clockwait(&the_condition, &the_mutex, CLOCK_MONOTONIC, &end) == ETIMEDOUT);
  pthread_mutex_unlock(&the_mutex);
}

static void *read_it(void) {
  pthread_rwlock_rdlock(&the_rwlock);
  pthread_rwlock_unlock(&the_rwlock);
  return NULL;
}

static void *write_it(void) {
  struct timespec end = in_ms(CLOCK_REALTIME, 60000);
  pthread_rwlock_timedwrlock(&the_rwlock, &end);
  pthread_rwlock_unlock(&the_rwlock);
  return NULL;
}

static void rwlock(void) {
  CHECK(pthread_rwlock_rdlock(&the_rwlock) == 0);
  join(start(read_it)); // readers do not wait for readers
  pthread_t thread = start(write_it);
  until_blocked(&waiter_tid);
  pthread_rwlock_unlock(&the_rwlock);
  join(thread);
  CHECK(pthread_rwlock_wrlock(&the_rwlock) == 0);
  thread = start(read_it);
  until_blocked(&waiter_tid);
  CHECK(pthread_rwlock_rdlock(&the_rwlock) == EDEADLK);
  struct timespec bad = {0, 2000000000};
  CHECK(pthread_rwlock_timedrdlock(&the_rwlock, &bad) == EINVAL);
  pthread_rwlock_unlock(&the_rwlock);
  join(thread);
}

static void *spin_for_it(void) {
  ready = 1;
  pthread_spin_lock(&the_spinlock);
  pthread_spin_unlock(&the_spinlock);
  return NULL;
}

static void spin(void) {
  pthread_spin_init(&the_spinlock, 0);
  pthread_spin_lock(&the_spinlock);
  pthread_t thread = start(spin_for_it);
  clockid_t clock;
  struct timespec before = {0, 0}, now = {0, 0};
  while (!ready)
    usleep(1000);
  pthread_getcpuclockid(thread, &clock);
  clock_gettime(clock, &before);
  do {
    usleep(1000);
    clock_gettime(clock, &now);
  } while ((now.tv_sec - before.tv_sec) * 1000000000 + now.tv_nsec - before.tv_nsec < 20000000);
  pthread_spin_unlock(&the_spinlock);
  join(thread);
}

static void *take_one(void) {
  sem_wait(&the_semaphore);
  return NULL;
}

static void semaphore(void) {
  sem_init(&the_semaphore, 0, 1);
  CHECK(sem_wait(&the_semaphore) == 0);
  pthread_t thread = start(take_one);
  until_blocked(&waiter_tid);
  errno = 5;
  CHECK(sem_post(&the_semaphore) == 0);
  join(thread);
  struct timespec end = in_ms(CLOCK_REALTIME, 5), bad = {0, -1};
  CHECK(sem_timedwait(&the_semaphore, &end) == -1 && errno == ETIMEDOUT);
  CHECK(sem_timedwait(&the_semaphore, &bad) == -1 && errno == EINVAL);
  sem_post(&the_semaphore);
  errno = 5;
  CHECK(sem_wait(&the_semaphore) == 0 && errno == 5);
}

static void *meet(void) { return (void *)(long)pthread_barrier_wait(&the_barrier); }

static void barrier(void) {
  pthread_barrier_init(&the_barrier, NULL, 2);
  pthread_t thread = start(meet);
  until_blocked(&waiter_tid);
  long last = pthread_barrier_wait(&the_barrier);
  CHECK(last + (long)join(thread) == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *nothing(void) {
  while (state_of(getpid()) != 'S') // until the main thread waits for this one
    usleep(1000);
  return (void *)42;
}

static void joining(void) {
  void *result = NULL;
  CHECK(pthread_join(start(nothing), &result) == 0 && result == (void *)42);
  CHECK(pthread_join(pthread_self(), NULL) == EDEADLK);
}

// --- cancelled ---------------------------------------------------------------------------------

static void clean(void *unused) {
  (void)unused;
  cleaned++;
  pthread_mutex_unlock(&the_mutex);
}

static void *wait_forever(void) {
  pthread_mutex_lock(&the_mutex);
  pthread_cleanup_push(clean, NULL);
  for (;;)
    pthread_cond_wait(&the_condition, &the_mutex);
  pthread_cleanup_pop(0);
  return NULL;
}

static void cancelled(void) {
  pthread_t thread = start(wait_forever);
  until_blocked(&waiter_tid);
  pthread_cancel(thread);
  CHECK(join(thread) == PTHREAD_CANCELED);
  CHECK(cleaned == 1 && pthread_mutex_trylock(&the_mutex) == 0);
  pthread_mutex_unlock(&the_mutex);
  contend(lock_it, 0); // all goes on as before
}

// --- processes ---------------------------------------------------------------------------------

static void wait_for(pid_t child) {
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void forked(void) {
  contend(lock_it, 0);
  pid_t child = fork();
  if (child == 0) {
    contend(lock_it, 0);
    contend(lock_it, 0);
    exit(failed);
  }
  wait_for(child);
  contend(lock_it, 0);
}

static const char *self;

static void execute(const char *program, const char *mode) {
  execl(program, program, mode, NULL);
  _exit(9);
}

static void executed(void) {
  pid_t child = vfork();
  if (child == 0)
    execute(self, "mutex");
  wait_for(child);
  contend(lock_it, 0);
  execute(self, "adaptive");
}

static void daemonised(void) {
  int ends[2];
  char letter;
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() != 0)
      _exit(0);
    for (int file = 0; file < 1024; file++)
      if (file != ends[1])
        close(file);
    CHECK(chdir("/") == 0);
    contend(lock_it, 0);
    _exit(write(ends[1], "x", 1) != 1); // without the C library's exit
  }
  close(ends[1]);
  wait_for(child);
  CHECK(read(ends[0], &letter, 1) == 1);
}

static void shared(void) {
  pthread_mutex_t *own =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int *child_ready = (int *)(own + 1);
  make(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, 0, PTHREAD_PROCESS_SHARED, own);
  pid_t child = fork();
  if (child == 0) {
    CHECK(pthread_mutex_lock(own) == 0);
    __atomic_store_n(child_ready, 1, __ATOMIC_SEQ_CST);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", getppid());
    for (char state = 0; state != 'S';) {
      char text[512] = {0};
      FILE *file = fopen(path, "r");
      if (file != NULL) {
        if (fread(text, 1, sizeof text - 1, file) > 0)
          state = strrchr(text, ')')[2];
        fclose(file);
      }
      usleep(1000);
    }
    _exit(failed); // with the lock
  }
  while (!__atomic_load_n(child_ready, __ATOMIC_SEQ_CST))
    ;
  CHECK(pthread_mutex_lock(own) == EOWNERDEAD);
  CHECK(pthread_mutex_consistent(own) == 0);
  CHECK(pthread_mutex_unlock(own) == 0);
  wait_for(child);
}

static void killed(void) {
  contend(lock_it, 0);
  pthread_mutex_lock(&the_mutex);
  start(lock_it);
  until_blocked(&waiter_tid);
  kill(getpid(), SIGKILL);
}

// --- odd things --------------------------------------------------------------------------------

static void *odd_name(void) {
  syscall(SYS_prctl, 15, "a;b \n\xff\xc3\xa9 (c)", 0, 0, 0);
  return lock_it();
}

static void odd(void) { contend(odd_name, 0); }

static void many(void) { // as many waits as fill some chunks
  sem_init(&the_semaphore, 0, 0);
  for (int i = 0; i < 6000; i++) {
    struct timespec past = {0, 0};
    sem_timedwait(&the_semaphore, &past);
  }
}

static void on_signal(int number) { (void)number; }

static void *burn(void) {
  struct timespec now;
  do {
    for (volatile int i = 0; i < 1000000; i++)
      ;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (now.tv_nsec < 60000000 && now.tv_sec == 0);
  return NULL;
}

static void signals(void) { // it uses every real-time signal
  join(start(burn));
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
    struct sigaction action = {.sa_handler = on_signal}, before;
    CHECK(sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
    CHECK(sigaction(number, &action, &before) == 0 && before.sa_handler == SIG_DFL);
    CHECK(sigaction(number, NULL, &before) == 0 && before.sa_handler == on_signal);
  }
  join(start(burn));
}

static void *wait_for_signals(void) {
  sigset_t all;
  int number = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  ready = 1;
  burn();
  CHECK(sigwait(&all, &number) == 0 && number == SIGUSR1);
  return NULL;
}

static void blocked(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  pthread_t thread = start(wait_for_signals);
  while (!ready)
    usleep(1000);
  pthread_kill(thread, SIGUSR1);
  join(thread);
}

static void opened(void) { // a library that comes later, and is gone before the end
  void *library = dlopen(getenv("LATE_LIBRARY"), RTLD_NOW);
  CHECK(library != NULL);
  if (library == NULL)
    return;
  void *found = dlsym(library, "late_wait");
  void (*late_wait)(void (*)(volatile int *), volatile int *);
  memcpy(&late_wait, &found, sizeof found);
  late_wait(until_blocked, &waiter_tid);
  dlclose(library);
}

static void burning(void) { join(start(burn)); }

static const struct {
  const char *name;
  void (*run)(void);
} modes[] = {
    {"mutex", mutex},
    {"recursive", recursive},
    {"errorcheck", errorcheck},
    {"adaptive", adaptive},
    {"inheriting", inheriting},
    {"robust", robust},
    {"orphaned", orphaned},
    {"condition", condition},
    {"rwlock", rwlock},
    {"spin", spin},
    {"semaphore", semaphore},
    {"barrier", barrier},
    {"joining", joining},
    {"cancelled", cancelled},
    {"forked", forked},
    {"executed", executed},
    {"daemonised", daemonised},
    {"shared", shared},
    {"killed", killed},
    {"odd", odd},
    {"many", many},
    {"signals", signals},
    {"blocked", blocked},
    {"opened", opened},
    {"burning", burning},
};

int main(int count, char **words) {
  self = words[0];
  pthread_setname_np(pthread_self(), "holder");
  for (size_t i = 0; count > 1 && i < sizeof modes / sizeof modes[0]; i++)
    if (strcmp(words[1], modes[i].name) == 0) {
      modes[i].run();
      return failed;
    }
  return 2;
}
