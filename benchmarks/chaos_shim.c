// Preloaded into a command and all that it starts: a clock that is stepped, and a disk that is slow
// or refuses to be written. The file that CHAOS_SHIM names holds three numbers, changed at any
// moment from outside; the disk is what lies below the folder that CHAOS_DISK names.
//
// It stands between a program and the C library: what a kernel or a program without one does itself
// goes past it. Python, DuckDB and the compilers go through it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
  int64_t clock_step_s, delay_us, error;
};

static const struct control NONE;
static const struct control *volatile control = &NONE;
static char disk[PATH_MAX];

#define NEXT(name) ((__typeof__(&name))next(#name))

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CHAOS_SHIM"), *folder = getenv("CHAOS_DISK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0 || !folder)
    return;
  snprintf(disk, sizeof disk, "%s", folder);
  void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED)
    control = mapped;
  close(file);
}

// Waits as the disk does; whether it refuses, with errno set.
static int refused(const char *path) {
  if ((!control->delay_us && !control->error) || strncmp(path, disk, strlen(disk)))
    return 0;
  if (control->delay_us) {
    struct timespec pause = {control->delay_us / 1000000, control->delay_us % 1000000 * 1000};
    nanosleep(&pause, NULL);
  }
  errno = (int)control->error;
  return errno != 0;
}

static int refused_file(int file) {
  if (!control->delay_us && !control->error)
    return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0)
    return 0;
  path[length] = 0;
  return refused(path);
}

// --- the clock -----------------------------------------------------------------------------------

int clock_gettime(clockid_t clock, struct timespec *now) {
  int answer = NEXT(clock_gettime)(clock, now);
  if (!answer && clock == CLOCK_REALTIME)
    now->tv_sec += control->clock_step_s;
  return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int answer = NEXT(gettimeofday)(now, zone);
  if (!answer)
    now->tv_sec += control->clock_step_s;
  return answer;
}

time_t time(time_t *now) {
  struct timespec here;
  clock_gettime(CLOCK_REALTIME, &here);
  if (now)
    *now = here.tv_sec;
  return here.tv_sec;
}

// --- the disk ------------------------------------------------------------------------------------

ssize_t write(int file, const void *data, size_t bytes) {
  return refused_file(file) ? -1 : NEXT(write)(file, data, bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t at) {
  return refused_file(file) ? -1 : NEXT(pwrite)(file, data, bytes, at);
}

ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t at) {
  return refused_file(file) ? -1 : NEXT(pwrite64)(file, data, bytes, at);
}

int fsync(int file) { return refused_file(file) ? -1 : NEXT(fsync)(file); }

int fdatasync(int file) { return refused_file(file) ? -1 : NEXT(fdatasync)(file); }

int ftruncate(int file, off_t bytes) {
  return refused_file(file) ? -1 : NEXT(ftruncate)(file, bytes);
}

int ftruncate64(int file, off64_t bytes) {
  return refused_file(file) ? -1 : NEXT(ftruncate64)(file, bytes);
}

int rename(const char *from, const char *to) { return refused(to) ? -1 : NEXT(rename)(from, to); }

int unlink(const char *path) { return refused(path) ? -1 : NEXT(unlink)(path); }

int mkdir(const char *path, mode_t mode) { return refused(path) ? -1 : NEXT(mkdir)(path, mode); }

#define OPEN(name)                                                                                 \
  int name(const char *path, int flags, ...) {                                                     \
    va_list rest;                                                                                  \
    va_start(rest, flags);                                                                         \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                        \
    va_end(rest);                                                                                  \
    if (flags & (O_WRONLY | O_RDWR | O_CREAT) && refused(path))                                    \
      return -1;                                                                                   \
    return NEXT(name)(path, flags, mode);                                                          \
  }

OPEN(open)
OPEN(open64)
