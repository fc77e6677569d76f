// The code segment as a program of its own, as the source has it: one line with the size of the
// code segment, the run time without initialisation, and n.
#ifndef CODE_MAIN_H
#define CODE_MAIN_H

static const char code_usage[] =
    "usage: code_segment [--pattern PATTERN] [--pages loaded|4k|thp|collapse|hugetlb]\n"
    "                    [--steps S] [--seed S] [--perf-map] [--smaps] N\n"
    "Run random opcodes through N cases and print\n"
    "    (size of code segment in bytes, run time in seconds without initialisation, N)\n"
    "PATTERN: random (N cases side by side, the default), page (one case in each of N pages),\n"
    "chase (a ring of N jumps, one in each page), line (the same ring, one in each 64 bytes).\n"
#ifdef CODE_SWITCH
    "compiled (N cases of a switch that the compiler made).\n"
#endif
    "--pages puts the code on pages of a kind (default: as loaded; for rings 4k). --steps: how\n"
    "many opcodes or jumps (default: about a second's). --perf-map writes the cases' names to\n"
    "/tmp/perf-PID.map for a profiler. --smaps writes to the standard error, before and after\n"
    "the run, 'range BEGIN END', /proc/self/smaps and 'end'.\n";

static const char *const code_patterns[] = {"random",   "page", "chase", "line",
#ifdef CODE_SWITCH
                                            "compiled",
#endif
                                            NULL};
static const char *const code_backings[] = {"loaded", "4k", "thp", "collapse", "hugetlb", NULL};

// The value of an option as a whole number up to most; ends the program where it is none.
static uint64_t code_number(const char *option, const char *text, uint64_t least, uint64_t most) {
  char *end = NULL;
  errno = 0;
  uint64_t value = text != NULL && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  if (end == NULL || *end != '\0' || errno != 0 || value < least || value > most) {
    fprintf(stderr,
            "code_segment: %s needs a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'\n",
            option, least, most, text == NULL ? "" : text);
    exit(2);
  }
  return value;
}

// The value of an option as one of some words; ends the program where it is none.
static int code_word(const char *option, const char *text, const char *const *words) {
  for (int i = 0; text != NULL && words[i] != NULL; i++)
    if (strcmp(text, words[i]) == 0)
      return i;
  fprintf(stderr, "code_segment: %s needs one of", option);
  for (int i = 0; words[i] != NULL; i++)
    fprintf(stderr, "%s %s", i > 0 ? "," : "", words[i]);
  fprintf(stderr, ", not '%s'\n", text == NULL ? "" : text);
  exit(2);
}

static void code_print_smaps(const uint64_t *range) {
  fprintf(stderr, "range %" PRIx64 " %" PRIx64 "\n", range[0], range[1]);
  FILE *smaps = fopen("/proc/self/smaps", "re");
  char *line = NULL;
  size_t size = 0;
  while (smaps != NULL && getline(&line, &size, smaps) > 0)
    fputs(line, stderr);
  free(line);
  if (smaps != NULL)
    fclose(smaps);
  fputs("end\n", stderr);
}

// Says which step of laying failed; what is commonly missing is named.
static int code_explain(int backing, size_t bytes, int64_t failed) {
  static const char *const stages[] = {"",          "the arguments", "mapping memory",
                                       "madvise()", "MADV_COLLAPSE", "mprotect()",
                                       "mremap()"};
  int error = (int)(failed % 65536);
  fprintf(stderr, "code_segment: the code cannot be put on %s pages: %s: %s",
          code_backings[backing], stages[failed / 65536], strerror(error));
  if (backing == TEXT_HUGETLB && error == ENOMEM)
    fprintf(stderr, " (its %zu pages of 2 MiB are not in the pool: sysctl vm.nr_hugepages)",
            bytes / TEXT_HUGE);
  fputs("\n", stderr);
  return 1;
}

int main(int argc, char **argv) {
  int pattern = CODE_RANDOM, backing = -1, perf_map = 0, smaps = 0;
  uint64_t steps = 0, seed = 1;
  const char *wanted = NULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0) {
      fputs(code_usage, stdout);
      return fflush(stdout) == 0 ? 0 : 1;
    }
    if (strcmp(argv[i], "--perf-map") == 0) {
      perf_map = 1;
    } else if (strcmp(argv[i], "--smaps") == 0) {
      smaps = 1;
    } else if (strcmp(argv[i], "--pattern") == 0) {
      i++;
      pattern = code_word("--pattern", argv[i], code_patterns);
    } else if (strcmp(argv[i], "--pages") == 0) {
      i++;
      backing = code_word("--pages", argv[i], code_backings);
    } else if (strcmp(argv[i], "--steps") == 0) {
      i++;
      steps = code_number("--steps", argv[i], 1, 1000000000000);
    } else if (strcmp(argv[i], "--seed") == 0) {
      i++;
      seed = code_number("--seed", argv[i], 0, UINT64_MAX);
    } else if (argv[i][0] == '-' || wanted != NULL) {
      fprintf(stderr, "code_segment: unknown %s '%s'\n%s",
              argv[i][0] == '-' ? "option" : "argument", argv[i], code_usage);
      return 2;
    } else {
      wanted = argv[i];
    }
  }
  if (wanted == NULL) {
    fprintf(stderr, "code_segment: N, the number of cases, is missing\n%s", code_usage);
    return 2;
  }
  int64_t n = (int64_t)code_number("N", wanted, 1, (uint64_t)code_most(pattern));
  if (backing < 0)
    backing = code_is_ring(pattern) ? TEXT_4K : TEXT_LOADED;
  if (code_is_ring(pattern) && backing == TEXT_LOADED) {
    fputs("code_segment: a ring of jumps is in no file: --pages cannot be loaded\n", stderr);
    return 2;
  }
  if (steps == 0)
    steps = code_is_ring(pattern) ? 300000000 : 30000000;
  uint64_t range[2];
  int64_t failed = code_lay(pattern, n, backing, seed, range);
  if (failed)
    return code_explain(backing, code_range_bytes(pattern, n), failed);
  if (perf_map) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int64_t error = code_write_map(path);
    if (error) {
      fprintf(stderr, "code_segment: %s cannot be written: %s\n", path, strerror((int)error));
      return 1;
    }
  }
  if (smaps)
    code_print_smaps(range);
  code_sample sample;
  code_run((int64_t)steps / 20, (int64_t)steps, 1, &sample);
  if (smaps)
    code_print_smaps(range);
  int64_t last_bytes = code_is_ring(pattern) ? RING_JUMP_BYTES : CODE_UNIT_BYTES;
  printf("(%" PRIu64 ", %.6f, %" PRId64 ")\n",
         sample.last_ip + (uint64_t)last_bytes - sample.first_ip,
         1e-9 * (double)sample.sample.time_ns, n);
  return fflush(stdout) == 0 ? 0 : 1;
}

#endif
