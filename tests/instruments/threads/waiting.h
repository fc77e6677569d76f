/* What the small jobs have in common: names of threads, pipes, and who waits for a futex. */
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
static void tell(int *to, int what) {
  if (write(to[1], &what, sizeof what) < 0)
    abort();
}
static int hear(int *from) {
  int what;
  return read(from[0], &what, sizeof what) > 0 ? what : -1;
}
