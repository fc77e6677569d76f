"""Small jobs in C whose waits are known: how many, for which lock, who ends them."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

TURNS = 4

_BEGIN = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))

static void name(const char *text) { prctl(PR_SET_NAME, text); }

/* Until a thread of this process waits for a futex. */
static void until_waiting(pid_t tid) {
  char path[64], text[32];
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
  for (;;) {
    int file = open(path, O_RDONLY);
    ssize_t n = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
      close(file);
    text[n > 0 ? n : 0] = 0;
    if (n > 0 && strtol(text, NULL, 10) == SYS_futex && strncmp(text, "running", 7) != 0)
      return;
    usleep(200);
  }
}

static int go_pipe[2], done_pipe[2];
static void tell(int *to, int what) { if (write(to[1], &what, sizeof what) < 0) abort(); }
static int hear(int *from) { int what; return read(from[0], &what, sizeof what) > 0 ? what : -1; }
"""

LOCKS = (
    _BEGIN
    + r"""
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
  case PLAIN: through(&plain); break;
  case RECURSIVE:
    pthread_mutex_lock(&recursive);
    through(&recursive);
    pthread_mutex_unlock(&recursive);
    break;
  case ADAPTIVE: through(&adaptive); break;
  case HEAP: through(heap); break;
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
  case SEMAPHORE: sem_wait(&semaphore); break;
  case BARRIER: pthread_barrier_wait(&barrier); break;
  case KINDS: through(&robust); break;
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
  case PLAIN: pthread_mutex_lock(&plain); break;
  case RECURSIVE: pthread_mutex_lock(&recursive); pthread_mutex_lock(&recursive); break;
  case ADAPTIVE: pthread_mutex_lock(&adaptive); break;
  case HEAP: pthread_mutex_lock(heap); break;
  case READERS: pthread_rwlock_wrlock(&readers); break;
  }
}

static void release(int kind) {
  switch (kind) {
  case PLAIN: pthread_mutex_unlock(&plain); break;
  case RECURSIVE: pthread_mutex_unlock(&recursive); pthread_mutex_unlock(&recursive); break;
  case ADAPTIVE: pthread_mutex_unlock(&adaptive); break;
  case HEAP: pthread_mutex_unlock(heap); break;
  case CONDITION:
    pthread_mutex_lock(&guard);
    ready = 1;
    pthread_mutex_unlock(&guard);
    pthread_cond_signal(&condition);
    break;
  case READERS: pthread_rwlock_unlock(&readers); break;
  case SEMAPHORE: sem_post(&semaphore); break;
  case BARRIER: pthread_barrier_wait(&barrier); break;
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
"""
)

FAMILY = (
    _BEGIN
    + r"""
static int end_pipe[2];
static void *odd(void *text) {
  name(text);
  usleep(2000);
  return NULL;
}

int main(int n, char **words) {
  static char *names[] = {"two words", "==> next_comm=x", "line\nend", "\xff\xfe bytes", ""};
  if (n > 2) { /* executed by one of its children, or by the daemon */
    usleep(5000);
    return 0;
  }
  if (n < 2 || pipe2(end_pipe, O_CLOEXEC))
    return 1;
  for (int i = 0; i < 5; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, odd, names[i]);
    pthread_join(thread, NULL);
  }
  pid_t forked = fork();
  if (forked == 0) {
    name("forked");
    usleep(5000);
    _exit(0);
  }
  pid_t executed = fork();
  if (executed == 0) {
    execl(words[1], words[1], "x", "y", NULL);
    _exit(1);
  }
  pid_t between = fork();
  if (between == 0) {
    setsid();
    if (fork())
      _exit(0);
    name("daemon");
    usleep(5000);
    if (fork() == 0) {
      name("daemon's child");
      usleep(5000);
      _exit(0);
    }
    wait(NULL);
    _exit(0); /* which closes end_pipe */
  }
  waitpid(forked, NULL, 0);
  waitpid(executed, NULL, 0);
  waitpid(between, NULL, 0);
  close(end_pipe[1]);
  hear(end_pipe);
  return 0;
}
"""
)

TURNING = (
    _BEGIN
    + r"""
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
"""
)

_SOURCES = {"locks": LOCKS, "family": FAMILY, "turning": TURNING}


@functools.cache
def compiled(program: str, *, strip: bool = False) -> Path:
    """A program, compiled into a folder that lasts as long as this process."""
    folder = Path(_folder().name)
    source = folder / f"{program}.c"
    source.write_text(_SOURCES[program])
    out = folder / (f"{program}-stripped" if strip else program)
    flags = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]
    subprocess.run(["gcc", "-w", *flags, *(["-s"] if strip else []), "-o", out, source], check=True)
    return out


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
