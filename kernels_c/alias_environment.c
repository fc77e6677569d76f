/*
 * A program whose speed may depend on the size of its environment; and, as a library, what starts
 * it.
 *
 * Stressed: the comparison of loads with earlier stores, by the low 12 bits of their addresses. The
 * loop is that of Jensen and Simonsen 2017 (after Mytkowicz et al. 2009): static i, j and k, and g
 * and inc on the stack, which the environment pushes down. Where &inc or &g agrees with &i, &j or
 * &k in the low 12 bits, loads look as if they depended on stores. Kept constant: the instructions,
 * the arguments, the number of environment variables, the calls on the way to the loop. The stack
 * is what it is when main is entered, except that "hold" as the third argument moves it to a place
 * within its page that is the same for every environment, 2 KiB from i, j and k.
 *
 * At -O0 nothing is kept in a register or removed; what counts the repetitions is declared
 * register, so that nothing but those five variables is in memory. The sums are printed: i, j and
 * k must be iterations * (repetitions + 1), of which the first is not timed.
 *
 *     alias_environment ITERATIONS REPETITIONS free|hold FILE
 *
 * writes one line to FILE ("-": standard output): the variables' addresses, the time of all
 * repetitions and of the fastest, the probes and accounts around that one, the size of the
 * environment, the CPU, and whether addresses are randomised, by the process's own word.
 *
 * The objects of the program can be had one by one (variants), to be linked in any order: the
 * others hold nothing but data that is in the way.
 *
 * @kernel
 * flags = ["-O0"]
 * fixed = true
 * bundle = ["library", "program"]
 * [variants.loop] # an object file
 * flags = ["-O0", "-c"]
 * bundle = ["object"]
 * [variants.table]
 * flags = ["-O0", "-c", "-DALIAS_DATA_BYTES=1036"]
 * bundle = ["object"]
 * [variants.buffer]
 * flags = ["-O0", "-c", "-DALIAS_DATA_BYTES=660"]
 * bundle = ["object"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getcpu
#endif
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/bracket.h"

// @interface
typedef struct {
  int64_t begin_ns, wall_ns; // from before the start to after the end
  int64_t status;            // as of waitpid
  char output[1024];         // what it wrote to its standard output, at most 1023 bytes
} alias_start_report;

// Start a program and wait for its end. Arguments and variables: strings one after the other, each
// ended by a zero byte, so many of them. A variable PERFLIB_PADDING is added, by which the
// environment has environment_bytes in all (the sum of all strings with their zero bytes). 0 or an
// error number: EINVAL where that is less than the variables need, ETIMEDOUT where the program was
// killed for taking longer than timeout_ms, E2BIG where the system does not take the environment.
int64_t alias_start(const char *program, const char *arguments, int64_t argument_count,
                    const char *variables, int64_t variable_count, int64_t environment_bytes,
                    int64_t randomised, int64_t timeout_ms, alias_start_report *out);
// @end

#if defined(ALIAS_DATA_BYTES)

// An object that is linked with the program, and only in the way.
#if ALIAS_DATA_BYTES == 1036
char alias_table[ALIAS_DATA_BYTES];
#else
char alias_buffer[ALIAS_DATA_BYTES];
#endif

#elif defined(PERFLIB_MAIN)

// --- the program ---------------------------------------------------------------------------------

extern char **environ;

static int i, j, k;

typedef struct {
  void *g, *inc;
  int64_t time_ns; // of all repetitions
  bracket now, fastest;
} loop_report;

static void microkernel(int iterations, int repetitions, loop_report *out) {
  int g = 0, inc = 1;
  register int last = iterations, left = repetitions;
  register loop_report *report = out;
  report->g = &g;
  report->inc = &inc;
  report->time_ns = 0;
  report->fastest.time_ns = INT64_MAX;
  bracket_begin(&report->now);
  for (; left >= 0; left--) {
    for (g = 0; g < last; g++) {
      i += inc;
      j += inc;
      k += inc;
    }
    bracket_end(&report->now);
    if (left < repetitions) { // the first warms up
      report->time_ns += report->now.time_ns;
      if (report->now.time_ns < report->fastest.time_ns)
        report->fastest = report->now;
    }
    bracket_next(&report->now, &report->now);
  }
}

static int number(const char *text, int *value) {
  char *end = NULL;
  errno = 0;
  long found = strtol(text, &end, 10);
  *value = (int)found;
  return errno == 0 && end != text && *end == '\0' && found >= 1 && found <= 100000000;
}

static int64_t environment_size(void) {
  int64_t bytes = 0;
  for (char **variable = environ; *variable != NULL; variable++)
    bytes += (int64_t)strlen(*variable) + 1;
  return bytes;
}

int main(int argc, char **argv) {
  int iterations = 0, repetitions = 0;
  if (argc != 5 || !number(argv[1], &iterations) || !number(argv[2], &repetitions) ||
      (strcmp(argv[3], "free") != 0 && strcmp(argv[3], "hold") != 0)) {
    fputs("usage: alias_environment ITERATIONS REPETITIONS free|hold FILE\n", stderr);
    return 2;
  }
  if (strcmp(argv[3], "hold") == 0) {
    uintptr_t wanted = ((uintptr_t)&i & ~(uintptr_t)15) + 2048;
    size_t down = ((uintptr_t)__builtin_frame_address(0) - wanted) & 4095;
    volatile char *place = alloca(down + 16);
    place[0] = 0;
  }
  int cpu = sched_getcpu();
  loop_report loop;
  microkernel(iterations, repetitions, &loop);
  bracket fastest = loop.fastest;
  FILE *out = strcmp(argv[4], "-") == 0 ? stdout : fopen(argv[4], "we");
  if (out == NULL) {
    perror(argv[4]);
    return 1;
  }
  int person = personality(0xffffffff);
  fprintf(out,
          "i=%lu j=%lu k=%lu g=%lu inc=%lu time_ns=%ld least_ns=%ld cpu_time_ns=%ld "
          "run_delay_ns=%ld throttled_ns=%ld probe_before_ns=%ld probe_after_ns=%ld "
          "chain_before_ns=%ld chain_after_ns=%ld environment_bytes=%ld cpu=%d aslr=%d "
          "sums=%d,%d,%d\n",
          (unsigned long)&i, (unsigned long)&j, (unsigned long)&k, (unsigned long)loop.g,
          (unsigned long)loop.inc, (long)loop.time_ns, (long)fastest.time_ns,
          (long)fastest.cpu_time_ns, (long)fastest.run_delay_ns, (long)fastest.throttled_ns,
          (long)fastest.probe_before_ns, (long)fastest.probe_after_ns,
          (long)fastest.chain_before_ns, (long)fastest.chain_after_ns, (long)environment_size(),
          cpu == sched_getcpu() ? cpu : -1, person == -1 ? -1 : !(person & ADDR_NO_RANDOMIZE), i, j,
          k);
  return fclose(out) == 0 ? 0 : 1;
}

#else

// --- what starts it ------------------------------------------------------------------------------

static const char padding[] = "PERFLIB_PADDING=";

// The strings of a block, and their size; room for one more and the NULL at the end.
static char **strings_of(const char *block, int64_t count, int64_t *bytes) {
  char **found = calloc((size_t)count + 2, sizeof *found);
  const char *place = block;
  for (int64_t n = 0; found != NULL && n < count; n++) {
    found[n] = (char *)place;
    place += strlen(place) + 1;
  }
  *bytes = place - block;
  return found;
}

// The least size of an environment with these variables.
static int64_t least_bytes(const char *variables, int64_t variable_count) {
  const char *place = variables;
  for (int64_t n = 0; n < variable_count; n++)
    place += strlen(place) + 1;
  return place - variables + (int64_t)sizeof padding;
}

// Read until the program closes its end: 0, or an error number.
static int64_t listen_to(int from, int64_t deadline_ns, char *output, size_t most) {
  size_t length = 0;
  for (;;) {
    int64_t left_ns = deadline_ns - clock_ns();
    struct pollfd ready = {from, POLLIN, 0};
    int answer = left_ns > 0 ? poll(&ready, 1, (int)(left_ns / 1000000) + 1) : 0;
    if (answer < 0 && errno == EINTR)
      continue;
    if (answer <= 0)
      return answer < 0 ? errno : ETIMEDOUT;
    char rest[512];
    ssize_t got = read(from, rest, sizeof rest);
    if (got < 0)
      return errno;
    if (got == 0)
      break;
    size_t kept = (size_t)got < most - 1 - length ? (size_t)got : most - 1 - length;
    memcpy(output + length, rest, kept);
    length += kept;
  }
  output[length] = '\0';
  return 0;
}

// The child inherits the personality, and nothing else of this process sees it meanwhile: only
// mappings made by execve are placed by it.
static int64_t spawn(pid_t *child, const char *program, char **arguments, char **environment,
                     int randomised, int out) {
  int before = personality(0xffffffff);
  if (before != -1)
    personality(
        (unsigned long)(randomised ? before & ~ADDR_NO_RANDOMIZE : before | ADDR_NO_RANDOMIZE));
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (error == 0)
      error = posix_spawn(child, program, &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
  }
  if (before != -1)
    personality((unsigned long)before);
  return error;
}

int64_t alias_start(const char *program, const char *arguments, int64_t argument_count,
                    const char *variables, int64_t variable_count, int64_t environment_bytes,
                    int64_t randomised, int64_t timeout_ms, alias_start_report *out) {
  int64_t padded = environment_bytes - least_bytes(variables, variable_count);
  if (padded < 0)
    return EINVAL;
  int64_t ignored, failed = ENOMEM;
  char **argv = strings_of(arguments, argument_count, &ignored);
  char **environment = strings_of(variables, variable_count, &ignored);
  char *variable = malloc(sizeof padding + (size_t)padded);
  int ends[2] = {-1, -1};
  if (argv != NULL && environment != NULL && variable != NULL) {
    memcpy(variable, padding, sizeof padding - 1);
    memset(variable + sizeof padding - 1, 'x', (size_t)padded);
    variable[sizeof padding - 1 + (size_t)padded] = '\0';
    environment[variable_count] = variable;
    failed = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
  }
  pid_t child = -1;
  out->begin_ns = clock_ns();
  if (failed == 0) {
    failed = spawn(&child, program, argv, environment, randomised != 0, ends[1]);
    close(ends[1]);
  }
  if (failed == 0) {
    failed =
        listen_to(ends[0], out->begin_ns + timeout_ms * 1000000, out->output, sizeof out->output);
    if (failed)
      kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
    out->status = status;
    out->wall_ns = clock_ns() - out->begin_ns;
  }
  if (ends[0] >= 0)
    close(ends[0]);
  free(variable);
  free(environment);
  free(argv);
  return failed;
}

#endif
