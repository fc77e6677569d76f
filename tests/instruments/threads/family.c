/* Threads of odd names; a child that is forked, one that executes a program, and a daemon. */
#include "waiting.h"

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
