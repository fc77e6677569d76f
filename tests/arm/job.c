/* The work of loop.S in threads or in children: job threads|children HOW_MANY ROUNDS.
 *
 * They work one after another, so that what the C library does while it waits is small.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void work(long rounds);

static long rounds;
static char buffer[1 << 20];

static void *thread(void *unused) {
  work(rounds);
  return unused;
}

int main(int argc, char **argv) {
  rounds = argc > 3 ? atol(argv[3]) : 0;
  if (rounds <= 0)
    return 2;
  int zeros = open("/dev/zero", O_RDONLY);
  for (int left = atoi(argv[2]); left > 0; left--) {
    if (strcmp(argv[1], "mixed") == 0) { // user space alone, and hardly any of it, without a rhythm
      static unsigned long random = 1;
      random = random * 6364136223846793005ul + 1442695040888963407ul;
      if (random >> 63)
        work(rounds);
      else if (read(zeros, buffer, sizeof buffer) != sizeof buffer)
        return 1;
    } else if (strcmp(argv[1], "threads") == 0) {
      pthread_t one;
      if (pthread_create(&one, NULL, thread, NULL) != 0 || pthread_join(one, NULL) != 0)
        return 1;
    } else {
      pid_t child = fork();
      if (child == 0) {
        work(rounds);
        _exit(0);
      }
      if (child < 0 || waitpid(child, NULL, 0) != child)
        return 1;
    }
  }
  return 0;
}
