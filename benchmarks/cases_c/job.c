/*
 * A job as users have them: it computes event after event and says so in a log. Linked with one of
 * functions.c, code.c and layout.c, which have the work.
 *
 *     job CPU lines|buffered FIRST EVENTS SEED
 *
 * What is special about the work happens on that CPU only (-1: nowhere). With "lines" each line is
 * written at once and an event's last line has its time; with "buffered" all lines are written when
 * the job ends, and none has a time. The checksum in the last line depends on all that was
 * computed.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job.h"

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 6 || (strcmp(argv[2], "lines") != 0 && strcmp(argv[2], "buffered") != 0)) {
    fputs("usage: job CPU lines|buffered FIRST EVENTS SEED\n", stderr);
    return 2;
  }
  int special_cpu = atoi(argv[1]);
  int buffered = strcmp(argv[2], "buffered") == 0;
  long first = atol(argv[3]), events = atol(argv[4]);
  uint64_t seed = strtoull(argv[5], NULL, 10);
  setvbuf(stdout, NULL, _IOFBF, 1 << 20);
  double checksum = 0.0;
  for (long event = first; event < first + events; event++) {
    printf("AthenaEventLoopMgr INFO ===>>> start processing event #%ld\n", event);
    if (!buffered)
      fflush(stdout);
    double begin_s = now_s();
    checksum += work(seed * 1000003 + (uint64_t)event, sched_getcpu() == special_cpu);
    if (buffered)
      printf("AthenaEventLoopMgr INFO ===>>> done processing event #%ld\n", event);
    else
      printf("G4SimTimer INFO Event nr. %ld took %.6f s\n", event, now_s() - begin_s);
    if (!buffered)
      fflush(stdout);
  }
  printf("checksum %.17g\n", checksum);
  return fflush(stdout) == 0 ? 0 : 1;
}
